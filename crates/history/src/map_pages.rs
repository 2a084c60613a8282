//! The pages of runs on the device: reading them, and appending more.
//!
//! Invariant: a writer that is dropped unfinished gives its pages back.

use std::io::IoSlice;
use std::sync::Arc;

use block::Purpose;
use format::page::PAGE_BYTES;

use crate::io_tally::{IoKind, IoTally};
use crate::map_zones::{PageExtents, PageOf};
use crate::run::PageSink;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Bytes gathered before they are written. Writers of the same file wait meanwhile.
const GATHERED_BYTES: usize = 64 << 10;

impl PageExtents {
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
    pub fn new(store: Arc<Store>, log: u64, of: PageOf) -> ExtentWriter {
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

    fn write_out(&mut self) -> Result<()> {
        if let Some((zone, page)) = self.gathered_at.take() {
            let within = u64::from(page) * PAGE_BYTES as u64;
            let end = within + self.gathered.len() as u64;
            assert!(end <= self.store.zone_bytes && end.is_multiple_of(PAGE_BYTES as u64));
            let offset = self.store.zone_offset(zone) + within;
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
}

impl Store {
    /// The next page for maps, or for times.
    fn take_map_page(&self, of: PageOf) -> Result<(u32, u32)> {
        let mut maps = self.map_zones.lock();
        let pages_per_zone = (self.zone_bytes / PAGE_BYTES as u64) as u32;
        let allocate = || self.allocate_zone(Purpose::Reclaim);
        let (place, left) = maps.take(of, pages_per_zone, allocate)?;
        if let Some(zone) = left {
            self.retire_zones(&[zone]);
        }
        Ok(place)
    }

    /// Gives the pages of a run back once no reader can see them.
    pub fn retire_extents(&self, extents: &PageExtents) {
        let empty = self.map_zones.lock().release(extents);
        self.retire_zones(&empty);
    }

    /// Counts the pages of a run found when the pool is opened; names the zones that are new.
    pub fn adopt_extents(&self, extents: &PageExtents) -> Vec<u32> {
        self.map_zones.lock().adopt(extents)
    }

    /// Zones that hold pages of runs.
    pub fn map_zone_count(&self) -> usize {
        self.map_zones.lock().zone_count()
    }
}
