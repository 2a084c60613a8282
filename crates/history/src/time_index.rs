//! From time to seq and back: the times of a log's batches.
//!
//! Invariants: entries rise strictly in time and in seq; parts in runs are older than those still
//! in the log's memory. A part in a run is read page by page; only first and last entries stay in
//! memory. Where such a page is damaged an entry of the neighbouring run stands for it: whoever
//! asks for a time in between comes to the page, and is told of the damage; nobody else is.

mod seek;

use std::sync::Arc;

use env::{Rank, RankedRwLock};
use format::page::PageAddress;
use format::time::{TimeEntry, TimePage};
use units::{Seq, WallTime};

use crate::Result;
use crate::io_tally::IoTally;
use crate::map_zones::PageExtents;
use crate::run::read_sound;
use crate::store::Store;
use crate::stored_run::Pages;

/// A stored part of a time index.
#[derive(Debug)]
pub struct TimeRun {
    /// Its number, unique for ever among runs of the pool.
    pub id: u64,
    /// Where its pages are.
    pub pages: PageExtents,
    /// How many entries it has.
    pub entries: u64,
    /// Its first entry; or one before that, if the page that has it is damaged.
    pub first: TimeEntry,
    /// Its last entry; or one after that, if the page that has it is damaged.
    pub last: TimeEntry,
    /// Whether the page with the last entry is damaged.
    pub(crate) is_open_ended: bool,
    pub(crate) io: Arc<IoTally>,
}

/// All stored parts of one log's time index, oldest first.
#[derive(Debug)]
pub struct TimeIndex {
    runs: RankedRwLock<Vec<Arc<TimeRun>>>,
}

/// Which coordinate to search by.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// Time.
    Time(WallTime),
    /// Seq.
    Seq(Seq),
}

impl By {
    /// Whether an entry lies at or before the coordinate.
    pub fn reached(self, entry: &TimeEntry) -> bool {
        match self {
            By::Time(time) => entry.time <= time,
            By::Seq(seq) => entry.seq <= seq,
        }
    }
}

impl Default for TimeIndex {
    fn default() -> TimeIndex {
        TimeIndex::new(Vec::new())
    }
}

impl TimeIndex {
    /// An index with these runs, oldest first.
    pub fn new(runs: Vec<Arc<TimeRun>>) -> TimeIndex {
        TimeIndex { runs: RankedRwLock::new(Rank::TimeRuns, runs) }
    }

    /// An index with stored runs, oldest first: id, pages and number of entries of each. Damage in
    /// one is told to those who ask for its times. No entry of them lies after `end`.
    pub fn open(
        store: &Store,
        log: u64,
        stored: Vec<(u64, PageExtents, u64)>,
        end: TimeEntry,
    ) -> TimeIndex {
        let ends: Vec<_> = stored
            .into_iter()
            .map(|(id, pages, entries)| {
                let (first, last, io) = (TimeEntry::default(), end, store.io(log));
                let run = TimeRun { id, pages, entries, first, last, is_open_ended: false, io };
                let last_page = run.pages.count.saturating_sub(1);
                let first = run.page(store, 0).ok().and_then(|page| page.first().copied());
                let last = run.page(store, last_page).ok().and_then(|page| page.last().copied());
                (run, first, last)
            })
            .collect();
        let mut known = TimeEntry::default();
        let firsts: Vec<TimeEntry> = ends
            .iter()
            .map(|(_, first, last)| {
                let begins = first.unwrap_or(known);
                known = last.or(*first).unwrap_or(known);
                begins
            })
            .collect();
        let mut known = end;
        let mut runs = Vec::with_capacity(ends.len());
        for ((mut run, first, last), begins) in ends.into_iter().zip(firsts).rev() {
            run.first = begins;
            run.last = last.unwrap_or(known);
            run.is_open_ended = last.is_none();
            known = first.or(last).unwrap_or(known);
            runs.push(Arc::new(run));
        }
        runs.reverse();
        TimeIndex::new(runs)
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> Vec<Arc<TimeRun>> {
        self.runs.read().clone()
    }

    /// Puts the newest part in, in the place of the `count` newest that it was joined with.
    pub fn replace_newest(&self, count: usize, run: Arc<TimeRun>) {
        let mut runs = self.runs.write();
        let kept = runs.len().checked_sub(count).expect("it was joined with what is there");
        runs.truncate(kept);
        runs.push(run);
    }

    /// Drops parts; a time in one of them is answered by the part before.
    pub fn drop_parts(&self, is_gone: impl Fn(&TimeRun) -> bool) {
        self.runs.write().retain(|run| !is_gone(run));
    }

    /// The last stored entry at or before `by`.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn at_or_before(&self, store: &Store, by: By) -> Result<Option<TimeEntry>> {
        let _epoch = store.enter();
        let runs = self.runs();
        let Some(run) = runs.iter().rev().find(|r| by.reached(&r.first)) else { return Ok(None) };
        if !run.is_open_ended && by.reached(&run.last) {
            return Ok(Some(run.last));
        }
        let page = run.page(store, run.page_at(store, by)?)?;
        Ok(page.iter().rev().find(|e| by.reached(e)).copied())
    }

    /// The first stored entry after `by`.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn first_after(&self, store: &Store, by: By) -> Result<Option<TimeEntry>> {
        let mut found = None;
        self.scan_after(store, by, |entry| {
            found = Some(*entry);
            false
        })?;
        Ok(found)
    }

    /// Visits stored entries after `by` in order until `visit` says false.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn scan_after(
        &self,
        store: &Store,
        by: By,
        mut visit: impl FnMut(&TimeEntry) -> bool,
    ) -> Result<()> {
        let _epoch = store.enter();
        for run in self.runs() {
            if by.reached(&run.last) {
                continue;
            }
            let start = if by.reached(&run.first) { run.page_at(store, by)? } else { 0 };
            for page in start..run.pages.count {
                for entry in run.page(store, page)? {
                    if !by.reached(&entry) && !visit(&entry) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

impl TimeRun {
    /// All its entries.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn all_entries(&self, store: &Store) -> Result<Vec<TimeEntry>> {
        let mut all = Vec::new();
        for page in 0..self.pages.count {
            all.extend(self.page(store, page)?);
        }
        Ok(all)
    }

    /// The last page that begins at or before `by`; the first does.
    fn page_at(&self, store: &Store, by: By) -> Result<u32> {
        let (mut low, mut high) = (0, self.pages.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.page(store, middle)?.first().is_some_and(|e| by.reached(e)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The entries of one page.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn page(&self, store: &Store, page: u32) -> Result<Vec<TimeEntry>> {
        let pages = Pages::new(store, &self.io, &self.pages);
        let address = PageAddress::new(store.pool_id, self.id, page);
        let decoded = read_sound(&pages, page, |bytes| TimePage::decode(bytes, address))?;
        Ok((0..decoded.len()).map(|i| decoded.get(i)).collect())
    }
}
