//! A member: a device whose first MiB is its label's, or none where one should be.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::label::AREA_BYTES;
use parking_lot::RwLock;

use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};

/// What a member did since it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests that failed.
    pub errors: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
}

/// The bottom of an array's stack.
pub(super) struct MemberDevice {
    pub counters: Counters,
    data_bytes: u64,
    place: RwLock<Place>,
}

struct Place {
    id: u128,
    path: String,
    device: Option<Arc<dyn BlockDevice>>,
}

impl MemberDevice {
    pub fn new(
        id: u128,
        data_bytes: u64,
        path: String,
        device: Option<Arc<dyn BlockDevice>>,
    ) -> MemberDevice {
        let place = RwLock::new(Place { id, path, device });
        MemberDevice { counters: Counters::default(), data_bytes, place }
    }

    pub fn id(&self) -> u128 {
        self.place.read().id
    }

    /// Puts another device in its place; waits for requests under way.
    pub fn replace(&self, id: u128, path: String, device: Option<Arc<dyn BlockDevice>>) {
        *self.place.write() = Place { id, path, device };
    }

    /// What is in its place.
    pub fn place(&self) -> (u128, String, Option<Arc<dyn BlockDevice>>) {
        let place = self.place.read();
        (place.id, place.path.clone(), place.device.clone())
    }

    pub fn path(&self) -> String {
        self.place.read().path.clone()
    }

    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub fn is_there(&self) -> bool {
        self.place.read().device.is_some()
    }

    /// Writes into the label's area, durably.
    pub fn write_area(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset + bytes.len() as u64 <= AREA_BYTES, "the area is the label's");
        let length_bytes = bytes.len() as u64;
        self.ask(Operation::Write, offset, length_bytes, |device| {
            device.write_durable(offset, &[IoSlice::new(bytes)])
        })
    }

    /// A request to the device, at its own offset.
    fn ask<T>(
        &self,
        operation: Operation,
        offset: u64,
        length_bytes: u64,
        request: impl FnOnce(&dyn BlockDevice) -> Result<T>,
    ) -> Result<T> {
        let place = self.place.read();
        let outcome = match &place.device {
            Some(device) => request(&**device),
            None => {
                let source = io::Error::new(io::ErrorKind::NotFound, "the member is not there");
                let (kind, device) = (DeviceErrorKind::Io, place.path.clone());
                Err(DeviceError { kind, operation, offset, length_bytes, device, source })
            }
        };
        if outcome.as_ref().is_err_and(|e| e.kind == DeviceErrorKind::Io) {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// A request to a range of what is after the area.
    fn ask_data<T>(
        &self,
        operation: Operation,
        offset: u64,
        length_bytes: u64,
        request: impl FnOnce(&dyn BlockDevice, u64) -> Result<T>,
    ) -> Result<T> {
        if offset.checked_add(length_bytes).is_none_or(|end| end > self.data_bytes) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "beyond the end");
            let (kind, device) = (DeviceErrorKind::OutOfRange, self.path());
            return Err(DeviceError { kind, operation, offset, length_bytes, device, source });
        }
        let at = offset + AREA_BYTES;
        self.ask(operation, at, length_bytes, |device| request(device, at))
    }
}

impl BlockDevice for MemberDevice {
    fn len_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len() as u64;
        self.counters.read_bytes.fetch_add(length, Ordering::Relaxed);
        self.ask_data(Operation::Read, offset, length, |device, at| device.read_at(at, buffer))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let length = buffer.len() as u64;
        let outcome = self
            .ask_data(Operation::Read, offset, length, |device, at| device.try_read_at(at, buffer));
        if let Ok(true) = outcome {
            self.counters.read_bytes.fetch_add(length, Ordering::Relaxed);
        }
        outcome
    }

    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        let is_hole = |device: &dyn BlockDevice, at| Ok(device.is_hole(at, length_bytes));
        self.ask_data(Operation::Read, offset, length_bytes, is_hole).unwrap_or(false)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length = slices.iter().map(|s| s.len() as u64).sum();
        self.counters.written_bytes.fetch_add(length, Ordering::Relaxed);
        self.ask_data(Operation::Write, offset, length, |device, at| device.write_at(at, slices))
    }

    fn flush(&self) -> Result<()> {
        self.ask(Operation::Flush, 0, self.data_bytes, |device| device.flush())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.ask_data(Operation::Allocate, offset, length_bytes, |device, at| {
            device.allocate(at, length_bytes)
        })
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.ask_data(Operation::Discard, offset, length_bytes, |device, at| {
            device.discard(at, length_bytes)
        })
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length = slices.iter().map(|s| s.len() as u64).sum();
        self.counters.written_bytes.fetch_add(length, Ordering::Relaxed);
        self.ask_data(Operation::Write, offset, length, |device, at| {
            device.write_durable(at, slices)
        })
    }

    fn describe(&self) -> String {
        self.path()
    }
}
