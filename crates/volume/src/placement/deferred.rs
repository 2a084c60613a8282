//! Which places of a `hybrid` wait until a window of its granularity is over.
//!
//! A version that leaves the cache always goes to the log. In place it goes at the same time, or
//! only when its window is over: if it is rather written again by then. A block that was written
//! again has saved a write in place; another is read from the log and put in place. Until then the
//! log answers: a place that waits is not trusted, as one of `split-stream` is not that waits for
//! what the cache has (`current_store`).
//!
//! Waiting places are known in memory only. After a crash nothing in place is trusted, and after a
//! clean close slabs in which something waited are compared with the log.

pub mod waiting;

use history::FastSet;
use units::BLOCK_BYTES;

use crate::Result;
use crate::placement::Placement;
use crate::placement::deferred::waiting::Deferred;
use crate::placement::in_place::Putting;
use crate::types::{Architecture, Granularity};
use crate::write::cache::Run;

/// Blocks that may wait; more go in place at once.
const WAITING_MAX: usize = 1 << 18;
/// How long places wait at most with `on-demand`, where windows have no end of their own.
const ON_DEMAND_NS: u64 = 600_000_000_000;

impl Placement {
    /// How long windows are at whose ends places are due; none where none wait.
    fn deferral_ns(&self) -> Option<u64> {
        let record = self.record.lock();
        let is_hybrid = record.architecture == Architecture::Hybrid;
        match record.granularity_at(units::Seq(u64::MAX)) {
            _ if !is_hybrid => None,
            Granularity::EveryWrite => None,
            Granularity::Interval(nanos) => Some(nanos.max(1)),
            Granularity::OnDemand => Some(ON_DEMAND_NS),
        }
    }

    /// Which blocks of a run are not put in place with it but when their window is over.
    pub(crate) fn choose_deferred(&self, run: &Run) -> FastSet<u64> {
        let Some(window_ns) = self.deferral_ns() else { return FastSet::default() };
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let room = {
            let mut deferred = self.deferred.lock();
            deferred.look_at_clock(now_ns, window_ns);
            WAITING_MAX.saturating_sub(deferred.len())
        };
        let mut waits = self.cache().waits(run, window_ns, now_ns);
        if waits.len() > room {
            waits.clear();
        }
        waits
    }

    /// A run is in the log, and in place but for those that wait.
    pub(crate) fn note_deferred(&self, blocks: impl Iterator<Item = u64>, waits: &FastSet<u64>) {
        let mut deferred = self.deferred.lock();
        for block in blocks {
            match waits.contains(&block) {
                true => deferred.wait(block),
                false => deferred.forget(block),
            }
        }
    }

    /// Puts places that have waited long enough right; true when there may be more. The caller
    /// holds `work`.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn place_deferred(&self, budget_bytes: u64) -> Result<bool> {
        let Some(current) = &self.present().current else {
            *self.deferred.lock() = Deferred::default();
            return Ok(false);
        };
        if self.is_gone() {
            return Ok(false);
        }
        let now_ns = self.core.machine.clock.wall().as_nanos();
        match self.deferral_ns() {
            Some(window_ns) => self.deferred.lock().look_at_clock(now_ns, window_ns),
            None => self.deferred.lock().all_due(),
        }
        let _epoch = self.core.store.enter();
        let mut spent = 0;
        while spent < budget_bytes.max(1) {
            let Some(blocks) = self.deferred.lock().take() else { return Ok(false) };
            spent += BLOCK_BYTES + self.put_in_place(current, blocks, Putting::Deferred)?;
        }
        Ok(true)
    }

    /// Bytes whose places wait.
    pub(crate) fn deferred_bytes(&self) -> u64 {
        self.deferred.lock().len() as u64 * BLOCK_BYTES
    }
}
