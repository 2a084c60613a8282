//! When a volume whose present is to be in place destages: brings home what was written since.
//!
//! A destage is one or two full merges of its timelines. The first brings home what has a free
//! home and takes before-images out of the way of the rest; the second brings that home. It begins
//! when much is new, or when something is and the last one was as long ago as its cost wants.
//!
//! After a revert all of a base is looked at again, in as many destages as bring something home.
//! The finding of a full merge of a timeline is remembered: so much of the present there is not at
//! home. That holds as long as the present sees the timeline up to where it did; of what was not
//! looked at, everything may be elsewhere.

pub mod progress;

use std::sync::Arc;

use history::{StoredRun, Timeline};
use units::Seq;

use crate::jobs::passes::SETTLE_NS;
use crate::placement::Placement;
use crate::placement::destage::progress::Away;
use crate::types::Granularity;

/// A destage rewrites the map: it begins when this share of it is new, and no fewer entries than
/// may be pending.
const NEW_SHARE: u64 = 8;
/// With less that is new it waits so long for each entry of the map, in nanoseconds, since the last
/// one began: a quarter of a mebibyte of map a second.
const ENTRY_WAIT_NS: u64 = 100_000;

impl Placement {
    /// A pass of reclamation begins, which brings home what it meets.
    pub(crate) fn begin_migration_pass(&self) {
        self.destage.lock().begin();
    }

    /// Homes have to be made again what the present is.
    pub(crate) fn restore_homes(&self) {
        self.destage.lock().restore();
    }

    /// Whether so much is not at home that a reclamation should begin.
    pub(crate) fn wants_destage(&self, now_ns: u64) -> bool {
        let record = self.record.lock();
        let (gone, architecture) = (record.deleted, record.architecture);
        let granularity = record.granularity_at(Seq(u64::MAX));
        drop(record);
        if gone || !architecture.has_base() {
            return false;
        }
        if self.is_restoring() {
            return true;
        }
        let destage = self.destage.lock();
        if destage.wants_other_half() {
            return true;
        }
        if !architecture.destages() && granularity != Granularity::OnDemand {
            // Only what has left the window has settled.
            return false;
        }
        let entries =
            |runs: &[Arc<StoredRun>]| -> u64 { runs.iter().map(|run| run.footer().entries).sum() };
        let mut runs = self.present().timeline.runs();
        let all = entries(&runs);
        runs.retain(|run| Some(run.id) != destage.run);
        let new = entries(&runs);
        let own: u64 = self.own_timelines().iter().map(|own| entries(&own.runs())).sum();
        let wait_ns = own.saturating_mul(ENTRY_WAIT_NS).max(SETTLE_NS);
        new >= (all / NEW_SHARE).max(self.core.pending_max as u64)
            || new > 0 && self.reclamation().waited_ns(now_ns) >= wait_ns
    }

    /// Whether the present still comes home after a revert.
    fn is_restoring(&self) -> bool {
        if !self.destage.lock().is_restoring() {
            return false;
        }
        let left = self.unplaced_homes();
        self.destage.lock().still_restores(left)
    }

    /// Blocks of the present that belong in the base and may not be at home, at most.
    pub(crate) fn unplaced_homes(&self) -> u64 {
        let architecture = self.architecture();
        if !architecture.has_base() {
            return 0;
        }
        let is_own = |id| {
            let timelines = self.core.timelines.read();
            timelines.get(&id).is_some_and(|(record, _)| record.log == self.id)
        };
        let destage = self.destage.lock();
        // With `redirect` only what has settled belongs there, which the next merge tells.
        let counts_new = architecture.destages();
        let (mut all, mut seen) = (0, Seq(u64::MAX));
        let mut line = Arc::clone(&self.present().timeline);
        loop {
            let found = destage.found(line.id, seen);
            let may_be_away = counts_new || found.is_none() && destage.is_restoring();
            if is_own(line.id) {
                all += found.map_or(0, |(_, blocks)| blocks);
                if may_be_away {
                    let known = found.and_then(|(run, _)| run);
                    let runs = line.runs();
                    let new = runs
                        .iter()
                        .filter(|run| Some(run.id) != known && run.footer().seq_first <= seen);
                    all += new.map(|run| run.footer().entries).sum::<u64>();
                    all += line.pending_counts().0 as u64;
                }
            }
            let Some(branch) = line.parent.clone() else { return all };
            seen = seen.min(branch.seq);
            line = branch.timeline;
        }
    }

    /// A full merge made this run, and so many blocks wait for their homes.
    pub(crate) fn note_destaged(
        &self,
        timeline: &Timeline,
        run: Option<u64>,
        waiting: u64,
        away: Option<Away>,
    ) {
        let is_present = self.present().timeline.id == timeline.id;
        self.destage.lock().note((timeline.id, is_present), run, waiting, away);
    }
}
