//! Looking up and listing the entries of a directory, wherever they are.
//!
//! 1. A listing goes by keys. An entry keeps its key while it lives, however nodes split and merge;
//!    so nothing is listed twice, and nothing is left out that was there all the time.

use std::sync::Arc;

use format::share::directory::{Child, DirectoryNode, Entry, NODE_LEVELS_MAX, NodeContent};
use format::share::inode::{Content, InodeBlock};
use format::share::name_hash::{KEYS_OF_A_HASH, first_key};
use format::share::place::inode_block;
use units::{FileName, Inode};

use crate::error::{Error, Result};
use crate::source::Source;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its key.
    pub key: u64,
    /// The inode that it names.
    pub inode: Inode,
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
            found = Some(Found { key: entry.key, inode: entry.inode });
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
        let (leaf, next) = leaf_of(source, number, root, key)?;
        let NodeContent::Leaf(entries) = &leaf.content else {
            unreachable!("a search ends in a leaf");
        };
        if !entries.from(key).all(&mut *tell) {
            return Ok(false);
        }
        match next {
            Some(next) => key = next,
            None => return Ok(true),
        }
    }
}

/// Whether a directory has no entries.
pub fn is_empty(directory: &InodeBlock) -> bool {
    directory.entries == 0
}

/// The leaf that a key belongs to, and where the next leaf's keys begin.
fn leaf_of(
    source: &dyn Source,
    number: Inode,
    root: u64,
    key: u64,
) -> Result<(Arc<DirectoryNode>, Option<u64>)> {
    let mut next = None;
    let mut block = root;
    let mut level = None;
    loop {
        let node = source.node(number, block, level)?;
        assert!(node.level() < NODE_LEVELS_MAX);
        let NodeContent::Inner(height, children) = &node.content else {
            return Ok((node, next));
        };
        let at = child_of(children, key);
        if let Some(after) = children.get(at + 1) {
            next = Some(after.key);
        }
        level = Some(height - 1);
        block = children[at].block;
    }
}

/// The index of the child that a key is below.
pub fn child_of(children: &[Child], key: u64) -> usize {
    children.partition_point(|child| child.key <= key).saturating_sub(1)
}
