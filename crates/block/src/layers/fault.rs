//! The fault layer: errors and delays by rule, for the real server and for tests.
//!
//! Invariants: 1. without a rule everything is forwarded untouched; 2. a request that is failed
//! here never reaches what lies below; 3. the layer reads no clock: how to wait is given to it;
//! 4. to read a copy and to heal meet the rules of reads, a resync those of writes, and a durable
//! write those of writes and of flushes.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use env::RankedMutex;

use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Outcome, Result, Resync, Right};

/// Waits this many nanoseconds: a sleep in the server, a step of the clock in the simulator.
pub type Pause = Arc<dyn Fn(u64) + Send + Sync>;

/// What a rule does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fails it.
    Fail(DeviceErrorKind),
    /// Lets it wait this many nanoseconds first.
    Delay(u64),
}

/// Which requests meet which effect.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Only this operation; `None` is any.
    pub operation: Option<Operation>,
    /// Only requests that touch this byte range; `None` is any. A flush touches every range.
    pub range: Option<Range<u64>>,
    /// How many matching requests pass before the first is struck.
    pub after: u64,
    /// How many are struck; `None` is for ever.
    pub times: Option<u64>,
    /// What happens to them.
    pub effect: Effect,
}

/// The rules of one or more fault layers; shared with whoever drives them.
#[derive(Debug, Default)]
pub struct FaultPlan {
    rules: RankedMutex<Vec<FaultRule>>,
}

impl FaultPlan {
    /// Adds a rule; rules are tried in the order in which they were added, and the first that
    /// strikes counts.
    pub fn add(&self, rule: FaultRule) {
        self.rules.lock().push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    /// The effect on a request; uses the rule up by one.
    fn strike(&self, operation: Operation, offset: u64, length_bytes: u64) -> Option<Effect> {
        for rule in self.rules.lock().iter_mut() {
            if rule.times == Some(0) || !rule.matches(operation, offset, length_bytes) {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            rule.times = rule.times.map(|times| times - 1);
            return Some(rule.effect);
        }
        None
    }

    fn concerns(&self, operation: Operation, offset: u64, length_bytes: u64) -> bool {
        let rules = self.rules.lock();
        rules.iter().any(|r| r.times != Some(0) && r.matches(operation, offset, length_bytes))
    }
}

impl FaultRule {
    fn matches(&self, operation: Operation, offset: u64, length_bytes: u64) -> bool {
        let end = offset.saturating_add(length_bytes);
        self.operation.is_none_or(|o| o == operation)
            && self.range.as_ref().is_none_or(|r| offset < r.end && r.start < end)
    }
}

/// A device whose requests fail or wait as its plan says.
pub struct FaultDevice<D> {
    below: D,
    plan: Arc<FaultPlan>,
    pause: Pause,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// A fault layer over `below`.
    pub fn new(below: D, plan: Arc<FaultPlan>, pause: Pause) -> FaultDevice<D> {
        FaultDevice { below, plan, pause }
    }

    fn meet(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        match self.plan.strike(operation, offset, length_bytes) {
            None => Ok(()),
            Some(Effect::Delay(nanos)) => {
                (self.pause)(nanos);
                Ok(())
            }
            Some(Effect::Fail(kind)) => {
                let source = match kind {
                    DeviceErrorKind::Full => io::Error::from(io::ErrorKind::StorageFull),
                    DeviceErrorKind::OutOfRange => io::Error::from(io::ErrorKind::InvalidInput),
                    DeviceErrorKind::Corrupt => io::Error::from(io::ErrorKind::InvalidData),
                    DeviceErrorKind::Io => io::Error::other("injected by the fault layer"),
                };
                let device = self.describe();
                Err(DeviceError { kind, operation, offset, length_bytes, device, source })
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.meet(Operation::Read, offset, buffer.len() as u64)?;
        self.below.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        // A rule may make it wait, and whoever comes here may not: send it the long way, which
        // meets the rule.
        if self.plan.concerns(Operation::Read, offset, buffer.len() as u64) {
            return Ok(false);
        }
        self.below.try_read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.meet(Operation::Write, offset, length_bytes)?;
        self.below.write_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.meet(Operation::Flush, 0, self.len_bytes())?;
        self.below.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.meet(Operation::Allocate, offset, length_bytes)?;
        self.below.allocate(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.meet(Operation::Discard, offset, length_bytes)?;
        self.below.discard(offset, length_bytes)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.meet(Operation::Write, offset, length_bytes)?;
        self.meet(Operation::Flush, 0, self.len_bytes())?;
        self.below.write_durable(offset, slices)
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        self.below.copies(offset, length_bytes)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.meet(Operation::Read, offset, buffer.len() as u64)?;
        self.below.read_copy(copy, offset, buffer)
    }

    fn ways(&self) -> usize {
        self.below.ways()
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.meet(Operation::Read, offset, buffer.len() as u64)?;
        self.below.read_way(way, offset, buffer)
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.meet(Operation::Read, offset, buffer.len() as u64)?;
        self.below.heal(offset, buffer, right)
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.meet(Operation::Write, offset, length_bytes)?;
        self.below.resync(offset, length_bytes, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.meet(Operation::Read, offset, length_bytes)?;
        self.below.disagreements(offset, length_bytes)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.below.noticed()
    }

    fn describe(&self) -> String {
        format!("fault({})", self.below.describe())
    }
}
