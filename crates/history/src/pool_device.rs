//! The device under a pool, as everything above it uses it: one failed write or flush is final, and
//! what reads wrong is had from another copy.
//!
//! Invariant: after one failed write or flush `failed` stays set: no later success is trusted.
//!
//! Deliberately unaware of zones and of what is written.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::heal::is_right_somehow;
use block::{BlockDevice, Outcome, Right};
use parking_lot::{Condvar, Mutex};

use crate::{Error, Result};

/// The faults found since somebody last asked, for the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Ranges of which another copy was right; it was written over the wrong one.
    pub recovered: u64,
    /// Ranges that were right when they were read once more.
    pub transient: u64,
    /// Ranges of which no copy was right.
    pub unrecoverable: u64,
    /// Those of the first whose bytes were those of another version.
    pub elsewhere: u64,
    /// Where on the stack the first of them was, in bytes.
    pub first_at: u64,
}

impl Healed {
    /// How many ranges were found wrong.
    pub fn total(&self) -> u64 {
        self.recovered + self.transient + self.unrecoverable
    }
}

/// Group commit of device flushes.
#[derive(Debug, Default)]
struct FlushGroup {
    state: Mutex<FlushState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct FlushState {
    started: u64,
    ended: u64,
    running: bool,
}

/// The stack of devices, and what was found wrong with it.
pub struct PoolDevice {
    /// The stack.
    pub device: Arc<dyn BlockDevice>,
    /// Blocks whose checksum did not match.
    pub checksum_errors: AtomicU64,
    flushes: FlushGroup,
    failed: AtomicBool,
    /// The faults found since the pool was opened, and since somebody last asked.
    healed: Mutex<[Healed; 2]>,
}

impl PoolDevice {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> PoolDevice {
        PoolDevice {
            device,
            checksum_errors: AtomicU64::new(0),
            flushes: FlushGroup::default(),
            failed: AtomicBool::new(false),
            healed: Mutex::default(),
        }
    }

    /// Whether an earlier write or flush failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Refuses writes from now on.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        // Waiters for a flush that never ends are told too.
        drop(self.flushes.state.lock());
        self.flushes.ended.notify_all();
    }

    /// Writes to the device; a failure is final for the store.
    ///
    /// # Errors
    /// `Refused` after an earlier failure; else the device's.
    pub fn write(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        if self.has_failed() {
            return Err(Error::refused());
        }
        self.device.write_at(offset, slices).map_err(|e| {
            self.fail();
            e.into()
        })
    }

    /// Flushes the device. Callers that wait together share one flush, which began after each of
    /// them came.
    ///
    /// # Errors
    /// `Refused` after an earlier failure; else the device's.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.flushes.state.lock();
        let mine = state.started + 1;
        loop {
            if self.has_failed() {
                return Err(Error::refused());
            }
            if state.ended >= mine {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.flushes.ended.wait(&mut state);
        }
        state.started += 1;
        state.running = true;
        let ticket = state.started;
        drop(state);
        let outcome = self.device.flush();
        if outcome.is_err() {
            self.fail();
        }
        let mut state = self.flushes.state.lock();
        state.running = false;
        if outcome.is_ok() {
            state.ended = ticket;
        }
        self.flushes.ended.notify_all();
        drop(state);
        outcome.map_err(Error::from)
    }

    /// Fills `buffer` with the right bytes of a range that was read and found wrong; false if there
    /// are none.
    pub fn heal(&self, at: u64, buffer: &mut [u8], right: &Right<'_>) -> bool {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
        let outcome = self.device.heal(at, buffer, right);
        self.count(at, |counts| match outcome {
            Ok(Outcome::Recovered) => &mut counts.recovered,
            Ok(Outcome::Transient) => &mut counts.transient,
            // The map's checksum came with the pointer: copies that agree against it are wrong.
            Ok(Outcome::Agreed | Outcome::Unrecoverable) | Err(_) => &mut counts.unrecoverable,
        });
        matches!(outcome, Ok(Outcome::Recovered | Outcome::Transient))
    }

    /// Counts a range that was found wrong.
    fn count(&self, at: u64, which: impl Fn(&mut Healed) -> &mut u64) {
        for counts in self.healed.lock().iter_mut() {
            if counts.total() == 0 {
                counts.first_at = at;
            }
            *which(counts) += 1;
        }
    }

    /// The same as [`PoolDevice::heal`] for what may never have been written: nothing is wrong
    /// unless some copy is right.
    pub fn heal_if_known(&self, at: u64, buffer: &mut [u8], right: &Right<'_>) -> bool {
        self.device.copies(at, buffer.len() as u64) > 1
            && is_right_somehow(&*self.device, at, buffer, right)
            && self.heal(at, buffer, right)
    }

    /// Writes again what is known from elsewhere than a copy, and counts it as found wrong.
    ///
    /// # Errors
    /// `Refused` or the device's.
    pub fn write_known(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
        self.write(at, &[IoSlice::new(bytes)])?;
        self.count(at, |counts| &mut counts.recovered);
        Ok(())
    }

    /// Whether some copy of a range is right, which `buffer` has then, and so all are afterwards
    /// that can be written: what a crash or a lost write left on one of them may not be built upon
    /// before.
    pub fn agree(&self, at: u64, buffer: &mut [u8], right: &Right<'_>) -> bool {
        let copies = self.device.copies(at, buffer.len() as u64);
        let mut is_right = |copy| self.device.read_copy(copy, at, buffer).is_ok() && right(buffer);
        let right_ones = (0..copies).filter(|&copy| is_right(copy)).count();
        match right_ones {
            0 => self.heal_if_known(at, buffer, right),
            all if all == copies => true,
            _ => self.heal(at, buffer, right),
        }
    }

    /// Counts a block that was had from another version; so many were counted as lost before.
    pub(crate) fn count_elsewhere(&self, at: u64, were_lost: u64) {
        self.count(at, |counts| {
            counts.unrecoverable = counts.unrecoverable.saturating_sub(were_lost);
            counts.elsewhere += 1;
            &mut counts.recovered
        });
    }

    /// The faults found since this was asked last.
    pub fn take_healed(&self) -> Healed {
        std::mem::take(&mut self.healed.lock()[1])
    }

    /// The faults found since the pool was opened.
    pub fn healed(&self) -> Healed {
        self.healed.lock()[0]
    }
}
