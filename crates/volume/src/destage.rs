//! When a volume whose present is to be in place destages: brings home what was written since.
//!
//! A destage is one or two full merges of its timelines. The first brings home what has a free
//! home and takes before-images out of the way of the rest; the second brings that home.

use std::sync::atomic::Ordering;

use history::Timeline;

use crate::volume::Volume;

/// Map entries that are worth a destage.
const ENTRIES_MIN: u64 = 64;
/// A destage rewrites the map of the present: it begins when this share of it is new.
const NEW_SHARE: u64 = 8;

/// How far a volume is with destaging, since the pool was opened.
#[derive(Debug, Default)]
pub struct Destage {
    /// The run that the last full merge of the present made.
    run: Option<u64>,
    /// The last reclamation was the first half of a destage.
    half_way: bool,
}

impl Volume {
    /// Whether so much is not at home that a reclamation should begin.
    pub(crate) fn wants_destage(&self) -> bool {
        let record = self.record.lock();
        if record.deleted || !record.architecture.destages() {
            return false;
        }
        drop(record);
        let destage = self.destage.lock();
        if destage.half_way && self.waiting_homes.load(Ordering::Acquire) > 0 {
            return true;
        }
        let runs = self.present().timeline.runs();
        let all: u64 = runs.iter().map(|run| run.summary.entries).sum();
        let old = runs.iter().filter(|run| Some(run.id) == destage.run);
        let new = all - old.map(|run| run.summary.entries).sum::<u64>();
        new >= ENTRIES_MIN.max(all / NEW_SHARE)
    }

    /// A reclamation begins.
    pub(crate) fn begin_destage(&self) {
        let mut destage = self.destage.lock();
        let waiting = self.waiting_homes.swap(0, Ordering::AcqRel);
        destage.half_way = !(destage.half_way && waiting > 0);
    }

    /// A full merge made this run, and so many blocks wait for their homes.
    pub(crate) fn note_destaged(&self, timeline: &Timeline, run: Option<u64>, waiting: u64) {
        if self.present().timeline.id == timeline.id {
            self.destage.lock().run = run;
        }
        self.waiting_homes.fetch_add(waiting, Ordering::AcqRel);
    }
}
