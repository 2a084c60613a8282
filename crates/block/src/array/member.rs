//! A member: a device whose first MiB is its label's, or none where one should be.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedRwLock};
use format::label::AREA_BYTES;

use super::successor::{Answer, Fault, Successor};
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
    data_bytes: AtomicU64,
    place: RankedRwLock<Place>,
}

struct Place {
    id: u128,
    path: String,
    device: Option<Arc<dyn BlockDevice>>,
    /// What gets all that is there, to take the place then.
    successor: Option<Arc<Successor>>,
}

impl MemberDevice {
    pub fn new(
        id: u128,
        data_bytes: u64,
        path: String,
        device: Option<Arc<dyn BlockDevice>>,
    ) -> MemberDevice {
        let place = Place { id, path, device, successor: None };
        let place = RankedRwLock::new(Rank::MemberPlace, place);
        let data_bytes = AtomicU64::new(data_bytes);
        MemberDevice { counters: Counters::default(), data_bytes, place }
    }

    pub fn id(&self) -> u128 {
        self.place.read().id
    }

    /// Puts another device in its place; waits for requests under way.
    pub fn replace(&self, id: u128, path: String, device: Option<Arc<dyn BlockDevice>>) {
        *self.place.write() = Place { id, path, device, successor: None };
    }

    /// Has a device get what is written from now on, or none any more; waits for requests under
    /// way.
    pub fn set_successor(&self, successor: Option<Arc<Successor>>) {
        self.place.write().successor = successor;
    }

    pub fn successor(&self) -> Option<Arc<Successor>> {
        self.place.read().successor.clone()
    }

    /// Has labels name the successor from now on; false where it has not everything.
    pub fn begin_turning(&self, successor: &Successor) -> bool {
        // Whoever is being answered by both of them is through with it.
        let _alone = self.place.write();
        let has_all = successor.over().is_none() && successor.left(self.data_bytes()) == 0;
        if has_all {
            successor.begin_turning();
        }
        has_all
    }

    /// Puts the successor in the place; returns what was there.
    pub fn turn(&self) -> (String, Option<Arc<dyn BlockDevice>>) {
        let mut place = self.place.write();
        let successor = place.successor.take().expect("labels name it");
        let (id, path) = (successor.spare.id, successor.spare.path.clone());
        let device = successor.spare.device.clone();
        let before = std::mem::replace(&mut *place, Place { id, path, device, successor: None });
        (before.path, before.device)
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
        self.data_bytes.load(Ordering::Acquire)
    }

    /// Takes the length of its device anew, or makes it so long as to have these bytes after the
    /// label; how many there are.
    pub fn lengthen_device(&self, data_bytes: Option<u64>) -> Result<u64> {
        let length = data_bytes.map(|bytes| bytes.saturating_add(AREA_BYTES));
        let there = self.data_bytes();
        let bytes = self.ask(Operation::Allocate, 0, there, |device| device.lengthen(length))?;
        Ok(bytes.saturating_sub(AREA_BYTES))
    }

    /// Has more of it be used from now on: labels say so.
    pub fn set_data_bytes(&self, data_bytes: u64) {
        self.data_bytes.store(data_bytes, Ordering::Release);
    }

    pub fn is_there(&self) -> bool {
        self.place.read().device.is_some()
    }

    /// Writes into the label's area, durably.
    pub fn write_area(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset + bytes.len() as u64 <= AREA_BYTES, "the area is the label's");
        let length_bytes = bytes.len() as u64;
        let successor = self.successor().filter(|successor| successor.is_named());
        self.ask(Operation::Write, offset, length_bytes, |device| {
            let named = successor.as_ref().map_or(device, |successor| successor.device());
            named.write_durable(offset, &[IoSlice::new(bytes)])
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
        self.ask_in(&self.place.read(), operation, (offset, length_bytes), request)
    }

    fn ask_in<T>(
        &self,
        place: &Place,
        operation: Operation,
        (offset, length_bytes): (u64, u64),
        request: impl FnOnce(&dyn BlockDevice) -> Result<T>,
    ) -> Result<T> {
        let outcome = match &place.device {
            Some(device) => request(&**device),
            None => {
                let source = io::Error::new(
                    io::ErrorKind::NotFound,
                    "the member, or what a layer keeps on it, is not there",
                );
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
        let at = self.address(operation, offset, length_bytes)?;
        self.ask(operation, at, length_bytes, |device| request(device, at))
    }

    /// Where a range of what is after the area begins on the device.
    fn address(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<u64> {
        if offset.checked_add(length_bytes).is_none_or(|end| end > self.data_bytes()) {
            let (kind, range) = (DeviceErrorKind::OutOfRange, (offset, length_bytes));
            return Err(DeviceError::new(kind, operation, range, self.path(), "beyond the end"));
        }
        Ok(offset + AREA_BYTES)
    }

    /// A request that changes a range of what is after the area, for the successor as well.
    fn change(
        &self,
        operation: Operation,
        offset: u64,
        length_bytes: u64,
        request: impl Fn(&dyn BlockDevice, u64) -> Result<()>,
    ) -> Result<()> {
        let at = self.address(operation, offset, length_bytes)?;
        let range = (at, length_bytes);
        self.ask_both(|place, successor| {
            let _shared = successor.map(|successor| successor.gates.share(at, length_bytes));
            let done = self.ask_in(place, operation, range, |device| request(device, at));
            match successor {
                Some(successor) => successor.follow(done, |device| request(device, at)),
                None => Answer::Done(done),
            }
        })
    }

    /// A request to what is in the place, and to its successor if there is one.
    fn ask_both(&self, request: impl FnOnce(&Place, Option<&Successor>) -> Answer) -> Result<()> {
        let place = self.place.read();
        match request(&place, place.successor.as_deref()) {
            Answer::Done(done) => done,
            Answer::Unsure(failure) => {
                let successor = place.successor.clone().expect("it failed");
                drop(place);
                successor.judge(failure)
            }
        }
    }

    /// Discards a range of both. What is there then may be anything, and must be the same: parity
    /// is computed of it.
    fn discard_both(
        &self,
        place: &Place,
        successor: &Successor,
        (at, length_bytes): (u64, u64),
    ) -> Answer {
        let _alone = successor.gates.take(at, length_bytes);
        let discard = |device: &dyn BlockDevice| device.discard(at, length_bytes);
        let done = self.ask_in(place, Operation::Discard, (at, length_bytes), discard);
        let member = place.device.as_deref();
        successor.follow(done, |device| {
            device.discard(at, length_bytes)?;
            match successor.copy_held(member.expect("it was asked"), at, length_bytes) {
                Ok(_) => Ok(()),
                Err(Fault::Successor(error)) => Err(error),
                Err(Fault::Member(_)) => {
                    successor.begin_again();
                    Ok(())
                }
            }
        })
    }
}

impl BlockDevice for MemberDevice {
    fn len_bytes(&self) -> u64 {
        self.data_bytes()
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
        self.change(Operation::Write, offset, length, |device, at| device.write_at(at, slices))
    }

    fn flush(&self) -> Result<()> {
        let flush = |device: &dyn BlockDevice| device.flush();
        self.ask_both(|place, successor| {
            let done = self.ask_in(place, Operation::Flush, (0, self.data_bytes()), flush);
            match successor {
                Some(successor) => successor.follow(done, flush),
                None => Answer::Done(done),
            }
        })
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.change(Operation::Allocate, offset, length_bytes, |device, at| {
            device.allocate(at, length_bytes)
        })
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let at = self.address(Operation::Discard, offset, length_bytes)?;
        let discard = |device: &dyn BlockDevice| device.discard(at, length_bytes);
        self.ask_both(|place, successor| match successor {
            Some(successor) => self.discard_both(place, successor, (at, length_bytes)),
            None => {
                let range = (at, length_bytes);
                Answer::Done(self.ask_in(place, Operation::Discard, range, discard))
            }
        })
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length = slices.iter().map(|s| s.len() as u64).sum();
        self.counters.written_bytes.fetch_add(length, Ordering::Relaxed);
        self.change(Operation::Write, offset, length, |device, at| device.write_durable(at, slices))
    }

    fn describe(&self) -> String {
        self.path()
    }
}
