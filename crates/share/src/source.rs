//! All that the code of a tree reads: decoded blocks and data of one moment, with or without
//! changes that were not written yet. There is one reader of trees for the present, the past and
//! transactions.

use std::sync::Arc;

use format::share::directory::{Child, DirectoryNode, EntryObject, NodeContent};
use format::share::inode::InodeBlock;
use format::share::place::{
    BLOCK_BYTES, DATA_FIRST, INODES_FIRST, STACKS_FIRST, ShareAddress, inode_block,
};
use format::share::root::ShareRoot;
use format::share::stack::StackBlock;
use units::{FileId, Inode};

use crate::error::{Error, ErrorKind, Result};

/// A decoded block; its area says which of these it is.
#[derive(Clone, Debug)]
pub enum Meta {
    /// An inode.
    Inode(Arc<InodeBlock>),
    /// A node of a directory.
    Node(Arc<DirectoryNode>),
    /// A block of a stack of free numbers.
    Stack(Arc<StackBlock>),
}

impl Meta {
    /// Decodes a block; none if it is zeros.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], address: ShareAddress) -> Result<Option<Meta>> {
        if bytes[..16] == [0; 16] && bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Ok(Some(match address.block {
            DATA_FIRST.. => Meta::Node(Arc::new(DirectoryNode::decode(bytes, address)?)),
            STACKS_FIRST.. => Meta::Stack(Arc::new(StackBlock::decode(bytes, address)?)),
            INODES_FIRST.. => Meta::Inode(Arc::new(InodeBlock::decode(bytes, address)?)),
            block => unreachable!("block {block} is not looked up"),
        }))
    }

    /// Its bytes.
    pub fn encode(&self, address: ShareAddress) -> Box<[u8; BLOCK_BYTES]> {
        match self {
            Meta::Inode(inode) => inode.encode(address),
            Meta::Node(node) => node.encode(address),
            Meta::Stack(stack) => stack.encode(address),
        }
    }
}

/// Blocks of a share at one moment.
pub trait Source {
    /// Its identity.
    fn root(&self) -> &ShareRoot;

    /// A decoded block; none where there are zeros.
    ///
    /// # Errors
    /// `Corrupt`, `WouldWait`, `Storage`.
    fn meta(&self, block: u64) -> Result<Option<Meta>>;

    /// Reads whole blocks of data.
    ///
    /// # Errors
    /// As `meta`.
    fn data(&self, first_block: u64, buffer: &mut [u8]) -> Result<()>;

    /// How many of these blocks are no holes.
    ///
    /// # Errors
    /// As `meta`.
    fn count_data(&self, first_block: u64, blocks: u64) -> Result<u64>;

    /// An inode; none if nothing has that number.
    ///
    /// # Errors
    /// As `meta`.
    fn inode(&self, inode: Inode) -> Result<Option<Arc<InodeBlock>>> {
        if inode.0 == 0 || inode >= Inode::END {
            return Ok(None);
        }
        Ok(self.meta(inode_block(inode))?.map(|meta| match meta {
            Meta::Inode(inode) => inode,
            _ => unreachable!("the area says what it is"),
        }))
    }

    /// An object.
    ///
    /// # Errors
    /// `Stale` if it is gone; as `meta`.
    fn object(&self, id: FileId) -> Result<Arc<InodeBlock>> {
        let found = self.inode(id.inode)?.filter(|inode| inode.generation == id.generation);
        found.ok_or(Error::from(ErrorKind::Stale))
    }

    /// An inode that has to be there.
    ///
    /// # Errors
    /// `Corrupt` if it is not; as `meta`.
    fn known(&self, inode: Inode) -> Result<Arc<InodeBlock>> {
        let missing = || Error::damage(inode_block(inode), "an inode that is named is free");
        self.inode(inode)?.ok_or_else(missing)
    }

    /// The object that an entry names.
    ///
    /// # Errors
    /// `Corrupt` if it is not there, or another is; as `meta`.
    fn named(&self, object: EntryObject) -> Result<Arc<InodeBlock>> {
        let inode = self.known(object.inode)?;
        let other = || Error::damage(inode_block(object.inode), "not what an entry says it is");
        Some(inode).filter(|inode| object.is(inode)).ok_or_else(other)
    }

    /// A node of a directory.
    ///
    /// # Errors
    /// `Corrupt` if it is not there, or not what is said of it; as `meta`.
    fn node(&self, directory: Inode, at: Below) -> Result<Arc<DirectoryNode>> {
        match self.meta(at.block)? {
            Some(Meta::Node(node)) if node.directory == directory && at.is_of(&node) => Ok(node),
            _ => Err(Error::damage(at.block, "not the node that its parent says it is")),
        }
    }
}

/// A node of a directory, as the one above it says.
#[derive(Clone, Copy, Debug)]
pub struct Below {
    /// Its block.
    pub block: u64,
    /// Its level; of the root any.
    pub level: Option<u8>,
    /// Its keys are from the first of these on, and before the second.
    pub keys: (u64, u64),
}

/// No key is as large.
pub const KEYS_END: u64 = 1 << 63;

impl Below {
    /// The root of a directory's tree.
    pub fn root(block: u64) -> Below {
        Below { block, level: None, keys: (0, KEYS_END) }
    }

    /// A child of this node, which is of a level.
    pub fn child(self, level: u8, children: &[Child], index: usize) -> Below {
        let Child { key, block } = children[index];
        let end = children.get(index + 1).map_or(self.keys.1, |next| next.key);
        Below { block, level: Some(level - 1), keys: (key, end) }
    }

    /// Whether a key may be below it.
    pub fn has(&self, key: u64) -> bool {
        (self.keys.0..self.keys.1).contains(&key)
    }

    /// Whether a node is as said, but for the keys of entries: a reader looks at those as it goes.
    fn is_of(&self, node: &DirectoryNode) -> bool {
        let fits = match &node.content {
            NodeContent::Leaf(_) => true,
            NodeContent::Inner(_, children) => {
                children.first().is_none_or(|first| first.key == self.keys.0)
                    && children.last().is_none_or(|last| self.has(last.key))
            }
        };
        fits && self.level.is_none_or(|level| level == node.level())
    }
}
