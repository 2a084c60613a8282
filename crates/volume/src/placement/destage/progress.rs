//! How far a volume is with destaging, and what full merges found of its timelines.

use std::collections::BTreeMap;

use units::Seq;

use crate::catalogue::VolumeRecord;

/// Full merges of a destage.
const MERGES: u8 = 2;

/// How far a volume is with destaging, since the pool was opened.
#[derive(Debug, Default)]
pub struct Destage {
    /// The run that the last full merge of the present made.
    pub run: Option<u64>,
    /// The last reclamation was the first half of a destage.
    half_way: bool,
    /// Blocks whose homes were taken when full merges would have brought them there.
    waiting: u64,
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

    /// Whether the last reclamation was the first half of a destage, and blocks wait for the other.
    #[must_use]
    pub fn wants_other_half(&self) -> bool {
        self.half_way && self.waiting > 0
    }

    /// A reclamation begins.
    pub fn begin(&mut self) {
        self.half_way = !self.wants_other_half();
        self.waiting = 0;
        if let Some(restoring) = &mut self.restoring {
            restoring.merges = restoring.merges.saturating_add(1);
        }
    }

    /// Another moment is the present: what differs comes home.
    pub fn restore(&mut self) {
        self.restoring = Some(Restoring::BEGINS);
    }

    /// Whether the present comes home after a revert, as far as is known.
    #[must_use]
    pub fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }

    /// Whether it still does when so much is left; not when all is there, nor when the last merges
    /// could bring nothing home (what is there is held, or there is no room).
    pub fn still_restores(&mut self, left: u64) -> bool {
        let Some(restoring) = &mut self.restoring else { return false };
        let is_over = restoring.merges >= MERGES;
        if left == 0 || is_over && left >= restoring.before {
            self.restoring = None;
            return false;
        }
        if is_over {
            *restoring = Restoring { before: left, merges: 0 };
        }
        true
    }

    /// The finding of the last full merge of a timeline that the present sees up to there: the run
    /// that it made, and blocks that are not at home.
    #[must_use]
    pub fn found(&self, timeline: u64, seen: Seq) -> Option<(Option<u64>, u64)> {
        let looked = self.looked.get(&timeline).filter(|one| one.found.visible == seen)?;
        Some((looked.run, looked.found.blocks))
    }

    /// A full merge of a timeline made this run, and found so much away; so many blocks wait for
    /// their homes.
    pub fn note(
        &mut self,
        (timeline, is_present): (u64, bool),
        run: Option<u64>,
        waiting: u64,
        away: Option<Away>,
    ) {
        self.waiting += waiting;
        if is_present {
            self.run = run;
        }
        match away {
            Some(found) => self.looked.insert(timeline, Looked { run, found }),
            None => self.looked.remove(&timeline),
        };
    }
}
