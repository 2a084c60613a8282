//! How far the scrubs of a pool are.

use std::ops::Deref;
use std::sync::Arc;

use env::{Rank, RankedMutex};
use history::{ScrubReport, Suspects};

use super::queue::Queue;
use crate::catalogue::{ScrubRecord, ScrubScheduleRecord};
use crate::jobs::parts::Parts;
use crate::types::ScrubState;

/// Lost blocks that are named, at most.
const LOSSES_NAMED: usize = 16;

/// The outcome of a scrub so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubInfo {
    /// How it is doing.
    pub state: ScrubState,
    /// How much is done.
    pub percent: u64,
    /// Its findings.
    pub record: ScrubRecord,
}

/// The scrubs of a pool.
pub struct Scrubs {
    parts: Arc<Parts>,
    /// The one under way.
    pub(super) run: RankedMutex<Option<Run>>,
    /// The report of the last one.
    pub(super) told: RankedMutex<Told>,
}

#[derive(Default)]
pub struct Told {
    /// Its record.
    pub last: Option<ScrubRecord>,
    /// How far it is.
    pub percent: u64,
    /// When there is another.
    pub schedule: Option<ScrubScheduleRecord>,
}

/// A scrub under way.
pub struct Run {
    /// Its findings so far, and where it goes on.
    pub record: ScrubRecord,
    /// The objects that are to be looked at.
    pub queue: Queue,
    /// Ranges that the runs are to be asked about.
    pub suspects: Suspects,
    /// Bytes that it had read when that was written down last.
    pub noted_bytes: u64,
}

impl Deref for Scrubs {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Scrubs {
    /// As the catalogue has it.
    pub fn load(
        parts: &Arc<Parts>,
        (last, schedule): (Option<ScrubRecord>, Option<ScrubScheduleRecord>),
    ) -> Scrubs {
        let told = Told { last, percent: 0, schedule };
        Scrubs {
            parts: Arc::clone(parts),
            run: RankedMutex::new(Rank::Scrub, None),
            told: RankedMutex::new(Rank::ScrubTold, told),
        }
    }
}

impl Run {
    /// Goes on from a record, with the segments and runs that there are.
    pub fn of(segments: &[(u32, u64)], runs: &[(u64, u64)], mut record: ScrubRecord) -> Run {
        let mut suspects = Suspects::default();
        for &(segment, from, to) in &record.suspects {
            suspects.add(segment, from..to);
        }
        let queue = Queue::new(segments, runs, &record);
        if queue.position() != record.next {
            record.offset = 0;
        }
        Run { noted_bytes: record.read_bytes, record, queue, suspects }
    }

    /// Counts what was found.
    pub fn add(&mut self, found: &ScrubReport, losses: Vec<String>) {
        let record = &mut self.record;
        record.read_bytes += found.read_bytes;
        record.wrong += found.wrong;
        record.healed += found.healed;
        record.repaired += found.repaired;
        record.elsewhere += found.elsewhere;
        record.lost += found.lost;
        let room = LOSSES_NAMED.saturating_sub(record.losses.len());
        record.losses.extend(losses.into_iter().take(room));
    }

    /// Goes on in the object at hand, or with the next one.
    pub fn step_on(&mut self, after: Option<u32>) {
        self.record.offset = after.unwrap_or(0);
        if after.is_none() {
            self.queue.end();
        }
        self.record.next = self.queue.position();
    }

    /// The record for the catalogue.
    pub fn noted(&self) -> ScrubRecord {
        let suspects = self.suspects.list().map(|(segment, r)| (segment, r.start, r.end));
        ScrubRecord { suspects: suspects.collect(), ..self.record.clone() }
    }
}
