//! The paths that differ between two moments, from the numbers of inodes whose blocks differ.
//!
//! 1. Each object is compared once: what was made, changed, moved or went, its inode's block has
//!    another content. So the inodes say all, and directories are looked at for names alone: those
//!    above an object with one name; for objects with several all of a moment at most, until every
//!    name is found.
//! 2. Bytes are not compared. `differs` says of blocks whether they were written between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::place::{BLOCK_BYTES, first_of_level, slab_blocks};
use units::{FileId, Inode};

use crate::directory::{check_below, for_each_from};
use crate::error::Result;
use crate::paths::Paths;
use crate::source::Source;
use crate::tree::Tree;

/// Entries of a directory that are looked at together.
const PAGE_ENTRIES: usize = 1024;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path at the one moment; none if it was made since.
    pub before: Option<Vec<u8>>,
    /// The path at the other; none if it went. If both are there and differ it was renamed, or a
    /// directory above it.
    pub after: Option<Vec<u8>>,
    /// The kind of the object.
    pub kind: FileKind,
    /// Whether the object is at both moments, with other bytes.
    pub has_other_content: bool,
    /// Whether the object is at both, with another mode or owner, or, with the same bytes, another
    /// time.
    pub has_other_attributes: bool,
}

/// An object that differs.
struct Object {
    before: Option<Arc<InodeBlock>>,
    after: Option<Arc<InodeBlock>>,
    names_before: Vec<Vec<u8>>,
    names_after: Vec<Vec<u8>>,
}

/// Compares the objects of some numbers.
///
/// # Errors
/// Those of reading, and of `differs`.
pub fn differences<A: Tree, B: Tree>(
    before: &A,
    after: &B,
    numbers: impl IntoIterator<Item = Inode>,
    differs: &dyn Fn(u64, u64) -> Result<bool>,
) -> Result<Vec<Difference>> {
    let mut objects = BTreeMap::new();
    for number in numbers {
        let (before, after) = (before.inode(number)?, after.inode(number)?);
        if before != after {
            let (names_before, names_after) = (Vec::new(), Vec::new());
            objects.insert(number, Object { before, after, names_before, names_after });
        }
    }
    name(before, &mut objects, |object| (object.before.as_deref(), &mut object.names_before))?;
    name(after, &mut objects, |object| (object.after.as_deref(), &mut object.names_after))?;
    let mut found = Vec::new();
    for (_, object) in objects {
        object.tell(differs, &mut found)?;
    }
    Ok(found)
}

/// Finds the names that objects have in a tree.
fn name<T: Tree>(
    tree: &T,
    objects: &mut BTreeMap<Inode, Object>,
    names: impl Fn(&mut Object) -> (Option<&InodeBlock>, &mut Vec<Vec<u8>>),
) -> Result<()> {
    let mut paths = Paths::new(tree);
    // Objects whose names have to be searched for, and how many names these are.
    let (mut searched, mut left) = (BTreeSet::new(), 0);
    for (number, object) in objects.iter_mut() {
        let (Some(inode), found) = names(object) else { continue };
        let links = if inode.kind == FileKind::Directory { 1 } else { inode.links };
        let id = FileId { inode: *number, generation: inode.generation };
        let path = if links == 1 { paths.of(id)? } else { None };
        match path {
            Some(path) => found.push(path),
            None => {
                searched.insert(*number);
                left += u64::from(links);
            }
        }
    }
    if left == 0 {
        return Ok(());
    }
    walk(tree, &mut |number, path| {
        if searched.contains(&number)
            && let Some(object) = objects.get_mut(&number)
        {
            names(object).1.push(path.to_vec());
            left = left.saturating_sub(1);
        }
        left > 0
    })
}

/// A directory that is walked through.
struct Level {
    number: Inode,
    /// Where its entries go on.
    key: u64,
    /// The length of the path of the directory above.
    path_bytes: usize,
}

/// Tells of every name of a tree, with its path, until `tell` says to stop.
fn walk<T: Tree>(tree: &T, tell: &mut dyn FnMut(Inode, &[u8]) -> bool) -> Result<()> {
    let mut path = Vec::new();
    let mut levels = vec![Level { number: Inode::ROOT, key: 0, path_bytes: 0 }];
    while let Some(level) = levels.last_mut() {
        let directory = tree.known(level.number)?;
        let (mut page, source) = (Vec::new(), tree as &dyn Source);
        let is_end = for_each_from(source, level.number, &directory, level.key, &mut |entry| {
            page.push((entry.key, entry.name.as_bytes().to_vec(), entry.object));
            page.len() < PAGE_ENTRIES
        })?;
        let mut below = None;
        for (key, name, object) in page {
            level.key = key + 1;
            let path_bytes = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            if !tell(object.inode, &path) {
                return Ok(());
            }
            if object.kind == FileKind::Directory {
                check_below(tree, level.number, object.inode)?;
                below = Some(Level { number: object.inode, key: 0, path_bytes });
                break;
            }
            path.truncate(path_bytes);
        }
        if below.is_none() && is_end {
            let level = levels.pop().expect("it is the last");
            path.truncate(level.path_bytes);
        }
        levels.extend(below);
    }
    Ok(())
}

impl Object {
    fn tell(
        self,
        differs: &dyn Fn(u64, u64) -> Result<bool>,
        found: &mut Vec<Difference>,
    ) -> Result<()> {
        let Object { before, after, names_before, names_after } = self;
        let (old, new) = match (before, after) {
            (Some(old), Some(new)) if old.generation == new.generation => (old, new),
            (before, after) => {
                let kind = |inode: &InodeBlock| inode.kind;
                if let Some(kind) = before.as_deref().map(kind) {
                    found.extend(names_before.into_iter().map(|name| only(Some(name), None, kind)));
                }
                if let Some(kind) = after.as_deref().map(kind) {
                    found.extend(names_after.into_iter().map(|name| only(None, Some(name), kind)));
                }
                return Ok(());
            }
        };
        let has_other_content = has_other_content(&old, &new, differs)?;
        let of = |inode: &InodeBlock| (inode.mode, inode.uid, inode.gid);
        let times = |inode: &InodeBlock| (inode.modified, inode.accessed);
        // Entries are told by their own names.
        let is_directory = new.kind == FileKind::Directory;
        let has_other_time = !is_directory && !has_other_content && times(&old) != times(&new);
        let has_other_attributes = of(&old) != of(&new) || has_other_time;
        let both = |before: Vec<u8>, after: Vec<u8>| Difference {
            has_other_content,
            has_other_attributes,
            ..only(Some(before), Some(after), new.kind)
        };
        let (same, gone): (Vec<_>, Vec<_>) =
            names_before.into_iter().partition(|name| names_after.contains(name));
        let mut made = names_after.into_iter().filter(|name| !same.contains(name));
        for name in gone {
            found.push(match made.next() {
                Some(after) => both(name, after),
                None => only(Some(name), None, new.kind),
            });
        }
        found.extend(made.map(|name| only(None, Some(name), new.kind)));
        if has_other_content || has_other_attributes {
            found.extend(same.iter().map(|name| both(name.clone(), name.clone())));
        }
        Ok(())
    }
}

fn only(before: Option<Vec<u8>>, after: Option<Vec<u8>>, kind: FileKind) -> Difference {
    Difference { before, after, kind, has_other_content: false, has_other_attributes: false }
}

/// Whether the bytes of an object were changed, or may have been.
fn has_other_content(
    old: &InodeBlock,
    new: &InodeBlock,
    differs: &dyn Fn(u64, u64) -> Result<bool>,
) -> Result<bool> {
    if new.kind == FileKind::Directory {
        return Ok(false);
    }
    if old.size != new.size {
        return Ok(true);
    }
    let (Content::Slabs(before), Content::Slabs(after)) = (&old.content, &new.content) else {
        return Ok(old.content != new.content);
    };
    if before != after {
        return Ok(true);
    }
    let blocks = new.size.div_ceil(BLOCK);
    for (level, slab) in after.iter().enumerate().filter(|(_, slab)| **slab != 0) {
        let (first, end) = (first_of_level(level), slab_blocks(level).min(blocks));
        if first < end && differs(slab + first, end - first)? {
            return Ok(true);
        }
    }
    Ok(false)
}
