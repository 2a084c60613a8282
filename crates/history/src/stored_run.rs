//! Runs of map entries as they are on the device.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::map::{Entry, Key};
use format::page::PAGE_BYTES;
use format::run::RunFooter;
use units::Seq;

use crate::io_tally::IoTally;
use crate::map_zones::PageExtents;
use crate::run::{MergeIter, PageStore, Run, RunSource};
use crate::slot::{BLOCKS_PER_PAGE, Slot};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// A run's pages as its reader wants them.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    store: &'a Store,
    io: &'a IoTally,
    extents: &'a PageExtents,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(store: &'a Store, io: &'a IoTally, extents: &'a PageExtents) -> Pages<'a> {
        Pages { store, io, extents }
    }
}

impl PageStore for Pages<'_> {
    fn read_page(&self, page: u32, bytes: &mut [u8; PAGE_BYTES]) -> Result<()> {
        self.extents.read(self.store, self.io, page, bytes)
    }

    fn heal_page(
        &self,
        page: u32,
        bytes: &mut [u8; PAGE_BYTES],
        right: &dyn Fn(&[u8; PAGE_BYTES]) -> bool,
    ) -> bool {
        self.extents.heal(self.store, page, bytes, right)
    }
}

/// A run of map entries on the device.
pub struct StoredRun {
    /// Its number, unique for ever in the pool.
    pub id: u64,
    /// Its order among the runs of its timeline: higher is newer.
    pub order: u64,
    /// Where it is.
    pub extents: PageExtents,
    /// Its reader.
    pub run: Run,
    io: Arc<IoTally>,
}

impl StoredRun {
    /// Opens a run of a timeline, whose writes are in that log.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn open(
        store: &Arc<Store>,
        id: u64,
        order: u64,
        (timeline, log): (u64, u64),
        extents: PageExtents,
    ) -> Result<StoredRun> {
        let io = store.io(log);
        let pages = Pages { store, io: &io, extents: &extents };
        let run = Run::open(&pages, store.pool_id, id, extents.count)?;
        let found = run.footer().timeline;
        if found != timeline {
            let text = format!("run {id} is of timeline {found}, not {timeline}");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(StoredRun { id, order, extents, run, io })
    }

    /// Its footer: what it holds.
    pub fn footer(&self) -> &RunFooter {
        self.run.footer()
    }

    /// Its pages, for a reader that keeps them for a while.
    pub fn pages<'a>(&'a self, store: &'a Store) -> Pages<'a> {
        Pages::new(store, &self.io, &self.extents)
    }

    /// Calls `visit` with each entry, in order; leaves do not displace others from the cache.
    ///
    /// # Errors
    /// `Corrupt` or the device's; those of `visit`.
    pub fn scan<E: From<Error>>(
        &self,
        store: &Store,
        mut visit: impl FnMut(Entry) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.with_source(store, |source| {
            let mut cursor = self.run.scan(source)?;
            while let Some(entry) = cursor.peek() {
                visit(entry)?;
                cursor.advance()?;
            }
            Ok(())
        })
    }

    /// Calls `f` with what reading the run needs.
    pub fn with_source<T>(&self, store: &Store, f: impl FnOnce(RunSource<'_>) -> T) -> T {
        let pages = self.pages(store);
        f(RunSource { pages: &pages, cache: &store.leaf_cache })
    }

    /// Puts the newest entries at or before `at` into the slots of a page that are older.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn fill_page(
        &self,
        store: &Store,
        page: u64,
        at: Seq,
        slots: &mut [Slot; BLOCKS_PER_PAGE],
    ) -> Result<()> {
        self.with_source(store, |source| self.run.fill_page(source, page, at, slots))
    }

    /// Adds the entries of a block that have this checksum, at most `limit` of them in all.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn alike(
        &self,
        store: &Store,
        (block, crc): (u64, u32),
        limit: usize,
        out: &mut Vec<Entry>,
    ) -> Result<()> {
        let key = Key { level: 0, index: block };
        self.with_source(store, |source| {
            let mut cursor = self.run.cursor_at(source, key, Seq(u64::MAX))?;
            while let Some(entry) = cursor.peek().filter(|e| e.key == key && out.len() < limit) {
                out.extend((entry.crc == crc && !entry.location.is_hole()).then_some(entry));
                cursor.advance()?;
            }
            Ok(())
        })
    }

    /// Keys of pages and larger ranges with entries above `after`.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn touched(&self, store: &Store, after: Seq, out: &mut BTreeSet<Key>) -> Result<()> {
        self.scan(store, |entry| {
            if entry.seq > after {
                let level = entry.key.level.max(1);
                out.insert(Key::covering(entry.key.first_block(), level));
            }
            Ok(())
        })
    }
}

/// The next entries of runs, merged, from a place on: at most so many.
///
/// # Errors
/// `Corrupt` or the device's.
pub fn next_entries(
    store: &Store,
    runs: &[Arc<StoredRun>],
    (key, seq): (Key, Seq),
    most: usize,
) -> Result<Vec<Entry>> {
    let pages: Vec<_> = runs.iter().map(|run| run.pages(store)).collect();
    let mut cursors = Vec::new();
    for (run, pages) in runs.iter().zip(&pages) {
        let source = RunSource { pages, cache: &store.leaf_cache };
        cursors.push(run.run.cursor_at(source, key, seq)?);
    }
    MergeIter::new(cursors).take(most).collect()
}
