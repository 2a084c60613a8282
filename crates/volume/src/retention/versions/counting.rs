//! Knowledge of the bytes that versions changed, beside the catalogue.

use std::collections::{BTreeMap, BTreeSet};

/// Counts that wait in memory for the next commit of the volume.
const WAITING_MAX: usize = 256;

/// Bytes, and whether that many were changed; else it is an upper bound.
pub type Count = (u64, bool);

/// Knowledge of the bytes that versions changed, beside the catalogue.
#[derive(Debug, Default)]
pub struct Counting {
    /// Versions that are not counted.
    wanted: BTreeSet<u64>,
    /// Counts that are not stored yet.
    counted: BTreeMap<u64, Count>,
}

impl Counting {
    /// Asks for a count.
    pub fn want(&mut self, number: u64) {
        self.wanted.insert(number);
        self.counted.remove(&number);
    }

    /// The first version that is not counted.
    #[must_use]
    pub fn first_wanted(&self) -> Option<u64> {
        self.wanted.first().copied()
    }

    /// Takes up a count.
    pub fn add(&mut self, number: u64, count: Count) {
        self.wanted.remove(&number);
        self.counted.insert(number, count);
    }

    /// Whether many wait.
    #[must_use]
    pub fn are_many(&self) -> bool {
        self.counted.len() >= WAITING_MAX
    }

    /// The count of a version that is not stored yet.
    #[must_use]
    pub fn of(&self, number: u64) -> Option<Count> {
        self.counted.get(&number).copied()
    }

    /// Counts that wait, at most so many.
    #[must_use]
    pub fn waiting(&self, limit: usize) -> Vec<(u64, Count)> {
        self.counted.iter().take(limit).map(|(&number, &count)| (number, count)).collect()
    }

    /// Counts are stored.
    pub fn stored(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| _ = self.counted.remove(number));
    }

    /// A version is none any more, or cannot be counted.
    pub fn forget(&mut self, number: u64) {
        self.wanted.remove(&number);
        self.counted.remove(&number);
    }
}
