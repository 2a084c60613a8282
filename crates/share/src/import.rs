//! Objects of elsewhere are put into a share, one after another.
//!
//! 1. An object that is there as it is stays, but for large files with several names: an import
//!    that ended in the middle is begun anew, and writes what is missing. Zeros are holes.
//! 2. An object gives way to another of its name, and a file with several names to a new one, so
//!    that no other name changes. A directory with entries gives way to nothing.
//! 3. No symbolic link is followed.
//! 4. Times of directories are set at the end. It is no single transaction.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};

use format::share::inode::FileKind;
use units::FileId;

use crate::attributes::{Attributes, SetAttributes, SetTime};
use crate::blocks::{Present, Wait};
use crate::changer::{Changer, not_overtaken};
use crate::error::{Error, ErrorKind, Result, require};
use crate::operations::create::{Create, Like};
use crate::part::{Part, chunk_bytes, differences, write_part};
use crate::path::{DEPTH_MAX, joined};
use crate::permission::Credentials;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;

/// Paths that are told one by one.
const TOLD_MAX: usize = 1000;
/// Objects that may be left out.
const LEFT_OUT_MAX: usize = 1 << 20;

/// An object that is imported.
#[derive(Clone, Copy, Debug)]
pub enum Import<'e> {
    /// A directory.
    Directory,
    /// A file with so many bytes of content.
    File(u64),
    /// Another name of what these names, from the top, lead to.
    Link(&'e [&'e [u8]]),
    /// Anything else.
    Other(Like<'e>),
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Names that were not there.
    pub created: u64,
    /// Those that were another's, or whose object had other bytes or attributes.
    pub overwritten: u64,
    /// Those that were there as they are.
    pub kept: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// Objects that were left out: what is there does not give way to them, what they are a further
    /// name of is not there or was left out, or a share cannot have them.
    pub left_out: u64,
    /// The first of their paths, and why.
    pub told: Vec<(Vec<u8>, ErrorKind)>,
}

/// Why an import ended.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It was told to.
    #[error("stopped")]
    Stopped,
    /// The content did not come.
    #[error(transparent)]
    Content(#[from] io::Error),
    /// The share did not take it.
    #[error(transparent)]
    Share(#[from] Error),
    /// More was left out than can be remembered.
    #[error("too much is left out")]
    LeftOut,
}

type Done<T = ()> = std::result::Result<T, ImportError>;

/// The change at a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Created,
    Overwritten,
    Kept,
}

/// An import under way.
pub struct Importing<'i, P> {
    changer: &'i Changer<'i, P>,
    goes_on: &'i dyn Fn() -> bool,
    chunk_bytes: usize,
    done: Imported,
    /// The directory that was found last, by its path.
    last: (Vec<u8>, FileId),
    /// Objects with several names that stayed, each for one name: another is another object.
    taken: HashSet<FileId>,
    /// Hashes of the paths of what was left out: further names of it are, too.
    left_out: HashSet<u64>,
    /// Directories whose attributes are set at the end.
    directories: HashMap<FileId, SetAttributes>,
}

impl<'i, P: Present> Importing<'i, P> {
    /// Begins one, which ends when `goes_on` says so.
    ///
    /// # Errors
    /// Those of reading.
    pub fn begin(changer: &'i Changer<'i, P>, goes_on: &'i dyn Fn() -> bool) -> Result<Self> {
        let top = changer.share.tree(Wait::May)?.top()?;
        Ok(Importing {
            changer,
            goes_on,
            chunk_bytes: chunk_bytes(changer.share.write_bytes_max()),
            done: Imported::default(),
            last: (Vec::new(), top),
            taken: HashSet::new(),
            left_out: HashSet::new(),
            directories: HashMap::new(),
        })
    }

    /// Puts an object at a path: its names from the top. Directories above it are made if they are
    /// not there. All of its content is read, unless it is left out.
    ///
    /// # Errors
    /// Those of the content, and of [`Changer::change`]. All that was done until then stays.
    pub fn put(
        &mut self,
        names: &[&[u8]],
        what: Import<'_>,
        set: &SetAttributes,
        content: &mut dyn Read,
    ) -> Done {
        self.check_goes_on()?;
        match self.try_put(names, what, set, content) {
            Err(ImportError::Share(error)) if is_of_one_object(error.kind, what) => {
                self.done.left_out += 1;
                if self.done.told.len() < TOLD_MAX {
                    self.done.told.push((joined(names), error.kind));
                }
                self.leave_out(names)
            }
            Ok(()) if !self.left_out.is_empty() => {
                self.left_out.remove(&hash_of(names));
                Ok(())
            }
            put => put,
        }
    }

    /// Remembers that an object is left out, so that further names of it are, too.
    ///
    /// # Errors
    /// `LeftOut` if it is one too many.
    pub fn leave_out(&mut self, names: &[&[u8]]) -> Done {
        self.left_out.insert(hash_of(names));
        if self.left_out.len() > LEFT_OUT_MAX { Err(ImportError::LeftOut) } else { Ok(()) }
    }

    /// Sets the attributes of directories; the outcome.
    ///
    /// # Errors
    /// Those of [`Changer::change`].
    pub fn finish(mut self) -> Result<Imported> {
        for (id, set) in std::mem::take(&mut self.directories) {
            match self.set(id, &set) {
                // Somebody else removed it.
                Err(error) if error.kind == ErrorKind::Stale => {}
                set => set?,
            }
        }
        Ok(self.done)
    }

    fn try_put(
        &mut self,
        names: &[&[u8]],
        what: Import<'_>,
        set: &SetAttributes,
        content: &mut dyn Read,
    ) -> Done {
        require(names.len() <= DEPTH_MAX, ErrorKind::NameTooLong)?;
        let Some((name, above)) = names.split_last() else {
            require(matches!(what, Import::Directory), ErrorKind::Invalid)?;
            let top = self.changer.share.tree(Wait::May)?.top()?;
            return Ok(self.directory(top, Effect::Kept, set)?);
        };
        let parent = self.parent(above)?;
        match what {
            Import::Directory => {
                let (id, effect) = self.make_directory(parent, name, set)?;
                self.directory(id, effect, set)?;
            }
            Import::File(size) => self.file(parent, name, size, set, content)?,
            Import::Link(to) => {
                require(!self.left_out.contains(&hash_of(to)), ErrorKind::NotFound)?;
                let effect = not_overtaken(|| self.link(parent, name, to))?;
                self.count(effect);
            }
            Import::Other(like) => {
                let effect = not_overtaken(|| self.other(parent, name, set, like))?;
                self.count(effect);
            }
        }
        Ok(())
    }

    fn check_goes_on(&self) -> Done {
        if (self.goes_on)() { Ok(()) } else { Err(ImportError::Stopped) }
    }

    /// The directory of these names; what is missing of it is made.
    fn parent(&mut self, names: &[&[u8]]) -> Result<FileId> {
        let path = joined(names);
        if self.last.0 == path
            && self.changer.share.tree(Wait::May)?.attributes(self.last.1).is_ok()
        {
            return Ok(self.last.1);
        }
        let mut id = self.changer.share.tree(Wait::May)?.top()?;
        for name in names {
            id = match self.changer.look(id, name)? {
                Some(there) => {
                    require(there.kind == FileKind::Directory, ErrorKind::NotDirectory)?;
                    there.id
                }
                None => {
                    let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
                    let (id, effect) = self.make_directory(id, name, &set)?;
                    self.count(effect);
                    id
                }
            };
        }
        self.last = (path, id);
        Ok(id)
    }

    fn make_directory(
        &self,
        parent: FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<(FileId, Effect)> {
        not_overtaken(|| {
            let there = self.changer.look(parent, name)?;
            if let Some(there) = there.filter(|there| there.kind == FileKind::Directory) {
                return Ok((there.id, Effect::Kept));
            }
            let made = self.changer.in_place_of(parent, name, there.as_ref(), |work, by| {
                work.make_directory(by, parent, name, set)
            })?;
            Ok((made.id, effect_on(there.as_ref())))
        })
    }

    /// Counts a directory, whose attributes are to be set at the end.
    fn directory(&mut self, id: FileId, effect: Effect, set: &SetAttributes) -> Result<()> {
        let now = self.changer.share.tree(Wait::May)?.attributes(id)?;
        let is_other = effect == Effect::Kept && !has(&now, set);
        self.count(if is_other { Effect::Overwritten } else { effect });
        self.directories.insert(id, *set);
        Ok(())
    }

    fn link(&self, parent: FileId, name: &[u8], to: &[&[u8]]) -> Result<Effect> {
        let mut target = self.changer.share.tree(Wait::May)?.top()?;
        for name in to {
            let found = self.changer.look(target, name)?;
            target = found.ok_or(Error::from(ErrorKind::NotFound))?.id;
        }
        let there = self.changer.look(parent, name)?;
        if there.is_some_and(|there| there.id == target) {
            return Ok(Effect::Kept);
        }
        self.changer.in_place_of(parent, name, there.as_ref(), |work, by| {
            work.link(by, target, parent, name)
        })?;
        Ok(effect_on(there.as_ref()))
    }

    fn other(
        &mut self,
        parent: FileId,
        name: &[u8],
        set: &SetAttributes,
        like: Like<'_>,
    ) -> Result<Effect> {
        let there = self.changer.look(parent, name)?;
        if let Some(there) = there.filter(|there| there.kind == like.kind) {
            let is_alike = match like.kind {
                FileKind::Symlink => {
                    self.changer.share.tree(Wait::May)?.read_link(there.id)? == like.target
                }
                _ => there.device == like.device,
            };
            if is_alike && has(&there, set) && self.may_stay(&there) {
                return Ok(Effect::Kept);
            }
        }
        let made = self.changer.in_place_of(parent, name, there.as_ref(), |work, by| {
            work.make_like(by, parent, name, set, like)
        })?;
        self.set(made.id, set)?;
        Ok(effect_on(there.as_ref()))
    }

    fn file(
        &mut self,
        parent: FileId,
        name: &[u8],
        size: u64,
        set: &SetAttributes,
        content: &mut dyn Read,
    ) -> Done {
        if size <= self.chunk_bytes as u64 {
            let mut bytes = vec![0; size as usize];
            content.read_exact(&mut bytes)?;
            let (effect, written) = not_overtaken(|| self.small_file(parent, name, &bytes, set))?;
            self.done.bytes += written;
            self.count(effect);
            return Ok(());
        }
        let sized = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let (id, effect) = not_overtaken(|| {
            let there = self.changer.look(parent, name)?;
            if let Some(there) = there.filter(is_ones_own) {
                let is_other = there.size != size || !has(&there, set);
                if there.size != size {
                    self.set(there.id, &sized)?;
                }
                let effect = if is_other { Effect::Overwritten } else { Effect::Kept };
                return Ok((there.id, effect));
            }
            let made = self.changer.in_place_of(parent, name, there.as_ref(), |work, by| {
                work.create(by, parent, name, Create::Guarded(&sized))
            })?;
            Ok((made.id, effect_on(there.as_ref())))
        })?;
        let is_written = self.content(id, size, content)?;
        self.set(id, set)?;
        self.count(if is_written && effect == Effect::Kept { Effect::Overwritten } else { effect });
        Ok(())
    }

    /// Whether what is there may stay for a name: it did not for another one.
    fn may_stay(&mut self, there: &Attributes) -> bool {
        there.links == 1 || self.taken.insert(there.id)
    }

    /// Puts a file whose bytes are all at hand, in one transaction; how many were written.
    fn small_file(
        &mut self,
        parent: FileId,
        name: &[u8],
        bytes: &[u8],
        set: &SetAttributes,
    ) -> Result<(Effect, u64)> {
        let there = self.changer.look(parent, name)?;
        let (sized, root) = (Some(bytes.len() as u64), Credentials::root());
        let mut now = vec![0; bytes.len()];
        if let Some(there) = there.filter(|there| there.kind == FileKind::File) {
            self.changer.share.read(&root, there.id, 0, &mut now, Wait::May)?;
            let is_same = there.size == bytes.len() as u64 && now == bytes;
            if is_same && has(&there, set) && self.may_stay(&there) {
                return Ok((Effect::Kept, 0));
            }
            if is_ones_own(&there) {
                let size = SetAttributes { size: sized, ..SetAttributes::default() };
                let parts = differences(0, bytes, &now);
                self.change(|work, by| {
                    if there.size != bytes.len() as u64 {
                        work.set_attributes(by, there.id, &size, None)?;
                    }
                    parts.iter().try_for_each(|part| write_part(work, by, there.id, part))?;
                    work.set_attributes(by, there.id, set, None).map(drop)
                })?;
                return Ok((Effect::Overwritten, parts.iter().map(Part::bytes).sum()));
            }
            now.fill(0);
        }
        let parts = differences(0, bytes, &now);
        let create = SetAttributes { size: sized, ..*set };
        self.changer.in_place_of(parent, name, there.as_ref(), |work, by| {
            let made = work.create(by, parent, name, Create::Guarded(&create))?;
            for part in &parts {
                write_part(work, by, made.id, part)?;
            }
            if !parts.is_empty() {
                work.set_attributes(by, made.id, set, None)?;
            }
            Ok(())
        })?;
        Ok((effect_on(there.as_ref()), parts.iter().map(Part::bytes).sum()))
    }

    /// Writes what of a file differs from the content; whether anything did.
    fn content(&mut self, id: FileId, size: u64, content: &mut dyn Read) -> Done<bool> {
        let mut buffers = (vec![0; self.chunk_bytes], vec![0; self.chunk_bytes]);
        let (mut offset, mut is_written) = (0, false);
        while offset < size {
            self.check_goes_on()?;
            let length = (size - offset).min(self.chunk_bytes as u64) as usize;
            let (new, now) = (&mut buffers.0[..length], &mut buffers.1[..length]);
            content.read_exact(new)?;
            let root = Credentials::root();
            let read = self.changer.share.read(&root, id, offset, now, Wait::May)?.count;
            now[read..].fill(0);
            let parts = differences(offset, new, now);
            self.changer.change_each(parts.len(), |work, by, index| {
                write_part(work, by, id, &parts[index])
            })?;
            self.done.bytes += parts.iter().map(Part::bytes).sum::<u64>();
            is_written |= !parts.is_empty();
            offset += length as u64;
        }
        Ok(is_written)
    }

    /// Sets attributes, if they are others.
    fn set(&self, id: FileId, set: &SetAttributes) -> Result<()> {
        let now = self.changer.share.tree(Wait::May)?.attributes(id)?;
        if has(&now, set) && set.size.is_none_or(|size| size == now.size) {
            return Ok(());
        }
        self.change(|work, by| work.set_attributes(by, id, set, None).map(drop))
    }

    fn change<'d, R>(
        &self,
        change: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>) -> Result<R>,
    ) -> Result<R> {
        self.changer.change(change)
    }

    fn count(&mut self, effect: Effect) {
        *match effect {
            Effect::Created => &mut self.done.created,
            Effect::Overwritten => &mut self.done.overwritten,
            Effect::Kept => &mut self.done.kept,
        } += 1;
    }
}

/// Whether all others can be put although this one cannot.
fn is_of_one_object(kind: ErrorKind, what: Import<'_>) -> bool {
    use ErrorKind as K;
    let is_of_link = matches!(kind, K::NotFound | K::IsDirectory | K::Stale | K::TooManyLinks);
    is_of_link && matches!(what, Import::Link(_))
        || matches!(
            kind,
            K::NotEmpty | K::NotDirectory | K::NameTooLong | K::FileTooLarge | K::Invalid
        )
}

/// Whether a file may be written to: no other name of it changes.
fn is_ones_own(there: &Attributes) -> bool {
    there.kind == FileKind::File && there.links == 1
}

fn effect_on(there: Option<&Attributes>) -> Effect {
    if there.is_some() { Effect::Overwritten } else { Effect::Created }
}

/// Whether an object has attributes, but for the size.
fn has(now: &Attributes, set: &SetAttributes) -> bool {
    let is_at = |now, set: Option<SetTime>| set.is_none_or(|set| set == SetTime::To(now));
    set.mode.is_none_or(|mode| mode == now.mode)
        && set.uid.is_none_or(|uid| uid == now.uid)
        && set.gid.is_none_or(|gid| gid == now.gid)
        && is_at(now.accessed, set.accessed)
        && is_at(now.modified, set.modified)
}

/// Of two paths with one hash, links to one are left out with the other: told, and no more.
fn hash_of(names: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    hasher.finish()
}
