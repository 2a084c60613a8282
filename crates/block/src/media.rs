//! The bottom of every stack: a `BlockDevice` straight over a `Media`.

use std::io::{self, IoSlice};
use std::sync::Arc;

use env::Media;

use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};

/// A block device that is a file, a disk, memory or the simulator's media.
pub struct MediaDevice {
    media: Arc<dyn Media>,
}

impl MediaDevice {
    /// A device over `media`.
    #[must_use]
    pub fn new(media: Arc<dyn Media>) -> MediaDevice {
        MediaDevice { media }
    }

    fn fail(
        &self,
        operation: Operation,
        offset: u64,
        length_bytes: u64,
        source: io::Error,
    ) -> DeviceError {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => DeviceErrorKind::Full,
            io::ErrorKind::InvalidInput => DeviceErrorKind::OutOfRange,
            // Within what it had when it was opened, or that would be invalid: somebody cut it.
            _ => DeviceErrorKind::Io,
        };
        let device = self.media.name().to_owned();
        DeviceError { kind, operation, offset, length_bytes, device, source }
    }
}

impl BlockDevice for MediaDevice {
    fn len_bytes(&self) -> u64 {
        self.media.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length_bytes = buffer.len() as u64;
        self.media
            .read_at(offset, buffer)
            .map_err(|e| self.fail(Operation::Read, offset, length_bytes, e))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let length_bytes = buffer.len() as u64;
        self.media
            .try_read_at(offset, buffer)
            .map_err(|e| self.fail(Operation::Read, offset, length_bytes, e))
    }

    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        self.media.is_hole(offset, length_bytes)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.media.write_at(offset, slices).map_err(|e| {
            let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
            self.fail(Operation::Write, offset, length_bytes, e)
        })
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.media.write_durable(offset, slices).map_err(|e| {
            let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
            self.fail(Operation::Write, offset, length_bytes, e)
        })
    }

    fn flush(&self) -> Result<()> {
        self.media.sync().map_err(|e| self.fail(Operation::Flush, 0, self.media.len_bytes(), e))
    }

    fn lengthen(&self, len_bytes: Option<u64>) -> Result<u64> {
        let there = self.media.len_bytes();
        self.media.lengthen(len_bytes).map_err(|e| self.fail(Operation::Allocate, 0, there, e))
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media
            .allocate(offset, length_bytes)
            .map_err(|e| self.fail(Operation::Allocate, offset, length_bytes, e))
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media
            .discard(offset, length_bytes)
            .map_err(|e| self.fail(Operation::Discard, offset, length_bytes, e))
    }

    fn describe(&self) -> String {
        self.media.name().to_owned()
    }
}
