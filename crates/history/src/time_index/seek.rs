//! Look-ups of many times, in ascending order: each goes on from what those before have read.
//!
//! 1. Every page that is read narrows the pages between which a later time lies.
//! 2. The next page to read is guessed by the times at both ends, as if writes came evenly; every
//!    second guess is the middle, so that bursts cost no more than twice a bisection.
//!
//! It knows nothing of entries that are only in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::time::TimeEntry;
use units::WallTime;

use super::{TimeIndex, TimeRun};
use crate::Result;
use crate::store::Store;

/// Look-ups in one run.
struct Seek<'a> {
    store: &'a Store,
    run: Arc<TimeRun>,
    /// The first times of pages that were read.
    firsts: BTreeMap<u32, WallTime>,
    /// The page that was read last, with its number.
    page: Option<(u32, Vec<TimeEntry>)>,
}

impl TimeIndex {
    /// The last stored entries at or before times, which ascend.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn at_or_before_each(
        &self,
        store: &Store,
        times: &[WallTime],
    ) -> Result<Vec<Option<TimeEntry>>> {
        assert!(times.is_sorted(), "times ascend");
        let _epoch = store.enter();
        let runs = self.runs();
        let mut seek: Option<Seek<'_>> = None;
        let mut found = Vec::with_capacity(times.len());
        for &time in times {
            let after = runs.partition_point(|run| run.first.time <= time);
            let Some(run) = after.checked_sub(1).map(|index| &runs[index]) else {
                found.push(None);
                continue;
            };
            if !run.is_open_ended && run.last.time <= time {
                found.push(Some(run.last));
                continue;
            }
            if seek.as_ref().is_none_or(|seek| seek.run.id != run.id) {
                seek = Some(Seek::new(store, Arc::clone(run)));
            }
            let seek = seek.as_mut().expect("made if it was not there");
            found.push(seek.at_or_before(time)?);
        }
        Ok(found)
    }
}

impl<'a> Seek<'a> {
    fn new(store: &'a Store, run: Arc<TimeRun>) -> Seek<'a> {
        Seek { store, run, firsts: BTreeMap::new(), page: None }
    }

    /// The last entry at or before a time, which is not before the run's first.
    fn at_or_before(&mut self, time: WallTime) -> Result<Option<TimeEntry>> {
        let (mut low, mut high) = self.around(time);
        let mut evenly = true;
        // Invariant: page `low.0` begins at or before the time, page `high.0` after it.
        loop {
            if let Some(entry) = self.in_page_at_hand(low.0, high.0, time) {
                return Ok(entry);
            }
            let is_at_hand = self.page.as_ref().is_some_and(|(number, _)| *number == low.0);
            let middle = match high.0 - low.0 {
                ..=1 => low.0,
                _ if evenly => guess(low, high, time).max(low.0 + u32::from(is_at_hand)),
                pages => low.0 + pages / 2,
            };
            evenly = !evenly;
            let first = self.read(middle)?;
            if middle == low.0 || first <= time {
                low = (middle, first);
            } else {
                high = (middle, first);
            }
        }
    }

    /// The nearest pages that are known to begin at or before a time, and after it.
    fn around(&self, time: WallTime) -> ((u32, WallTime), (u32, WallTime)) {
        let mut low = (0, self.run.first.time);
        let mut high = (self.run.pages.count, self.run.last.time);
        // The page that was read last begins at or before a time that is not later than this one.
        let last = self.page.as_ref().map_or(0, |(number, _)| *number);
        for (&page, &first) in self.firsts.range(last..) {
            if first > time {
                high = (page, first);
                break;
            }
            low = (page, first);
        }
        (low, high)
    }

    /// The answer, if the page that was read last has it: it holds the time, or is the last that
    /// begins before it.
    fn in_page_at_hand(&self, low: u32, high: u32, time: WallTime) -> Option<Option<TimeEntry>> {
        let (number, page) = self.page.as_ref().filter(|(number, _)| *number == low)?;
        let after = page.partition_point(|entry| entry.time <= time);
        let is_here = after < page.len() || number + 1 == high;
        is_here.then(|| after.checked_sub(1).map(|index| page[index]))
    }

    /// Reads a page; its first time.
    fn read(&mut self, number: u32) -> Result<WallTime> {
        let page = self.run.page(self.store, number)?;
        let first = page.first().map_or(self.run.first.time, |entry| entry.time);
        self.firsts.insert(number, first);
        self.page = Some((number, page));
        Ok(first)
    }
}

/// The page in which a time would be if entries were even between the pages `low` and `high`, of
/// which the second is not it.
fn guess(low: (u32, WallTime), high: (u32, WallTime), time: WallTime) -> u32 {
    let pages = u128::from(high.0 - low.0);
    let span = u128::from(high.1.as_nanos().saturating_sub(low.1.as_nanos()).max(1));
    let into = u128::from(time.as_nanos().saturating_sub(low.1.as_nanos()));
    let ahead = (pages * into / span).min(pages - 1);
    low.0 + u32::try_from(ahead).expect("less than the pages between")
}
