//! Tables with extents against a table without, and what they say of their memory.

use std::sync::Arc;

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

/// What the pages of a table really take.
fn real_bytes(table: &PageTable) -> usize {
    let bytes = |shard: &super::Shard| -> usize {
        shard.pages.values().map(|page| page.slots.cost_bytes()).sum()
    };
    table.shards.iter().map(|shard| bytes(&shard.lock())).sum()
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
