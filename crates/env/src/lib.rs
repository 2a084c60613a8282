//! The engine's demands on the machine: media, clocks, entropy.
//!
//! The engine below `server` reads no clock, no randomness and no file except through these traits,
//! so that one thread and one seed can run all of it in the simulator (`sim` implements the same
//! traits).

use std::io::{self, IoSlice};

use units::WallTime;

mod file;
mod locked;
mod mapped;
mod ranges;
mod rank;
mod ranked;
mod read_only;
mod real;
mod shared_memory;
mod tmpfs;

pub use file::FileMedia;
pub use ranges::{HeldRange, Ranges};
pub use rank::Rank;
pub use ranked::{Held, RankedGuard, RankedMutex, RankedReadGuard, RankedRwLock, RankedWriteGuard};
pub use read_only::{FileIdentity, Files, NoFiles, ReadOnlyFile, RealFiles};
pub use real::{RealClock, RealEntropy};
pub use shared_memory::{
    GRAIN_BYTES, MAP_WORDS, Owner, PIECE_BYTES, SLOT_WORDS, SharedMemories, SharedMemory, SlotWords,
};
pub use tmpfs::Tmpfs;

/// A flat array of bytes that keeps what was synced: a file, a disk, memory, or the simulator's.
///
/// Writes are acknowledged when the operating system has them (they survive the death of the
/// process); they are durable when a later [`Media::sync`] returns `Ok`.
pub trait Media: Send + Sync {
    /// Length in bytes. Reads and writes beyond it fail.
    fn len_bytes(&self) -> u64;
    /// Fills `buffer` from `offset`; never short.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Fills `buffer` only if that needs no waiting for a device; `Ok(false)` means "would wait".
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buffer).map(|()| true)
    }
    /// Writes all slices, one after another, from `offset`; never short.
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()>;
    /// A write that is durable when it returns; of others it says nothing.
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_at(offset, slices)?;
        self.sync()
    }
    /// A write that goes past a cache as far as it can; like [`Media::write_at`] otherwise.
    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at(offset, &[IoSlice::new(bytes)])
    }
    /// Why no write buffer can be over it: that needs writes past a cache, and space that is there
    /// once it was allocated.
    fn why_no_buffer(&self) -> Option<String> {
        Some(format!("{} keeps what is written in memory itself", self.name()))
    }
    /// Differs from what it was if anybody has written to them since; some media cannot tell.
    fn stamp(&self) -> u128 {
        0
    }
    /// Which media they are, for as long as the machine runs; not their content.
    fn identity(&self) -> u128 {
        0
    }
    /// Whether a range is known to say nothing but zeros, without being read; false where it is
    /// not.
    fn is_hole(&self, _offset: u64, _length_bytes: u64) -> bool {
        false
    }
    /// Makes every write that returned before this call durable.
    fn sync(&self) -> io::Result<()>;
    /// Reserves real space for a range so that later writes there cannot meet a full file system.
    /// The content of the range afterwards is unspecified only if it was discarded before.
    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()>;
    /// Gives a range back; it reads as anything until it is written again.
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()>;
    /// Takes its length anew, made longer first, durably and with a hole, where it is shorter than
    /// so many bytes; returns that length, which is never less than before.
    fn lengthen(&self, _len_bytes: Option<u64>) -> io::Result<u64> {
        Ok(self.len_bytes())
    }
    /// A name for messages.
    fn name(&self) -> &str;
}

/// Wall time and a monotonic clock.
pub trait Clock: Send + Sync {
    /// The wall clock; may jump in both directions.
    fn wall(&self) -> WallTime;
    /// Nanoseconds since some fixed start; never goes back.
    fn monotonic_ns(&self) -> u64;
}

/// A source of random numbers.
pub trait Entropy: Send + Sync {
    /// The next random 64 bits.
    fn next_u64(&self) -> u64;
}
