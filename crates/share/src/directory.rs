//! Looking up and listing the entries of a directory, wherever they are.
//!
//! 1. A listing goes by keys. An entry keeps its key while it lives, however nodes split and merge;
//!    so nothing is listed twice, and nothing is left out that was there all the time.

use std::sync::Arc;

use format::share::directory::{Child, DirectoryNode, Entry, EntryObject, NodeContent};
use format::share::inode::{Content, InodeBlock};
use format::share::name_hash::{KEYS_OF_A_HASH, first_key};
use format::share::place::inode_block;
use units::{FileName, Inode};

use crate::error::{Error, Result};
use crate::source::{Below, KEYS_END, Source};

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its key.
    pub key: u64,
    /// The object that it names.
    pub object: EntryObject,
}

/// The keys that a name may have: the first of them.
pub fn first_key_of(source: &dyn Source, name: FileName<'_>) -> u64 {
    first_key(source.root().hash_key, name.as_bytes())
}

/// Finds a name.
///
/// # Errors
/// Those of reading.
pub fn find(
    source: &dyn Source,
    number: Inode,
    directory: &InodeBlock,
    name: FileName<'_>,
) -> Result<Option<Found>> {
    find_at(source, number, directory, (first_key_of(source, name), name))
}

/// Finds a name whose keys begin with `first`.
pub(crate) fn find_at(
    source: &dyn Source,
    number: Inode,
    directory: &InodeBlock,
    (first, name): (u64, FileName<'_>),
) -> Result<Option<Found>> {
    let mut found = None;
    for_each_from(source, number, directory, first, &mut |entry| {
        if entry.key >= first + KEYS_OF_A_HASH {
            return false;
        }
        if entry.name == name {
            found = Some(Found { key: entry.key, object: entry.object });
        }
        found.is_none()
    })?;
    Ok(found)
}

/// Tells of the entries with keys from `key` on, in order, until `tell` says to stop; whether it
/// came to the end.
///
/// # Errors
/// Those of reading.
pub fn for_each_from(
    source: &dyn Source,
    number: Inode,
    directory: &InodeBlock,
    key: u64,
    tell: &mut dyn FnMut(Entry<'_>) -> bool,
) -> Result<bool> {
    let root = match &directory.content {
        Content::Entries(entries) => return Ok(entries.from(key).all(tell)),
        Content::Tree(root) => *root,
        _ => return Err(Error::damage(inode_block(number), "a directory without entries")),
    };
    let mut key = key;
    loop {
        let (leaf, at) = leaf_of(source, number, root, key)?;
        let NodeContent::Leaf(entries) = &leaf.content else {
            unreachable!("a search ends in a leaf");
        };
        for entry in entries.from(key) {
            if !at.has(entry.key) {
                return Err(Error::damage(at.block, OUTSIDE));
            }
            if !tell(entry) {
                return Ok(false);
            }
        }
        if at.keys.1 == KEYS_END {
            return Ok(true);
        }
        key = at.keys.1;
    }
}

/// The fault of a leaf that cannot be where it is.
pub(crate) const OUTSIDE: &str = "a key outside of what its parent says";

/// Fails unless a directory says that it is in the one that has its entry: so nobody who goes down
/// goes in a circle.
///
/// # Errors
/// `Corrupt`; those of reading.
pub fn check_below(source: &dyn Source, parent: Inode, child: Inode) -> Result<()> {
    let other = || Error::damage(inode_block(child), "a directory in another than it says");
    if source.known(child)?.parent == parent { Ok(()) } else { Err(other()) }
}

/// Whether a directory has no entries.
pub fn is_empty(directory: &InodeBlock) -> bool {
    matches!(&directory.content, Content::Entries(entries) if entries.count() == 0)
}

/// The leaf that a key belongs to.
fn leaf_of(
    source: &dyn Source,
    number: Inode,
    root: u64,
    key: u64,
) -> Result<(Arc<DirectoryNode>, Below)> {
    let mut at = Below::root(root);
    loop {
        // Levels fall by one each time.
        let node = source.node(number, at)?;
        let NodeContent::Inner(level, children) = &node.content else { return Ok((node, at)) };
        at = at.child(*level, children, child_of(children, key));
    }
}

/// The index of the child that a key is below.
pub fn child_of(children: &[Child], key: u64) -> usize {
    children.partition_point(|child| child.key <= key).saturating_sub(1)
}
