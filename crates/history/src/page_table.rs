//! A table of map pages: where each block is, as of one moment (the present, or a view's).
//!
//! Invariants
//! 1. A page is only a cache of "look these 512 blocks up at this moment": it may be dropped at any
//!    time.
//! 2. A page is loaded and installed under its shard's lock, and a writer first puts its entries
//!    where loading finds them and then updates the page under that lock: no write is missed.
//! 3. A slot never goes back to a lower seq while its page stays.
//! 4. The pages of all tables of one budget together stay within it.
//!
//! Deliberately unaware of where pages come from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Result;
use crate::hash::FastMap;
use crate::slot::{BLOCKS_PER_PAGE, Slot};

/// Locks per table; pages are dealt over them.
const SHARDS: usize = 64;
/// Memory of one page with its bookkeeping, in bytes.
const PAGE_COST_BYTES: usize = BLOCKS_PER_PAGE * size_of::<Packed>() + 64;

/// A slot in 16 bytes: seq 48 bits, location 48 bits, checksum 32 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Packed {
    high: u64,
    low: u64,
}

const _: () = assert!(size_of::<Packed>() == 16);

impl Packed {
    fn pack(slot: Slot) -> Packed {
        assert!(slot.seq.0 < 1 << 48 && slot.location.0 < 1 << 48, "seq and location fit 48 bits");
        Packed {
            high: slot.seq.0 << 16 | slot.location.0 >> 32,
            low: slot.location.0 << 32 | u64::from(slot.crc),
        }
    }

    fn unpack(self) -> Slot {
        let location = (self.high & 0xffff) << 32 | self.low >> 32;
        let crc = (self.low & 0xffff_ffff) as u32;
        let seq = units::Seq(self.high >> 16);
        Slot { seq, location: format::location::Location(location), crc, known: seq.0 != 0 }
    }

    fn seq(self) -> u64 {
        self.high >> 16
    }
}

/// How many pages all tables of a pool may hold together.
#[derive(Debug)]
pub struct PageBudget {
    pages_max: AtomicUsize,
    pages: AtomicUsize,
}

impl PageBudget {
    /// A budget of so many bytes (never less than 64 pages).
    #[must_use]
    pub fn new(bytes: usize) -> PageBudget {
        let budget = PageBudget { pages_max: AtomicUsize::new(0), pages: AtomicUsize::new(0) };
        budget.set_bytes(bytes);
        budget
    }

    /// Makes it another number of bytes; what is held beyond goes as pages are loaded.
    pub fn set_bytes(&self, bytes: usize) {
        self.pages_max.store((bytes / PAGE_COST_BYTES).max(64), Ordering::Relaxed);
    }

    fn pages_max(&self) -> usize {
        self.pages_max.load(Ordering::Relaxed)
    }

    /// Bytes of all pages held now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages.load(Ordering::Relaxed) * PAGE_COST_BYTES
    }
}

struct Page {
    slots: Box<[Packed; BLOCKS_PER_PAGE]>,
    touched: bool,
}

#[derive(Default)]
struct Shard {
    pages: FastMap<u64, Page>,
    /// Second-chance queue; may name pages that are gone.
    queue: VecDeque<u64>,
}

/// Pages of one moment.
pub struct PageTable {
    shards: Vec<Mutex<Shard>>,
    budget: Arc<PageBudget>,
}

/// The slots of a freshly loaded page.
pub type LoadedPage = [Slot; BLOCKS_PER_PAGE];

impl PageTable {
    /// An empty table.
    #[must_use]
    pub fn new(budget: Arc<PageBudget>) -> PageTable {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        PageTable { shards, budget }
    }

    fn shard(&self, page: u64) -> &Mutex<Shard> {
        &self.shards[(page % SHARDS as u64) as usize]
    }

    /// Copies slots `first..first + out.len()` of a page out, loading it with `load` if it is not
    /// held.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn slots(
        &self,
        page: u64,
        first: usize,
        out: &mut [Slot],
        load: impl FnOnce(&mut LoadedPage) -> Result<()>,
    ) -> Result<()> {
        let mut shard = self.shard(page).lock();
        if copy_out(&mut shard, page, first, out) {
            return Ok(());
        }
        let mut loaded: Box<LoadedPage> = Box::new([Slot::default(); BLOCKS_PER_PAGE]);
        load(&mut loaded)?;
        out.copy_from_slice(&loaded[first..first + out.len()]);
        let mut slots = Box::new([Packed::default(); BLOCKS_PER_PAGE]);
        for (packed, slot) in slots.iter_mut().zip(loaded.iter()) {
            *packed = Packed::pack(*slot);
        }
        shard.pages.insert(page, Page { slots, touched: false });
        shard.queue.push_back(page);
        let held = self.budget.pages.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.budget.pages_max();
        // Two where the budget has become smaller.
        for _ in 0..held.saturating_sub(most).min(2) {
            self.evict(&mut shard, page);
        }
        Ok(())
    }

    /// Copies slots out if the page is held; false otherwise.
    pub fn try_slots(&self, page: u64, first: usize, out: &mut [Slot]) -> bool {
        copy_out(&mut self.shard(page).lock(), page, first, out)
    }

    /// Tells a held page of newer entries; a page that is not held will find them when loaded.
    pub fn update(&self, page: u64, entries: impl Iterator<Item = (usize, Slot)>) {
        let mut shard = self.shard(page).lock();
        let Some(held) = shard.pages.get_mut(&page) else { return };
        for (index, slot) in entries {
            if slot.seq.0 > held.slots[index].seq() {
                held.slots[index] = Packed::pack(slot);
            }
        }
    }

    /// Drops the pages for which `stale` says so.
    pub fn drop_pages(&self, stale: impl Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.pages.len();
            shard.pages.retain(|&page, _| !stale(page));
            let dropped = before - shard.pages.len();
            if shard.pages.is_empty() {
                shard.queue.clear();
            }
            self.budget.pages.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// Makes room in this shard by second chance, sparing the page just loaded.
    fn evict(&self, shard: &mut Shard, spared: u64) {
        for _ in 0..2 * shard.queue.len() {
            let Some(candidate) = shard.queue.pop_front() else { return };
            let Some(page) = shard.pages.get_mut(&candidate) else { continue };
            if page.touched || candidate == spared {
                page.touched = false;
                shard.queue.push_back(candidate);
                continue;
            }
            shard.pages.remove(&candidate);
            self.budget.pages.fetch_sub(1, Ordering::Relaxed);
            return;
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        self.drop_pages(|_| true);
    }
}

fn copy_out(shard: &mut Shard, page: u64, first: usize, out: &mut [Slot]) -> bool {
    let Some(held) = shard.pages.get_mut(&page) else { return false };
    held.touched = true;
    for (slot, packed) in out.iter_mut().zip(&held.slots[first..]) {
        *slot = packed.unpack();
    }
    true
}
