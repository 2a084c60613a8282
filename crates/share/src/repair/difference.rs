//! The difference between the share as it is and as it would be.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::share::inode::{FileKind, InodeBlock};
use units::{FileId, FileName, Seq, WallTime};

use super::content::Content;
use super::not_kept;
use super::world::{Key, Moments, Object, World};
use crate::attributes::{Attributes, SetAttributes, SetTime};
use crate::blocks::{Blocks, Wait};
use crate::content;
use crate::directory;
use crate::error::{Error, ErrorKind, Result, require};
use crate::operation_log::At;
use crate::past::Past;
use crate::paths::{Paths, join};
use crate::source::Source;

/// Bytes that are compared, and written, at once.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;

/// One thing that a repair does, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An object that is gone comes back.
    Restored(Vec<u8>),
    /// A name goes, and with its last name the object.
    Removed(Vec<u8>),
    /// A name gets another object, or one that is there.
    Renamed(Vec<u8>),
    /// Bytes change: how many.
    Written(Vec<u8>, u64),
    /// Attributes change.
    Set(Vec<u8>),
}

/// All that a repair does.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// For people, in the order of paths.
    pub changes: Vec<Change>,
    /// Files that are there, and change.
    pub(crate) files: Vec<FileChange>,
    /// Objects that come back.
    pub(crate) restored: Vec<Restored>,
    /// Names.
    pub(crate) names: Vec<NameChange>,
}

/// A change of an object that is there.
#[derive(Clone, Debug)]
pub(crate) struct FileChange {
    pub id: FileId,
    /// The number of the operation that changed it last.
    pub operation: u64,
    pub size: Option<u64>,
    /// Ranges that differ: first byte, end, and where they are.
    pub pieces: Vec<(u64, u64, Option<At>)>,
    pub set: Option<SetAttributes>,
}

/// An object that comes back.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    pub id: FileId,
    pub base: At,
    pub kind: FileKind,
    pub device: (u32, u32),
    pub size: u64,
    pub pieces: Vec<(u64, u64, Option<At>)>,
    pub set: SetAttributes,
}

/// A name that gets another object.
#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    pub key: Key,
    pub from: Option<(FileId, FileKind)>,
    pub to: Option<FileId>,
}

/// Reads bytes of a file as it was.
pub(crate) fn read_at<B: Blocks>(
    moments: Moments<'_, B>,
    (id, at): (FileId, At),
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let past = open(moments, at)?;
    let tree = past.tree(Wait::May);
    let inode = object_at(&past, id)?;
    let count = content::read(&tree, &inode, offset, buffer)?;
    buffer[count..].fill(0);
    Ok(())
}

/// Opens a moment between two transactions, which has to be that very one.
pub(crate) fn open<B: Blocks>(moments: Moments<'_, B>, at: At) -> Result<Arc<Past<B>>> {
    let past = moments(at.seq)?;
    if past.state().operation == at.operation { Ok(past) } else { Err(not_kept()) }
}

fn object_at<B: Blocks>(past: &Past<B>, id: FileId) -> Result<Arc<InodeBlock>> {
    let found = past.tree(Wait::May).object(id);
    found.map_err(|error| if error.kind == ErrorKind::Stale { not_kept() } else { error })
}

struct Comparing<'a, 'w, B> {
    now: &'a Past<B>,
    world: &'a World<'w, B>,
    moments: Moments<'a, B>,
    paths: Paths<'a, crate::moment::Moment<'a>>,
    /// The names that objects would have.
    names: BTreeMap<FileId, Key>,
    found: Difference,
}

/// The difference.
///
/// # Errors
/// `NotFound` of moments that are not kept; `Invalid` if a directory would come into itself; those
/// of reading.
pub(crate) fn between<B: Blocks>(
    world: &World<'_, B>,
    now: Seq,
    moments: Moments<'_, B>,
) -> Result<Difference> {
    if world.entries.is_empty() && world.objects.is_empty() {
        return Ok(Difference::default());
    }
    let past = moments(now)?;
    let tree = past.tree(Wait::May);
    let placed = world.entries.iter();
    let names = placed.filter_map(|(key, entry)| Some((entry.object?, key.clone()))).collect();
    let mut comparing = Comparing {
        now: &past,
        world,
        moments,
        paths: Paths::new(&tree),
        names,
        found: Difference::default(),
    };
    comparing.check_loops()?;
    let links = comparing.compare_names()?;
    for (id, object) in &world.objects {
        match comparing.inode(*id)? {
            Some(inode) => comparing.compare_object(*id, object, &inode)?,
            None if links.get(id).is_some_and(|links| *links > 0) => {
                comparing.restore(*id, object)?;
            }
            None => {}
        }
    }
    let lost = links.iter().filter(|(id, links)| **links > 0 && !world.objects.contains_key(id));
    for (id, _) in lost {
        comparing.inode(*id)?.ok_or_else(not_kept)?;
    }
    let mut found = comparing.found;
    found.changes.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(found)
}

impl Change {
    /// The path that it is about.
    pub fn path(&self) -> &[u8] {
        match self {
            Change::Restored(path)
            | Change::Removed(path)
            | Change::Renamed(path)
            | Change::Written(path, _)
            | Change::Set(path) => path,
        }
    }
}

impl<B: Blocks> Comparing<'_, '_, B> {
    /// An object as it is, if it is there.
    fn inode(&self, id: FileId) -> Result<Option<Arc<InodeBlock>>> {
        let found = self.now.tree(Wait::May).inode(id.inode)?;
        Ok(found.filter(|inode| inode.generation == id.generation))
    }

    /// Compares names; how many names the objects would have that get or lose one.
    fn compare_names(&mut self) -> Result<BTreeMap<FileId, i64>> {
        let mut links: BTreeMap<FileId, i64> = BTreeMap::new();
        let world = self.world;
        for (key, entry) in &world.entries {
            let there = self.look_up(key)?;
            let from = there.map(|(id, _)| id);
            if from == entry.object {
                continue;
            }
            for (id, step) in [(from, -1), (entry.object, 1)] {
                let Some(id) = id else { continue };
                let before = self.inode(id)?.map_or(0, |inode| match inode.kind {
                    FileKind::Directory => 1,
                    _ => i64::from(inode.links),
                });
                *links.entry(id).or_insert(before) += step;
            }
            self.found.names.push(NameChange { key: key.clone(), from: there, to: entry.object });
            let path = self.path_of(key)?;
            let change = match entry.object {
                None => Change::Removed(path),
                Some(to) if self.inode(to)?.is_none() => Change::Restored(path),
                Some(_) => Change::Renamed(path),
            };
            self.found.changes.push(change);
        }
        Ok(links)
    }

    /// The object of a name as it is, and its kind.
    fn look_up(&self, (directory, name): &Key) -> Result<Option<(FileId, FileKind)>> {
        let Some(parent) = self.inode(*directory)? else { return Ok(None) };
        let tree = self.now.tree(Wait::May);
        let found = directory::find(&tree, directory.inode, &parent, FileName::new(name)?)?;
        let Some(found) = found else { return Ok(None) };
        let inode = tree.named(found.object)?;
        Ok(Some((Attributes::of(found.object.inode, &inode).id, inode.kind)))
    }

    fn compare_object(&mut self, id: FileId, object: &Object, now: &InodeBlock) -> Result<()> {
        let content = object.content.as_ref().filter(|_| object.kind == FileKind::File);
        let pieces = content.map_or(Ok(Vec::new()), |content| self.differing(id, content, now))?;
        let size = content.map(|content| content.size).filter(|size| *size != now.size);
        let mut set = SetAttributes {
            mode: Some(object.mode).filter(|mode| *mode != now.mode),
            uid: Some(object.uid).filter(|uid| *uid != now.uid),
            gid: Some(object.gid).filter(|gid| *gid != now.gid),
            size: None,
            accessed: to(object.accessed).filter(|_| object.accessed != now.accessed),
            modified: to(object.modified).filter(|_| object.modified != now.modified),
        };
        let is_written = size.is_some() || !pieces.is_empty();
        if object.kind == FileKind::Directory {
            // Names change its times, kept ones too.
            (set.accessed, set.modified) = (None, None);
        } else if is_written {
            set.modified = to(object.modified);
        }
        // A mode goes with an owner, which takes bits of it away.
        if set.uid.or(set.gid).is_some() {
            set.mode = Some(object.mode);
        }
        let set = Some(set).filter(|set| *set != SetAttributes::default());
        if !is_written && set.is_none() {
            return Ok(());
        }
        let path = self.path_of_object(id)?;
        if is_written {
            let bytes = pieces.iter().map(|(from, to, _)| to - from).sum();
            self.found.changes.push(Change::Written(path, bytes));
        } else {
            self.found.changes.push(Change::Set(path));
        }
        self.found.files.push(FileChange { id, operation: now.operation, size, pieces, set });
        Ok(())
    }

    /// The ranges of a file whose bytes differ from those that they would have.
    fn differing(
        &self,
        id: FileId,
        content: &Content,
        now: &InodeBlock,
    ) -> Result<Vec<(u64, u64, Option<At>)>> {
        let mut differing: Vec<(u64, u64, Option<At>)> = Vec::new();
        let tree = self.now.tree(Wait::May);
        for (start, end, at) in content.pieces() {
            // What is beyond the end now is zeros as soon as the file is as long.
            if at.is_none() && start >= now.size {
                continue;
            }
            let mut from = start;
            while from < end {
                let to = end.min((from / PIECE_BYTES + 1) * PIECE_BYTES);
                let (mut then, mut there) = (vec![0; (to - from) as usize], Vec::new());
                there.resize(then.len(), 0);
                if let Some(at) = at {
                    read_at(self.moments, (id, at), from, &mut then)?;
                }
                content::read(&tree, now, from, &mut there)?;
                if then != there {
                    match differing.last_mut() {
                        Some(last) if last.1 == from && last.2 == at => last.1 = to,
                        _ => differing.push((from, to, at)),
                    }
                }
                from = to;
            }
        }
        Ok(differing)
    }

    fn restore(&mut self, id: FileId, object: &Object) -> Result<()> {
        let content = object.content.as_ref().ok_or_else(not_kept)?;
        let past = open(self.moments, object.base)?;
        let inode = object_at(&past, id)?;
        let set = SetAttributes {
            mode: Some(object.mode),
            uid: Some(object.uid),
            gid: Some(object.gid),
            size: None,
            accessed: to(object.accessed),
            modified: to(object.modified),
        };
        self.found.restored.push(Restored {
            id,
            base: object.base,
            kind: object.kind,
            device: inode.device,
            size: content.size,
            pieces: content.pieces(),
            set,
        });
        Ok(())
    }

    /// Fails if a directory would be in itself.
    fn check_loops(&self) -> Result<()> {
        let parents = self.world.parents();
        for directory in parents.keys() {
            let (mut at, mut left) = (*directory, 4096);
            while !World::<B>::is_top(at) && left > 0 {
                left -= 1;
                at = match parents.get(&at) {
                    Some(parent) => *parent,
                    None => {
                        let Some(inode) = self.inode(at)? else { break };
                        let parent = self.now.tree(Wait::May).inode(inode.parent)?;
                        let Some(parent_inode) = parent else { break };
                        FileId { inode: inode.parent, generation: parent_inode.generation }
                    }
                };
            }
            require(left > 0, ErrorKind::Invalid)?;
        }
        Ok(())
    }

    /// The path that a name would have.
    fn path_of(&mut self, (directory, name): &Key) -> Result<Vec<u8>> {
        Ok(join(self.path_of_object(*directory)?, name))
    }

    fn path_of_object(&mut self, id: FileId) -> Result<Vec<u8>> {
        let (mut at, mut names): (FileId, Vec<Box<[u8]>>) = (id, Vec::new());
        let mut path = loop {
            if let Some(path) = self.paths.of(at)? {
                break path;
            }
            match self.names.get(&at) {
                Some((parent, name)) if names.len() < 4096 => {
                    names.push(name.clone());
                    at = *parent;
                }
                _ => break format!("/inode {}", at.inode.0).into_bytes(),
            }
        };
        for name in names.iter().rev() {
            path = join(path, name);
        }
        Ok(path)
    }
}

fn to(time: WallTime) -> Option<SetTime> {
    Some(SetTime::To(time))
}

/// The fault of a share that changed since the plan.
pub(super) fn changed_since() -> Error {
    Error::from(ErrorKind::NotSync)
}
