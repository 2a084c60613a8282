//! Adding and removing entries of a directory: in its inode while they fit, else in a B+-tree.
//!
//! 1. Every leaf below the root has entries, every inner node children.
//! 2. A node that became small is joined with its neighbour when both fill three quarters at most;
//!    a tree of little is put back into the inode.

use std::sync::Arc;

use format::share::directory::{
    CHILDREN_MAX, Child, DirectoryNode, ENTRY_BYTES, Entries, Entry, EntryObject, NODE_BYTES_MAX,
    NODE_LEVELS_MAX, NodeContent,
};
use format::share::inode::{Content, INLINE_BYTES_MAX, InodeBlock};
use format::share::name_hash::KEYS_OF_A_HASH;
use format::share::place::inode_block;
use units::{BLOCK_BYTES, FileName, Inode};

use crate::allocation::{allocate_slab, free_slab};
use crate::directory::{OUTSIDE, child_of, first_key_of, for_each_from};
use crate::error::{Error, ErrorKind, Result, require};
use crate::layered::Layered;
use crate::source::{Below, Source};

/// A node with fewer bytes looks for a neighbour to be joined with.
const SMALL_BYTES: usize = NODE_BYTES_MAX / 4;
/// Two nodes with so many bytes together are joined.
const JOINED_BYTES_MAX: usize = NODE_BYTES_MAX / 4 * 3;
/// A root with so few bytes of entries goes back into the inode.
const INLINE_AGAIN_BYTES: usize = INLINE_BYTES_MAX / 2;

/// A directory that is being changed.
pub struct Changed<'l, 'b, 'd> {
    /// Where its nodes are.
    pub layer: &'l mut Layered<'b, 'd>,
    /// Its number.
    pub number: Inode,
    /// Its inode, which the caller puts back.
    pub directory: &'l mut InodeBlock,
}

impl Changed<'_, '_, '_> {
    /// Adds an entry. The caller has seen that there is none of that name.
    ///
    /// # Errors
    /// `NoSpace`; those of reading.
    pub fn add(&mut self, name: FileName<'_>, object: EntryObject) -> Result<()> {
        let first = first_key_of(self.layer, name);
        self.add_at(first, name, object)
    }

    /// Adds an entry whose name has its keys from `first` on.
    fn add_at(&mut self, first: u64, name: FileName<'_>, object: EntryObject) -> Result<()> {
        let mut key = first;
        for_each_from(self.layer, self.number, self.directory, first, &mut |entry| {
            let is_taken = entry.key == key;
            key += u64::from(is_taken);
            is_taken
        })?;
        require(key < first + KEYS_OF_A_HASH, ErrorKind::NoSpace)?;
        let entry = Entry { key, object, name };
        if let Content::Entries(entries) = &mut self.directory.content {
            if entries.as_bytes().len() + ENTRY_BYTES + name.as_bytes().len() <= INLINE_BYTES_MAX {
                put_entry(entries, entry, inode_block(self.number))?;
                self.directory.entries += 1;
                return Ok(());
            }
            let entries = std::mem::take(entries);
            let root = self.make_node(NodeContent::Leaf(entries))?;
            self.directory.content = Content::Tree(root);
        }
        let root = self.root()?;
        if let Some(upper) = self.add_below(Below::root(root), entry)? {
            let level = self.layer.node(self.number, Below::root(root))?.level() + 1;
            require(level < NODE_LEVELS_MAX, ErrorKind::NoSpace)?;
            let children = vec![Child { key: 0, block: root }, upper];
            self.directory.content =
                Content::Tree(self.make_node(NodeContent::Inner(level, children))?);
        }
        self.directory.entries += 1;
        Ok(())
    }

    /// Takes the entry with that key away.
    ///
    /// # Errors
    /// `Corrupt` if it is not there; those of reading.
    pub fn remove(&mut self, key: u64) -> Result<()> {
        let was_there = match &mut self.directory.content {
            Content::Entries(entries) => entries.remove(key),
            _ => {
                let root = self.root()?;
                let was_there = self.remove_below(Below::root(root), key)?;
                self.shorten()?;
                was_there
            }
        };
        let fewer = self.directory.entries.checked_sub(1);
        match fewer.filter(|_| was_there) {
            Some(fewer) => self.directory.entries = fewer,
            None => {
                let block = inode_block(self.number);
                return Err(Error::damage(block, "an entry is not where it was found"));
            }
        }
        Ok(())
    }

    /// Lets the entry with that key name another object.
    ///
    /// # Errors
    /// `Corrupt` if it is not there; those of reading.
    pub fn replace(&mut self, key: u64, object: EntryObject) -> Result<()> {
        if let Content::Entries(entries) = &mut self.directory.content {
            return rename(entries, key, object)
                .ok_or_else(|| Error::damage(inode_block(self.number), "an entry is gone"));
        }
        let mut at = Below::root(self.root()?);
        loop {
            let mut node = Arc::unwrap_or_clone(self.node(at)?);
            match &mut node.content {
                NodeContent::Inner(level, children) => {
                    at = at.child(*level, children, child_of(children, key));
                }
                NodeContent::Leaf(entries) => {
                    let gone = || Error::damage(at.block, "an entry is not where it was found");
                    rename(entries, key, object).ok_or_else(gone)?;
                    self.layer.put_node(at.block, node);
                    return Ok(());
                }
            }
        }
    }

    fn root(&self) -> Result<u64> {
        match self.directory.content {
            Content::Tree(root) => Ok(root),
            _ => Err(Error::damage(inode_block(self.number), "a directory without entries")),
        }
    }

    /// A node, with all keys as they are to be.
    fn node(&self, at: Below) -> Result<Arc<DirectoryNode>> {
        let node = self.layer.node(self.number, at)?;
        match &node.content {
            NodeContent::Leaf(entries) if !entries.iter().all(|entry| at.has(entry.key)) => {
                Err(Error::damage(at.block, OUTSIDE))
            }
            _ => Ok(node),
        }
    }

    /// Adds an entry below a node; the node that was split off, if one was.
    fn add_below(&mut self, at: Below, entry: Entry<'_>) -> Result<Option<Child>> {
        let node = self.node(at)?;
        let level = node.level();
        let upper = match &node.content {
            NodeContent::Leaf(entries) => {
                let mut entries = entries.clone();
                put_entry(&mut entries, entry, at.block)?;
                let is_over = entries.as_bytes().len() > NODE_BYTES_MAX;
                let upper = is_over.then(|| entries.split());
                self.put(at.block, NodeContent::Leaf(entries));
                upper.map(|upper| {
                    let key = upper.iter().next().expect("no half is empty").key;
                    (key, NodeContent::Leaf(upper))
                })
            }
            NodeContent::Inner(_, children) => {
                let index = child_of(children, entry.key);
                let split = self.add_below(at.child(level, children, index), entry)?;
                let Some(new) = split else { return Ok(None) };
                let mut children = children.clone();
                children.insert(index + 1, new);
                let is_over = children.len() > CHILDREN_MAX;
                let upper = is_over.then(|| children.split_off(children.len() / 2));
                self.put(at.block, NodeContent::Inner(level, children));
                upper.map(|upper| (upper[0].key, NodeContent::Inner(level, upper)))
            }
        };
        let Some((key, content)) = upper else { return Ok(None) };
        Ok(Some(Child { key, block: self.make_node(content)? }))
    }

    /// Removes an entry below a node; whether it was there. The node above deals with
    /// what became empty or small.
    fn remove_below(&mut self, at: Below, key: u64) -> Result<bool> {
        let node = self.node(at)?;
        match &node.content {
            NodeContent::Leaf(entries) => {
                let mut entries = entries.clone();
                let was_there = entries.remove(key);
                self.put(at.block, NodeContent::Leaf(entries));
                Ok(was_there)
            }
            NodeContent::Inner(level, children) => {
                let index = child_of(children, key);
                let was_there = self.remove_below(at.child(*level, children, index), key)?;
                let mut children = children.clone();
                if self.join((at, *level), &mut children, index)? {
                    self.put(at.block, NodeContent::Inner(*level, children));
                }
                Ok(was_there)
            }
        }
    }

    /// Frees the child at an index if it is empty, or joins it with a neighbour if it is small;
    /// whether the children changed.
    fn join(
        &mut self,
        (above, level): (Below, u8),
        children: &mut Vec<Child>,
        at: usize,
    ) -> Result<bool> {
        let child = self.node(above.child(level, children, at))?;
        let bytes = child.content_bytes();
        if bytes == 0 {
            self.free_node(children[at].block)?;
            let key = children.remove(at).key;
            if let Some(first) = children.first_mut().filter(|_| at == 0) {
                first.key = key;
            }
            return Ok(true);
        }
        if bytes >= SMALL_BYTES || children.len() == 1 {
            return Ok(false);
        }
        let left = at.min(children.len() - 2);
        let [lower, upper] = [left, left + 1].map(|index| above.child(level, children, index));
        let mut joined = Arc::unwrap_or_clone(self.node(lower)?);
        let other = self.node(upper)?;
        if joined.content_bytes() + other.content_bytes() > JOINED_BYTES_MAX {
            return Ok(false);
        }
        match (&mut joined.content, &other.content) {
            (NodeContent::Leaf(entries), NodeContent::Leaf(more)) => entries.append(more),
            (NodeContent::Inner(_, entries), NodeContent::Inner(_, more)) => {
                entries.extend_from_slice(more);
            }
            _ => unreachable!("both are of one level"),
        }
        self.put(lower.block, joined.content);
        self.free_node(upper.block)?;
        children.remove(left + 1);
        Ok(true)
    }

    /// Takes roots away that have one child, or none; puts few entries back into the inode.
    fn shorten(&mut self) -> Result<()> {
        loop {
            let root = self.root()?;
            let node = self.node(Below::root(root))?;
            match &node.content {
                NodeContent::Inner(_, children) if children.len() == 1 => {
                    self.directory.content = Content::Tree(children[0].block);
                }
                NodeContent::Inner(_, children) if children.is_empty() => {
                    self.directory.content = Content::Entries(Entries::default());
                }
                NodeContent::Leaf(entries) if entries.as_bytes().len() <= INLINE_AGAIN_BYTES => {
                    self.directory.content = Content::Entries(entries.clone());
                }
                _ => return Ok(()),
            }
            self.free_node(root)?;
            if matches!(self.directory.content, Content::Entries(_)) {
                return Ok(());
            }
        }
    }

    fn put(&mut self, block: u64, content: NodeContent) {
        self.layer.put_node(block, DirectoryNode { directory: self.number, content });
    }

    fn make_node(&mut self, content: NodeContent) -> Result<u64> {
        let block = allocate_slab(self.layer, 0)?;
        self.put(block, content);
        self.count(self.directory.used + 1);
        Ok(block)
    }

    fn free_node(&mut self, block: u64) -> Result<()> {
        free_slab(self.layer, 0, block)?;
        self.count(self.directory.used.saturating_sub(1));
        Ok(())
    }

    fn count(&mut self, nodes: u64) {
        let state = &mut self.layer.changes.state;
        state.used = (state.used + nodes).saturating_sub(self.directory.used);
        self.directory.used = nodes;
        self.directory.size = nodes.max(1) * BLOCK_BYTES;
    }
}

/// Adds an entry whose key was seen to be free.
fn put_entry(entries: &mut Entries, entry: Entry<'_>, block: u64) -> Result<()> {
    let was_free = entries.insert(entry);
    Some(()).filter(|()| was_free).ok_or_else(|| Error::damage(block, "a key of two entries"))
}

/// Lets an entry name another object.
fn rename(entries: &mut Entries, key: u64, object: EntryObject) -> Option<()> {
    let found = entries.from(key).next().filter(|entry| entry.key == key)?;
    let name = found.name.as_bytes().to_vec();
    entries.remove(key);
    let name = FileName::new(&name).expect("it was one");
    entries.insert(Entry { key, object, name }).then_some(())
}

#[cfg(test)]
mod tests;
