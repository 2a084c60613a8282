//! Where the blocks of a fork are: lists of extents, and trees of them.

use super::base::Xfs;
use super::block::EXTENTS;
use super::inode::{Fork, Format, Inode};
use crate::bytes::{be16, be32, be64};
use crate::error::{Error, Result};
use crate::pieces::Pieces;
use crate::tree::Piece;

/// An extent, and an entry of a tree (a key and a place), in bytes.
const EXTENT_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const KEY_BYTES: usize = 8;
/// What stands before the entries at the top of a tree, and in its other blocks.
pub const TOP_BYTES: usize = 4;
pub const NODE_BYTES: usize = 72;
const LEVELS_MAX: u16 = 9;
/// Blocks of the tree of one fork, at most.
const NODES_MAX: usize = 1 << 20;
/// Blocks of a file that its offsets, which are of 63 bits, can reach.
const OFFSETS: u64 = i64::MAX as u64;

struct Found<'a> {
    pieces: Pieces,
    inode: &'a Inode,
    /// Blocks of the tree that may be read yet.
    nodes_left: usize,
    extents: u64,
}

impl Xfs {
    /// What of a fork is not a hole, and where it is.
    pub fn places(&self, inode: &Inode, fork: Fork<'_>) -> Result<Vec<Piece>> {
        let pieces = Pieces::default();
        let mut found = Found { pieces, inode, nodes_left: NODES_MAX, extents: 0 };
        match fork.format {
            Format::Extents => {
                let bytes = usize::try_from(fork.extents).ok();
                let bytes = bytes.and_then(|count| count.checked_mul(EXTENT_BYTES));
                let list = bytes.and_then(|bytes| fork.bytes.get(..bytes));
                let list = list.ok_or_else(|| inode.damaged("has more extents than fit in it"))?;
                self.extents(list, &mut found)?;
            }
            Format::Tree => {
                let level = be16(fork.bytes, 0);
                if !(1..=LEVELS_MAX).contains(&level) {
                    return Err(inode.damaged("has a tree that contradicts itself"));
                }
                self.node(fork.bytes, TOP_BYTES, level, be16(fork.bytes, 2), &mut found)?;
            }
            Format::Device | Format::Local => {
                return Err(inode.damaged("has bytes where blocks should be"));
            }
        }
        if found.extents != fork.extents {
            return Err(inode.damaged("has another count of extents than it says"));
        }
        Ok(found.pieces.found)
    }

    /// The extents below a block of the tree, or below its top.
    fn node(
        &self,
        node: &[u8],
        head: usize,
        level: u16,
        count: u16,
        found: &mut Found<'_>,
    ) -> Result<()> {
        // Places stand behind the room for all keys.
        let room = node.len().saturating_sub(head) / ENTRY_BYTES;
        if usize::from(count) > room || count == 0 {
            return Err(found.inode.damaged("has a tree that contradicts itself"));
        }
        for index in 0..usize::from(count) {
            let left = found.nodes_left.checked_sub(1);
            let number = found.inode.number;
            let limit = || Error::limit(format!("inode {number} has a tree of {NODES_MAX} blocks"));
            found.nodes_left = left.ok_or_else(limit)?;
            let place = be64(node, head + room * KEY_BYTES + index * 8);
            let place = self.shape.place(place, 1)?;
            let child = self.block_of(found.inode, place, self.shape.block_bytes as usize)?;
            let count = be16(&child, 6);
            if be32(&child, 0) != EXTENTS || be16(&child, 4) != level - 1 || count == 0 {
                return Err(found.inode.damaged("has a tree that contradicts itself"));
            }
            if level > 1 {
                self.node(&child, NODE_BYTES, level - 1, count, found)?;
                continue;
            }
            let list = child.get(NODE_BYTES..NODE_BYTES + usize::from(count) * EXTENT_BYTES);
            let wrong = || found.inode.damaged("has a tree that contradicts itself");
            self.extents(list.ok_or_else(wrong)?, found)?;
        }
        Ok(())
    }

    fn extents(&self, list: &[u8], found: &mut Found<'_>) -> Result<()> {
        let size = self.shape.block_bytes;
        for extent in list.chunks_exact(EXTENT_BYTES) {
            // One bit for unwritten, 54 for the block of the file, 52 for that of the disk, 21 for
            // the count.
            let (high, low) = (be64(extent, 0), be64(extent, 8));
            let from = (high >> 9) & ((1 << 54) - 1);
            let block = (high & 0x1FF) << 43 | low >> 21;
            let count = low & 0x1F_FFFF;
            if count == 0 || from + count > OFFSETS / size {
                return Err(found.inode.damaged("has an extent that cannot be one"));
            }
            let place = self.shape.place(block, count)?;
            let place = (high >> 63 == 0).then_some(place);
            found.extents += 1;
            let piece = Piece { offset: from * size, length: count * size, place };
            found.pieces.add(found.inode.number, piece)?;
        }
        Ok(())
    }
}
