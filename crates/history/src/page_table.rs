//! A table of map pages: where each block is, as of one moment (the present, or a view's).
//!
//! Invariants
//! 1. A page is only a cache of "look these 512 blocks up at this moment": it may be dropped at any
//!    time.
//! 2. No lock is held while a page is loaded. It stands in its shard meanwhile, empty, and takes
//!    updates; what is loaded is put under them. A writer first puts its entries where loading
//!    finds them and then updates the page: no write is missed.
//! 3. A page that is dropped while it is loaded is not put in: blocks may have moved since it was
//!    looked up. Only who loads it goes by it, as long as the epoch entered before lasts.
//! 4. A slot never goes back to a lower seq while its page stays.
//! 5. The pages of all tables of one budget together stay within it, counted in bytes, but for one
//!    that each thread loads.
//! 6. In a table with extents of more than a block a page is compact as long as that takes less
//!    memory than 512 slots; it answers the same.
//!
//! Deliberately unaware of where pages come from.

mod compact;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use compact::CompactPage;
use parking_lot::{Condvar, Mutex};
use units::MapExtent;

use crate::Result;
use crate::hash::FastMap;
use crate::slot::{BLOCKS_PER_PAGE, LoadedPage, Slot};

/// Locks per table; pages are dealt over them.
const SHARDS: usize = 64;
/// Memory of one page's bookkeeping, in bytes.
const BOOKKEEPING_BYTES: usize = 64;
/// Memory of the slots of a page that is not compact, in bytes.
const PLAIN_BYTES: usize = BLOCKS_PER_PAGE * size_of::<Packed>();
/// The most memory that a page takes with its bookkeeping, in bytes.
const PAGE_COST_BYTES: usize = PLAIN_BYTES + BOOKKEEPING_BYTES;

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

/// How much memory the pages of all tables of a pool may take together.
#[derive(Debug)]
pub struct PageBudget {
    bytes_max: AtomicUsize,
    bytes: AtomicUsize,
}

impl PageBudget {
    /// A budget of so many bytes (never less than 64 pages).
    pub fn new(bytes: usize) -> PageBudget {
        let budget = PageBudget { bytes_max: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };
        budget.set_bytes(bytes);
        budget
    }

    /// Makes it another number of bytes; what is held beyond goes as pages are loaded.
    pub fn set_bytes(&self, bytes: usize) {
        self.bytes_max.store(bytes.max(64 * PAGE_COST_BYTES), Ordering::Relaxed);
    }

    /// Bytes of all pages held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes held beyond what there may be.
    fn excess(&self) -> usize {
        self.bytes().saturating_sub(self.bytes_max.load(Ordering::Relaxed))
    }

    fn replace(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

enum Slots {
    Plain(Box<[Packed; BLOCKS_PER_PAGE]>),
    Compact(Box<CompactPage>),
}

impl Slots {
    fn new(loaded: &LoadedPage, extent: MapExtent) -> Slots {
        if !extent.is_block() {
            let page = CompactPage::new(loaded, extent);
            if page.bytes() < PLAIN_BYTES {
                return Slots::Compact(Box::new(page));
            }
        }
        let mut slots = Box::new([Packed::default(); BLOCKS_PER_PAGE]);
        for (packed, slot) in slots.iter_mut().zip(loaded) {
            *packed = Packed::pack(*slot);
        }
        Slots::Plain(slots)
    }

    #[inline]
    fn copy_out(&self, extent: MapExtent, first: usize, out: &mut [Slot]) {
        match self {
            Slots::Plain(slots) => {
                for (slot, packed) in out.iter_mut().zip(&slots[first..]) {
                    *slot = packed.unpack();
                }
            }
            Slots::Compact(page) => page.copy_out(extent, first, out),
        }
    }

    /// Puts newer slots in their places.
    fn raise(&mut self, extent: MapExtent, entries: impl Iterator<Item = (usize, Slot)>) {
        match self {
            Slots::Plain(slots) => {
                for (index, slot) in entries {
                    if slot.seq.0 > slots[index].seq() {
                        slots[index] = Packed::pack(slot);
                    }
                }
            }
            Slots::Compact(page) => {
                entries.for_each(|(index, slot)| page.raise(extent, index, &slot));
                if page.bytes() >= PLAIN_BYTES {
                    let mut all = [Slot::default(); BLOCKS_PER_PAGE];
                    page.copy_out(extent, 0, &mut all);
                    *self = Slots::new(&all, MapExtent::BLOCK);
                }
            }
        }
    }

    fn cost_bytes(&self) -> usize {
        let bytes = match self {
            Slots::Plain(_) => PLAIN_BYTES,
            Slots::Compact(page) => page.bytes(),
        };
        bytes + BOOKKEEPING_BYTES
    }
}

struct Page {
    slots: Slots,
    touched: bool,
    /// The number of the load under way: until it ends nobody reads the page.
    load: Option<u64>,
}

#[derive(Default)]
struct Shard {
    pages: FastMap<u64, Page>,
    /// Second-chance queue: every page that is loaded, once.
    queue: VecDeque<u64>,
    /// Loads that have begun, of all pages.
    loads: u64,
}

#[derive(Default)]
struct LockedShard {
    shard: Mutex<Shard>,
    /// A load has ended, or need not be waited for any more.
    ended: Condvar,
}

/// A page that is being loaded; dropped, it is as if that had not begun.
struct Loading<'t> {
    table: &'t PageTable,
    page: u64,
    load: u64,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let locked = self.table.shard(self.page);
        let mut shard = locked.shard.lock();
        if shard.pages.get(&self.page).is_some_and(|held| held.load == Some(self.load)) {
            let held = shard.pages.remove(&self.page).expect("just seen");
            self.table.budget.replace(held.slots.cost_bytes(), 0);
            locked.ended.notify_all();
        }
    }
}

/// Pages of one moment.
pub struct PageTable {
    shards: Vec<LockedShard>,
    budget: Arc<PageBudget>,
    extent: MapExtent,
}

impl PageTable {
    /// An empty table of a volume whose map keeps entries by that unit.
    pub fn new(budget: Arc<PageBudget>, extent: MapExtent) -> PageTable {
        let shards = (0..SHARDS).map(|_| LockedShard::default()).collect();
        PageTable { shards, budget, extent }
    }

    fn shard(&self, page: u64) -> &LockedShard {
        &self.shards[(page % SHARDS as u64) as usize]
    }

    /// Copies slots `first..first + out.len()` of a page out, loading it with `load` if it is not
    /// held. If somebody else is loading it, waits for that. The caller has entered an epoch.
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
        let Some(loading) = self.copy_or_begin(page, first, out) else { return Ok(()) };
        let mut loaded: Box<LoadedPage> = Box::new([Slot::default(); BLOCKS_PER_PAGE]);
        load(&mut loaded)?;
        self.put_in(&loading, &mut loaded);
        out.copy_from_slice(&loaded[first..first + out.len()]);
        Ok(())
    }

    /// Copies slots out if the page is held, perhaps after another has loaded it; else begins to
    /// load it.
    fn copy_or_begin(&self, page: u64, first: usize, out: &mut [Slot]) -> Option<Loading<'_>> {
        let locked = self.shard(page);
        let mut shard = locked.shard.lock();
        while !self.copy_out(&mut shard, page, first, out) {
            if shard.pages.contains_key(&page) {
                locked.ended.wait(&mut shard);
                continue;
            }
            shard.loads += 1;
            let load = shard.loads;
            let slots = Slots::new(&[Slot::default(); BLOCKS_PER_PAGE], self.extent);
            self.budget.replace(0, slots.cost_bytes());
            shard.pages.insert(page, Page { slots, touched: false, load: Some(load) });
            return Some(Loading { table: self, page, load });
        }
        None
    }

    /// Puts a page that was loaded in, under what it was updated with meanwhile, unless it was
    /// dropped.
    fn put_in(&self, loading: &Loading<'_>, loaded: &mut LoadedPage) {
        let locked = self.shard(loading.page);
        let mut shard = locked.shard.lock();
        let held = shard.pages.get_mut(&loading.page);
        let Some(held) = held.filter(|held| held.load == Some(loading.load)) else { return };
        let mut updates = [Slot::default(); BLOCKS_PER_PAGE];
        held.slots.copy_out(self.extent, 0, &mut updates);
        for (slot, update) in loaded.iter_mut().zip(updates) {
            if update.seq > slot.seq {
                *slot = update;
            }
        }
        let before = held.slots.cost_bytes();
        held.slots = Slots::new(loaded, self.extent);
        held.load = None;
        self.budget.replace(before, held.slots.cost_bytes());
        shard.queue.push_back(loading.page);
        self.make_room(&mut shard, loading.page);
        locked.ended.notify_all();
    }

    /// Copies slots out if the page is held; false otherwise.
    pub fn try_slots(&self, page: u64, first: usize, out: &mut [Slot]) -> bool {
        self.copy_out(&mut self.shard(page).shard.lock(), page, first, out)
    }

    /// Tells a held page of newer entries; a page that is not held will find them when loaded.
    pub fn update(&self, page: u64, entries: impl Iterator<Item = (usize, Slot)>) {
        let mut shard = self.shard(page).shard.lock();
        let Some(held) = shard.pages.get_mut(&page) else { return };
        let before = held.slots.cost_bytes();
        held.slots.raise(self.extent, entries);
        let after = held.slots.cost_bytes();
        if after != before {
            self.budget.replace(before, after);
            self.make_room(&mut shard, page);
        }
    }

    /// Drops the pages for which `stale` says so.
    pub fn drop_pages(&self, stale: impl Fn(u64) -> bool) {
        for locked in &self.shards {
            let mut shard = locked.shard.lock();
            let mut dropped = 0;
            shard.pages.retain(|&page, held| {
                let is_stale = stale(page);
                dropped += if is_stale { held.slots.cost_bytes() } else { 0 };
                !is_stale
            });
            if dropped > 0 {
                let Shard { pages, queue, .. } = &mut *shard;
                queue.retain(|page| pages.contains_key(page));
                self.budget.replace(dropped, 0);
                locked.ended.notify_all();
            }
        }
    }

    /// Drops pages of this shard while there is too much, sparing one: up to two plain pages'
    /// worth, where the budget has become smaller.
    fn make_room(&self, shard: &mut Shard, spared: u64) {
        let mut freed = 0;
        while self.budget.excess() > 0 && freed < 2 * PAGE_COST_BYTES {
            match self.evict(shard, spared) {
                0 => return,
                bytes => freed += bytes,
            }
        }
    }

    /// Drops one page of this shard by second chance; says how many bytes that gave back.
    fn evict(&self, shard: &mut Shard, spared: u64) -> usize {
        for _ in 0..2 * shard.queue.len() {
            let Some(candidate) = shard.queue.pop_front() else { return 0 };
            let page = shard.pages.get_mut(&candidate).expect("the queue names what is held");
            if page.touched || candidate == spared {
                page.touched = false;
                shard.queue.push_back(candidate);
                continue;
            }
            let bytes = page.slots.cost_bytes();
            shard.pages.remove(&candidate);
            self.budget.replace(bytes, 0);
            return bytes;
        }
        0
    }

    fn copy_out(&self, shard: &mut Shard, page: u64, first: usize, out: &mut [Slot]) -> bool {
        let held = shard.pages.get_mut(&page).filter(|held| held.load.is_none());
        let Some(held) = held else { return false };
        held.touched = true;
        held.slots.copy_out(self.extent, first, out);
        true
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        self.drop_pages(|_| true);
    }
}
