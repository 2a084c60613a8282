//! What the map of a volume costs, by the size of its extents: memory for the present, bytes of
//! runs, and processor time. `cargo run --release -p hindsight-history --example map_cost`
//!
//! A volume of 16 GiB is filled by requests of 64 KiB in order, as the log would place them; then a
//! part of its blocks is written again, one by one at random. All figures are for a volume of
//! 1 TiB: 64 times as much.

use std::sync::Arc;
use std::time::Instant;

use format::PAGE_BYTES;
use format::location::Location;
use format::map::Entry;
use hindsight_history::run::{LeafCache, PageSink, PageStore, Run, RunSource, RunWriter};
use hindsight_history::{BLOCKS_PER_PAGE, LoadedPage, PageBudget, PageTable, Result, Slot};
use units::{Lba, MapExtent, Seq};

const BLOCKS: u64 = 4 << 20;
const TIB: u64 = 1 << 40;
const REQUEST_BLOCKS: u64 = 16;
const SEGMENT_BYTES: u64 = 32 << 20;
/// Different blocks that are written again, of a thousand.
const AGAIN: [u64; 4] = [0, 10, 100, 1000];

/// The log, as far as places go.
struct Log {
    at: u64,
    seq: u64,
}

impl Log {
    /// Places one write; returns its seq and the place of its first block.
    fn append(&mut self, blocks: u64) -> (Seq, Location) {
        let header = (112 + 4 * blocks).next_multiple_of(64);
        let bytes = header + blocks * 4096;
        if self.at % SEGMENT_BYTES + bytes > SEGMENT_BYTES {
            self.at = self.at.next_multiple_of(SEGMENT_BYTES) + 512;
        }
        let (segment, offset) = (1 + self.at / SEGMENT_BYTES, self.at % SEGMENT_BYTES + header);
        self.at += bytes;
        self.seq += 1;
        (Seq(self.seq), Location::new(segment, offset as u32))
    }
}

/// Numbers that look random (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27) % end
    }
}

fn slot(seq: Seq, location: Location) -> Slot {
    Slot { seq, location, crc: (location.0 ^ seq.0) as u32, known: true }
}

/// The volume: what is newest, and what was overwritten.
struct Filled {
    present: Vec<Slot>,
    past: Vec<Entry>,
    /// What was written again, in order.
    again: Vec<(u64, Slot)>,
}

fn filled(thousandths: u64) -> Filled {
    let mut log = Log { at: 512, seq: 0 };
    let mut present = Vec::with_capacity(BLOCKS as usize);
    for _ in 0..BLOCKS / REQUEST_BLOCKS {
        let (seq, first) = log.append(REQUEST_BLOCKS);
        present.extend((0..REQUEST_BLOCKS).map(|i| slot(seq, Location(first.0 + 64 * i))));
    }
    let mut random = Numbers(7);
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    let (mut past, mut again) = (Vec::new(), Vec::new());
    for i in 0..BLOCKS * thousandths / 1000 {
        let other = i + random.below(BLOCKS - i);
        order.swap(i as usize, other as usize);
        let block = order[i as usize];
        let (seq, location) = log.append(1);
        let before = std::mem::replace(&mut present[block as usize], slot(seq, location));
        past.push(entry(block, &before));
        again.push((block, slot(seq, location)));
    }
    Filled { present, past, again }
}

fn entry(block: u64, slot: &Slot) -> Entry {
    Entry::data(Lba(block), slot.seq, slot.location, slot.crc)
}

/// Pages of a run, in memory.
#[derive(Default)]
struct Pages(Vec<Box<[u8; PAGE_BYTES]>>);

impl PageSink for Pages {
    fn append_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<()> {
        self.0.push(Box::new(*page));
        Ok(())
    }
}

impl PageStore for Pages {
    fn read_page(&self, page: u32, buffer: &mut [u8; PAGE_BYTES]) -> Result<()> {
        *buffer = *self.0[page as usize];
        Ok(())
    }
}

/// Bytes of the run of these entries, and nanoseconds an entry of writing it and of reading it.
fn run(entries: &[Entry], extent: MapExtent) -> (u64, f64, f64) {
    let start = Instant::now();
    let mut writer = RunWriter::new(Pages::default(), 1, 1, 1, extent);
    entries.iter().for_each(|entry| writer.push(*entry).expect("memory takes all"));
    let (pages, footer) = writer.finish().expect("memory takes all");
    let write_ns = start.elapsed().as_nanos() as f64;
    let count = footer.expect("there are entries").pages();
    let (open, cache) = (Run::open(&pages, 1, 1, count).expect("sound"), LeafCache::new(0));
    let start = Instant::now();
    let source = RunSource { pages: &pages, cache: &cache };
    let mut cursor = open.scan(source).expect("sound");
    let mut found = 0;
    while cursor.peek().is_some() {
        found += 1;
        cursor.advance().expect("sound");
    }
    assert!(found == entries.len(), "all of them come back");
    let per_entry = |ns: f64| ns / entries.len() as f64;
    let read_ns = per_entry(start.elapsed().as_nanos() as f64);
    (u64::from(count) * PAGE_BYTES as u64, per_entry(write_ns), read_ns)
}

fn load_all(table: &PageTable, present: &[Slot]) {
    let mut one = [Slot::default()];
    for (page, slots) in present.chunks_exact(BLOCKS_PER_PAGE).enumerate() {
        let load = |loaded: &mut LoadedPage| {
            loaded.copy_from_slice(slots);
            Ok(())
        };
        table.slots(page as u64, 0, &mut one, load).expect("memory");
    }
}

/// GiB for a volume of 1 TiB.
fn gib(bytes: u64) -> f64 {
    (bytes * (TIB / (BLOCKS * 4096))) as f64 / (1_u64 << 30) as f64
}

fn sizes() {
    println!(
        "For 1 TiB, GiB of: the present in memory, as loaded; the same, updated by the writes;"
    );
    println!("runs of the present alone; runs of the present and all that was written over.\n");
    println!("| extent | written again | loaded | updated | run | run with the past |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for thousandths in AGAIN {
        let Filled { present, past, again } = filled(thousandths);
        let newest: Vec<Entry> = (0..).zip(&present).map(|(b, s)| entry(b, s)).collect();
        let mut all = newest.clone();
        all.extend_from_slice(&past);
        all.sort_unstable_by_key(Entry::order);
        let before = filled(0).present;
        for extent in MapExtent::ALL {
            let budget = || Arc::new(PageBudget::new(1 << 30));
            let bytes = {
                let budget = budget();
                let table = PageTable::new(Arc::clone(&budget), extent);
                load_all(&table, &present);
                budget.bytes() as u64
            };
            let updated = {
                let budget = budget();
                let table = PageTable::new(Arc::clone(&budget), extent);
                load_all(&table, &before);
                for (block, slot) in &again {
                    let (page, index) = (block / 512, (block % 512) as usize);
                    table.update(page, std::iter::once((index, *slot)));
                }
                budget.bytes() as u64
            };
            println!(
                "| {extent} | {:.1} % | {:.2} | {:.2} | {:.2} | {:.2} |",
                thousandths as f64 / 10.0,
                gib(bytes),
                gib(updated),
                gib(run(&newest, extent).0),
                gib(run(&all, extent).0),
            );
        }
    }
}

/// Nanoseconds of one call, the best of five rounds over random pages.
fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for round in 0..5 {
        let mut random = Numbers(round);
        let start = Instant::now();
        (0..calls).for_each(|_| call(random.below(BLOCKS / REQUEST_BLOCKS)));
        best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

fn times() {
    println!(
        "\nNanoseconds: looking up 16 blocks, updating them with one write, updating one of them;"
    );
    println!("an entry of a run of the present, written and read.\n");
    println!("| extent | look up 16 | update 16 | update 1 | write entry | read entry |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let present = filled(0).present;
    let entries: Vec<Entry> = (0..).zip(&present).map(|(b, s)| entry(b, s)).collect();
    for extent in MapExtent::ALL {
        let table = PageTable::new(Arc::new(PageBudget::new(1 << 30)), extent);
        load_all(&table, &present);
        let mut out = [Slot::default(); REQUEST_BLOCKS as usize];
        let look_up =
            time(1 << 20, |i| assert!(table.try_slots(i / 32, i as usize % 32 * 16, &mut out)));
        let mut log = Log { at: 1 << 40, seq: 1 << 30 };
        let update_16 = time(1 << 20, |i| {
            let (seq, first) = log.append(REQUEST_BLOCKS);
            let place = |b: usize| slot(seq, Location(first.0 + 64 * b as u64));
            let slots = (0..16).map(|b| (i as usize % 32 * 16 + b, place(b)));
            table.update(i / 32, slots);
        });
        let update_1 = time(1 << 16, |i| {
            let (seq, location) = log.append(1);
            let at = i as usize % 32 * 16 + seq.0 as usize % 16;
            table.update(i / 32, std::iter::once((at, slot(seq, location))));
        });
        let (_, write, read) = run(&entries, extent);
        println!(
            "| {extent} | {look_up:.0} | {update_16:.0} | {update_1:.0} | {write:.0} | {read:.0} |"
        );
    }
}

fn main() {
    sizes();
    times();
}
