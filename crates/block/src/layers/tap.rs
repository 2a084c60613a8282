//! The tap layer: records every request that passes, for traces and counters.
//!
//! Invariants: 1. requests and answers pass unchanged; 2. memory is bounded: the newest records
//! replace the oldest; 3. time comes from the clock that was given, monotonic, and is never used
//! for order; 4. a durable write is recorded as one write, and to read a copy or to heal as one
//! read; a resync moves no bytes through the tap and is not recorded.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use env::{Clock, RankedMutex};

use crate::{BlockDevice, Operation, Outcome, Result, Resync, Right};

/// One request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Which operation.
    pub operation: Operation,
    /// Byte offset (0 for a flush).
    pub offset: u64,
    /// Bytes (0 for a flush).
    pub length_bytes: u64,
    /// When it came, in nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Whether it succeeded.
    pub ok: bool,
}

/// Totals of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounters {
    /// Requests, failed ones included.
    pub requests: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
}

#[derive(Debug, Default)]
struct Recorded {
    ring: VecDeque<TraceRecord>,
    counters: [OperationCounters; 5],
}

/// What taps have seen; shared between the layer and whoever reads it.
#[derive(Debug)]
pub struct Tap {
    recorded: RankedMutex<Recorded>,
    records_max: usize,
}

impl Tap {
    /// An empty record that keeps the newest `records_max` requests.
    #[must_use]
    pub fn new(records_max: usize) -> Tap {
        Tap { recorded: RankedMutex::default(), records_max }
    }

    /// Totals of an operation since the beginning.
    #[must_use]
    pub fn counters(&self, operation: Operation) -> OperationCounters {
        self.recorded.lock().counters[place(operation)]
    }

    /// Takes the records away, oldest first; counters stay.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceRecord> {
        std::mem::take(&mut self.recorded.lock().ring).into()
    }

    fn record(&self, record: TraceRecord) {
        let mut recorded = self.recorded.lock();
        let counters = &mut recorded.counters[place(record.operation)];
        counters.requests += 1;
        if record.ok {
            counters.bytes += record.length_bytes;
        } else {
            counters.errors += 1;
        }
        if self.records_max == 0 {
            return;
        }
        if recorded.ring.len() == self.records_max {
            recorded.ring.pop_front();
        }
        recorded.ring.push_back(record);
    }
}

fn place(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Flush => 2,
        Operation::Allocate => 3,
        Operation::Discard => 4,
    }
}

/// A device that records what passes through it.
pub struct TapDevice<D> {
    below: D,
    tap: Arc<Tap>,
    clock: Arc<dyn Clock>,
}

impl<D: BlockDevice> TapDevice<D> {
    /// A tap over `below`.
    pub fn new(below: D, tap: Arc<Tap>, clock: Arc<dyn Clock>) -> TapDevice<D> {
        TapDevice { below, tap, clock }
    }

    fn pass<T>(
        &self,
        operation: Operation,
        offset: u64,
        length_bytes: u64,
        request: impl FnOnce(&D) -> Result<T>,
    ) -> Result<T> {
        let started_ns = self.clock.monotonic_ns();
        let result = request(&self.below);
        let took_ns = self.clock.monotonic_ns().saturating_sub(started_ns);
        let ok = result.is_ok();
        self.tap.record(TraceRecord { operation, offset, length_bytes, started_ns, took_ns, ok });
        result
    }
}

impl<D: BlockDevice> BlockDevice for TapDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length_bytes = buffer.len() as u64;
        self.pass(Operation::Read, offset, length_bytes, |below| below.read_at(offset, buffer))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let length_bytes = buffer.len() as u64;
        let started_ns = self.clock.monotonic_ns();
        let result = self.below.try_read_at(offset, buffer);
        // "Would wait" is no request yet: it comes again as a read.
        if !matches!(result, Ok(false)) {
            let took_ns = self.clock.monotonic_ns().saturating_sub(started_ns);
            let (operation, ok) = (Operation::Read, result.is_ok());
            let record = TraceRecord { operation, offset, length_bytes, started_ns, took_ns, ok };
            self.tap.record(record);
        }
        result
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.pass(Operation::Write, offset, length_bytes, |below| below.write_at(offset, slices))
    }

    fn flush(&self) -> Result<()> {
        self.pass(Operation::Flush, 0, 0, BlockDevice::flush)
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let request = |below: &D| below.allocate(offset, length_bytes);
        self.pass(Operation::Allocate, offset, length_bytes, request)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let request = |below: &D| below.discard(offset, length_bytes);
        self.pass(Operation::Discard, offset, length_bytes, request)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        let request = |below: &D| below.write_durable(offset, slices);
        self.pass(Operation::Write, offset, length_bytes, request)
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        self.below.copies(offset, length_bytes)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length_bytes = buffer.len() as u64;
        let request = |below: &D| below.read_copy(copy, offset, buffer);
        self.pass(Operation::Read, offset, length_bytes, request)
    }

    fn ways(&self) -> usize {
        self.below.ways()
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length_bytes = buffer.len() as u64;
        let request = |below: &D| below.read_way(way, offset, buffer);
        self.pass(Operation::Read, offset, length_bytes, request)
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let length_bytes = buffer.len() as u64;
        let request = |below: &D| below.heal(offset, buffer, right);
        self.pass(Operation::Read, offset, length_bytes, request)
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.below.resync(offset, length_bytes, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.below.disagreements(offset, length_bytes)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.below.noticed()
    }

    fn describe(&self) -> String {
        format!("tap({})", self.below.describe())
    }
}
