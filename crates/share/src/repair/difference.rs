//! The difference between the share as it is and as it would be.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::share::inode::{FileKind, InodeBlock};
use units::{FileId, FileName, WallTime};

use super::content::{Content, Piece};
use super::effects::Key;
use super::kinds::Entangled;
use super::moments::{Moments, has_data, steps};
use super::world::{Object, World};
use crate::attributes::{Attributes, SetAttributes, SetTime};
use crate::blocks::{Blocks, Wait};
use crate::content;
use crate::directory;
use crate::error::{Error, ErrorKind, Result, not_kept};
use crate::operation_log::At;
use crate::path::DEPTH_MAX;
use crate::paths::{Paths, join};
use crate::source::Source;

/// Bytes that are compared, and written, at once.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;
/// Times of changes of the content are told by records to that: a transaction has one time by the
/// clock, and its operations have times that rise.
const TIME_TOLERANCE_NS: u64 = 1_000_000;

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
    pub pieces: Vec<Piece>,
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
    pub pieces: Vec<Piece>,
    pub set: SetAttributes,
}

/// A name that gets another object.
#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    pub key: Key,
    pub from: Option<(FileId, FileKind)>,
    pub to: Option<FileId>,
    /// The operation that changed the object last which loses its last name.
    pub last: Option<u64>,
}

struct Comparing<'a, 'w, B> {
    world: &'a World<'w, B>,
    moments: &'a Moments<'a, B>,
    paths: Paths<'a, crate::moment::Moment<'a>>,
    /// The names that objects would have.
    names: BTreeMap<FileId, Key>,
    /// How many names objects would have, of those that get or lose one.
    links: BTreeMap<FileId, i64>,
    found: Difference,
}

/// The difference.
///
/// # Errors
/// `NotFound` of moments that are not kept; `Invalid` if a directory would come into itself; those
/// of reading.
pub(crate) fn between<B: Blocks>(
    world: &World<'_, B>,
    moments: &Moments<'_, B>,
) -> Result<Difference> {
    let tree = moments.present.tree(Wait::May);
    let placed = world.entries.iter();
    let names = placed.filter_map(|(key, entry)| Some((entry.object?, key.clone()))).collect();
    let mut comparing = Comparing {
        world,
        moments,
        paths: Paths::new(&tree),
        names,
        links: BTreeMap::new(),
        found: Difference::default(),
    };
    comparing.check_loops()?;
    comparing.compare_names()?;
    for (id, object) in &world.objects {
        let links = comparing.links.get(id).copied();
        match comparing.inode(*id)? {
            // It goes.
            Some(_) if links == Some(0) => {}
            Some(inode) => comparing.compare_object(*id, object, &inode)?,
            None if links.is_some_and(|links| links > 0) => comparing.restore(*id, object)?,
            None => {}
        }
    }
    let stay = comparing.links.iter().filter(|(_, links)| **links > 0);
    for (id, _) in stay.filter(|(id, _)| !world.objects.contains_key(id)) {
        comparing.inode(*id)?.ok_or_else(not_kept)?;
    }
    comparing.note_last()?;
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
        let found = self.moments.present.tree(Wait::May).inode(id.inode)?;
        Ok(found.filter(|inode| inode.generation == id.generation))
    }

    /// Compares names, and counts those of the objects that get or lose one.
    fn compare_names(&mut self) -> Result<()> {
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
                *self.links.entry(id).or_insert(before) += step;
            }
            let path = self.path_of(key)?;
            let change = match entry.object {
                None => Change::Removed(path),
                Some(to) if self.inode(to)?.is_none() => Change::Restored(path),
                Some(_) => Change::Renamed(path),
            };
            self.found.changes.push(change);
            let (key, to) = (key.clone(), entry.object);
            self.found.names.push(NameChange { key, from: there, to, last: None });
        }
        Ok(())
    }

    /// Notes what changed the objects last that would go: what others do to them until then would
    /// go with them.
    fn note_last(&mut self) -> Result<()> {
        let mut names = std::mem::take(&mut self.found.names);
        for name in &mut names {
            let Some((id, kind)) = name.from else { continue };
            // A name that is made in a directory keeps it from being removed.
            if kind != FileKind::Directory && self.links.get(&id) == Some(&0) {
                name.last = self.inode(id)?.map(|inode| inode.operation);
            }
        }
        self.found.names = names;
        Ok(())
    }

    /// The object of a name as it is, and its kind.
    fn look_up(&self, (directory, name): &Key) -> Result<Option<(FileId, FileKind)>> {
        let Some(parent) = self.inode(*directory)? else { return Ok(None) };
        let tree = self.moments.present.tree(Wait::May);
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
            modified: to(object.modified).filter(|_| !is_as_told(object, now.modified)),
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
    fn differing(&self, id: FileId, content: &Content, now: &InodeBlock) -> Result<Vec<Piece>> {
        let mut differing: Vec<Piece> = Vec::new();
        let tree = self.moments.present.tree(Wait::May);
        for (start, end, at) in content.changed_pieces() {
            // Bytes beyond the end are zeros as soon as the file is as long.
            let end = if at.is_none() { end.min(now.size) } else { end };
            for (start, end) in steps(start, end) {
                let is_data = self.moments.has_data((id, at), start, end)?;
                if is_data || has_data(&tree, now, start, end)? {
                    self.compare(id, now, (start, end, at), &mut differing)?;
                }
            }
        }
        Ok(differing)
    }

    /// Compares a piece with what is there.
    fn compare(
        &self,
        id: FileId,
        now: &InodeBlock,
        (start, end, at): Piece,
        differing: &mut Vec<Piece>,
    ) -> Result<()> {
        let tree = self.moments.present.tree(Wait::May);
        let mut from = start;
        while from < end {
            let to = end.min((from / PIECE_BYTES + 1) * PIECE_BYTES);
            let (mut then, mut there) = (vec![0; (to - from) as usize], Vec::new());
            there.resize(then.len(), 0);
            self.moments.read((id, at), from, &mut then)?;
            content::read(&tree, now, from, &mut there)?;
            if let Some((first, last)) = differing_bytes(&then, &there) {
                let (first, last) = (from + first as u64, from + last as u64);
                match differing.last_mut() {
                    Some(before) if before.1 == first && before.2 == at => before.1 = last,
                    _ => differing.push((first, last, at)),
                }
            }
            from = to;
        }
        Ok(())
    }

    fn restore(&mut self, id: FileId, object: &Object) -> Result<()> {
        let content = object.content.as_ref().ok_or_else(not_kept)?;
        let inode = self.moments.object(id, object.base)?;
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
            let (mut at, mut left) = (*directory, DEPTH_MAX);
            while !World::<B>::is_top(at) {
                if left == 0 {
                    return Err(Error::with_source(ErrorKind::Invalid, Entangled::Loop));
                }
                left -= 1;
                at = match parents.get(&at) {
                    Some(parent) => *parent,
                    None => {
                        let Some(inode) = self.inode(at)? else { break };
                        let tree = self.moments.present.tree(Wait::May);
                        let Some(parent) = tree.inode(inode.parent)? else { break };
                        FileId { inode: inode.parent, generation: parent.generation }
                    }
                };
            }
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
                Some((parent, name)) if names.len() < DEPTH_MAX => {
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

/// Whether a file has the time that it would have, as near as that is known.
fn is_as_told(object: &Object, now: WallTime) -> bool {
    let off = object.modified.as_nanos().abs_diff(now.as_nanos());
    off == 0 || object.is_near && off <= TIME_TOLERANCE_NS
}

/// The first byte that differs, and the one after the last.
fn differing_bytes(a: &[u8], b: &[u8]) -> Option<(usize, usize)> {
    let pairs = || a.iter().zip(b);
    let first = pairs().position(|(a, b)| a != b)?;
    let last = pairs().rposition(|(a, b)| a != b)?;
    Some((first, last + 1))
}
