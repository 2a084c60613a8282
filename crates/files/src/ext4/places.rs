//! Where the blocks of a file are: trees of extents, and the indirect blocks of old.

use super::base::Ext4;
use super::inode::{BLOCK_AT, EXTENTS, INLINE, Inode};
use crate::bytes::{halves, le16, le32};
use crate::crc::crc32c;
use crate::error::{Error, Result};
use crate::pieces::Pieces;
use crate::tree::Piece;

const MAGIC: u16 = 0xF30A;
const ENTRY_BYTES: usize = 12;
/// Blocks of metadata of one file, at most.
const NODES_MAX: usize = 1 << 20;
const DEPTH_MAX: u16 = 5;
/// An extent of more blocks has its space, and nothing written.
const WRITTEN_MAX: u32 = 32768;
/// Places that an inode has itself, before those of blocks of places.
const DIRECT: u64 = 12;

/// Pieces as they are found, in order of the file.
struct Found<'a> {
    pieces: Pieces,
    inode: &'a Inode,
    block_bytes: u64,
    disk_blocks: u64,
    /// Blocks of metadata that may be read yet.
    nodes_left: usize,
}

impl Found<'_> {
    /// One more block of metadata is read: a tree that leads back has no end otherwise.
    fn enter(&mut self) -> Result<()> {
        let number = self.inode.number;
        let limit = || Error::limit(format!("inode {number} has a tree of {NODES_MAX} blocks"));
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or_else(limit)?;
        Ok(())
    }

    /// Blocks of the file from one on, and where they are; nowhere is written never.
    fn add(&mut self, from: u64, count: u64, place: Option<u64>) -> Result<()> {
        let is_outside = |first: u64| {
            first == 0 || first.checked_add(count).is_none_or(|end| end > self.disk_blocks)
        };
        if place.is_some_and(is_outside) {
            return Err(self.inode.damaged("has blocks outside of the disk"));
        }
        let size = self.block_bytes;
        let place = place.map(|at| at * size);
        let piece = Piece { offset: from * size, length: count * size, place };
        self.pieces.add(u64::from(self.inode.number), piece)
    }
}

impl Ext4 {
    /// What of an inode is not a hole, and where it is.
    pub fn places(&self, inode: &Inode) -> Result<Vec<Piece>> {
        inode.refuse_encrypted()?;
        if inode.has(INLINE) {
            let at = inode.at + BLOCK_AT as u64;
            return Ok(vec![Piece { offset: 0, length: inode.size(), place: Some(at) }]);
        }
        let mut found = Found {
            pieces: Pieces::default(),
            inode,
            block_bytes: self.shape.block_bytes,
            disk_blocks: self.shape.blocks,
            nodes_left: NODES_MAX,
        };
        if inode.has(EXTENTS) {
            let depth = le16(inode.block(), 6);
            if depth > DEPTH_MAX {
                return Err(inode.damaged("has a tree that is too deep"));
            }
            self.extents(inode.block(), depth, &mut found)?;
        } else {
            self.indirect(inode, &mut found)?;
        }
        Ok(found.pieces.found)
    }

    fn extents(&self, node: &[u8], depth: u16, found: &mut Found<'_>) -> Result<()> {
        let count = usize::from(le16(node, 2));
        let is_sound = le16(node, 0) == MAGIC
            && le16(node, 6) == depth
            && count <= usize::from(le16(node, 4))
            && (count + 1) * ENTRY_BYTES <= node.len();
        if !is_sound {
            return Err(found.inode.damaged("has a tree that contradicts itself"));
        }
        for entry in node[ENTRY_BYTES..].chunks_exact(ENTRY_BYTES).take(count) {
            let from = u64::from(le32(entry, 0));
            if depth == 0 {
                let length = u32::from(le16(entry, 4));
                let place = halves(le32(entry, 8), u32::from(le16(entry, 6)));
                let is_written = length <= WRITTEN_MAX;
                let count = if is_written { length } else { length - WRITTEN_MAX };
                if count == 0 {
                    return Err(found.inode.damaged("has an extent of no blocks"));
                }
                found.add(from, u64::from(count), is_written.then_some(place))?;
            } else {
                let place = halves(le32(entry, 4), u32::from(le16(entry, 8)));
                let child = self.block_of(found.inode, place)?;
                check_extents(found.inode, &child)?;
                found.enter()?;
                self.extents(&child, depth - 1, found)?;
            }
        }
        Ok(())
    }

    /// A block of metadata of an inode.
    pub fn block_of(&self, inode: &Inode, place: u64) -> Result<Vec<u8>> {
        if place == 0 || place >= self.shape.blocks {
            return Err(inode.damaged("has blocks outside of the disk"));
        }
        self.over.block(place)
    }

    fn indirect(&self, inode: &Inode, found: &mut Found<'_>) -> Result<()> {
        let size = inode.size();
        let blocks = size.div_ceil(self.shape.block_bytes);
        for number in 0..DIRECT {
            let place = le32(inode.block(), number as usize * 4);
            if place != 0 {
                found.add(number, 1, Some(u64::from(place)))?;
            }
        }
        let mut from = DIRECT;
        let per_block = self.shape.block_bytes / 4;
        for level in 1..=3_u32 {
            let place = le32(inode.block(), (DIRECT as usize + level as usize - 1) * 4);
            if place != 0 {
                self.places_in(place, level, from, blocks, found)?;
            }
            from += per_block.pow(level);
        }
        Ok(())
    }

    /// The places in a block of places, or of such blocks; those beyond the file's end are none of
    /// ours.
    fn places_in(
        &self,
        place: u32,
        level: u32,
        from: u64,
        blocks: u64,
        found: &mut Found<'_>,
    ) -> Result<()> {
        found.enter()?;
        let block = self.block_of(found.inode, u64::from(place))?;
        let per_entry = (self.shape.block_bytes / 4).pow(level - 1);
        for (index, entry) in (0..).zip(block.chunks_exact(4)) {
            let (at, place) = (from + index * per_entry, le32(entry, 0));
            if at >= blocks {
                break;
            }
            if place != 0 && level == 1 {
                found.add(at, 1, Some(u64::from(place)))?;
            } else if place != 0 {
                self.places_in(place, level - 1, at, blocks, found)?;
            }
        }
        Ok(())
    }
}

fn check_extents(inode: &Inode, block: &[u8]) -> Result<()> {
    let Some(seed) = inode.seed else { return Ok(()) };
    let tail = ENTRY_BYTES + usize::from(le16(block, 4)) * ENTRY_BYTES;
    let bytes = block.get(..tail).filter(|_| tail + 4 <= block.len());
    if bytes.is_some_and(|bytes| crc32c(seed, bytes) == le32(block, tail)) {
        return Ok(());
    }
    Err(inode.damaged("has a checksum in its tree that does not match"))
}
