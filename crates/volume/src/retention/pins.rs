//! Versions, pinned marks and views, which keep moments openable besides the window.
//!
//! Invariants
//! 1. `held` counts, for each seq, the versions, pinned marks and views on it; no count is nothing.
//! 2. A later version has a seq that is not lower.
//! 3. No question about one moment walks the pins: there may be millions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::Seq;

use crate::catalogue::MarkRecord;

/// A version, as far as it is a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedVersion {
    /// Its seq.
    pub seq: Seq,
    /// The schedule that made it.
    pub schedule: Option<u64>,
}

/// The pins that keep moments openable besides the window.
#[derive(Debug, Default)]
pub struct Pins {
    versions: BTreeMap<u64, PinnedVersion>,
    marks: BTreeMap<String, MarkRecord>,
    views: BTreeMap<Seq, usize>,
    held: BTreeMap<Seq, usize>,
    /// The seq of the newest version or pinned mark, for those who hold no lock; 0 without one.
    captured: Arc<AtomicU64>,
    /// Versions of schedules: the clock's time at the capture, by schedule and number.
    scheduled: BTreeMap<(u64, u64), u64>,
}

/// A version as the catalogue has it: number, seq, the schedule that made it and the clock's time
/// then.
pub type StoredPin = (u64, Seq, Option<(u64, u64)>);

impl Pins {
    /// Begins with versions by number: what adding them one by one makes, in far less time.
    #[must_use]
    pub fn of_versions(versions: &[StoredPin]) -> Pins {
        let pinned = |&(number, seq, scheduled): &StoredPin| {
            (number, PinnedVersion { seq, schedule: scheduled.map(|(schedule, _)| schedule) })
        };
        let scheduled = |&(number, _, made): &StoredPin| {
            made.map(|(schedule, made_ns)| ((schedule, number), made_ns))
        };
        let mut held: Vec<(Seq, usize)> = Vec::with_capacity(versions.len());
        for &(_, seq, _) in versions {
            match held.last_mut() {
                Some((last, count)) if *last == seq => *count += 1,
                _ => held.push((seq, 1)),
            }
        }
        let pins = Pins {
            versions: versions.iter().map(pinned).collect(),
            scheduled: versions.iter().filter_map(scheduled).collect(),
            held: held.into_iter().collect(),
            ..Pins::default()
        };
        pins.note_captured();
        pins
    }

    /// The seq of the newest version or pinned mark, as it changes; 0 without one.
    #[must_use]
    pub fn captured(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.captured)
    }

    fn note_captured(&self) {
        let is_captured = |(seq, count): &(&Seq, &usize)| **count > self.views_at(**seq);
        let newest = self.held.iter().rev().find(is_captured).map_or(0, |(seq, _)| seq.0);
        self.captured.store(newest, Ordering::Release);
    }

    fn hold(&mut self, seq: Seq) {
        *self.held.entry(seq).or_default() += 1;
        self.note_captured();
    }

    fn let_go(&mut self, seq: Seq) {
        let count = self.held.get_mut(&seq).expect("what is let go was held");
        *count -= 1;
        if *count == 0 {
            self.held.remove(&seq);
        }
        self.note_captured();
    }

    /// Adds a version; `scheduled` is the schedule that made it and the clock's time then.
    pub fn add_version(&mut self, number: u64, seq: Seq, scheduled: Option<(u64, u64)>) {
        let pinned = PinnedVersion { seq, schedule: scheduled.map(|(schedule, _)| schedule) };
        let last = self.versions.last_key_value();
        let is_later = last.is_none_or(|(&last, before)| last < number && before.seq <= seq);
        assert!(is_later, "version {number} at seq {seq} is later than all others");
        self.versions.insert(number, pinned);
        if let Some((schedule, made_ns)) = scheduled {
            self.scheduled.insert((schedule, number), made_ns);
        }
        self.hold(seq);
    }

    /// Removes a version that is there.
    pub fn remove_version(&mut self, number: u64) {
        let pinned = self.versions.remove(&number).expect("only what is there is removed");
        if let Some(schedule) = pinned.schedule {
            self.scheduled.remove(&(schedule, number));
        }
        self.let_go(pinned.seq);
    }

    /// The version with this number.
    #[must_use]
    pub fn version(&self, number: u64) -> Option<PinnedVersion> {
        self.versions.get(&number).copied()
    }

    /// The version before this number.
    #[must_use]
    pub fn version_before(&self, number: u64) -> Option<(u64, PinnedVersion)> {
        self.versions.range(..number).next_back().map(|(&number, &pinned)| (number, pinned))
    }

    /// Versions from a number on, ascending.
    pub fn versions_from(&self, number: u64) -> impl Iterator<Item = (u64, PinnedVersion)> + '_ {
        self.versions.range(number..).map(|(&number, &pinned)| (number, pinned))
    }

    /// The number from which on there are at most `limit` versions; the lowest such.
    #[must_use]
    pub fn first_of_newest(&self, limit: usize) -> Option<u64> {
        // Only so many are walked: `next_back` would walk all the others.
        self.versions.keys().rev().take(limit).fold(None, |_, &number| Some(number))
    }

    /// How many versions there are.
    #[must_use]
    pub fn version_count(&self) -> usize {
        self.versions.len()
    }

    /// The number of the first version at or after `seq`; past all of them without one.
    #[must_use]
    pub fn first_version_at(&self, seq: Seq) -> u64 {
        let end = self.versions.last_key_value().map_or(0, |(&last, _)| last + 1);
        let (mut low, mut high) = (0, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.versions.range(middle..).next() {
                Some((&number, pinned)) if pinned.seq < seq => low = number + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The versions of a schedule, newest first: number and the clock's time at the capture.
    pub fn scheduled(&self, schedule: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let range = self.scheduled.range((schedule, 0)..=(schedule, u64::MAX));
        range.rev().map(|(&(_, number), &made_ns)| (number, made_ns))
    }

    /// Marks by name.
    pub fn marks(&self) -> impl Iterator<Item = (&String, &MarkRecord)> {
        self.marks.iter()
    }

    /// The mark with this name.
    #[must_use]
    pub fn mark(&self, name: &str) -> Option<&MarkRecord> {
        self.marks.get(name)
    }

    /// Adds a mark.
    pub fn add_mark(&mut self, name: String, record: MarkRecord) {
        if record.pinned {
            self.hold(Seq(record.seq));
        }
        let before = self.marks.insert(name, record);
        assert!(before.is_none(), "a name is taken once");
    }

    /// Removes a mark that is there.
    pub fn remove_mark(&mut self, name: &str) {
        let record = self.marks.remove(name).expect("only what is there is removed");
        if record.pinned {
            self.let_go(Seq(record.seq));
        }
    }

    /// Begins a view.
    pub fn add_view(&mut self, seq: Seq) {
        *self.views.entry(seq).or_default() += 1;
        self.hold(seq);
    }

    /// Ends a view.
    pub fn remove_view(&mut self, seq: Seq) {
        assert!(self.held.get(&seq) >= self.views.get(&seq), "views are held");
        let count = self.views.get_mut(&seq).expect("pinned by this view");
        *count -= 1;
        if *count == 0 {
            self.views.remove(&seq);
        }
        self.let_go(seq);
    }

    /// How many seqs views are open on.
    #[must_use]
    pub fn viewed(&self) -> usize {
        self.views.len()
    }

    /// How many views are open on a seq.
    #[must_use]
    pub fn views_at(&self, seq: Seq) -> usize {
        self.views.get(&seq).copied().unwrap_or(0)
    }

    /// Every pinned seq, ascending.
    pub fn seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.held.keys().copied()
    }

    /// Every pin with its seq and what it is, as a moment names it; of views how many.
    #[must_use]
    pub fn named(&self) -> Vec<(Seq, String)> {
        let versions = self.versions.iter().map(|(number, v)| (v.seq, format!("v:{number}")));
        let marks = self.marks.iter().filter(|(_, mark)| mark.pinned);
        let marks = marks.map(|(name, mark)| (Seq(mark.seq), format!("mark:{name}")));
        let views = self.views.iter().map(|(&seq, count)| match count {
            1 => (seq, "a view".to_owned()),
            count => (seq, format!("{count} views")),
        });
        versions.chain(marks).chain(views).collect()
    }

    /// How many pinned seqs there are.
    #[must_use]
    pub fn seq_count(&self) -> usize {
        self.held.len()
    }

    /// Whether this very seq is pinned.
    #[must_use]
    pub fn holds(&self, seq: Seq) -> bool {
        self.held.contains_key(&seq)
    }

    /// Pinned seqs from one to another, both included, ascending.
    pub fn seqs_within(&self, first: Seq, last: Seq) -> impl Iterator<Item = Seq> + '_ {
        // A range that runs backwards is empty, and would be a mistake to the map.
        let range = (first <= last).then(|| self.held.range(first..=last));
        range.into_iter().flatten().map(|(&seq, _)| seq)
    }

    /// The last pinned seq at or before `seq`.
    #[must_use]
    pub fn last_at_or_before(&self, seq: Seq) -> Option<Seq> {
        self.held.range(..=seq).next_back().map(|(&seq, _)| seq)
    }

    /// The first pinned seq at or after `seq`.
    #[must_use]
    pub fn first_from(&self, seq: Seq) -> Option<Seq> {
        self.held.range(seq..).next().map(|(&seq, _)| seq)
    }

    /// Forgets versions and marks: the volume is deleted.
    pub fn clear(&mut self) {
        let views = std::mem::take(&mut self.views);
        *self = Pins { captured: self.captured(), ..Pins::default() };
        for (seq, count) in views {
            self.held.insert(seq, count);
            self.views.insert(seq, count);
        }
        self.note_captured();
    }
}

#[cfg(test)]
mod tests {
    use units::Seq;

    use super::Pins;
    use crate::catalogue::MarkRecord;

    #[test]
    fn a_seq_is_held_as_long_as_something_is_on_it() {
        let mut pins = Pins::default();
        pins.add_version(0, Seq(5), None);
        pins.add_version(1, Seq(5), Some((7, 100)));
        pins.add_view(Seq(5));
        pins.remove_version(0);
        pins.remove_view(Seq(5));
        assert_eq!(pins.last_at_or_before(Seq(9)), Some(Seq(5)));
        assert_eq!(pins.scheduled(7).collect::<Vec<_>>(), [(1, 100)]);
        pins.remove_version(1);
        assert_eq!((pins.seq_count(), pins.scheduled(7).count()), (0, 0));
    }

    #[test]
    fn the_newest_capture_is_told_without_the_views() {
        let mut pins = Pins::of_versions(&[(0, Seq(5), None), (1, Seq(9), None)]);
        let captured = pins.captured();
        let newest = || captured.load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(newest(), 9);
        pins.add_view(Seq(12));
        pins.add_view(Seq(9));
        assert_eq!(newest(), 9);
        let mark = |pinned| MarkRecord { seq: 14, time_ns: 0, pinned, created_ns: 0 };
        pins.add_mark("loose".to_owned(), mark(false));
        assert_eq!(newest(), 9);
        pins.add_mark("m".to_owned(), mark(true));
        assert_eq!(newest(), 14);
        pins.remove_mark("m");
        pins.remove_version(1);
        assert_eq!(newest(), 5);
        pins.clear();
        assert_eq!(newest(), 0);
    }

    #[test]
    fn many_at_once_are_what_they_are_one_by_one() {
        let versions = [(0, Seq(5), None), (2, Seq(5), Some((7, 100))), (3, Seq(9), None)];
        let mut one_by_one = Pins::default();
        versions.iter().for_each(|&(number, seq, made)| one_by_one.add_version(number, seq, made));
        assert_eq!(format!("{:?}", Pins::of_versions(&versions)), format!("{one_by_one:?}"));
    }

    #[test]
    fn versions_are_found_by_seq() {
        let mut pins = Pins::default();
        for (number, seq) in [(3, 10), (4, 10), (9, 20), (12, 30)] {
            pins.add_version(number, Seq(seq), None);
        }
        for seq in 0..40 {
            let first = pins.first_version_at(Seq(seq));
            let found = pins.versions_from(first).next().map(|(number, _)| number);
            let wanted = pins.versions_from(0).find(|(_, v)| v.seq >= Seq(seq));
            assert_eq!(found, wanted.map(|(number, _)| number), "{seq}");
        }
        assert_eq!(pins.first_version_at(Seq(99)), 13);
        let newest: Vec<_> = (0..6).map(|limit| pins.first_of_newest(limit)).collect();
        assert_eq!(newest, [None, Some(12), Some(9), Some(4), Some(3), Some(3)]);
    }
}
