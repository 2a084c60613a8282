//! Cells that are not in their places yet.
//!
//! Invariants: 1. a cell that was taken in stays here until its place has it, or a newer one;
//! 2. what waits fits one record; 3. what drains is newer than the places, what waits newer than
//! what drains.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use format::parity::{CELL_BYTES, header_bytes};

use super::draining::Draining;
use super::layout::Layout;
use crate::range_set::RangeSet;

/// A cell that waits.
pub type Cell = Arc<Waiting>;

/// A cell's bytes, and which of them it waits for.
pub struct Waiting {
    pub bytes: Box<[u8]>,
    /// The sectors (512 bytes) that were written while it waits, a bit each: the others are in
    /// their places as well, and are not to be lost with these.
    pub written: u8,
    /// Those in which anything was.
    pub touched: u8,
}

/// The cells of a stripe that wait, by their number in its data.
pub type Cells = BTreeMap<u64, Cell>;

/// What waits, what drains, and what the journal holds.
pub struct Cache {
    layout: Layout,
    waiting: BTreeMap<u64, Cells>,
    /// Cells that a record of what waits would have.
    cost: usize,
    cost_max: usize,
    /// What is on its way to the journal and its places.
    pub draining: BTreeMap<u64, Cells>,
    /// The record that is being put in its places: what is there may be of before or after.
    pub placing: Option<Arc<Draining>>,
    /// The stripes in each slot of the journal.
    pub slots: [BTreeSet<u64>; 2],
    /// Stripes in which nobody has anything: see [`crate::Resync::Unused`].
    pub loose: RangeSet,
}

/// Cells that fit a slot with their list.
fn cells_max(slot_bytes: u64) -> usize {
    let mut count = (slot_bytes / CELL_BYTES as u64) as usize;
    while (header_bytes(count) + count * CELL_BYTES) as u64 > slot_bytes {
        count -= 1;
    }
    count
}

impl Cache {
    pub fn new(layout: Layout) -> Cache {
        let cost_max = cells_max(layout.slot_bytes);
        assert!(cost_max > layout.parities, "the stack's parser saw to that");
        Cache {
            layout,
            waiting: BTreeMap::new(),
            cost: 0,
            cost_max,
            draining: BTreeMap::new(),
            placing: None,
            slots: Default::default(),
            loose: RangeSet::default(),
        }
    }

    /// The newest of a cell that is not in its place.
    pub fn get(&self, stripe: u64, cell: u64) -> Option<&Cell> {
        let of = |cells: &BTreeMap<u64, Cells>| cells.get(&stripe).map(|c| c.contains_key(&cell));
        match of(&self.waiting) {
            Some(true) => self.waiting[&stripe].get(&cell),
            _ => self.draining.get(&stripe)?.get(&cell),
        }
    }

    /// Those of some cells that are not in their places.
    pub fn overlay(&self, stripe: u64, cells: Range<u64>) -> Vec<(u64, Cell)> {
        if !self.waiting.contains_key(&stripe) && !self.draining.contains_key(&stripe) {
            return Vec::new();
        }
        cells.filter_map(|cell| Some((cell, Arc::clone(self.get(stripe, cell)?)))).collect()
    }

    /// Takes a cell in; gives it back if there is no room.
    pub fn insert(&mut self, stripe: u64, number: u64, cell: Waiting) -> Result<(), Waiting> {
        let cells = self.waiting.entry(stripe).or_default();
        let cost = match cells.contains_key(&number) {
            true => 0,
            false => {
                let rows = self.layout.rows();
                let row = number % rows;
                let mut of_row = (0..self.layout.data() as u64).map(|i| i * rows + row);
                match of_row.any(|other| cells.contains_key(&other)) {
                    true => 1,
                    false => 1 + self.layout.parities,
                }
            }
        };
        if self.cost + cost > self.cost_max {
            if cells.is_empty() {
                self.waiting.remove(&stripe);
            }
            return Err(cell);
        }
        let (written, touched) =
            cells.get(&number).map_or((0, 0), |before| (before.written, before.touched));
        let (written, touched) = (cell.written | written, cell.touched | touched);
        cells.insert(number, Arc::new(Waiting { written, touched, ..cell }));
        self.cost += cost;
        Ok(())
    }

    /// Whether a stripe may go to its sides only through the journal.
    pub fn is_held(&self, stripe: u64) -> bool {
        self.draining.contains_key(&stripe) || self.slots.iter().any(|slot| slot.contains(&stripe))
    }

    /// Whether all of a stripe was written and waits.
    pub fn is_whole(&self, stripe: u64) -> bool {
        let all = self.layout.rows() * self.layout.data() as u64;
        self.waiting.get(&stripe).is_some_and(|cells| {
            cells.len() as u64 == all && cells.values().all(|cell| cell.written == u8::MAX)
        })
    }

    /// The cells of a stripe that wait.
    pub fn waiting(&self, stripe: u64) -> Cells {
        self.waiting.get(&stripe).cloned().unwrap_or_default()
    }

    /// Forgets cells that were put in their places, unless there are newer ones.
    pub fn forget(&mut self, stripe: u64, placed: &Cells) {
        let Some(cells) = self.waiting.get_mut(&stripe) else { return };
        let before = cost_of(&self.layout, cells);
        cells.retain(|number, cell| placed.get(number).is_none_or(|p| !Arc::ptr_eq(p, cell)));
        self.cost -= before - cost_of(&self.layout, cells);
        if cells.is_empty() {
            self.waiting.remove(&stripe);
        }
    }

    /// Whether anything waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets everything drain that waits; nothing drains now.
    pub fn drain(&mut self) {
        assert!(self.draining.is_empty(), "one record after the other");
        self.draining = std::mem::take(&mut self.waiting);
        self.cost = 0;
    }
}

/// Cells that a record has of a stripe.
fn cost_of(layout: &Layout, cells: &Cells) -> usize {
    let rows: BTreeSet<u64> = cells.keys().map(|cell| cell % layout.rows()).collect();
    cells.len() + rows.len() * layout.parities
}

#[cfg(test)]
mod tests {
    use super::{Cache, Waiting, cells_max, cost_of};
    use crate::layers::parity::layout::Layout;

    const LAYOUT: Layout = Layout { sides: 3, parities: 1, chunk_bytes: 8192, slot_bytes: 65_536 };

    fn cell(byte: u8) -> Waiting {
        Waiting { bytes: Box::from([byte; 4096]), written: u8::MAX, touched: u8::MAX }
    }

    /// Whether there was room.
    fn insert(cache: &mut Cache, stripe: u64, number: u64, byte: u8) -> bool {
        cache.insert(stripe, number, cell(byte)).is_ok()
    }

    #[test]
    fn a_stripe_is_whole_when_every_sector_was_written_while_it_waits() {
        let mut cache = Cache::new(LAYOUT);
        (1..4).for_each(|number| assert!(insert(&mut cache, 5, number, 1)));
        let part = |written| Waiting { written, ..cell(2) };
        assert!(cache.insert(5, 0, part(0x0f)).is_ok() && !cache.is_whole(5));
        assert!(cache.insert(5, 0, part(0xf0)).is_ok() && cache.is_whole(5));
    }

    #[test]
    fn what_waits_never_outgrows_a_record() {
        assert_eq!(cells_max(65_536), 15);
        assert_eq!(cells_max(16 << 20), 4080);
        let mut cache = Cache::new(LAYOUT);
        let taken = (0..20).filter(|&stripe| insert(&mut cache, stripe, 0, 1)).count();
        assert_eq!((taken, cache.cost), (7, 14), "a cell and its parity");
        // The other cell of a row has the same parity.
        assert!(insert(&mut cache, 0, 2, 2) && !insert(&mut cache, 1, 2, 2));
        assert!(insert(&mut cache, 0, 2, 3), "one that waits is written over");
        let counted: usize = cache.waiting.values().map(|c| cost_of(&LAYOUT, c)).sum();
        assert_eq!(cache.cost, counted);
    }

    #[test]
    fn the_newest_cell_is_found_and_only_what_was_placed_is_forgotten() {
        let mut cache = Cache::new(LAYOUT);
        (0..4).for_each(|number| assert!(insert(&mut cache, 5, number, 1)));
        assert!(cache.is_whole(5) && !cache.is_held(5));
        let placed = cache.waiting(5);
        insert(&mut cache, 5, 2, 2);
        cache.forget(5, &placed);
        assert_eq!((cache.cost, cache.waiting(5).len()), (2, 1));
        cache.drain();
        assert!(!cache.has_waiting() && cache.is_held(5) && cache.cost == 0);
        assert_eq!(cache.get(5, 2).expect("it drains").bytes[0], 2);
        insert(&mut cache, 5, 2, 3);
        assert_eq!(cache.overlay(5, 0..4)[0].1.bytes[0], 3);
        cache.draining.clear();
        cache.slots[1].insert(5);
        assert!(cache.is_held(5) && !cache.is_held(6));
    }
}
