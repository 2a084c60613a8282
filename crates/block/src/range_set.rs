//! A set of numbers, kept as ranges that neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// The ranges: end by start.
#[derive(Debug, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range; those that it overlaps or touches become one with it.
    pub fn insert(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back()
            && end >= range.start
        {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..range.end).next_back()
            && end > range.start
        {
            self.0.remove(&start);
            self.insert(start..range.start);
            self.insert(range.end..end);
        }
    }

    /// Whether it has all of a range.
    pub fn contains(&self, range: Range<u64>) -> bool {
        let before = self.0.range(..=range.start).next_back();
        before.is_some_and(|(_, &end)| range.end <= end)
    }

    /// Its ranges that have a part of one, in order.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.0.range(..=range.start).next_back();
        let before = before.filter(|(_, end)| **end > range.start);
        let from = before.map_or(range.start, |(start, _)| *start);
        self.0.range(from..range.end.max(from)).map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::RangeSet;

    #[test]
    fn a_set_of_ranges_is_a_set() {
        let mut random = sim::Random::new(3);
        let (mut set, mut model) = (RangeSet::default(), [false; 64]);
        for _ in 0..3000 {
            let start = random.below(60);
            let end = start + random.below(5);
            let is_added = random.chance(500);
            (start..end).for_each(|n| model[n as usize] = is_added);
            if is_added {
                set.insert(start..end)
            } else {
                set.remove(start..end)
            }
            assert!((0..64).all(|n| set.contains(n..n + 1) == model[n as usize]), "{set:?}");
            let mut last = None;
            for range in set.overlapping(0..64) {
                assert!(!range.is_empty() && last.is_none_or(|last| last < range.start), "{set:?}");
                last = Some(range.end);
            }
            let some = set.overlapping(20..40).flatten().filter(|n| (20..40).contains(n)).count();
            assert_eq!(some, model[20..40].iter().filter(|is_there| **is_there).count());
        }
    }
}
