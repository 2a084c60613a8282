//! The content of a log's segments, summed up as it changes: no question for the sum walks them.
//!
//! Invariants
//! 1. A tally is the sum of what its segments have *counted*. A segment counts itself anew whenever
//!    something of it has changed, under a lock of its own, and adds the difference.
//! 2. A segment counts from when it is in the store's table until it is retired.

use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

/// Figures of one segment, or of all of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCount {
    /// Bytes that the map's entries hold.
    pub live_bytes: u64,
    /// The map's entries, holes among them.
    pub entries: u64,
    /// Of the bytes: those of packs.
    pub packed_bytes: u64,
    /// Of the entries: those in packs.
    pub packed_entries: u64,
    /// Bytes of packs for versions that are gone.
    pub shadow_bytes: u64,
    /// Of the bytes: those of shared batches.
    pub shared_bytes: u64,
    /// Of the entries: those that name shared blocks.
    pub shared_entries: u64,
    /// Bytes used that no entry holds, in segments that are sealed and written once.
    pub dead_bytes: u64,
}

impl SpaceCount {
    /// All of them.
    fn figures(&mut self) -> [&mut u64; 8] {
        let SpaceCount {
            live_bytes,
            entries,
            packed_bytes,
            packed_entries,
            shadow_bytes,
            shared_bytes,
            shared_entries,
            dead_bytes,
        } = self;
        [
            live_bytes,
            entries,
            packed_bytes,
            packed_entries,
            shadow_bytes,
            shared_bytes,
            shared_entries,
            dead_bytes,
        ]
    }

    fn parts(mut self) -> [u64; 8] {
        self.figures().map(|figure| *figure)
    }

    fn of(parts: [u64; 8]) -> SpaceCount {
        let mut count = SpaceCount::default();
        count.figures().into_iter().zip(parts).for_each(|(figure, part)| *figure = part);
        count
    }
}

impl Sum for SpaceCount {
    fn sum<I: Iterator<Item = SpaceCount>>(counts: I) -> SpaceCount {
        let mut all = [0; 8];
        for count in counts {
            all.iter_mut().zip(count.parts()).for_each(|(all, part)| *all += part);
        }
        SpaceCount::of(all)
    }
}

/// The sum of a log's segments.
#[derive(Debug, Default)]
pub struct SpaceTally {
    parts: [AtomicI64; 8],
}

impl SpaceTally {
    /// The sum as it stands.
    pub fn count(&self) -> SpaceCount {
        // Between two changes one part may be ahead of another, and below nothing.
        let part = |part: &AtomicI64| part.load(Ordering::Acquire).max(0).unsigned_abs();
        SpaceCount::of(self.parts.each_ref().map(part))
    }

    fn change(&self, before: SpaceCount, after: SpaceCount) {
        for ((part, before), after) in self.parts.iter().zip(before.parts()).zip(after.parts()) {
            if before != after {
                part.fetch_add(after.wrapping_sub(before).cast_signed(), Ordering::AcqRel);
            }
        }
    }
}

/// The counts of a segment, and their tally.
#[derive(Debug, Default)]
pub struct Account(Mutex<(Option<Arc<SpaceTally>>, SpaceCount)>);

impl Account {
    /// From now on the segment counts in a tally.
    pub(crate) fn open(&self, tally: Arc<SpaceTally>) {
        self.0.lock().0 = Some(tally);
    }

    /// The segment counts no more.
    pub(crate) fn close(&self) {
        let mut account = self.0.lock();
        if let (Some(tally), counted) = std::mem::take(&mut *account) {
            tally.change(counted, SpaceCount::default());
        }
    }

    /// Counts anew.
    pub(crate) fn settle(&self, now: impl FnOnce() -> SpaceCount) {
        let mut account = self.0.lock();
        let (Some(tally), counted) = &mut *account else { return };
        let now = now();
        tally.change(*counted, now);
        *counted = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Account, SpaceCount, SpaceTally};

    #[test]
    fn a_tally_is_the_sum_of_those_who_count() {
        let tally = Arc::new(SpaceTally::default());
        let count = |live_bytes, entries| SpaceCount { live_bytes, entries, ..Default::default() };
        let (a, b) = (Account::default(), Account::default());
        a.settle(|| count(1, 1));
        assert_eq!(tally.count(), count(0, 0), "it is in no table yet");
        a.open(Arc::clone(&tally));
        b.open(Arc::clone(&tally));
        a.settle(|| count(10, 3));
        b.settle(|| count(5, 2));
        assert_eq!(tally.count(), count(15, 5));
        a.settle(|| count(4, 1));
        assert_eq!(tally.count(), count(9, 3));
        a.close();
        a.settle(|| count(100, 100));
        assert_eq!(tally.count(), count(5, 2));
    }
}
