//! Which zones hold pages of runs, and which pages are a run's.
//!
//! Invariants
//! 1. Pages are appended to a zone that is current for maps, or to one that is for times; several
//!    runs share it, one after another. Maps are written anew again and again, and times stay:
//!    among the pages of maps a few of times would keep zone after zone.
//! 2. A zone of maps is retired when none of its pages belongs to a run any more.

use std::collections::BTreeMap;

use env::RankedMutex;

use crate::Result;

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
    pub fn new(list: Vec<PageExtent>) -> PageExtents {
        let count = list.iter().map(|e| e.count).sum();
        PageExtents { list, count }
    }

    /// Appends a page.
    pub fn push(&mut self, zone: u32, page: u32) {
        self.count += 1;
        match self.list.last_mut() {
            Some(last) if last.zone == zone && last.first + last.count == page => last.count += 1,
            _ => self.list.push(PageExtent { zone, first: page, count: 1 }),
        }
    }
}

/// The owner of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOf {
    /// Maps.
    Map,
    /// Times.
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

    /// The next page of a kind, and the zone that is left for another with nothing in it.
    /// `allocate` gives a new zone.
    ///
    /// # Errors
    /// Those of `allocate`.
    pub fn take(
        &mut self,
        of: PageOf,
        pages_per_zone: u32,
        allocate: impl FnOnce() -> Result<u32>,
    ) -> Result<((u32, u32), Option<u32>)> {
        let mut left = None;
        let (zone, page) = match self.current[of as usize] {
            Some(place) if place.1 < pages_per_zone => place,
            _ => {
                let zone = allocate()?;
                self.pages.insert(zone, 0);
                let full = self.current[of as usize].replace((zone, 0)).map(|(old, _)| old);
                left = full.filter(|old| self.pages.get(old) == Some(&0));
                left.map(|old| self.pages.remove(&old));
                (zone, 0)
            }
        };
        self.current[of as usize] = Some((zone, page + 1));
        *self.pages.get_mut(&zone).expect("a current zone is counted") += 1;
        Ok(((zone, page), left))
    }

    /// Takes the pages of a run out; names the zones in which nothing is left.
    pub fn release(&mut self, extents: &PageExtents) -> Vec<u32> {
        let mut empty = Vec::new();
        for extent in &extents.list {
            let pages = self.pages.get_mut(&extent.zone).expect("pages of runs are counted");
            *pages = pages.checked_sub(extent.count).expect("no page is given back twice");
            let is_current = self.current.iter().flatten().any(|(zone, _)| *zone == extent.zone);
            if *pages == 0 && !is_current {
                self.pages.remove(&extent.zone);
                empty.push(extent.zone);
            }
        }
        empty
    }

    /// Zones that hold pages of runs.
    pub fn zone_count(&self) -> usize {
        self.pages.len()
    }
}

/// Zones that hold pages of runs, behind the store's lock.
pub type SharedMapZones = RankedMutex<MapZones>;
