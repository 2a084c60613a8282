//! Runs against an oracle: a sorted list of entries.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use format::PAGE_BYTES;
use format::location::Location;
use format::map::{Entry, Key};
use proptest::collection::vec;
use proptest::prelude::{
    ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use units::{Lba, MapExtent, Seq};

use super::{LeafCache, MergeIter, PageSink, PageStore, Run, RunCursor, RunSource, RunWriter};
use crate::slot::{BLOCKS_PER_PAGE, Slot};
use crate::{Error, ErrorKind, Result};

const POOL_ID: u128 = 77;

/// Pages in memory, which count how often they are read.
#[derive(Default)]
struct Pages {
    pages: Vec<[u8; PAGE_BYTES]>,
    reads: AtomicUsize,
}

impl PageSink for Pages {
    fn append_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<()> {
        self.pages.push(*page);
        Ok(())
    }
}

impl PageStore for Pages {
    fn read_page(&self, page: u32, buffer: &mut [u8; PAGE_BYTES]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.pages.get(page as usize);
        *buffer = *found.ok_or_else(|| Error::new(ErrorKind::Io, "no such page"))?;
        Ok(())
    }
}

/// A run, with what it should hold.
struct Fixture {
    pages: Pages,
    run: Run,
    cache: LeafCache,
    oracle: Vec<Entry>,
}

impl Fixture {
    fn new(number: u64, oracle: Vec<Entry>) -> Fixture {
        Fixture::with_extent(number, oracle, MapExtent::BLOCK)
    }

    fn with_extent(number: u64, oracle: Vec<Entry>, extent: MapExtent) -> Fixture {
        let mut writer = RunWriter::new(Pages::default(), POOL_ID, number, 3, extent);
        for entry in &oracle {
            writer.push(*entry).expect("memory takes all");
        }
        let (pages, footer) = writer.finish().expect("memory takes all");
        let footer = footer.expect("there are entries");
        assert_eq!(footer.pages() as usize, pages.pages.len());
        let run = Run::open(&pages, POOL_ID, number, footer.pages()).expect("sound");
        assert_eq!(*run.footer(), footer);
        Fixture { pages, run, cache: LeafCache::new(1 << 20), oracle }
    }

    fn source(&self) -> RunSource<'_> {
        RunSource { pages: &self.pages, cache: &self.cache }
    }

    /// A cursor for look-ups, at the first entry.
    fn cursor(&self) -> RunCursor<'_> {
        let first = self.oracle[0];
        self.run.cursor_at(self.source(), first.key, first.seq).expect("sound")
    }

    fn assert_fill(&self, page: u64, at: Seq, before: Slot) {
        let mut found = [before; BLOCKS_PER_PAGE];
        self.run.fill_page(self.source(), page, at, &mut found).expect("sound");
        for (i, slot) in found.iter().enumerate() {
            let block = page * 512 + i as u64;
            let expected =
                look_up(&self.oracle, block, at).filter(|entry| entry.seq > before.seq).map_or(
                    before,
                    |e| Slot { seq: e.seq, location: e.location, crc: e.crc, known: true },
                );
            assert_eq!(*slot, expected, "block {block} at {at}");
        }
    }
}

/// Every page of the run is sound, and together they hold what the footer says.
fn verify(run: &Run, pages: &Pages) -> Result<()> {
    let cache = LeafCache::new(0);
    let (source, index) = (RunSource { pages, cache: &cache }, run.index(pages)?);
    let footer = run.footer();
    let (mut entries, mut seq_first, mut seq_last) = (0, Seq::MAX, Seq::ZERO);
    for leaf in 0..footer.leaf_pages {
        let page = run.leaf(source, index, leaf, false)?;
        entries += page.len() as u64;
        for entry in (0..page.len()).map(|i| page.get(i)) {
            seq_first = seq_first.min(entry.seq);
            seq_last = seq_last.max(entry.seq);
        }
    }
    let found = (entries, seq_first, seq_last);
    let expected = (footer.entries, footer.seq_first, footer.seq_last);
    let differs = || Error::new(ErrorKind::Corrupt, format!("{expected:?}, found {found:?}"));
    if found == expected { Ok(()) } else { Err(differs()) }
}

/// The oracle: the newest entry with `seq <= at` whose key covers the block.
fn look_up(entries: &[Entry], block: u64, at: Seq) -> Option<Entry> {
    let covers = |key: Key| key == Key::covering(Lba(block), key.level);
    entries.iter().filter(|e| e.seq <= at && covers(e.key)).max_by_key(|e| e.seq).copied()
}

fn entry(block: u64, seq: u64) -> Entry {
    let location = Location::new(1 + seq % 1000, 512 + (seq % 8000) as u32 * 4096);
    Entry::data(Lba(block), Seq(seq), location, (block ^ seq) as u32)
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(Entry::order);
    entries.dedup_by_key(|entry| entry.order());
    entries
}

/// Entries crowded into few pages and seqs, with trims of all levels; each seq is one write.
fn entries(count_max: usize) -> impl Strategy<Value = Vec<Entry>> {
    let block = prop_oneof![0..30_u64, 500..530_u64, 0..2048_u64, (1 << 27)..(1 << 27) + 700_u64];
    let level = prop_oneof![20 => 0..=0_u8, 1 => 1..=4_u8];
    let one = (block, level, 1..3000_u64, any::<bool>()).prop_map(|(block, level, seq, zero)| {
        let key = Key::covering(Lba(block), level);
        if zero || level > 0 { Entry::hole(key, Seq(seq)) } else { entry(block, seq) }
    });
    vec(one, 1..=count_max).prop_map(|entries| {
        // A block gets one entry from one write: a trim of a range leaves none inside the range.
        let mut kept: Vec<Entry> = Vec::new();
        let mut seqs = BTreeSet::new();
        for entry in entries {
            if seqs.insert(entry.seq) {
                kept.push(entry);
            }
        }
        sorted(kept)
    })
}

fn extent() -> impl Strategy<Value = MapExtent> {
    (0..MapExtent::ALL.len()).prop_map(|i| MapExtent::ALL[i])
}

/// Entries as writes of many blocks leave them, some written over again and again, some moved and
/// some trimmed; among them `entries`.
fn writes(count_max: usize) -> impl Strategy<Value = Vec<Entry>> {
    let hot = (0..3_u64, 1..20_u64);
    let wide = (0..2048_u64, 1..200_u64);
    let write = (prop_oneof![hot, wide], 0..8_u8, any::<u64>());
    (entries(300), vec(write, 1..=count_max)).prop_map(|(mut entries, writes)| {
        for (seq, ((first, blocks), kind, kept)) in (4000_u64..).zip(writes) {
            let kept = (0..blocks).filter(|i| kind > 3 || kept >> (i % 64) & 1 == 1);
            for (dense, i) in kept.enumerate() {
                let step = if kind == 2 { dense as u64 * 4096 } else { i * 4096 };
                let step = if kind == 3 { i * 4288 } else { step };
                let location = Location::new(1 + seq % 1000, 512 + step as u32);
                let (lba, crc) = (Lba(first + i), (i * 7919 + seq) as u32);
                entries.push(match kind {
                    7 => Entry::hole(Key::block(lba), Seq(seq)),
                    _ => Entry::data(lba, Seq(seq), location, crc),
                });
            }
        }
        sorted(entries)
    })
}

/// The possible contents of a run.
fn contents() -> impl Strategy<Value = Vec<Entry>> {
    prop_oneof![entries(3000), writes(300)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_walk_of_a_run_is_the_list(entries in contents(), extent in extent()) {
        let fixture = Fixture::with_extent(9, entries, extent);
        verify(&fixture.run, &fixture.pages).expect("sound");
        for keeps in [true, false] {
            let source = fixture.source();
            let mut cursor =
                if keeps { fixture.cursor() } else { fixture.run.scan(source).expect("sound") };
            for expected in &fixture.oracle {
                assert_eq!(cursor.peek(), Some(*expected));
                cursor.advance().expect("sound");
            }
            assert_eq!(cursor.peek(), None);
            cursor.advance().expect("the end stays the end");
            assert_eq!(cursor.peek(), None);
        }
    }

    #[test]
    fn a_search_finds_what_it_finds_in_the_list(
        entries in contents(), places in vec((entries(1), any::<u64>(), any::<bool>()), 1..80),
        extent in extent(),
    ) {
        let fixture = Fixture::with_extent(9, entries, extent);
        let source = fixture.source();
        let mut cursor = fixture.cursor();
        for (near, pick, take) in places {
            let picked = fixture.oracle[pick as usize % fixture.oracle.len()];
            let chosen = if take { picked } else { near[0] };
            let (key, seq) = (chosen.key, chosen.seq);
            let place = (key, Reverse(seq));
            let expected = fixture.oracle.iter().find(|entry| entry.order() >= place).copied();
            if cursor.peek().is_some_and(|entry| entry.order() <= place) {
                cursor.seek_forward(key, seq).expect("sound");
                prop_assert_eq!(cursor.peek(), expected);
            }
            cursor.seek(key, seq).expect("sound");
            prop_assert_eq!(cursor.peek(), expected);
            let at = fixture.run.cursor_at(source, key, seq).expect("sound");
            prop_assert_eq!(at.peek(), expected);
        }
    }

    #[test]
    fn a_page_is_filled_as_the_list_says(
        entries in contents(), moments in vec(0..4400_u64, 1..6), known in 0..3000_u64,
        extent in extent(),
    ) {
        let fixture = Fixture::with_extent(9, entries, extent);
        let known = Slot { seq: Seq(known), known: true, ..Slot::default() };
        for at in moments {
            for page in [0, 1, 2, 5, (1 << 27) / 512, (1 << 27) / 512 + 1] {
                fixture.assert_fill(page, Seq(at), Slot::default());
                fixture.assert_fill(page, Seq(at), known);
            }
        }
    }

    #[test]
    fn merged_runs_are_the_sorted_union_and_the_first_of_equals_wins(
        lists in vec((prop_oneof![entries(600), writes(30)], extent()), 1..6),
    ) {
        let fixtures: Vec<Fixture> = lists
            .into_iter()
            .zip(1..)
            .map(|((list, extent), n)| Fixture::with_extent(n, list, extent))
            .collect();
        let mut union: Vec<Entry> = fixtures.iter().flat_map(|f| f.oracle.clone()).collect();
        union.sort_by_key(Entry::order);
        union.dedup_by_key(|entry| entry.order());
        let cursors = fixtures.iter().map(|f| f.run.scan(f.source()).expect("sound")).collect();
        let merged: Result<Vec<Entry>> = MergeIter::new(cursors).collect();
        prop_assert_eq!(&merged.expect("sound"), &union);
    }

    #[test]
    fn a_damaged_page_is_an_error_and_never_another_answer(
        entries in contents(), at in any::<proptest::sample::Index>(), bit in 0..8_u8,
        moment in 1..4400_u64, extent in extent(),
    ) {
        let mut fixture = Fixture::with_extent(9, entries, extent);
        let byte = at.index(fixture.pages.pages.len() * PAGE_BYTES);
        fixture.pages.pages[byte / PAGE_BYTES][byte % PAGE_BYTES] ^= 1 << bit;
        let count = u32::try_from(fixture.pages.pages.len()).expect("few");
        let Ok(run) = Run::open(&fixture.pages, POOL_ID, 9, count) else { return Ok(()) };
        assert!(verify(&run, &fixture.pages).is_err());
        for page in [0, 1, (1 << 27) / 512] {
            let mut found = [Slot::default(); BLOCKS_PER_PAGE];
            match run.fill_page(fixture.source(), page, Seq(moment), &mut found) {
                Ok(()) => fixture.assert_fill(page, Seq(moment), Slot::default()),
                Err(error) => assert_eq!(error.kind, ErrorKind::Corrupt),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_run_with_extents_has_never_more_leaves_than_one_without(
        entries in contents(), extent in extent(),
    ) {
        let plain = *Fixture::new(9, entries.clone()).run.footer();
        let grouped = *Fixture::with_extent(9, entries, extent).run.footer();
        prop_assert!(grouped.leaf_pages <= plain.leaf_pages, "{grouped:?} {plain:?}");
    }
}

#[test]
fn whole_extents_take_a_fourth_of_the_leaves_and_single_blocks_as_many() {
    let extent = MapExtent::try_from(64 << 10).expect("an extent");
    let place = |i: u64| Location::new(1 + i / 4000, 512 + (i % 4000 * 4096) as u32);
    let whole: Vec<Entry> =
        (0..160_000).map(|i| Entry::data(Lba(i), Seq(1 + i / 16), place(i), 7)).collect();
    let leaves = |list: &Vec<Entry>, extent| {
        Fixture::with_extent(9, list.clone(), extent).run.footer().leaf_pages
    };
    assert_eq!(leaves(&whole, MapExtent::BLOCK), 870);
    assert_eq!(leaves(&whole, extent), 208, "48 records of 84 bytes and one of 32 a leaf");
    let single: Vec<Entry> =
        (0..160_000).map(|i| Entry::data(Lba(i * 2), Seq(1 + i), place(i), 7)).collect();
    assert_eq!(leaves(&single, MapExtent::BLOCK), leaves(&single, extent));
}

#[test]
fn an_extent_with_very_many_versions_is_written_and_searched_as_any_other() {
    let extent = MapExtent::try_from(64 << 10).expect("an extent");
    let mut list = Vec::new();
    for block in 0..16 {
        for seq in (1..=20_000_u64).rev() {
            let offset = 512 + block as u32 * 4096;
            list.push(Entry::data(Lba(block), Seq(seq), Location::new(seq, offset), seq as u32));
        }
    }
    let fixture = Fixture::with_extent(9, list, extent);
    assert_eq!(fixture.run.footer().leaf_pages, 320_000_u32.div_ceil(184));
    for at in [1, 2, 777, 19_999, 20_000] {
        let mut slots = [Slot::default(); BLOCKS_PER_PAGE];
        fixture.run.fill_page(fixture.source(), 0, Seq(at), &mut slots).expect("sound");
        assert!(slots[..16].iter().all(|slot| slot.seq == Seq(at)));
    }
}

#[test]
fn an_extent_leaf_in_a_run_without_extents_is_not_believed() {
    let extent = MapExtent::try_from(8 << 10).expect("an extent");
    let list: Vec<Entry> = (0..20).map(|block| entry(block, 7)).collect();
    let grouped = Fixture::with_extent(9, list.clone(), extent);
    let mut plain = Fixture::new(9, list);
    plain.pages.pages[0] = grouped.pages.pages[0];
    let error = verify(&plain.run, &plain.pages).expect_err("a leaf of another form");
    assert_eq!(error.kind, ErrorKind::Corrupt);
}

#[test]
fn an_empty_run_has_no_pages() {
    let writer = RunWriter::new(Pages::default(), POOL_ID, 1, 3, MapExtent::BLOCK);
    let (pages, footer) = writer.finish().expect("nothing to fail");
    assert_eq!((pages.pages.len(), footer), (0, None));
}

#[test]
#[should_panic(expected = "after Some")]
fn an_entry_out_of_order_is_our_mistake() {
    let mut writer = RunWriter::new(Pages::default(), POOL_ID, 1, 3, MapExtent::BLOCK);
    writer.push(entry(5, 5)).expect("memory takes all");
    let _ = writer.push(entry(5, 5));
}

#[test]
fn of_equal_entries_the_one_from_the_first_source_is_returned() {
    let (newer, older) = (entry(5, 5), Entry { crc: 1, ..entry(5, 5) });
    let fixtures = [older, newer].map(|entry| Fixture::new(9, vec![entry]));
    let merged = |order: [usize; 2]| {
        let cursors = order.map(|n| fixtures[n].run.scan(fixtures[n].source()).expect("sound"));
        MergeIter::new(cursors.into()).collect::<Result<Vec<Entry>>>().expect("sound")
    };
    assert_eq!(merged([1, 0]), [newer]);
    assert_eq!(merged([0, 1]), [older]);
}

#[test]
fn a_page_of_another_run_or_of_an_older_one_in_its_place_is_found() {
    let list: Vec<Entry> = (0..1000).map(|block| entry(block, 7)).collect();
    let fixture = Fixture::new(9, list.clone());
    let other = Fixture::new(8, list);
    for replaced in 0..fixture.pages.pages.len() {
        let mut pages = Pages { pages: fixture.pages.pages.clone(), ..Pages::default() };
        pages.pages[replaced] = other.pages.pages[replaced];
        let count = u32::try_from(pages.pages.len()).expect("few");
        let outcome = Run::open(&pages, POOL_ID, 9, count).and_then(|run| verify(&run, &pages));
        assert_eq!(outcome.expect_err("a foreign page").kind, ErrorKind::Corrupt);
    }
}

#[test]
fn an_index_of_several_pages_leads_to_every_leaf() {
    let list: Vec<Entry> = (0..184 * 700).map(|block| entry(block * 3, 1 + block % 9)).collect();
    let fixture = Fixture::new(9, list);
    assert_eq!(fixture.run.footer().pages(), 700 + 3 + 1);
    verify(&fixture.run, &fixture.pages).expect("sound");
    for page in [0, 1, 377, 754, 755] {
        fixture.assert_fill(page, Seq(5), Slot::default());
    }
}

#[test]
fn a_block_with_very_many_versions_costs_two_searches() {
    let versions = 200_000;
    let mut list: Vec<Entry> = (1..=versions).rev().map(|seq| entry(0, seq)).collect();
    list.extend((1..=versions).rev().map(|seq| entry(511, seq)));
    let fixture = Fixture::new(9, list);
    let mut slots = [Slot::default(); BLOCKS_PER_PAGE];
    fixture.run.fill_page(fixture.source(), 0, Seq(1), &mut slots).expect("sound");
    let index_pages = 7;
    let reads = fixture.pages.reads.swap(0, Ordering::Relaxed);
    assert!(reads <= 1 + index_pages + 6, "{reads} reads");
    assert_eq!((slots[0].seq, slots[511].seq, slots[1].known), (Seq(1), Seq(1), false));
    fixture.run.fill_page(fixture.source(), 0, Seq(1), &mut slots).expect("sound");
    assert_eq!(fixture.pages.reads.load(Ordering::Relaxed), 0, "all of it is in the cache");
}

#[test]
fn a_scan_of_a_run_leaves_the_cache_to_others() {
    let fixture = Fixture::new(9, (0..5000).map(|block| entry(block, 7)).collect());
    let mut cursor = fixture.run.scan(fixture.source()).expect("sound");
    while cursor.peek().is_some() {
        cursor.advance().expect("sound");
    }
    let leaves = fixture.run.footer().leaf_pages;
    assert!((0..leaves).all(|leaf| fixture.cache.look_up(9, leaf).is_none()));
}

#[test]
fn many_threads_may_read_one_run() {
    let fixture = Fixture::new(9, (0..20_000).map(|block| entry(block, 7)).collect());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for page in (0..40).filter(|page| page % 4 == thread || page % 3 == 0) {
                    fixture.assert_fill_of_one(page);
                }
            });
        }
    });
}

impl Fixture {
    fn assert_fill_of_one(&self, page: u64) {
        let mut slots = [Slot::default(); BLOCKS_PER_PAGE];
        self.run.fill_page(self.source(), page, Seq(7), &mut slots).expect("sound");
        let known = slots.iter().filter(|slot| slot.known).count() as u64;
        assert_eq!(known, 20_000_u64.saturating_sub(page * 512).min(512));
    }
}
