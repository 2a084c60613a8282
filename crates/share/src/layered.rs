//! Changes over a source: a transaction over the present, and one update over a transaction.
//!
//! 1. An update's changes are dropped whole, or become the transaction's.
//! 2. A number that was freed is not given out again over the same changes: what is zeroed and what
//!    is written never meet in one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::share::directory::DirectoryNode;
use format::share::inode::InodeBlock;
use format::share::log::State;
use format::share::place::{BLOCK_BYTES, STACKS, inode_block};
use format::share::root::ShareRoot;
use format::share::stack::StackBlock;
use units::Inode;

use crate::error::{Error, Result};
use crate::extents::{Change, Extents, Part, Piece};
use crate::source::{Meta, Source};

/// Changes that were not written yet.
#[derive(Debug)]
pub struct Changes<'d> {
    /// Decoded blocks.
    metas: BTreeMap<u64, Meta>,
    /// Data, and holes.
    extents: Extents<'d>,
    /// Counters and free numbers.
    pub state: State,
    /// How many numbers on each stack were free before: what is above was freed by these changes.
    pub floors: [u64; STACKS],
}

impl<'d> Changes<'d> {
    /// None.
    pub fn new(state: State, floors: [u64; STACKS]) -> Changes<'d> {
        Changes { metas: BTreeMap::new(), extents: Extents::default(), state, floors }
    }

    /// Adds those of an update.
    pub fn absorb(&mut self, update: Changes<'d>) {
        for (first, piece) in update.extents {
            if matches!(piece, Piece::Zero(_)) {
                self.zero(first, piece.blocks());
            } else {
                self.extents.insert(first, piece);
            }
        }
        for (block, meta) in update.metas {
            self.put(block, meta);
        }
        self.state = update.state;
        self.floors = update.floors;
    }

    /// Blocks of data and holes that all of it takes, as the volume counts them.
    pub fn blocks(&self) -> usize {
        self.metas.len() + self.extents.cost() as usize
    }

    /// Decoded blocks, by number.
    pub fn metas(&self) -> impl Iterator<Item = (u64, &Meta)> {
        self.metas.iter().map(|(block, meta)| (*block, meta))
    }

    /// Data and holes, by number.
    pub fn extents(&self) -> &Extents<'d> {
        &self.extents
    }

    /// A decoded block, as it is over a source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn meta(&self, base: &dyn Source, block: u64) -> Result<Option<Meta>> {
        if let Some(meta) = self.metas.get(&block) {
            return Ok(Some(meta.clone()));
        }
        match self.extents.parts(block, 1)[0].change {
            Change::None => base.meta(block),
            Change::Hole => Ok(None),
            Change::Bytes(_) => {
                Err(Error::damage(block, "data of a file where a structure should be"))
            }
        }
    }

    /// Reads data, as it is over a source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn data(&self, base: &dyn Source, first_block: u64, buffer: &mut [u8]) -> Result<()> {
        let count = (buffer.len() / BLOCK_BYTES) as u64;
        let mut rest = buffer;
        for Part { first, count, change } in self.extents.parts(first_block, count) {
            let (part, after) = rest.split_at_mut(count as usize * BLOCK_BYTES);
            rest = after;
            match change {
                Change::None => base.data(first, part)?,
                Change::Hole => part.fill(0),
                Change::Bytes(bytes) => part.copy_from_slice(bytes),
            }
        }
        Ok(())
    }

    /// Counts blocks that are no holes, over a source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn count_data(&self, base: &dyn Source, first_block: u64, blocks: u64) -> Result<u64> {
        let mut data = 0;
        for Part { first, count, change } in self.extents.parts(first_block, blocks) {
            data += match change {
                Change::None => base.count_data(first, count)?,
                Change::Hole => 0,
                Change::Bytes(_) => count,
            };
        }
        Ok(data)
    }

    fn put(&mut self, block: u64, meta: Meta) {
        self.extents.cut(block, 1);
        self.metas.insert(block, meta);
    }

    /// Blocks become holes.
    pub fn zero(&mut self, first: u64, count: u64) {
        let blocks: Vec<u64> =
            self.metas.range(first..first + count).map(|(block, _)| *block).collect();
        for block in blocks {
            self.metas.remove(&block);
        }
        self.extents.insert(first, Piece::Zero(count));
    }
}

/// A source with changes.
pub struct Layered<'b, 'd> {
    base: &'b dyn Source,
    /// The changes.
    pub changes: Changes<'d>,
}

impl<'b, 'd> Layered<'b, 'd> {
    /// Changes over a source.
    pub fn new(base: &'b dyn Source, changes: Changes<'d>) -> Layered<'b, 'd> {
        Layered { base, changes }
    }

    /// An inode is as this says.
    pub fn put_inode(&mut self, inode: Inode, block: InodeBlock) {
        self.changes.put(inode_block(inode), Meta::Inode(Arc::new(block)));
    }

    /// A node of a directory is as this says.
    pub fn put_node(&mut self, block: u64, node: DirectoryNode) {
        self.changes.put(block, Meta::Node(Arc::new(node)));
    }

    /// A block of a stack is as this says.
    pub fn put_stack(&mut self, block: u64, stack: StackBlock) {
        self.changes.put(block, Meta::Stack(Arc::new(stack)));
    }

    /// Blocks of data have these bytes.
    pub fn put_data(&mut self, first: u64, piece: Piece<'d>) {
        self.changes.extents.insert(first, piece);
    }

    /// Blocks become holes.
    pub fn zero(&mut self, first: u64, count: u64) {
        self.changes.zero(first, count);
    }

    /// A block of a stack; none where there are zeros.
    ///
    /// # Errors
    /// `Corrupt`, `WouldWait`, `Storage`.
    pub fn stack(&self, block: u64) -> Result<Option<StackBlock>> {
        match self.meta(block)? {
            Some(Meta::Stack(stack)) => Ok(Some(Arc::unwrap_or_clone(stack))),
            _ => Ok(None),
        }
    }
}

impl Source for Layered<'_, '_> {
    fn root(&self) -> &ShareRoot {
        self.base.root()
    }

    fn meta(&self, block: u64) -> Result<Option<Meta>> {
        self.changes.meta(self.base, block)
    }

    fn data(&self, first_block: u64, buffer: &mut [u8]) -> Result<()> {
        self.changes.data(self.base, first_block, buffer)
    }

    fn count_data(&self, first_block: u64, blocks: u64) -> Result<u64> {
        self.changes.count_data(self.base, first_block, blocks)
    }
}
