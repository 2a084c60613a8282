//! A volume's line through the tree of timelines: which timeline, size and granularity it had at a
//! seq.
//!
//! The user sees linear time; a revert goes on from an earlier point on a new timeline, at a later
//! seq.

use history::Openable;
use units::Seq;

use crate::catalogue::VolumeRecord;
use crate::types::Granularity;

/// The value that holds at `seq` in a list of (first seq, value), ascending and never empty.
fn at<T: Copy>(list: &[(u64, T)], seq: u64) -> T {
    let after = list.partition_point(|&(first, _)| first <= seq);
    list[after.saturating_sub(1)].1
}

impl VolumeRecord {
    /// The timeline that was the volume at `seq`.
    #[must_use]
    pub fn timeline_at(&self, seq: Seq) -> u64 {
        at(&self.line, seq.0)
    }

    /// Bytes of the volume at `seq`.
    #[must_use]
    pub fn size_at(&self, seq: Seq) -> u64 {
        at(&self.sizes, seq.0)
    }

    /// Which writes were retained at `seq`.
    #[must_use]
    pub fn granularity_at(&self, seq: Seq) -> Granularity {
        at(&self.granularities, seq.0)
    }

    /// Asserts that a seq comes after all that the record tells of.
    pub fn assert_before(&self, seq: Seq) {
        let lasts = [
            self.line.last().map(|stretch| stretch.0),
            self.sizes.last().map(|size| size.0),
            self.granularities.last().map(|granularity| granularity.0),
            self.events.last().map(|event| event.seq),
            Some(self.horizon_seq),
        ];
        let last = lasts.into_iter().flatten().max();
        assert!(last.is_none_or(|last| last <= seq.0), "{seq} comes after {last:?}");
    }

    /// The timeline that is the volume now.
    #[must_use]
    pub fn timeline_now(&self) -> u64 {
        self.line.last().expect("a line is never empty").1
    }

    /// Forgets reverts and resizes before all that can be opened and all that recovery may find:
    /// before the horizon, the first pin, and what is in runs. `sizes` stays: it says that there
    /// may be data beyond the end.
    pub fn forget_expired(&mut self, first_pin: Option<Seq>) {
        let pinned = first_pin.map_or(u64::MAX, |seq| seq.0);
        let bound = self.horizon_seq.min(self.flushed_seq).min(pinned);
        // The last stretch that began at or before it holds there.
        let first = self.line.partition_point(|&(first, _)| first <= bound).saturating_sub(1);
        self.line.drain(..first);
        self.events.retain(|event| event.seq >= bound);
    }

    /// The stretches of the line on one timeline: first and last seq; the last one is open-ended.
    pub fn stretches(&self, timeline: u64) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.line.iter().enumerate().filter(move |(_, stretch)| stretch.1 == timeline).map(
            |(i, &(first, _))| {
                let last = self.line.get(i + 1).map_or(u64::MAX, |next| next.0 - 1);
                (Seq(first), Seq(last))
            },
        )
    }

    /// Whether some moment between the horizon and `latest` may be openable without a pin.
    #[must_use]
    pub fn has_unpinned_past(&self, latest: Seq) -> bool {
        let since = self.granularities.partition_point(|g| g.0 <= self.horizon_seq).max(1) - 1;
        let retains = |g: &(u64, Granularity)| g.1 != Granularity::OnDemand && g.0 < latest.0;
        let is_past = |seq: Seq| self.horizon_seq <= seq.0 && seq < latest;
        let is_thinned = self.horizon_seq < latest.0;
        !self.deleted
            && (is_thinned && self.granularities[since..].iter().any(retains)
                || self.left_behind().any(is_past))
    }

    /// Seqs at which a revert left a state behind: it must stay reachable, or revert would destroy.
    pub fn left_behind(&self) -> impl Iterator<Item = Seq> + '_ {
        self.line.iter().skip(1).map(|&(first, _)| Seq(first - 1))
    }

    /// Up to where a full merge can drop what left the window: what superseded it is in runs.
    #[must_use]
    pub fn reclaimable_to(&self) -> u64 {
        self.horizon_seq.min(self.flushed_seq)
    }

    /// The moments on the whole line that can be opened without a pin: everything from the horizon
    /// on where every write is retained, `boundaries` (ends of complete windows) where intervals
    /// are, the states that reverts left behind, and everything from `latest` on.
    #[must_use]
    pub fn unpinned(&self, latest: Seq, boundaries: &[Seq]) -> Openable {
        if self.deleted {
            return Openable::none();
        }
        let horizon = Seq(self.horizon_seq);
        let mut ranges = vec![(latest, Seq(u64::MAX))];
        for (i, &(first, granularity)) in self.granularities.iter().enumerate() {
            let last = self.granularities.get(i + 1).map_or(u64::MAX, |next| next.0 - 1);
            let (first, last) = (Seq(first).max(horizon), Seq(last));
            if granularity == Granularity::EveryWrite {
                ranges.push((first, last));
            }
        }
        let single = |seq: Seq| (seq >= horizon).then_some((seq, seq));
        ranges.extend(boundaries.iter().copied().filter_map(single));
        ranges.extend(self.left_behind().filter_map(single));
        Openable::new(ranges)
    }
}
