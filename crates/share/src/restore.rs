//! Putting a file, or a subtree, back as it was at a moment of the past.
//!
//! 1. Only what differs is written, and holes stay holes. The end is the tree of then below the
//!    path; with `delete` nothing else, without it also what is there now by other names.
//! 2. Nothing outside changes, but for the directory that holds the path: a file with several names
//!    of which anything would change is replaced by a new one, so that other names keep what they
//!    have. Names of one file of then are names of one file.
//! 3. Others go on meanwhile. A name is taken away from what was looked at alone; else it is
//!    looked at again. It is no single transaction: a restore that ends in the middle has done a
//!    part, and does the rest when it is asked for again.

mod entry;
mod parts;
mod removal;

use std::collections::{BTreeMap, BTreeSet};

use format::share::inode::FileKind;
use units::{FileId, Inode};

use crate::attributes::{Attributes, SetAttributes, SetTime};
use crate::blocks::{Present, Wait};
use crate::changer::Changer;
use crate::directory::check_below;
use crate::error::{Error, ErrorKind, Result, require};
use crate::part::chunk_bytes;
use crate::path::{FilePath, joined};
use crate::permission::Credentials;
use crate::share::Share;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;

/// Effects that are told one by one.
const TOLD_MAX: usize = 1000;
/// Entries of a directory that are looked at together.
const PAGE_ENTRIES: usize = 256;

/// A restore that is asked for.
pub struct Restore<'a> {
    /// The path of what is put back.
    pub from: &'a FilePath<'a>,
    /// Where it is put: at another path. A directory that is there is merged into; there may be
    /// nothing else.
    pub to: Option<&'a FilePath<'a>>,
    /// Names that are there now and were not there then go.
    pub delete: bool,
    /// It is only told.
    pub dry_run: bool,
    /// Whether to go on; else it ends in the middle.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// The change at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It was not there.
    Created,
    /// It was another, or had other bytes or attributes.
    Overwritten,
    /// It was not there then.
    Removed,
    /// A directory with entries stays where something else was.
    InTheWay,
}

/// An effect, and its path from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The path.
    pub path: Vec<u8>,
    /// The effect.
    pub effect: Effect,
}

/// The outcome of a restore, or of one that is only told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Names that were not there.
    pub created: u64,
    /// Those that were another's, or whose object had other bytes or attributes.
    pub overwritten: u64,
    /// Those that were not there then.
    pub removed: u64,
    /// Those that are as they were then.
    pub kept: u64,
    /// Directories with entries that stay where something else was.
    pub in_the_way: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// The first effects of a dry run; else the first directories that are in the way.
    pub told: Vec<Told>,
    /// Whether there were more.
    pub has_more: bool,
}

/// Why a restore ended in the middle, and where.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It was told to.
    #[error("stopped")]
    Stopped,
    /// Something failed.
    #[error("{error}")]
    At {
        /// The path, from the top.
        path: Vec<u8>,
        /// The fault.
        #[source]
        error: Error,
    },
}

/// Puts back what a path named at a moment of the past.
///
/// # Errors
/// `NotFound` if there was nothing, or the directory of `to` is not there; `NotDirectory` if
/// something else is where a directory above has to be; `Exists` if something is at `to`;
/// those of reading and of [`Changer::change`]. All that was done until then stays.
pub fn restore<T: Tree, P: Present>(
    past: &T,
    changer: &Changer<'_, P>,
    asked: &Restore<'_>,
) -> std::result::Result<Restored, RestoreError> {
    let mut run = Run {
        past,
        changer,
        asked,
        chunk_bytes: chunk_bytes(changer.share.write_bytes_max()),
        path: Vec::new(),
        done: Restored::default(),
        restored: BTreeMap::new(),
        taken: BTreeMap::new(),
        shared: BTreeSet::new(),
        is_stopped: false,
    };
    match run.all() {
        Ok(()) => Ok(run.done),
        Err(_) if run.is_stopped => Err(RestoreError::Stopped),
        Err(error) => Err(RestoreError::At { path: run.path, error }),
    }
}

/// A restore under way.
struct Run<'r, T, P> {
    past: &'r T,
    changer: &'r Changer<'r, P>,
    asked: &'r Restore<'r>,
    chunk_bytes: usize,
    /// Where it is.
    path: Vec<u8>,
    done: Restored,
    /// Objects of then that have several names, by what they are now; none if that is only told.
    restored: BTreeMap<Inode, Option<FileId>>,
    /// Objects of now that are restored by several names, by the object of then.
    taken: BTreeMap<FileId, Inode>,
    /// Objects of now that had several names before this took one away: they count as such still,
    /// so that a dry run, which takes none, does the same.
    shared: BTreeSet<FileId>,
    is_stopped: bool,
}

/// A directory that is walked through.
struct Level {
    then: Attributes,
    /// None if it would have to be made.
    now: Option<FileId>,
    /// Where its entries go on.
    cookie: u64,
    /// The length of the path of the directory above.
    path_bytes: usize,
}

/// Directories that were made, as they were then.
type Made = Vec<(FileId, Attributes)>;

/// An entry of a directory.
struct Entry {
    cookie: u64,
    name: Vec<u8>,
    inode: Inode,
}

/// Some entries after a cookie, but for `.` and `..`; and whether these are the last.
fn page_of<T: Tree>(tree: &T, directory: FileId, cookie: u64) -> Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    let root = Credentials::root();
    let is_end = tree.read_directory(&root, directory, cookie, &mut |listed| {
        let is_full = entries.len() == PAGE_ENTRIES;
        if !is_full && listed.name != b"." && listed.name != b".." {
            let (cookie, inode) = (listed.cookie, listed.inode);
            entries.push(Entry { cookie, name: listed.name.to_vec(), inode });
        }
        !is_full
    })?;
    Ok((entries, is_end))
}

/// Whether an object has the attributes of then that can be set.
fn has_attributes(now: &Attributes, then: &Attributes) -> bool {
    let of = |a: &Attributes| (a.mode, a.uid, a.gid, a.accessed, a.modified);
    of(now) == of(then)
}

/// The attributes of then, but for the size.
fn attributes_of(then: &Attributes) -> SetAttributes {
    SetAttributes {
        mode: Some(then.mode),
        uid: Some(then.uid),
        gid: Some(then.gid),
        size: None,
        accessed: Some(SetTime::To(then.accessed)),
        modified: Some(SetTime::To(then.modified)),
    }
}

impl<T: Tree, P: Present> Run<'_, T, P> {
    fn all(&mut self) -> Result<()> {
        let target = self.asked.to.unwrap_or(self.asked.from);
        self.path = joined(self.asked.from.names());
        let then = self.asked.from.find(self.past)?;
        self.path = joined(target.names());
        let Some((name, above)) = target.names().split_last() else {
            let is_directory = then.kind == FileKind::Directory;
            require(is_directory, ErrorKind::Exists)?;
            let top = self.share().tree(Wait::May)?.top()?;
            return self.merge(&then, top);
        };
        let (parent, made) = self.parent(above)?;
        self.path = joined(target.names());
        if self.asked.to.is_some()
            && let Some(there) = self.look(parent, name)?
        {
            let is_directory = |object: &Attributes| object.kind == FileKind::Directory;
            require(is_directory(&then) && is_directory(&there), ErrorKind::Exists)?;
        }
        if let Some(now) = self.entry(parent, name, &then)? {
            self.directory(then, now)?;
        }
        for (id, then) in made.into_iter().rev() {
            self.set_attributes(id, &then)?;
        }
        Ok(())
    }

    fn share(&self) -> &Share<P> {
        self.changer.share
    }

    /// Puts a directory back into one that is there.
    fn merge(&mut self, then: &Attributes, now: FileId) -> Result<()> {
        let attributes = self.share().tree(Wait::May)?.attributes(now)?;
        self.count_directory(then, &attributes);
        self.directory(*then, Some(now))
    }

    /// The directory of these names, and those that were made of it: as they were then, unless it
    /// is put at another path.
    fn parent(&mut self, names: &[&[u8]]) -> Result<(Option<FileId>, Made)> {
        let root = Credentials::root();
        let mut now = Some(self.share().tree(Wait::May)?.top()?);
        let mut then = self.past.attributes(self.past.top()?)?;
        let mut made = Vec::new();
        for (index, name) in names.iter().enumerate() {
            self.path = joined(&names[..=index]);
            let there = self.look(now, name)?;
            let is_other = there.is_some_and(|there| there.kind != FileKind::Directory);
            require(!is_other, ErrorKind::NotDirectory)?;
            if self.asked.to.is_some() {
                now = Some(there.ok_or(Error::from(ErrorKind::NotFound))?.id);
                continue;
            }
            then = self.past.look_up(&root, then.id, name)?;
            now = match there {
                Some(there) => Some(there.id),
                None => {
                    let id = self.make_directory(now, name, &then, None)?;
                    self.count(Effect::Created);
                    made.extend(id.map(|id| (id, then)));
                    id
                }
            };
        }
        Ok((now, made))
    }

    /// Puts the entries of a directory back, then its attributes, which the entries change.
    fn directory(&mut self, then: Attributes, now: Option<FileId>) -> Result<()> {
        let path_bytes = self.path.len();
        let mut levels = vec![Level { then, now, cookie: 0, path_bytes }];
        while let Some(level) = levels.last_mut() {
            let (entries, is_end) = page_of(self.past, level.then.id, level.cookie)?;
            let mut below = None;
            for entry in entries {
                level.cookie = entry.cookie;
                let then = self.past.attributes_of(entry.inode)?;
                let path_bytes = self.enter(&entry.name);
                if let Some(now) = self.entry(level.now, &entry.name, &then)? {
                    check_below(self.past, level.then.id.inode, entry.inode)?;
                    below = Some(Level { then, now, cookie: 0, path_bytes });
                    break;
                }
                self.path.truncate(path_bytes);
            }
            let is_done = below.is_none() && is_end;
            levels.extend(below);
            if is_done {
                let level = levels.pop().expect("it is the last");
                if let Some(now) = level.now {
                    if self.asked.delete {
                        self.remove_others(level.then.id, now)?;
                    }
                    self.set_attributes(now, &level.then)?;
                }
                self.path.truncate(level.path_bytes);
            }
        }
        Ok(())
    }

    /// Puts the attributes of then back, if they are others.
    fn set_attributes(&self, id: FileId, then: &Attributes) -> Result<()> {
        if self.asked.dry_run
            || has_attributes(&self.share().tree(Wait::May)?.attributes(id)?, then)
        {
            return Ok(());
        }
        let set = attributes_of(then);
        self.change(|transaction, caller| {
            transaction.set_attributes(caller, id, &set, None).map(drop)
        })
    }

    /// The object of a name now.
    fn look(&self, directory: Option<FileId>, name: &[u8]) -> Result<Option<Attributes>> {
        directory.map_or(Ok(None), |directory| self.changer.look(directory, name))
    }

    fn change<'d, R>(
        &self,
        change: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>) -> Result<R>,
    ) -> Result<R> {
        self.changer.change(change)
    }

    /// Fails if it is to end.
    fn check_goes_on(&mut self) -> Result<()> {
        self.is_stopped = !(self.asked.goes_on)();
        require(!self.is_stopped, ErrorKind::Unusable)
    }

    /// Goes to a name of the directory where it is; how long the path was.
    fn enter(&mut self, name: &[u8]) -> usize {
        let path_bytes = self.path.len();
        if self.path != b"/" {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        path_bytes
    }

    /// Counts a directory that was there.
    fn count_directory(&mut self, then: &Attributes, now: &Attributes) {
        if has_attributes(now, then) {
            self.done.kept += 1;
        } else {
            self.count(Effect::Overwritten);
        }
    }

    /// Counts and tells an effect at the path where it is.
    fn count(&mut self, effect: Effect) {
        let done = &mut self.done;
        *match effect {
            Effect::Created => &mut done.created,
            Effect::Overwritten => &mut done.overwritten,
            Effect::Removed => &mut done.removed,
            Effect::InTheWay => &mut done.in_the_way,
        } += 1;
        if !self.asked.dry_run && effect != Effect::InTheWay {
            return;
        }
        if done.told.len() < TOLD_MAX {
            done.told.push(Told { path: self.path.clone(), effect });
        } else {
            done.has_more = true;
        }
    }
}
