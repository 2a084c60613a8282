//! Tables with extents against a table without, and what they say of their memory.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use format::location::Location;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use units::{MapExtent, Seq};

use super::{LoadedPage, PAGE_COST_BYTES, PLAIN_BYTES, PageBudget, PageTable, Slots};
use crate::slot::{BLOCKS_PER_PAGE, Slot};

fn slot(seq: u64, location: Location) -> Slot {
    let crc = if location.is_hole() { 0 } else { (location.0 * 31 + seq) as u32 };
    Slot { seq: Seq(seq), location, crc, known: true }
}

/// The slots that one write leaves: blocks, seq, and how their places follow.
#[derive(Clone, Debug)]
struct Write {
    first: usize,
    blocks: usize,
    seq: u64,
    kind: u8,
    kept: u64,
}

impl Write {
    fn entries(&self) -> Vec<(usize, Slot)> {
        let end = BLOCKS_PER_PAGE.min(self.first + self.blocks);
        let kept = (self.first..end).filter(|i| self.kind > 3 || self.kept >> (i % 64) & 1 == 1);
        kept.enumerate()
            .map(|(dense, index)| {
                let step = match self.kind {
                    1 => dense * 4096,
                    2 => (index - self.first) * 4288,
                    _ => (index - self.first) * 4096,
                };
                let location = match self.kind {
                    7 => Location::hole_in(1 + self.seq % 7),
                    _ => Location::new(1 + self.seq % 7, 512 + step as u32),
                };
                (index, slot(self.seq, location))
            })
            .collect()
    }
}

fn write() -> impl Strategy<Value = Write> {
    let blocks = proptest::prelude::prop_oneof![1..3_usize, 1..40_usize, 1..513_usize];
    (0..BLOCKS_PER_PAGE, blocks, 1..500_u64, 0..8_u8, any::<u64>())
        .prop_map(|(first, blocks, seq, kind, kept)| Write { first, blocks, seq, kind, kept })
}

fn table(extent: MapExtent) -> PageTable {
    PageTable::new(Arc::new(PageBudget::new(0)), extent)
}

/// The memory that the pages of a table really take.
fn real_bytes(table: &PageTable) -> usize {
    let bytes = |shard: &super::Shard| -> usize {
        shard.pages.values().map(|page| page.slots.cost_bytes()).sum()
    };
    table.shards.iter().map(|locked| bytes(&locked.shard.lock())).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_table_with_extents_answers_what_one_without_answers(
        before in vec(write(), 0..20), after in vec(write(), 0..60), which in 1..5_usize,
        reads in vec((0..BLOCKS_PER_PAGE, 1..BLOCKS_PER_PAGE), 1..6),
    ) {
        let mut loaded: LoadedPage = [Slot::default(); BLOCKS_PER_PAGE];
        for (index, slot) in before.iter().flat_map(Write::entries) {
            if slot.seq > loaded[index].seq {
                loaded[index] = slot;
            }
        }
        let tables = [table(MapExtent::BLOCK), table(MapExtent::ALL[which])];
        let mut first = [Slot::default(); 1];
        for table in &tables {
            let load = |page: &mut LoadedPage| {
                *page = loaded;
                Ok(())
            };
            table.slots(5, 0, &mut first, load).expect("memory");
        }
        for write in std::iter::once(&Write { first: 0, blocks: 0, seq: 1, kind: 0, kept: 0 })
            .chain(&after)
        {
            for table in &tables {
                table.update(5, write.entries().into_iter());
                prop_assert_eq!(table.budget.bytes(), real_bytes(table));
                prop_assert!(table.budget.bytes() <= PAGE_COST_BYTES);
            }
            for &(first, blocks) in &reads {
                let blocks = blocks.min(BLOCKS_PER_PAGE - first);
                let found = tables.each_ref().map(|table| {
                    let mut out = vec![Slot { crc: 1, ..Slot::default() }; blocks];
                    assert!(table.try_slots(5, first, &mut out));
                    out
                });
                prop_assert_eq!(&found[0], &found[1]);
            }
        }
    }
}

fn sequential(seq: u64) -> LoadedPage {
    let place = |i: usize| Location::new(3, 512 + (i * 4096) as u32);
    std::array::from_fn(|i| slot(seq + i as u64 / 16, place(i)))
}

#[test]
fn a_page_that_was_written_in_order_is_small_and_a_mixed_one_is_plain() {
    for (kib, headers) in [(8, 256), (16, 128), (32, 64), (64, 32)] {
        let extent = MapExtent::try_from(kib << 10).expect("an extent");
        let slots = Slots::new(&sequential(9), extent);
        let least = headers * 16 + 2048;
        assert!((least..=least + 200).contains(&slots.cost_bytes()), "{}", slots.cost_bytes());
        let place = |i: usize| Location::new(3, 512 + ((i * 7) % 512 * 4096) as u32);
        let mixed: LoadedPage = std::array::from_fn(|i| slot(9, place(i)));
        assert_eq!(Slots::new(&mixed, extent).cost_bytes(), PAGE_COST_BYTES);
    }
    let unknown = Slots::new(&[Slot::default(); BLOCKS_PER_PAGE], MapExtent::ALL[4]);
    assert!(unknown.cost_bytes() <= 200, "{}", unknown.cost_bytes());
}

#[test]
fn writes_here_and_there_cost_a_header_each_until_the_page_is_plain() {
    let extent = MapExtent::ALL[4];
    let mut slots = Slots::new(&sequential(9), extent);
    let mut previous = slots.cost_bytes();
    let mut became_plain = 0;
    for (n, index) in (0..BLOCKS_PER_PAGE).map(|i| (i, i * 37 % BLOCKS_PER_PAGE)) {
        let seq = 1000 + n as u64;
        slots.raise(extent, std::iter::once((index, slot(seq, Location::new(5, 640)))));
        let now = slots.cost_bytes();
        assert!(now <= PAGE_COST_BYTES && now + 16 >= previous.min(now), "{now} after {previous}");
        if matches!(slots, Slots::Plain(_)) && became_plain == 0 {
            became_plain = n;
        }
        previous = now;
    }
    assert!((300..352).contains(&became_plain), "{became_plain}");
    assert_eq!(previous, PLAIN_BYTES + 64);
}

#[test]
fn pages_that_grow_push_others_out() {
    let budget = Arc::new(PageBudget::new(0));
    let extent = MapExtent::ALL[4];
    let table = PageTable::new(Arc::clone(&budget), extent);
    let load = |page: &mut LoadedPage| {
        *page = sequential(1);
        Ok(())
    };
    let mut out = [Slot::default(); 1];
    // All of one lock: 64 to a lock, of which there are 64.
    for page in 0..1000 {
        table.slots(page * 64, 0, &mut out, load).expect("memory");
    }
    let most = 64 * PAGE_COST_BYTES;
    assert!(budget.bytes() <= most && budget.bytes() > most - 4096, "{}", budget.bytes());
    for page in 0..1000 {
        let mixed = (0..BLOCKS_PER_PAGE).map(|i| {
            let place = Location::new(5, 512 + (i * 7 % 512 * 4096) as u32);
            (i, slot(1000 + i as u64, place))
        });
        table.update(page * 64, mixed);
        assert!(budget.bytes() <= most, "{}", budget.bytes());
    }
    assert_eq!(budget.bytes(), real_bytes(&table));
    drop(table);
    assert_eq!(budget.bytes(), 0);
}

fn first_seq(table: &PageTable, page: u64, load: impl FnOnce(&mut LoadedPage)) -> u64 {
    let mut out = [Slot::default(); 1];
    let load = |page: &mut LoadedPage| {
        load(page);
        Ok(())
    };
    table.slots(page, 0, &mut out, load).expect("memory");
    out[0].seq.0
}

#[test]
fn a_page_that_is_loaded_takes_updates_and_is_not_put_in_if_it_was_dropped() {
    for extent in [MapExtent::BLOCK, MapExtent::ALL[4]] {
        let table = table(extent);
        let newer = |seq| std::iter::once((0, slot(seq, Location::new(9, 512))));
        let found = first_seq(&table, 5, |loaded| {
            *loaded = sequential(7);
            assert!(!table.try_slots(5, 0, &mut [Slot::default()]), "it is not there yet");
            table.update(5, newer(8));
        });
        assert_eq!(found, 8);
        let mut all = [Slot::default(); BLOCKS_PER_PAGE];
        assert!(table.try_slots(5, 0, &mut all));
        assert_eq!((all[0].seq, &all[1..]), (Seq(8), &sequential(7)[1..]));
        // Dropped while it is loaded; the second time somebody has begun anew before that ends.
        for begins_anew in [false, true] {
            table.drop_pages(|_| true);
            let found = first_seq(&table, 5, |loaded| {
                *loaded = sequential(7);
                table.drop_pages(|page| page == 5);
                if begins_anew {
                    assert_eq!(first_seq(&table, 5, |loaded| *loaded = sequential(30)), 30);
                }
            });
            assert_eq!(found, 7, "who loaded it goes by it");
            assert_eq!(table.try_slots(5, 0, &mut all), begins_anew);
            assert!(!begins_anew || all == sequential(30));
            assert_eq!(table.budget.bytes(), real_bytes(&table));
        }
        // A load that fails has not begun.
        table.drop_pages(|_| true);
        let fails = |_: &mut LoadedPage| Err(crate::Error::refused());
        table.slots(5, 0, &mut all, fails).expect_err("it fails");
        assert_eq!(table.budget.bytes(), 0);
        assert_eq!(first_seq(&table, 5, |loaded| *loaded = sequential(40)), 40);
    }
}

#[test]
fn a_page_that_many_want_is_loaded_once() {
    let table = table(MapExtent::BLOCK);
    let (loads, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                waiting.fetch_add(1, Ordering::SeqCst);
                let found = first_seq(&table, 5, |loaded| {
                    loads.fetch_add(1, Ordering::SeqCst);
                    while waiting.load(Ordering::SeqCst) < 4 {
                        thread::yield_now();
                    }
                    *loaded = sequential(3);
                });
                assert_eq!(found, 3);
            });
        }
    });
    assert_eq!(loads.into_inner(), 1);
}

#[test]
fn the_queue_names_each_page_once_however_often_it_is_dropped_and_loaded() {
    let table = table(MapExtent::BLOCK);
    for turn in 0..1000 {
        for page in [5, 69, 133] {
            first_seq(&table, page, |loaded| *loaded = sequential(1));
        }
        table.drop_pages(|page| page == 69 || turn % 2 == 1 && page == 133);
    }
    let shard = table.shard(5).shard.lock();
    assert_eq!((shard.pages.len(), shard.queue.len()), (1, 1));
}

/// The answers of the map: seq and segment of each block of a few pages. Segments are moved.
struct Truth {
    blocks: Vec<(u64, u64)>,
    segment: u64,
    last_seq: u64,
}

impl Truth {
    fn slot(&self, block: usize) -> Slot {
        let (seq, segment) = self.blocks[block];
        slot(seq, Location::new(segment, 512 + (block % BLOCKS_PER_PAGE * 4096) as u32))
    }
}

/// The table, the truth, and what is known to be over: the seq of the last write of each block that
/// has ended, and the oldest segment that blocks may be in.
struct Threads {
    table: PageTable,
    truth: Mutex<Truth>,
    ended: Vec<AtomicU64>,
    oldest: AtomicU64,
}

const PAGES: u64 = 4;

impl Threads {
    fn page(&self, index: u64) -> u64 {
        // All of one lock.
        index * 64
    }

    fn truth(&self) -> std::sync::MutexGuard<'_, Truth> {
        self.truth.lock().expect("not poisoned")
    }

    fn write(&self, chance: u64) {
        let block = (chance % (PAGES * BLOCKS_PER_PAGE as u64)) as usize;
        let mut truth = self.truth();
        truth.last_seq += 1;
        truth.blocks[block] = (truth.last_seq, truth.segment);
        let slot = truth.slot(block);
        drop(truth);
        let page = self.page((block / BLOCKS_PER_PAGE) as u64);
        self.table.update(page, std::iter::once((block % BLOCKS_PER_PAGE, slot)));
        self.ended[block].fetch_max(slot.seq.0, Ordering::SeqCst);
    }

    fn move_all(&self) {
        let mut truth = self.truth();
        truth.segment += 1;
        let segment = truth.segment;
        truth.blocks.iter_mut().for_each(|block| block.1 = segment);
        drop(truth);
        self.table.drop_pages(|_| true);
        self.oldest.fetch_max(segment, Ordering::SeqCst);
    }

    fn read(&self, chance: u64) {
        let page = chance % PAGES;
        let first = page as usize * BLOCKS_PER_PAGE;
        let oldest = self.oldest.load(Ordering::SeqCst);
        let ended: Vec<_> = self.ended[first..first + BLOCKS_PER_PAGE]
            .iter()
            .map(|seq| seq.load(Ordering::SeqCst))
            .collect();
        let load = |loaded: &mut LoadedPage| {
            // In two halves, as from a map in parts, with time for others in between.
            for half in [0..BLOCKS_PER_PAGE / 2, BLOCKS_PER_PAGE / 2..BLOCKS_PER_PAGE] {
                let truth = self.truth();
                half.for_each(|i| loaded[i] = truth.slot(first + i));
                drop(truth);
                (0..chance >> 8 & 3).for_each(|_| thread::yield_now());
            }
            Ok(())
        };
        let mut out = [Slot::default(); BLOCKS_PER_PAGE];
        self.table.slots(self.page(page), 0, &mut out, load).expect("memory");
        for (slot, ended) in out.iter().zip(ended) {
            assert!(slot.seq.0 >= ended, "a write that had ended is missing");
            assert!(slot.location.segment() >= oldest, "a place from before blocks were moved");
        }
    }
}

#[test]
fn loads_updates_and_drops_by_threads_never_show_what_is_over() {
    for extent in [MapExtent::BLOCK, MapExtent::ALL[3]] {
        let blocks = PAGES as usize * BLOCKS_PER_PAGE;
        let truth = Truth { blocks: vec![(1, 1); blocks], segment: 1, last_seq: 1 };
        let threads = Threads {
            table: table(extent),
            truth: Mutex::new(truth),
            ended: (0..blocks).map(|_| AtomicU64::new(1)).collect(),
            oldest: AtomicU64::new(1),
        };
        thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let threads = &threads;
                scope.spawn(move || {
                    let mut chance = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    for _ in 0..4_000 {
                        chance ^= chance << 13;
                        chance ^= chance >> 7;
                        chance ^= chance << 17;
                        match chance >> 40 & 15 {
                            0 => threads.move_all(),
                            1..8 => threads.write(chance >> 8),
                            _ => threads.read(chance >> 8),
                        }
                    }
                });
            }
        });
        let (table, truth) = (&threads.table, threads.truth());
        assert_eq!(table.budget.bytes(), real_bytes(table));
        let mut out = [Slot::default(); BLOCKS_PER_PAGE];
        for index in 0..PAGES {
            if !table.try_slots(threads.page(index), 0, &mut out) {
                continue;
            }
            let first = index as usize * BLOCKS_PER_PAGE;
            (0..BLOCKS_PER_PAGE).for_each(|i| assert_eq!(out[i], truth.slot(first + i)));
        }
    }
}
