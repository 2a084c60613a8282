//! Makes the follower what the primary is, by looking at both.
//!
//! 1. Objects are the same by the primary's numbers: names of one object there are names of one
//!    object here.
//! 2. It changes only what differs; all of it is in the operation log, as an import.
//! 3. While calls pass it may end with what was: those are compared again. Held alone it is exact.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use share::{
    Attributes, Caller, Changer, Create, Credentials, ErrorKind, FileKind, Present, SetAttributes,
    Transaction, Tree, Wait,
};
use units::FileId;
use wire::nfs3::{Fattr3, FileHandle, Ftype3, Nfsstat3};

use crate::apply::{Fault, owned, special_of, wall_time};
use crate::known::Known;
use crate::primary::{Object, Primary, READ_BYTES, Trouble};
use crate::update::Dirty;

/// The unit in which bytes that differ are told.
const PIECE_BYTES: usize = 4096;
/// Bytes that one write has.
const WRITE_BYTES: usize = 128 << 10;
type Done<T = ()> = Result<T, Fault>;

/// A comparison.
pub(crate) struct Comparing<'a, P> {
    pub(crate) changer: Changer<'a, P>,
    pub(crate) primary: &'a mut Primary,
    pub(crate) known: &'a mut Known,
    pub(crate) goes_on: &'a dyn Fn() -> bool,
    /// Called for each object that is compared.
    pub(crate) compared: &'a dyn Fn(),
}

/// An object of the primary, and what it is here.
#[derive(Clone, Copy)]
struct Pair {
    object: Object,
    id: FileId,
    is_new: bool,
}

impl<P: Present> Comparing<'_, P> {
    /// Compares what is named.
    pub(crate) fn dirty(&mut self, dirty: &HashSet<Dirty>) -> Done {
        if dirty.contains(&Dirty::Everything) {
            return self.everything();
        }
        dirty.iter().try_for_each(|one| self.one(one))
    }

    fn one(&mut self, dirty: &Dirty) -> Done {
        self.check_goes_on()?;
        let handle = match *dirty {
            Dirty::Object(handle) | Dirty::Entries(handle) | Dirty::Bytes(handle, ..) => handle,
            Dirty::Everything => return Ok(()),
        };
        let attributes = match self.primary.attributes(handle) {
            Ok(attributes) if !self.known.is_own(&attributes) => return Ok(()),
            Ok(attributes) => attributes,
            Err(gone) if gone.is_gone() => return Ok(()),
            Err(trouble) => return Err(trouble.into()),
        };
        let object = Object { handle, attributes };
        // It is new, and comes with its directory.
        let Some(ours) = self.live(attributes.fileid)? else { return Ok(()) };
        // Numbers are given again.
        if !is_kind(ours.kind, attributes.ftype) {
            return Ok(());
        }
        let pair = Pair { object, id: ours.id, is_new: false };
        match *dirty {
            Dirty::Bytes(_, offset, length) => {
                self.object(&pair, offset..offset.saturating_add(length))
            }
            Dirty::Entries(_) => self.below(object, ours.id, false),
            _ => self.object(&pair, 0..u64::MAX),
        }
    }

    fn check_goes_on(&self) -> Done {
        if (self.goes_on)() { Ok(()) } else { Err(Fault::Stopped) }
    }

    fn everything(&mut self) -> Done {
        let (top, id) = (self.primary.top(), self.tree(|tree| tree.top())?);
        self.known.begin(top.attributes.fsid);
        let attributes = self.primary.attributes(top.handle)?;
        let top = Object { attributes, ..top };
        self.known.is(&top, id);
        self.below(top, id, true)
    }

    /// Compares the entries of a directory, and all that is new below it, or all.
    fn below(&mut self, top: Object, id: FileId, is_all: bool) -> Done {
        let mut stack = vec![Pair { object: top, id, is_new: false }];
        while let Some(directory) = stack.pop() {
            for pair in self.entries(&directory)? {
                if !is_all && !pair.is_new {
                    continue;
                }
                match pair.object.attributes.ftype {
                    Ftype3::Dir => stack.push(pair),
                    _ => self.object(&pair, 0..u64::MAX)?,
                }
            }
            self.object(&directory, 0..0)?;
        }
        Ok(())
    }

    /// Makes the names of a directory what they are; the objects of them.
    fn entries(&mut self, directory: &Pair) -> Done<Vec<Pair>> {
        let (handle, id) = (directory.object.handle, directory.id);
        let theirs = match self.primary.list(handle, self.goes_on) {
            Ok(theirs) => theirs,
            Err(gone) if gone.is_gone() => return Ok(Vec::new()),
            Err(trouble) => return Err(trouble.into()),
        };
        let mut ours = self.ours(id)?;
        let names: HashSet<&[u8]> = theirs.iter().map(|(name, _)| &name[..]).collect();
        let gone = ours.extract_if(|name, _| !names.contains(&name[..]));
        for (name, there) in gone.collect::<Vec<_>>() {
            self.remove(id, &name, &there)?;
        }
        let mut named: HashMap<Vec<u8>, Option<Attributes>> =
            theirs.iter().map(|(name, _)| (name.clone(), ours.remove(name))).collect();
        let mut pairs = Vec::with_capacity(theirs.len());
        for (name, object) in theirs {
            self.check_goes_on()?;
            // A name that is listed twice is there once.
            let Some(there) = named.remove(&name) else { continue };
            match self.entry(id, &name, object, there.as_ref()) {
                Ok(pair) => pairs.extend(pair),
                Err(fault) => self.leave_out(&name, &object, fault)?,
            }
        }
        Ok(pairs)
    }

    /// What the follower cannot hold is left out, and the rest goes on.
    fn leave_out(&mut self, name: &[u8], object: &Object, fault: Fault) -> Done {
        if !is_beyond(&fault) {
            return Err(fault);
        }
        if self.known.leave_out(object.attributes.fileid) {
            let name = String::from_utf8_lossy(name).into_owned();
            tracing::warn!(name, %fault, "left out of the share that follows");
        }
        Ok(())
    }

    fn ours(&self, id: FileId) -> Done<HashMap<Vec<u8>, Attributes>> {
        let root = Credentials::root();
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            // Not held for longer than this: it keeps transactions out.
            let is_end = self.tree(|tree| {
                let (mut count, from) = (0, cookie);
                tree.read_directory(&root, id, from, &mut |entry| {
                    if !matches!(entry.name, b"." | b"..") {
                        listed.push((entry.name.to_vec(), entry.inode));
                    }
                    (cookie, count) = (entry.cookie, count + 1);
                    count < 1000
                })
            })?;
            if is_end {
                break;
            }
        }
        let mut ours = HashMap::with_capacity(listed.len());
        for (name, inode) in listed {
            ours.insert(name, self.tree(|tree| tree.attributes_of(inode))?);
        }
        Ok(ours)
    }

    /// Makes one name what it is; none if it is gone meanwhile.
    fn entry(
        &mut self,
        dir: FileId,
        name: &[u8],
        object: Object,
        there: Option<&Attributes>,
    ) -> Done<Option<Pair>> {
        let target = match object.attributes.ftype {
            Ftype3::Lnk => match self.primary.read_link(object.handle) {
                Ok(target) => target,
                Err(gone) if gone.is_gone() => return Ok(None),
                Err(trouble) => return Err(trouble.into()),
            },
            _ => Vec::new(),
        };
        // Numbers are given again: it may be another that was not removed yet.
        let wanted = match self.live(object.attributes.fileid)? {
            Some(ours) if self.is_alike(&ours, &object.attributes, &target)? => Some(ours.id),
            _ => None,
        };
        if let Some(there) = there {
            let is_same = match wanted {
                Some(wanted) => wanted == there.id,
                None => !self.known.is_owned(there.id),
            };
            if is_same && self.is_alike(there, &object.attributes, &target)? {
                // Under another handle it may be another object.
                let is_new = !self.known.is(&object, there.id);
                return Ok(Some(Pair { object, id: there.id, is_new }));
            }
            self.remove(dir, name, there)?;
        }
        let wanted = wanted.filter(|_| object.attributes.ftype != Ftype3::Dir);
        let linked = match wanted {
            // It may have gone with the name that was just removed.
            Some(wanted) => match self.change(|c, by| c.link(by, wanted, dir, name)) {
                Ok(linked) => Some(linked.id),
                Err(Fault::Share(error)) if error.kind == ErrorKind::Stale => None,
                Err(fault) => return Err(fault),
            },
            None => None,
        };
        let id = match linked {
            Some(id) => id,
            None => self.make(dir, name, &object.attributes, &target)?,
        };
        self.known.is(&object, id);
        Ok(Some(Pair { object, id, is_new: true }))
    }

    /// Whether an object differs from the primary's in nothing that cannot be changed.
    fn is_alike(&self, ours: &Attributes, theirs: &Fattr3, target: &[u8]) -> Done<bool> {
        if !is_kind(ours.kind, theirs.ftype) {
            return Ok(false);
        }
        Ok(match ours.kind {
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                ours.device == (theirs.rdev.specdata1, theirs.rdev.specdata2)
            }
            FileKind::Symlink => self.tree(|tree| tree.read_link(ours.id))? == target,
            _ => true,
        })
    }

    fn make(&self, dir: FileId, name: &[u8], theirs: &Fattr3, target: &[u8]) -> Done<FileId> {
        let set = owned(theirs);
        let made = match (theirs.ftype, special_of(theirs)) {
            (_, Some(special)) => self.change(|c, by| c.make_node(by, dir, name, &set, special))?,
            (Ftype3::Dir, _) => self.change(|c, by| c.make_directory(by, dir, name, &set))?,
            (Ftype3::Lnk, _) => self.change(|c, by| c.make_symlink(by, dir, name, &set, target))?,
            _ => self.change(|c, by| c.create(by, dir, name, Create::Guarded(&set)))?,
        };
        Ok(made.id)
    }

    /// Removes a name, and all below it.
    fn remove(&self, dir: FileId, name: &[u8], there: &Attributes) -> Done {
        let mut stack = vec![(dir, name.to_vec(), there.id, there.kind, false)];
        while let Some((dir, name, id, kind, is_empty)) = stack.pop() {
            self.check_goes_on()?;
            if kind != FileKind::Directory {
                self.change(|c, by| c.remove(by, dir, &name))?;
            } else if is_empty {
                self.change(|c, by| c.remove_directory(by, dir, &name))?;
            } else {
                stack.push((dir, name, id, kind, true));
                for (name, below) in self.ours(id)? {
                    stack.push((id, name, below.id, below.kind, false));
                }
            }
        }
        Ok(())
    }

    /// Makes the attributes of an object, and some bytes of a file, what they are.
    fn object(&mut self, pair: &Pair, bytes: Range<u64>) -> Done {
        let compared = self.try_object(pair, bytes);
        compared.or_else(|fault| self.leave_out(b"an object", &pair.object, fault))
    }

    fn try_object(&mut self, pair: &Pair, bytes: Range<u64>) -> Done {
        (self.compared)();
        let (theirs, ours) = (pair.object.attributes, self.tree(|tree| tree.attributes(pair.id))?);
        if theirs.ftype == Ftype3::Reg {
            if ours.size != theirs.size {
                let size = Some(theirs.size);
                self.set(pair.id, &SetAttributes { size, ..SetAttributes::default() })?;
            }
            let bytes = bytes.start..bytes.end.min(theirs.size);
            self.content(pair.object.handle, pair.id, bytes)?;
        }
        let ours = self.tree(|tree| tree.attributes(pair.id))?;
        let set = owned(&theirs);
        let is_alike = (Some(ours.mode), Some(ours.uid), Some(ours.gid), Some(ours.modified))
            == (set.mode, set.uid, set.gid, Some(wall_time(theirs.mtime)));
        if is_alike { Ok(()) } else { self.set(pair.id, &set) }
    }

    /// Writes the bytes of a file that differ.
    fn content(&mut self, file: FileHandle, id: FileId, bytes: Range<u64>) -> Done {
        let (mut offset, root) = (bytes.start, Credentials::root());
        let mut ours = vec![0; READ_BYTES as usize];
        while offset < bytes.end {
            self.check_goes_on()?;
            let (theirs, is_end) = match self.primary.read(file, offset) {
                Ok(read) => read,
                Err(gone) if gone.is_gone() => return Ok(()),
                Err(trouble) => return Err(trouble.into()),
            };
            let left = usize::try_from(bytes.end - offset).unwrap_or(usize::MAX);
            let length = theirs.len().min(left);
            let (theirs, ours) = (&theirs[..length], &mut ours[..length]);
            let count = self.tree(|tree| tree.read(&root, id, offset, ours))?.count;
            ours[count..].fill(0);
            for (at, bytes) in differing(theirs, ours) {
                let at = offset + at as u64;
                self.change(|c, by| c.write(by, id, at, bytes))?;
            }
            offset += length as u64;
            if is_end || length == 0 {
                break;
            }
        }
        Ok(())
    }

    fn set(&self, id: FileId, set: &SetAttributes) -> Done {
        self.change(|c, by| c.set_attributes(by, id, set, None)).map(drop)
    }

    /// The object of the follower that has a number of the primary's, if it is there.
    fn live(&self, number: u64) -> Done<Option<Attributes>> {
        let Some(id) = self.known.file(number) else { return Ok(None) };
        match self.tree(|tree| tree.attributes(id)) {
            Ok(ours) => Ok(Some(ours)),
            Err(Fault::Share(error)) if error.kind == ErrorKind::Stale => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn tree<T>(&self, look: impl FnOnce(&share::PresentTree<'_>) -> share::Result<T>) -> Done<T> {
        Ok(look(&self.changer.share.tree(Wait::May)?)?)
    }

    fn change<'d, T>(
        &self,
        change: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>) -> share::Result<T>,
    ) -> Done<T> {
        Ok(self.changer.change(change)?)
    }
}

/// Whether an object is beyond what the follower can hold, or cannot be read at the primary.
fn is_beyond(fault: &Fault) -> bool {
    use ErrorKind as K;
    match fault {
        Fault::Share(error) => {
            matches!(error.kind, K::FileTooLarge | K::NameTooLong | K::TooManyLinks | K::Invalid)
        }
        Fault::Primary(Trouble::Status(status)) => {
            matches!(status, Nfsstat3::Io | Nfsstat3::Acces | Nfsstat3::Perm)
        }
        _ => false,
    }
}

fn is_kind(ours: FileKind, theirs: Ftype3) -> bool {
    matches!(
        (ours, theirs),
        (FileKind::File, Ftype3::Reg)
            | (FileKind::Directory, Ftype3::Dir)
            | (FileKind::Symlink, Ftype3::Lnk)
            | (FileKind::Fifo, Ftype3::Fifo)
            | (FileKind::Socket, Ftype3::Sock)
            | (FileKind::CharacterDevice, Ftype3::Chr)
            | (FileKind::BlockDevice, Ftype3::Blk)
    )
}

/// The runs of pieces that differ, none longer than a write.
fn differing<'t>(theirs: &'t [u8], ours: &[u8]) -> Vec<(usize, &'t [u8])> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let pieces = theirs.chunks(PIECE_BYTES).zip(ours.chunks(PIECE_BYTES)).enumerate();
    for (index, (piece, _)) in pieces.filter(|(_, (theirs, ours))| theirs != ours) {
        let at = index * PIECE_BYTES;
        match runs.last_mut() {
            Some((begin, end)) if *end == at && at + piece.len() - *begin <= WRITE_BYTES => {
                *end = at + piece.len();
            }
            _ => runs.push((at, at + piece.len())),
        }
    }
    runs.into_iter().map(|(begin, end)| (begin, &theirs[begin..end])).collect()
}

#[cfg(test)]
mod tests {
    use super::{PIECE_BYTES, WRITE_BYTES, differing};

    #[test]
    fn runs_are_what_differs_and_no_longer_than_a_write() {
        let ours = vec![0; 300_001];
        let mut theirs = ours.clone();
        assert!(differing(&theirs, &ours).is_empty());
        theirs[0] = 1;
        theirs[PIECE_BYTES] = 1;
        theirs[300_000] = 1;
        let runs: Vec<_> = differing(&theirs, &ours).iter().map(|(at, b)| (*at, b.len())).collect();
        assert_eq!(runs, [(0, 2 * PIECE_BYTES), (73 * PIECE_BYTES, 300_001 - 73 * PIECE_BYTES)]);
        let all = vec![1; 300_001];
        let runs = differing(&all, &ours);
        assert!(runs.iter().all(|(_, bytes)| bytes.len() <= WRITE_BYTES));
        assert_eq!(runs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 300_001);
    }
}
