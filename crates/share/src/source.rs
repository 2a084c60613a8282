//! All that the code of a tree reads: decoded blocks and data of one moment, with or without
//! changes that were not written yet. There is one reader of trees for the present, the past and
//! transactions.

use std::sync::Arc;

use format::share::directory::DirectoryNode;
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

    /// The inode that an entry names.
    ///
    /// # Errors
    /// `Corrupt` if there is none; as `meta`.
    fn named(&self, inode: Inode) -> Result<Arc<InodeBlock>> {
        let missing = || Error::damage(inode_block(inode), "an entry names an inode that is free");
        self.inode(inode)?.ok_or_else(missing)
    }

    /// A node of a directory, of a level.
    ///
    /// # Errors
    /// `Corrupt` if it is not there, or another's; as `meta`.
    fn node(&self, directory: Inode, block: u64, level: Option<u8>) -> Result<Arc<DirectoryNode>> {
        match self.meta(block)? {
            Some(Meta::Node(node))
                if node.directory == directory && level.is_none_or(|l| l == node.level()) =>
            {
                Ok(node)
            }
            _ => Err(Error::damage(block, "not the node that its parent says it is")),
        }
    }
}
