//! The ground of a share: the blocks of a volume, as the present that can be changed, or as a
//! moment of the past. Volumes and views of the engine are it, and maps in tests.

use units::Seq;

use crate::error::Result;

/// Whether a caller waits for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It does.
    May,
    /// It does not: what is not in memory is [`crate::error::ErrorKind::WouldWait`].
    MayNot,
}

/// The blocks of a share's volume at one moment.
pub trait Blocks: Send + Sync {
    /// Reads whole blocks. Those that were never written, or zeroed, are zeros.
    ///
    /// # Errors
    /// `WouldWait` only where the caller does not wait; `Storage`, `Corrupt`.
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()>;

    /// How many of these blocks are no holes. It is asked of blocks that a write covers in a file
    /// with holes, and of the last block of one that is cut.
    ///
    /// # Errors
    /// As `read`.
    fn count_data(&self, first_block: u64, blocks: u64, wait: Wait) -> Result<u64>;
}

/// A change of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockWrite<'a> {
    /// Whole blocks get these bytes.
    Data {
        /// The first of them.
        block: u64,
        /// Their bytes.
        bytes: &'a [u8],
    },
    /// Blocks become holes.
    Zero {
        /// The first of them.
        block: u64,
        /// How many: up to 2^32.
        count: u64,
    },
}

/// The present, which can be changed. Nobody but its share changes it, except by a revert.
pub trait Present: Blocks {
    /// The seq of the last write. It never falls, not by a revert either.
    fn seq(&self) -> Seq;

    /// Blocks of data and [parts of holes](hole_parts) that one call may have, taken together. It
    /// never changes.
    fn whole_blocks_max(&self) -> usize;

    /// Writes all of these, which do not overlap, or none: after a crash the volume has a prefix of
    /// the calls. At most [`Present::whole_blocks_max`]. It never waits for room.
    ///
    /// # Errors
    /// Those of reading, `Lacks` and `Storage`. Nothing of it was written, unless a device failed:
    /// then the volume refuses every write from now on, and after its next opening all of it is
    /// there, or nothing.
    fn write_whole(&self, writes: &[BlockWrite<'_>], wait: Wait) -> Result<Seq>;
}

/// Blocks that one hole of a volume has at most.
pub const HOLE_BLOCKS_MAX: u64 = 1 << 30;

/// As how many a run of holes counts: one for each multiple of [`HOLE_BLOCKS_MAX`] that it touches.
pub fn hole_parts(first_block: u64, blocks: u64) -> u64 {
    (first_block + blocks - 1) / HOLE_BLOCKS_MAX - first_block / HOLE_BLOCKS_MAX + 1
}

/// Blocks that an update may need besides those of its data: inodes, nodes of directories, stacks
/// of free numbers, holes, one of the log and the root. A RENAME over a file of 17 slabs, in trees
/// of 8 levels of which each splits or joins, takes 92.
pub(crate) const UPDATE_BLOCKS_MAX: usize = 96;
/// Blocks of data that a WRITE may need besides those that its bytes fill: at both ends, and for
/// what was inline.
pub(crate) const WRITE_EXTRA_BLOCKS: usize = 3;

/// Blocks that one whole write has to take: an update, and 128 KiB.
pub const WHOLE_BLOCKS_MIN: usize = UPDATE_BLOCKS_MAX + 32;

impl<T: Blocks + ?Sized> Blocks for &T {
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        (**self).read(first_block, buffer, wait)
    }

    fn count_data(&self, first_block: u64, blocks: u64, wait: Wait) -> Result<u64> {
        (**self).count_data(first_block, blocks, wait)
    }
}

impl<T: Present + ?Sized> Present for &T {
    fn seq(&self) -> Seq {
        (**self).seq()
    }

    fn whole_blocks_max(&self) -> usize {
        (**self).whole_blocks_max()
    }

    fn write_whole(&self, writes: &[BlockWrite<'_>], wait: Wait) -> Result<Seq> {
        (**self).write_whole(writes, wait)
    }
}
