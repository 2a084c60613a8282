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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::{StoredRun, Timeline};
use units::Seq;

use crate::catalogue::VolumeRecord;
use crate::jobs::reclaim::SETTLE_NS;
use crate::types::Granularity;
use crate::volume::Volume;

/// A destage rewrites the map: it begins when this share of it is new, and no fewer entries than
/// may be pending.
const NEW_SHARE: u64 = 8;
/// With less that is new it waits so long for each entry of the map, in nanoseconds, since the last
/// one began: a quarter of a mebibyte of map a second.
const ENTRY_WAIT_NS: u64 = 100_000;
/// Full merges of a destage.
const MERGES: u8 = 2;

/// How far a volume is with destaging, since the pool was opened.
#[derive(Debug, Default)]
pub struct Destage {
    /// The run that the last full merge of the present made.
    run: Option<u64>,
    /// The last reclamation was the first half of a destage.
    half_way: bool,
    /// The findings of full merges, by timeline.
    looked: BTreeMap<u64, Looked>,
    /// The present comes home after a revert.
    restoring: Option<Restoring>,
}

/// The finding of a full merge of a timeline.
#[derive(Clone, Copy, Debug)]
struct Looked {
    /// The run that it made.
    run: Option<u64>,
    found: Away,
}

/// How much of a timeline is not at home.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// Up to where the present saw it.
    pub visible: Seq,
    /// Blocks of the present that are elsewhere and belong home.
    pub blocks: u64,
}

/// How far it is with coming home.
#[derive(Debug)]
struct Restoring {
    /// Blocks that were not at home before the last merges.
    before: u64,
    /// How many reclamations began since.
    merges: u8,
}

impl Restoring {
    const BEGINS: Restoring = Restoring { before: u64::MAX, merges: 0 };
}

impl Destage {
    /// Of a volume that is opened: a revert may not have been followed up yet.
    #[must_use]
    pub fn of(record: &VolumeRecord) -> Destage {
        let reverted = record.line.iter().skip(1).any(|&(seq, _)| seq > record.horizon_seq);
        let restoring = reverted.then_some(Restoring::BEGINS);
        Destage { restoring, ..Destage::default() }
    }
}

impl Volume {
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
        if destage.half_way && self.waiting_homes.load(Ordering::Acquire) > 0 {
            return true;
        }
        if !architecture.destages() && granularity != Granularity::OnDemand {
            // Only what has left the window has settled.
            return false;
        }
        let entries =
            |runs: &[Arc<StoredRun>]| -> u64 { runs.iter().map(|run| run.summary.entries).sum() };
        let mut runs = self.present().timeline.runs();
        let all = entries(&runs);
        runs.retain(|run| Some(run.id) != destage.run);
        let new = entries(&runs);
        let own: u64 = self.own_timelines().iter().map(|own| entries(&own.runs())).sum();
        let wait_ns = own.saturating_mul(ENTRY_WAIT_NS).max(SETTLE_NS);
        new >= (all / NEW_SHARE).max(self.core.pending_max as u64)
            || new > 0 && self.reclamation.waited_ns(now_ns) >= wait_ns
    }

    /// A reclamation begins.
    pub(crate) fn begin_destage(&self) {
        let mut destage = self.destage.lock();
        let waiting = self.waiting_homes.swap(0, Ordering::AcqRel);
        destage.half_way = !(destage.half_way && waiting > 0);
        if let Some(restoring) = &mut destage.restoring {
            restoring.merges = restoring.merges.saturating_add(1);
        }
    }

    /// Another moment is the present: what differs comes home.
    pub(crate) fn restore_homes(&self) {
        self.destage.lock().restoring = Some(Restoring::BEGINS);
    }

    /// Whether the present still comes home after a revert; not when all is there, nor when the
    /// last merges could bring nothing home (what is there is held, or there is no room).
    fn is_restoring(&self) -> bool {
        if self.destage.lock().restoring.is_none() {
            return false;
        }
        let left = self.unplaced_homes();
        let mut destage = self.destage.lock();
        let Some(restoring) = &mut destage.restoring else { return false };
        let is_over = restoring.merges >= MERGES;
        if left == 0 || is_over && left >= restoring.before {
            destage.restoring = None;
            return false;
        }
        if is_over {
            *restoring = Restoring { before: left, merges: 0 };
        }
        true
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
            let looked = destage.looked.get(&line.id).filter(|one| one.found.visible == seen);
            let may_be_away = counts_new || looked.is_none() && destage.restoring.is_some();
            if is_own(line.id) {
                all += looked.map_or(0, |one| one.found.blocks);
                if may_be_away {
                    let known = looked.and_then(|one| one.run);
                    let runs = line.runs();
                    let new = runs
                        .iter()
                        .filter(|run| Some(run.id) != known && run.summary.seq_first <= seen);
                    all += new.map(|run| run.summary.entries).sum::<u64>();
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
        let mut destage = self.destage.lock();
        if is_present {
            destage.run = run;
        }
        match away {
            Some(found) => destage.looked.insert(timeline.id, Looked { run, found }),
            None => destage.looked.remove(&timeline.id),
        };
        drop(destage);
        self.waiting_homes.fetch_add(waiting, Ordering::AcqRel);
    }
}
