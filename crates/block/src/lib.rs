//! Block devices and the layers over them.
//!
//! A layer implements [`BlockDevice`] over other block devices, forwards by default and overrides
//! only what it changes. Offsets and lengths are bytes; no alignment is demanded.

use std::io::IoSlice;
use std::sync::Arc;

mod error;
mod layers;
mod media;
mod space;

pub use error::{DeviceError, DeviceErrorKind, Operation};
pub use layers::{
    Effect, FaultDevice, FaultPlan, FaultRule, MemoryDevice, OperationCounters, Pause, Tap,
    TapDevice, TraceRecord,
};
pub use media::MediaDevice;
pub use space::{Purpose, Zones};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An array of bytes with the durability rules of [`env::Media`], stackable.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> u64;
    /// Fills `buffer` from `offset`; never short.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Fills `buffer` if that needs no waiting; `Ok(false)` means "would wait" and leaves it
    /// unspecified.
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_at(offset, buffer).map(|()| true)
    }
    /// Writes all slices one after another from `offset`; never short.
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()>;
    /// Makes every write that returned before this call durable.
    fn flush(&self) -> Result<()>;
    /// Reserves real space for a range.
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()>;
    /// Gives a range back; it reads as anything until it is written again.
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()>;
    /// The stack from here down, for people: `tap(fault(file pool.img))`.
    fn describe(&self) -> String;
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buffer)
    }
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        (**self).try_read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        (**self).write_at(offset, slices)
    }
    fn flush(&self) -> Result<()> {
        (**self).flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        (**self).allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        (**self).discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        (**self).describe()
    }
}
