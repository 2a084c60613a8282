//! How far the scrubs of a pool are.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use env::{Rank, RankedMutex};
use history::{ScrubReport, Suspects};

use crate::catalogue::{ScrubPhase, ScrubRecord, ScrubScheduleRecord};
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
    /// Zones and numbers of the segments to be looked at, in the order of zones.
    pub segments: Vec<(u64, u64)>,
    /// Numbers and owners of the runs, of timelines or of times (of timeline 0), in the order of
    /// numbers.
    pub runs: Vec<(u64, u64)>,
    /// Numbers of runs of earlier rounds.
    pub listed: BTreeSet<u64>,
    /// How often others were looked for.
    pub rounds: u32,
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

    /// How much is done.
    pub fn percent(&self) -> u64 {
        let before = |items: &[(u64, u64)]| items.partition_point(|item| item.0 < self.record.next);
        let (segments, runs) = (self.segments.len(), self.listed.len() + self.runs.len());
        let done = match self.record.phase {
            ScrubPhase::Segments => before(&self.segments),
            ScrubPhase::Runs => segments + self.listed.len() + before(&self.runs),
            ScrubPhase::Catalogue => segments + runs,
            ScrubPhase::Parity => segments + runs + 1,
        };
        (done as u64 * 100 / (segments + runs + 1) as u64).min(99)
    }

    /// The record for the catalogue.
    pub fn noted(&self) -> ScrubRecord {
        let suspects = self.suspects.list().map(|(segment, r)| (segment, r.start, r.end));
        ScrubRecord { suspects: suspects.collect(), ..self.record.clone() }
    }
}
