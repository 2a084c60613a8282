//! How far encoding the history of a volume has come.

use std::collections::BTreeMap;

use units::Seq;

use crate::jobs::packer::Packed;

/// How often it is looked at whether a merge is due for encoding, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// How far encoding has come, since the pool was opened.
#[derive(Debug, Default)]
pub struct EncodingState {
    /// Versions written over up to here were looked at, by timeline.
    done: BTreeMap<u64, Seq>,
    /// Where the pass under way ends.
    pub until: Seq,
    /// When the last pass began, and what was the last seq before it.
    begun_ns: u64,
    begun_to: Seq,
    /// When it is looked next whether one is due.
    look_ns: u64,
    /// The work done.
    pub total: Packed,
}

impl EncodingState {
    /// When the last pass began, and what was the last seq before it; `None` before it is time to
    /// look whether another is due.
    pub fn look(&mut self, now_ns: u64) -> Option<(u64, Seq)> {
        if now_ns < self.look_ns {
            return None;
        }
        self.look_ns = now_ns + LOOK_NS;
        Some((self.begun_ns, self.begun_to))
    }

    /// A pass begins, which ends there.
    pub fn begin(&mut self, now_ns: u64, until: Seq) {
        (self.begun_ns, self.begun_to, self.until) = (now_ns, until, until);
    }

    /// Versions of a timeline that were written over up to here were looked at.
    #[must_use]
    pub fn done(&self, timeline: u64) -> Seq {
        self.done.get(&timeline).copied().unwrap_or(Seq::ZERO)
    }

    /// A merge of a timeline packed so much, and looked at what was written over up to there.
    pub fn note(&mut self, timeline: u64, done_to: Option<Seq>, packed: Packed) {
        if let Some(until) = done_to {
            let done = self.done.entry(timeline).or_default();
            *done = until.max(*done);
        }
        self.total.add(packed);
    }
}
