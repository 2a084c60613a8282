//! What a volume must be: its oracle, what is pinned, and what must still be openable.

use std::collections::BTreeMap;

use hindsight_volume::{Granularity, VolumeChange};

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
    /// Until when another, larger window holds, and which: what a smaller one takes is kept for a
    /// while.
    pub grace: Option<(u64, u64)>,
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
    /// Blocks and trims of a whole write, if it is strict.
    pub whole_blocks: Option<usize>,
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
            grace: None,
            expired_to_ns: 0,
            squeezed: false,
            cached: false,
            logged: seq,
            loose: Vec::new(),
            whole_blocks: None,
        }
    }

    /// Bytes of the present.
    pub fn present_bytes(&self) -> u64 {
        self.present.len() as u64
    }

    /// Takes note of the time: what is older than the window may go from now on, and never comes
    /// back.
    pub fn note_now(&mut self, now_ns: u64) {
        // A grace that was over once stays so, even if the clock goes back.
        self.grace = self.grace.filter(|grace| now_ns < grace.0);
        let held = self.window_in_force();
        self.expired_to_ns = self.expired_to_ns.max(now_ns.saturating_sub(held));
    }

    fn window_in_force(&self) -> u64 {
        self.grace.map_or(self.window_ns, |grace| grace.1.max(self.window_ns))
    }

    /// Takes over a window that was set between two times: a smaller one takes nothing before its
    /// grace is over. `until_ns` is when the engine says that is.
    pub fn set_window(
        &mut self,
        change: &VolumeChange,
        (first_ns, last_ns): (u64, u64),
        until_ns: Option<u64>,
    ) {
        self.note_now(last_ns);
        if change.window_ns.or(change.history_limit_bytes.map(|_| 0)).or(change.grace_ns).is_none()
        {
            return;
        }
        let held = self.window_in_force();
        self.window_ns = change.window_ns.unwrap_or(self.window_ns);
        let grace_ns = change.grace_ns.unwrap_or(24 * 3600 * 1_000_000_000);
        self.grace = None;
        if self.window_ns < held && grace_ns > 0 && last_ns < first_ns + grace_ns {
            let until_ns = until_ns.expect("a smaller window begins a grace period");
            let range = first_ns + grace_ns..=last_ns + grace_ns;
            assert!(range.contains(&until_ns), "{until_ns} is not {grace_ns} after {first_ns}");
            self.grace = Some((until_ns, held));
        }
    }

    /// The granularity at a seq.
    pub fn granularity_at(&self, seq: u64) -> Granularity {
        let after = self.granularities.partition_point(|g| g.0 <= seq);
        self.granularities[after.saturating_sub(1)].1
    }

    /// Whether a seq is the end of a change that the window must still hold, in every-write
    /// granularity.
    pub fn must_open(&self, index: usize) -> bool {
        !self.squeezed
            && self.oracle.was_present_until_ns(index) > self.expired_to_ns
            && self.granularity_at(self.oracle.entries[index].seq) == Granularity::EveryWrite
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
