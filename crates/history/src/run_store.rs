//! Where runs are on the device: pages in extents of zones.
//!
//! Invariants
//! 1. Pages are appended to a zone that is current for maps, or to one that is for times; several
//!    runs share it, one after another. Maps are written anew again and again, and times stay:
//!    among the pages of maps a few of times would keep zone after zone.
//! 2. A zone of maps is retired when none of its pages belongs to a run any more.
//! 3. A writer that is dropped unfinished gives its pages back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;

use block::Purpose;
use env::RankedMutex;
use format::map::{Entry, Key};
use format::page::{PAGE_BYTES, PageAddress};
use format::time::{TIME_ENTRIES_MAX, TimeEntry, TimePage};
use units::Seq;

use crate::io_tally::{IoKind, IoTally};
use crate::run::{EntrySource, PageSink, PageStore, Run, RunSource, RunSummary, RunWriter};
use crate::slot::{BLOCKS_PER_PAGE, Slot};
use crate::store::Store;
use crate::time_index::TimeRun;
use crate::timeline::Timeline;
use crate::{Error, ErrorKind, Result};

/// Bytes gathered before they are written. Writers of the same file wait meanwhile.
const GATHERED_BYTES: usize = 64 << 10;

/// Pages one after another in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageExtent {
    /// The zone.
    pub zone: u32,
    /// First page within it.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// The pages of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageExtents {
    /// In order.
    pub list: Vec<PageExtent>,
    /// Pages in all.
    pub count: u32,
}

impl PageExtents {
    /// Extents in order.
    #[must_use]
    pub fn new(list: Vec<PageExtent>) -> PageExtents {
        let count = list.iter().map(|e| e.count).sum();
        PageExtents { list, count }
    }

    fn push(&mut self, zone: u32, page: u32) {
        self.count += 1;
        match self.list.last_mut() {
            Some(last) if last.zone == zone && last.first + last.count == page => last.count += 1,
            _ => self.list.push(PageExtent { zone, first: page, count: 1 }),
        }
    }

    /// The pages, each with where it is on the device.
    pub fn places<'e>(&'e self, store: &'e Store) -> impl Iterator<Item = (u32, u64)> + 'e {
        let count = self.list.iter().map(|extent| extent.count).sum();
        (0..count).filter_map(|page| Some((page, self.place(store, page)?)))
    }

    /// Where a page is on the device.
    fn place(&self, store: &Store, page: u32) -> Option<u64> {
        let mut rest = page;
        for extent in &self.list {
            if rest < extent.count {
                let within = u64::from(extent.first + rest) * PAGE_BYTES as u64;
                return Some(store.zone_offset(extent.zone) + within);
            }
            rest -= extent.count;
        }
        None
    }

    /// Reads a page.
    ///
    /// # Errors
    /// The device's; `Corrupt` when there is no such page.
    pub fn read(
        &self,
        store: &Store,
        io: &IoTally,
        page: u32,
        bytes: &mut [u8; PAGE_BYTES],
    ) -> Result<()> {
        let Some(at) = self.place(store, page) else {
            return Err(Error::new(ErrorKind::Corrupt, format!("a run has no page {page}")));
        };
        store.device.read_at(at, bytes)?;
        io.count(IoKind::MapRead, PAGE_BYTES as u64);
        Ok(())
    }

    /// Fills `bytes` with a page that was read and found wrong; false if no copy is right.
    pub fn heal(
        &self,
        store: &Store,
        page: u32,
        bytes: &mut [u8; PAGE_BYTES],
        right: &dyn Fn(&[u8; PAGE_BYTES]) -> bool,
    ) -> bool {
        let Some(at) = self.place(store, page) else { return false };
        store.heal(at, bytes, &|bytes| bytes.first_chunk().is_some_and(right))
    }
}

/// The owner of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOf {
    Map,
    Times,
    /// Times that are soon joined with others: their zones are soon empty, and those of times that
    /// stay as long as the window stay full.
    YoungTimes,
}

/// Which zones hold pages of runs.
#[derive(Debug, Default)]
pub struct MapZones {
    /// The zone that is filled with pages of each kind, and its next page.
    current: [Option<(u32, u32)>; 3],
    pages: BTreeMap<u32, u32>,
}

impl MapZones {
    /// Counts the pages of a run found when the pool was opened; names the zones that are new.
    pub fn adopt(&mut self, extents: &PageExtents) -> Vec<u32> {
        let mut new = Vec::new();
        for extent in &extents.list {
            let pages = self.pages.entry(extent.zone).or_insert_with(|| {
                new.push(extent.zone);
                0
            });
            *pages += extent.count;
        }
        new
    }

    /// Zones that hold pages of runs.
    #[must_use]
    pub fn zone_count(&self) -> usize {
        self.pages.len()
    }
}

/// A place to append pages.
pub struct ExtentWriter {
    store: Arc<Store>,
    io: Arc<IoTally>,
    extents: PageExtents,
    gathered: Vec<u8>,
    gathered_at: Option<(u32, u32)>,
    finished: bool,
    of: PageOf,
}

impl ExtentWriter {
    /// A writer with no pages yet, for a run of this log's volume.
    fn new(store: Arc<Store>, log: u64, of: PageOf) -> ExtentWriter {
        ExtentWriter {
            io: store.io(log),
            store,
            of,
            extents: PageExtents::default(),
            gathered: Vec::new(),
            gathered_at: None,
            finished: false,
        }
    }

    /// Appends a page.
    ///
    /// # Errors
    /// `Full`, `Refused`, or the device's.
    pub fn append(&mut self, bytes: &[u8; PAGE_BYTES]) -> Result<()> {
        let (zone, page) = self.store.take_map_page(self.of)?;
        self.extents.push(zone, page);
        let gathered_pages = (self.gathered.len() / PAGE_BYTES) as u32;
        let follows =
            self.gathered_at.is_some_and(|(z, p)| z == zone && p + gathered_pages == page);
        if !follows || self.gathered.len() >= GATHERED_BYTES {
            self.write_out()?;
            self.gathered_at = Some((zone, page));
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        if let Some((zone, page)) = self.gathered_at.take() {
            let offset = self.store.zone_offset(zone) + u64::from(page) * PAGE_BYTES as u64;
            self.store.write(offset, &[IoSlice::new(&self.gathered)])?;
            self.io.count(IoKind::MapWrite, self.gathered.len() as u64);
            self.gathered.clear();
        }
        Ok(())
    }

    /// Writes what is gathered and says where all pages are.
    ///
    /// # Errors
    /// `Refused` or the device's.
    pub fn finish(mut self) -> Result<PageExtents> {
        self.write_out()?;
        self.finished = true;
        Ok(std::mem::take(&mut self.extents))
    }
}

impl Drop for ExtentWriter {
    fn drop(&mut self) {
        if !self.finished {
            self.store.retire_extents(&self.extents);
        }
    }
}

impl PageSink for ExtentWriter {
    fn append_page(&mut self, bytes: &[u8; PAGE_BYTES]) -> Result<()> {
        self.append(bytes)
    }
}

impl Store {
    /// The next page for maps, or for times.
    fn take_map_page(&self, of: PageOf) -> Result<(u32, u32)> {
        let mut maps = self.map_zones.lock();
        let pages_per_zone = (self.zone_bytes / PAGE_BYTES as u64) as u32;
        let (zone, page) = match maps.current[of as usize] {
            Some(place) if place.1 < pages_per_zone => place,
            _ => {
                let zone = self.allocate_zone(Purpose::Reclaim)?;
                maps.pages.insert(zone, 0);
                let full = maps.current[of as usize].replace((zone, 0)).map(|(old, _)| old);
                if let Some(old) = full.filter(|old| maps.pages.get(old) == Some(&0)) {
                    maps.pages.remove(&old);
                    self.retire_zones(&[old]);
                }
                (zone, 0)
            }
        };
        maps.current[of as usize] = Some((zone, page + 1));
        *maps.pages.get_mut(&zone).expect("a current zone is counted") += 1;
        Ok((zone, page))
    }

    /// Gives the pages of a run back once no reader can see them.
    pub fn retire_extents(&self, extents: &PageExtents) {
        let mut maps = self.map_zones.lock();
        let mut empty = Vec::new();
        for extent in &extents.list {
            let pages = maps.pages.get_mut(&extent.zone).expect("pages of runs are counted");
            *pages -= extent.count;
            let is_current = maps.current.iter().flatten().any(|(zone, _)| *zone == extent.zone);
            if maps.pages.get(&extent.zone) == Some(&0) && !is_current {
                maps.pages.remove(&extent.zone);
                empty.push(extent.zone);
            }
        }
        drop(maps);
        self.retire_zones(&empty);
    }

    /// Counts the pages of a run found when the pool is opened; names the zones that are new.
    pub fn adopt_extents(&self, extents: &PageExtents) -> Vec<u32> {
        self.map_zones.lock().adopt(extents)
    }

    /// Zones that hold pages of runs.
    #[must_use]
    pub fn map_zone_count(&self) -> usize {
        self.map_zones.lock().zone_count()
    }
}

/// Zones that hold pages of runs, behind the store's lock.
pub type SharedMapZones = RankedMutex<MapZones>;

/// A run's pages as its reader wants them.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    store: &'a Store,
    io: &'a IoTally,
    extents: &'a PageExtents,
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
    /// The summary of its content.
    pub summary: RunSummary,
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
        let summary = run.summary();
        if summary.timeline != timeline {
            let text = format!("run {id} is of timeline {}, not {timeline}", summary.timeline);
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(StoredRun { id, order, extents, summary, run, io })
    }

    /// Its pages, for a reader that keeps them for a while.
    #[must_use]
    pub fn pages<'a>(&'a self, store: &'a Store) -> Pages<'a> {
        Pages { store, io: &self.io, extents: &self.extents }
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
        self.with_source(store, |source| {
            let mut cursor = self.run.scan(source)?;
            while let Some(entry) = cursor.peek() {
                if entry.seq > after {
                    let level = entry.key.level.max(1);
                    out.insert(Key::covering(entry.key.first_block(), level));
                }
                cursor.advance()?;
            }
            Ok(())
        })
    }
}

/// Writes a run of map entries.
pub struct RunBuilder {
    id: u64,
    order: u64,
    timeline: u64,
    log: u64,
    writer: RunWriter<ExtentWriter>,
}

impl RunBuilder {
    /// A builder with no entries yet, for a timeline.
    #[must_use]
    pub fn new(store: &Arc<Store>, id: u64, order: u64, timeline: &Timeline) -> RunBuilder {
        let Timeline { id: timeline, log, extent, .. } = *timeline;
        let sink = ExtentWriter::new(Arc::clone(store), log, PageOf::Map);
        let writer = RunWriter::new(sink, store.pool_id, id, timeline, extent);
        RunBuilder { id, order, timeline, log, writer }
    }

    /// Appends an entry; entries come in run order.
    ///
    /// # Errors
    /// `Full`, `Refused`, or the device's.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        self.writer.push(entry)
    }

    /// Completes the run; `None` when it has no entries.
    ///
    /// # Errors
    /// `Full`, `Refused`, or the device's.
    pub fn finish(self, store: &Arc<Store>) -> Result<Option<StoredRun>> {
        let (sink, summary) = self.writer.finish()?;
        let extents = sink.finish()?;
        if summary.is_none() {
            return Ok(None);
        }
        let owner = (self.timeline, self.log);
        StoredRun::open(store, self.id, self.order, owner, extents).map(Some)
    }
}

/// Writes a part of a log's time index; `stays` if it is joined with no other any more.
///
/// # Errors
/// `Full`, `Refused`, or the device's.
pub fn write_time_run(
    store: &Arc<Store>,
    id: u64,
    log: u64,
    entries: &[TimeEntry],
    stays: bool,
) -> Result<TimeRun> {
    let (first, last) = match entries {
        [] => return Err(Error::new(ErrorKind::Corrupt, "a time run has entries")),
        [first, .., last] => (*first, *last),
        [only] => (*only, *only),
    };
    let of = if stays { PageOf::Times } else { PageOf::YoungTimes };
    let mut writer = ExtentWriter::new(Arc::clone(store), log, of);
    for (page, part) in entries.chunks(TIME_ENTRIES_MAX).enumerate() {
        let page = u32::try_from(page).expect("a part is small");
        writer.append(&TimePage::encode(PageAddress::new(store.pool_id, id, page), part))?;
    }
    let pages = writer.finish()?;
    let (entries, io) = (entries.len() as u64, store.io(log));
    Ok(TimeRun { id, pages, entries, first, last, is_open_ended: false, io })
}
