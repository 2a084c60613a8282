//! Where the blocks of a share are on its volume, and how each begins.
//!
//! 1. The areas do not overlap, and end with the largest volume that there is.
//! 2. A file's block `b` is at `slab + b`, in the slab of the level of `b`: the address of a slab
//!    is a multiple of its size, and its first quarter (of levels above 0) is never used.

use crate::error::{Place, Result};
use crate::field::{get, get_u32, put, verify_zero_bytes};

/// The beginning of every block but the root.
pub mod layout {
    use crate::field::{Field, tile};

    /// The beginning.
    pub const BYTES: usize = 16;
    pub(crate) const MAGIC: Field = Field::new("magic", 0, 4);
    pub(crate) const TAG: Field = Field::new("tag", 4, 4);
    pub(crate) const BLOCK: Field = Field::new("block", 8, 8);
    /// In order.
    pub const FIELDS: &[Field] = &[MAGIC, TAG, BLOCK];
    const _: () = assert!(tile(FIELDS, BYTES));
}

/// Bytes of a block.
pub const BLOCK_BYTES: usize = units::BLOCK_BYTES as usize;
/// Blocks of the volume of a share.
pub const VOLUME_BLOCKS: u64 = 1 << 40;
/// The block of the root.
pub const ROOT_BLOCK: u64 = 0;
/// The first block of the operation log.
pub const LOG_FIRST: u64 = 1 << 20;
/// Blocks of the operation log; number `n` of the log is at `n` modulo this many.
pub const LOG_BLOCKS: u64 = (1 << 24) - LOG_FIRST;
/// Inode 0, which there is not.
pub const INODES_FIRST: u64 = 1 << 34;
/// The first block of the first stack of free numbers.
pub const STACKS_FIRST: u64 = 1 << 36;
/// Blocks of each stack.
pub const STACK_BLOCKS: u64 = 1 << 31;
/// The first block of data.
pub const DATA_FIRST: u64 = 1 << 39;
/// Levels of slabs: of 4^0 to 4^16 blocks.
pub const LEVELS: usize = 17;
/// Stacks of free numbers: of inodes, then of the slabs of each level.
pub const STACKS: usize = 1 + LEVELS;
/// The largest file.
pub const FILE_BYTES_MAX: u64 = slab_blocks(LEVELS - 1) * units::BLOCK_BYTES;

const _: () = assert!(LOG_FIRST + LOG_BLOCKS <= INODES_FIRST);
const _: () = assert!(INODES_FIRST + units::Inode::END.0 <= STACKS_FIRST);
const _: () = assert!(STACKS_FIRST + STACKS as u64 * STACK_BLOCKS <= DATA_FIRST);
const _: () = assert!((VOLUME_BLOCKS - DATA_FIRST).is_multiple_of(slab_blocks(LEVELS - 1)));
const _: () = assert!(FILE_BYTES_MAX == 16 << 40);

/// Blocks of a slab of a level.
pub const fn slab_blocks(level: usize) -> u64 {
    1 << (2 * level)
}

/// The level of the slab that a block of a file is in.
pub const fn level_of(file_block: u64) -> usize {
    (64 - file_block.leading_zeros()).div_ceil(2) as usize
}

/// The first block of a file that is in a slab of that level.
pub const fn first_of_level(level: usize) -> u64 {
    if level == 0 { 0 } else { slab_blocks(level - 1) }
}

/// Whether a slab of that level can be there.
pub const fn is_slab(level: usize, block: u64) -> bool {
    block >= DATA_FIRST && block < VOLUME_BLOCKS && block.is_multiple_of(slab_blocks(level))
}

/// The block of an inode.
pub const fn inode_block(inode: units::Inode) -> u64 {
    INODES_FIRST + inode.0
}

/// Whose block, and where: what it says of itself, and what its reader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareAddress {
    /// The lower half of the lower half of the share's id.
    pub tag: u32,
    /// The block.
    pub block: u64,
    /// Whether the share has features that only readers may be without: bytes that are spare to
    /// this program may then have a meaning.
    pub has_more: bool,
}

impl ShareAddress {
    /// Verifies bytes that are spare, which stand at `offset`.
    pub(crate) fn verify_spare(self, place: Place, bytes: &[u8], offset: usize) -> Result<()> {
        if self.has_more { Ok(()) } else { verify_zero_bytes(place, bytes, offset) }
    }

    pub(crate) fn place(self, structure: &'static str) -> Place {
        Place { structure, address: self.block }
    }

    pub(crate) fn begin(self, magic: &[u8; 4]) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        put(&mut bytes[..], layout::MAGIC, u64::from(u32::from_le_bytes(*magic)));
        put(&mut bytes[..], layout::TAG, u64::from(self.tag));
        put(&mut bytes[..], layout::BLOCK, self.block);
        bytes
    }

    /// Verifies the beginning of a block.
    pub(crate) fn verify(self, place: Place, magic: &[u8; 4], bytes: &[u8]) -> Result<()> {
        let magic = u64::from(u32::from_le_bytes(*magic));
        place.require_magic(get(bytes, layout::MAGIC), magic)?;
        let tag = get_u32(bytes, layout::TAG);
        place.require(tag == self.tag, "the tag of its share", tag)?;
        let block = get(bytes, layout::BLOCK);
        place.require(block == self.block, "its own address", block)
    }
}

#[cfg(test)]
mod tests {
    use super::{LEVELS, first_of_level, level_of, slab_blocks};

    #[test]
    fn each_level_begins_where_the_one_before_ends() {
        assert_eq!((level_of(0), level_of(1), level_of(3), level_of(4)), (0, 1, 1, 2));
        for level in 1..LEVELS {
            let first = first_of_level(level);
            assert_eq!((level_of(first - 1), level_of(first)), (level - 1, level));
            assert_eq!(level_of(slab_blocks(level) - 1), level);
        }
    }
}
