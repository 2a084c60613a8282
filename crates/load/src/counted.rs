//! A device that counts what is asked of the one below it: a read that would have waited comes
//! again as a read, and is counted then; a durable write is one write.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, MediaDevice, Result};

/// Requests since the device was made, failed ones included.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    /// Bytes of the reads.
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

impl Counters {
    fn read(&self, buffer: &[u8]) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
    }
}

/// A file whose requests are counted.
pub(crate) struct CountedDevice {
    pub(crate) below: MediaDevice,
    pub(crate) counters: Arc<Counters>,
}

impl BlockDevice for CountedDevice {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.counters.read(buffer);
        self.below.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let read = self.below.try_read_at(offset, buffer);
        if !matches!(read, Ok(false)) {
            self.counters.read(buffer);
        }
        read
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.below.write_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.below.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.below.allocate(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.below.discard(offset, length_bytes)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.below.write_durable(offset, slices)
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}
