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

    /// Writes all of these, which do not overlap, or none: after a crash the volume has a prefix of
    /// the calls. At most [`WRITE_BLOCKS_MAX`] blocks of data, and writes.
    ///
    /// # Errors
    /// `Storage`; then nothing of it was written.
    fn write_whole(&self, writes: &[BlockWrite<'_>]) -> Result<Seq>;
}

/// Blocks of data, and writes, that one call may have.
pub const WRITE_BLOCKS_MAX: usize = 8000;

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

    fn write_whole(&self, writes: &[BlockWrite<'_>]) -> Result<Seq> {
        (**self).write_whole(writes)
    }
}
