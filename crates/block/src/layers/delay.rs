//! The delay layer: every request waits a given time first, as on a slower device.
//!
//! Invariants: 1. requests and answers pass unchanged; 2. what would have to wait is never answered
//! by a read that may not: `try_read_at` says "would wait"; 3. the layer reads no clock and holds
//! no lock while it waits: how to wait is given to it, and requests wait side by side.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Outcome, Result, Resync, Right};

/// Waits this many nanoseconds: a sleep in the server, a step of the clock in the simulator.
pub type Pause = Arc<dyn Fn(u64) + Send + Sync>;

/// How long requests wait, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Reads: of a copy and to heal, too.
    pub read_ns: u64,
    /// Writes, and what changes the device as they do: allocations, discards, resyncs.
    pub write_ns: u64,
    /// Flushes. A durable write waits for this and for `write_ns`.
    pub flush_ns: u64,
}

/// A device that takes its time.
pub struct DelayDevice {
    below: Arc<dyn BlockDevice>,
    delays: Delays,
    pause: Pause,
}

impl DelayDevice {
    /// A delay layer over `below`.
    pub fn new(below: Arc<dyn BlockDevice>, delays: Delays, pause: Pause) -> DelayDevice {
        DelayDevice { below, delays, pause }
    }

    fn wait(&self, nanos: u64) -> &dyn BlockDevice {
        if nanos > 0 {
            (self.pause)(nanos);
        }
        &*self.below
    }
}

impl BlockDevice for DelayDevice {
    forward! {
        self.below =>
        fn len_bytes(&self) -> u64;
        fn copies(&self, offset: u64, length_bytes: u64) -> usize;
        fn ways(&self) -> usize;
        fn noticed(&self) -> Vec<Range<u64>>;
    }

    forward! {
        self.wait(self.delays.read_ns) =>
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome>;
        fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>>;
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        if self.delays.read_ns > 0 {
            return Ok(false);
        }
        self.below.try_read_at(offset, buffer)
    }

    forward! {
        self.wait(self.delays.write_ns) =>
        fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()>;
        fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()>;
        fn discard(&self, offset: u64, length_bytes: u64) -> Result<()>;
        fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()>;
    }

    fn flush(&self) -> Result<()> {
        self.wait(self.delays.flush_ns).flush()
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let nanos = self.delays.write_ns.saturating_add(self.delays.flush_ns);
        self.wait(nanos).write_durable(offset, slices)
    }

    fn describe(&self) -> String {
        let Delays { read_ns, write_ns, flush_ns } = self.delays;
        let below = self.below.describe();
        format!("delay[read={read_ns}ns,write={write_ns}ns,flush={flush_ns}ns]({below})")
    }
}
