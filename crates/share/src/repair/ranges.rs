//! Sets of ranges of bytes.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch; of each, something about its last part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// Adds a range: first byte and end.
    pub(crate) fn add(&mut self, from: u64, to: u64, about: T) {
        let (mut start, mut end) = (from, to);
        let before = self.0.range(..from).next_back().filter(|(_, (end, _))| *end >= from);
        let inside = self.0.range(from..=to);
        let joined: Vec<u64> = before.into_iter().chain(inside).map(|(start, _)| *start).collect();
        for own in joined {
            if let Some((until, _)) = self.0.remove(&own) {
                (start, end) = (start.min(own), end.max(until));
            }
        }
        self.0.insert(start, (end, about));
    }

    /// The parts of a range that are in the set.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, T)> {
        let before = self.0.range(..from).next_back();
        let inside = self.0.range(from..to.max(from));
        let all = before.into_iter().chain(inside);
        let cut = move |(start, (end, about)): (&u64, &(u64, T))| {
            ((*start).max(from), (*end).min(to), *about)
        };
        all.map(cut).filter(|(start, end, _)| start < end)
    }
}
