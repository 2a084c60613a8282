//! What a volume must be: its oracle, what is pinned, and what must still be openable.

use std::collections::BTreeMap;

use hindsight_volume::Granularity;

use crate::oracle::{Change, Oracle};

/// The expected state of one volume.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its history.
    pub oracle: Oracle,
    /// The present, kept up to date because it is compared most.
    pub present: Vec<u8>,
    /// The last seq that must survive a power cut.
    pub flushed: u64,
    /// Seqs of versions by number.
    pub versions: BTreeMap<u64, u64>,
    /// Seqs of marks by name, and whether they pin.
    pub marks: BTreeMap<String, (u64, bool)>,
    /// From which seq on which granularity holds.
    pub granularities: Vec<(u64, Granularity)>,
    /// The window in nanoseconds.
    pub window_ns: u64,
    /// No moment before this time has to be openable: the largest "now minus window" so far.
    pub expired_to_ns: u64,
    /// History may have been given up for want of space.
    pub squeezed: bool,
    /// It has a write-back cache.
    pub cached: bool,
    /// The last seq that must survive a kill, if it has one.
    pub logged: u64,
    /// Writes that have no seq yet, with their times.
    pub loose: Vec<(u64, Change)>,
}

impl Model {
    /// A volume that begins with `content` as of `seq`.
    pub fn new(seq: u64, content: Vec<u8>, granularity: Granularity, window_ns: u64) -> Model {
        Model {
            oracle: Oracle::new(seq, content.clone()),
            present: content,
            flushed: seq,
            versions: BTreeMap::new(),
            marks: BTreeMap::new(),
            granularities: vec![(0, granularity)],
            window_ns,
            expired_to_ns: 0,
            squeezed: false,
            cached: false,
            logged: seq,
            loose: Vec::new(),
        }
    }

    /// Bytes of the present.
    pub fn present_bytes(&self) -> u64 {
        self.present.len() as u64
    }

    /// Takes note of the time: what is older than the window may go from now on, and never comes
    /// back.
    pub fn note_now(&mut self, now_ns: u64) {
        self.expired_to_ns = self.expired_to_ns.max(now_ns.saturating_sub(self.window_ns));
    }

    /// The granularity at a seq.
    pub fn granularity_at(&self, seq: u64) -> Granularity {
        let after = self.granularities.partition_point(|g| g.0 <= seq);
        self.granularities[after.saturating_sub(1)].1
    }

    /// Whether a seq is the end of a change that the window must still hold, in every-write
    /// granularity.
    pub fn must_open(&self, index: usize) -> bool {
        let entry = &self.oracle.entries[index];
        // It was the present until the next change, so it is in the window if that change is.
        let until = self.oracle.entries.get(index + 1).map_or(u64::MAX, |next| next.time_ns);
        !self.squeezed
            && until > self.expired_to_ns
            && self.granularity_at(entry.seq) == Granularity::EveryWrite
    }

    /// Seqs that must be openable whatever happens.
    pub fn pinned(&self) -> impl Iterator<Item = u64> + '_ {
        let marks = self.marks.values().filter(|m| m.1).map(|m| m.0);
        self.versions.values().copied().chain(marks)
    }

    /// Adds an acknowledged change.
    pub fn push(&mut self, seq: u64, time_ns: u64, change: Change) {
        self.push_between(seq, (time_ns, time_ns), change);
    }

    /// Adds an acknowledged change of which it is not known when exactly it was made.
    pub fn push_between(&mut self, seq: u64, times_ns: (u64, u64), change: Change) {
        self.oracle.apply(&mut self.present, &change);
        self.oracle.push_between(seq, times_ns, change);
    }
}
