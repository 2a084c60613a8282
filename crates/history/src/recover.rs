//! Recovery of a log's tail: what was written after the last run was committed.
//!
//! After `kill -9` every acknowledged write is there; a hole is a write that was in flight. After a
//! power cut any unflushed batch may be missing or torn. The two are told apart by `stable_seq`,
//! which later batches carry: a missing write that a later batch knew to have ended was lost with
//! the power. The log is then cut before it, so that what is recovered is a prefix of the history
//! (up to writes that were in flight together) which contains everything flushed. The seqs behind
//! the cut are void for ever.
//!
//! A flushed write that is missing is damage, not a crash: an error, never a shorter history. What
//! was flushed is told by `durable_seq` of later batches, of which the last may be a mark, and by
//! the moments that the catalogue names.
//!
//! What is recovered and was not flushed is written once more where it is. If a sync failed before,
//! the operating system may return bytes that it neither wrote nor will write; a sync that follows
//! says nothing about them. Written again, the next sync does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;

use block::Right;
use format::batch::{Batch, BatchKind, DescriptorKind};
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, Key, cover};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use format::time::TimeEntry;
use units::{BLOCK_BYTES, BlockCount, Lba, Seq, WallTime};

use crate::io_tally::{IoKind, IoTally};
use crate::log::LogStart;
use crate::scan::{ScanEnd, scan_segment};
use crate::slot::block_location;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Bytes read and written at a time when a batch is written again.
const COPIED_BYTES: usize = 1 << 20;

/// What the catalogue knows of a log.
#[derive(Clone, Debug)]
pub struct KnownLog {
    /// The log's id.
    pub log: u64,
    /// All entries up to here are in runs.
    pub flushed_seq: Seq,
    /// Where times and totals stood then.
    pub last: TimeEntry,
    /// Everything up to here was flushed: the catalogue names it as a moment.
    pub durable: Seq,
    /// Seqs of events after it, which no batch holds, with their times.
    pub events: Vec<(Seq, WallTime)>,
    /// Seqs (inclusive) that earlier recoveries discarded, in order.
    pub voids: Vec<(Seq, Seq)>,
}

impl KnownLog {
    fn is_void(&self, seq: Seq) -> bool {
        let next = self.voids.partition_point(|void| void.1 < seq);
        self.voids.get(next).is_some_and(|void| void.0 <= seq)
    }
}

/// The same ranges in order, those that overlap as one.
fn joined(mut voids: Vec<(Seq, Seq)>) -> Vec<(Seq, Seq)> {
    voids.sort_unstable();
    voids.dedup_by(|next, before| {
        let overlap = next.0 <= before.1;
        before.1 = if overlap { before.1.max(next.1) } else { before.1 };
        overlap
    });
    voids
}

/// A recovered tail.
#[derive(Debug, Default)]
pub struct RecoveredLog {
    /// Entries by timeline, in seq order.
    pub entries: Vec<(u64, Entry)>,
    /// The times of batches and events.
    pub times: Vec<TimeEntry>,
    /// Seqs (inclusive) that were never acknowledged or are lost with the power: void from now on.
    /// They must be durable in the catalogue before the log goes on.
    pub voids: Vec<(Seq, Seq)>,
    /// Where the log goes on.
    pub start: LogStart,
    /// Per tail segment: number, last valid seq, bytes used, live blocks.
    pub segments: Vec<RecoveredSegment>,
}

/// A tail segment as found.
#[derive(Clone, Copy, Debug)]
pub struct RecoveredSegment {
    /// Its number.
    pub number: u64,
    /// Highest seq in it, void ones included.
    pub last_seq: Seq,
    /// Bytes used.
    pub end: u32,
    /// Map entries of valid batches after `flushed_seq`.
    pub live_entries: i64,
}

struct Op {
    seq: Seq,
    batch: usize,
    segment: u64,
    block: u64,
    blocks: u32,
    kind: DescriptorKind,
    location: Location,
    crcs: Vec<u32>,
}

struct Found {
    segment: u64,
    /// Where the batch is on the device, its bytes, and those of its header.
    at: u64,
    bytes: u32,
    header_bytes: u32,
    /// The first and the last seq of the batch.
    seqs: (Seq, Seq),
    timeline: u64,
    time: WallTime,
    flush_count: u64,
}

#[derive(Default)]
struct Tail {
    /// In the order of their seqs, once all are found: those of a batch follow each other.
    ops: Vec<Op>,
    batches: Vec<Found>,
    /// What batches, marks among them, say of others: the highest seq that was given, up to where
    /// all had ended, and had been flushed; how many flushes there were.
    given: Seq,
    stable: Seq,
    durable: Seq,
    flush_count: u64,
}

/// Recovers a log from its tail segments (those that may hold seqs above `known.flushed_seq`), in
/// the order of their numbers.
///
/// # Errors
/// `Corrupt` when a flushed write is missing; the device's.
pub fn recover_log(
    store: &Store,
    known: &KnownLog,
    tail: &[SegmentHeader],
) -> Result<RecoveredLog> {
    let known = &KnownLog { voids: joined(known.voids.clone()), ..known.clone() };
    let mut found = Tail::default();
    let mut recovered = RecoveredLog::default();
    for header in tail {
        let base = store.zone_offset(header.zone);
        let end = scan_segment(store, header, u32::MAX, |batch| {
            found.take(batch, known, base);
            Ok(())
        })?;
        recovered.segments.push(segment_found(header, end));
    }
    found.ops.sort_by_key(|op| op.seq);
    let highest = highest_given(known, &found);
    let durable = durable_seq(known, &found);
    let (cut, mut voids) = find_voids(store, known, &mut found, durable)?;
    let last = cut.map_or(highest, |first_void| Seq(first_void.0 - 1));
    if let Some(first_void) = cut {
        recovered.start.voids = Some((first_void, highest));
        voids.push((first_void, highest));
    }
    recovered.voids = voids;
    write_again(store, tail, &found, durable, last)?;
    recovered.fill(known, &found, last);
    recovered.end_at(known, highest);
    Ok(recovered)
}

fn segment_found(header: &SegmentHeader, end: ScanEnd) -> RecoveredSegment {
    RecoveredSegment {
        number: header.segment,
        last_seq: Seq(header.first_seq.0.saturating_sub(1)),
        end: end.end,
        live_entries: 0,
    }
}

impl Tail {
    fn take(&mut self, batch: &Batch<'_>, known: &KnownLog, base: u64) {
        if batch.header.kind != BatchKind::Writes {
            return;
        }
        let last = Seq((batch.header.base_seq.0 + u64::from(batch.op_count)).saturating_sub(1));
        self.given = self.given.max(last);
        self.stable = self.stable.max(batch.header.stable_seq);
        self.durable = self.durable.max(batch.header.durable_seq);
        self.flush_count = self.flush_count.max(batch.header.flush_count);
        let index = self.batches.len();
        let mut any = false;
        let new = |seq: Seq| seq > known.flushed_seq && !known.is_void(seq);
        for op in batch.descriptors().filter(|op| new(op.seq)) {
            any = true;
            let offset = batch.header.offset + op.payload_offset;
            self.ops.push(Op {
                seq: op.seq,
                batch: index,
                segment: batch.header.segment,
                block: op.block.0,
                blocks: op.blocks,
                kind: op.kind,
                location: match op.kind {
                    DescriptorKind::Data => Location::new(batch.header.segment, offset),
                    DescriptorKind::Zero => Location::hole_in(batch.header.segment),
                },
                crcs: op.crcs().collect(),
            });
        }
        if any {
            self.batches.push(Found {
                segment: batch.header.segment,
                at: base + u64::from(batch.header.offset),
                bytes: batch.total_bytes(),
                header_bytes: batch.header_bytes,
                seqs: (batch.header.base_seq, last),
                timeline: batch.header.timeline,
                time: batch.header.time,
                flush_count: batch.header.flush_count,
            });
        }
    }

    /// The ops of a batch.
    fn ops_of(&self, index: usize) -> impl Iterator<Item = &Op> {
        let (first, last) = self.batches[index].seqs;
        let start = self.ops.partition_point(|op| op.seq < first);
        let end = self.ops.partition_point(|op| op.seq <= last);
        self.ops[start..end].iter().filter(move |op| op.batch == index)
    }
}

/// The highest seq that was ever given, as far as anything tells. Void ones count: were they given
/// again, the next recovery would throw the new writes away with the old.
fn highest_given(known: &KnownLog, found: &Tail) -> Seq {
    let event = known.events.last().map(|e| e.0);
    let void = known.voids.iter().map(|v| v.1).max();
    let told = found.given.max(found.stable).max(durable_seq(known, found));
    known.flushed_seq.max(told).max(event.max(void).unwrap_or(Seq::ZERO))
}

/// The first seq from which on all must go, if any, and ranges that must go before it.
type Voids = (Option<Seq>, Vec<(Seq, Seq)>);

/// Up to where everything is known to have been flushed.
fn durable_seq(known: &KnownLog, found: &Tail) -> Seq {
    let durable = found.durable.max(known.durable).max(known.flushed_seq);
    // An event is durable in the catalogue, and everything before it was flushed with it.
    known.events.last().map_or(durable, |e| durable.max(e.0))
}

fn find_voids(store: &Store, known: &KnownLog, found: &mut Tail, durable: Seq) -> Result<Voids> {
    let events: BTreeSet<Seq> = known.events.iter().map(|e| e.0).collect();
    let highest = highest_given(known, found);
    let io = store.io(known.log);
    let mut torn: BTreeMap<usize, Seq> = BTreeMap::new();
    let mut voids = Vec::new();
    let mut cut = None;
    let mut position = 0;
    let mut expected = known.flushed_seq.next();
    while expected <= highest {
        let op = found.ops.get(position).filter(|op| op.seq == expected);
        position += usize::from(op.is_some());
        let whole = match op {
            None => events.contains(&expected) || known.is_void(expected),
            Some(op) => expected <= durable || payload_is_whole(store, &io, op)?,
        };
        if !whole && expected <= durable {
            return Err(missing(known.log, expected));
        }
        if !whole && expected <= found.stable {
            cut = Some(expected);
            break;
        }
        if !whole {
            voids.push((expected, expected));
            if let Some(op) = op {
                torn.entry(op.batch).or_insert(expected);
            }
        }
        expected = expected.next();
    }
    // Torn while in flight: that batch ends before the torn write; others went their own way.
    found.ops.retain(|op| {
        let goes = torn.get(&op.batch).is_some_and(|&first| op.seq >= first);
        if goes {
            voids.push((op.seq, op.seq));
        }
        !goes
    });
    voids.sort_unstable();
    voids.dedup();
    Ok((cut, voids))
}

fn missing(log: u64, seq: Seq) -> Error {
    let text = format!(
        "log {log}: the write with seq {seq} was flushed but is not in the log; \
         what described it is damaged"
    );
    Error::new(ErrorKind::Corrupt, text)
}

fn payload_is_whole(store: &Store, io: &IoTally, op: &Op) -> Result<bool> {
    if op.kind == DescriptorKind::Zero {
        return Ok(true);
    }
    let base = store.locate(op.location)?.0;
    let mut block = vec![0; BLOCK_BYTES as usize];
    for (i, &crc) in op.crcs.iter().enumerate() {
        store.device.read_unverified(base + i as u64 * BLOCK_BYTES, &mut block, true)?;
        io.count(IoKind::Other, BLOCK_BYTES);
        let at = base + i as u64 * BLOCK_BYTES;
        let right = |bytes: &[u8]| block_crc(bytes) == crc;
        // One that is torn is no damage: it is asked for again only where there are copies.
        if !right(&block) && !store.heal_if_known(at, &mut block, &right) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the batches that may not have been flushed, and the headers of their segments, once more.
fn write_again(
    store: &Store,
    tail: &[SegmentHeader],
    found: &Tail,
    durable: Seq,
    last: Seq,
) -> Result<()> {
    let mut segments = BTreeSet::new();
    for (index, batch) in found.batches.iter().enumerate() {
        if batch.seqs.1 <= durable || batch.seqs.0 > last {
            continue;
        }
        let unlike = agree_about(store, batch, found.ops_of(index))?;
        copy_in_place(store, batch.at, u64::from(batch.bytes), &unlike)?;
        segments.insert(batch.segment);
    }
    for header in tail.iter().filter(|h| segments.contains(&h.segment)) {
        let at = store.zone_offset(header.zone);
        let is_it = |bytes: &[u8]| SegmentHeader::decode(bytes).is_ok_and(|h| h == *header);
        let unlike = agree_on(store, at, SEGMENT_HEADER_BYTES, &is_it);
        copy_in_place(store, at, SEGMENT_HEADER_BYTES as u64, unlike.as_slice())?;
    }
    Ok(())
}

/// What is right somewhere, and not what is read there.
type Unlike = (u64, Vec<u8>);

/// Makes all copies of a range right, where one is; what is right if it is not what is read then: a
/// member may be missing, for which others say that and something else.
fn agree_on(store: &Store, at: u64, length: usize, right: &Right<'_>) -> Option<Unlike> {
    let mut bytes = vec![0; length];
    if store.device.copies(at, length as u64) == 1 || !store.agree(at, &mut bytes, right) {
        return None;
    }
    let mut read = vec![0; length];
    let is_read = store.device.read_unverified(at, &mut read, true).is_ok();
    (!is_read || !right(&read)).then_some((at, bytes))
}

/// Makes all copies of a batch right, where one is: what is written again goes to all of them,
/// whichever was read.
fn agree_about<'o>(
    store: &Store,
    batch: &Found,
    ops: impl Iterator<Item = &'o Op>,
) -> Result<Vec<Unlike>> {
    if store.device.copies(batch.at, u64::from(batch.bytes)) == 1 {
        return Ok(Vec::new());
    }
    let is_its = |bytes: &[u8]| {
        Batch::decode(bytes).is_ok_and(|found| {
            (found.header.segment, found.header.base_seq) == (batch.segment, batch.seqs.0)
        })
    };
    let header = agree_on(store, batch.at, batch.header_bytes as usize, &is_its);
    let mut unlike = Vec::from_iter(header);
    for op in ops.filter(|op| op.kind == DescriptorKind::Data) {
        let base = store.locate(op.location)?.0;
        for (i, &crc) in op.crcs.iter().enumerate() {
            let right = |bytes: &[u8]| block_crc(bytes) == crc;
            let at = base + i as u64 * BLOCK_BYTES;
            unlike.extend(agree_on(store, at, BLOCK_BYTES as usize, &right));
        }
    }
    Ok(unlike)
}

/// Writes again what is read, or what is right where that is not it.
fn copy_in_place(store: &Store, at: u64, length_bytes: u64, unlike: &[Unlike]) -> Result<()> {
    let mut bytes = vec![0; COPIED_BYTES.min(length_bytes as usize)];
    let mut done = 0;
    while done < length_bytes {
        let part = (bytes.len() as u64).min(length_bytes - done) as usize;
        let start = at + done;
        store.device.read_unverified(start, &mut bytes[..part], true)?;
        for (from, right) in unlike {
            let both = start.max(*from)..(start + part as u64).min(from + right.len() as u64);
            if !both.is_empty() {
                let of_right = (both.start - from) as usize..(both.end - from) as usize;
                bytes[(both.start - start) as usize..(both.end - start) as usize]
                    .copy_from_slice(&right[of_right]);
            }
        }
        store.write(start, &[IoSlice::new(&bytes[..part])])?;
        done += part as u64;
    }
    Ok(())
}

impl RecoveredLog {
    /// Takes over everything up to `last`.
    fn fill(&mut self, known: &KnownLog, found: &Tail, last: Seq) {
        let mut totals = known.last;
        let mut events = known.events.iter().peekable();
        for op in &found.ops {
            self.note_segment(op, last);
            if op.seq > last {
                continue;
            }
            while let Some(&(seq, time)) = events.next_if(|e| e.0 < op.seq) {
                self.times.push(TimeEntry { seq, time, ..totals });
            }
            let batch = &found.batches[op.batch];
            totals.time = batch.time;
            totals.seq = op.seq;
            totals.flushes_total = totals.flushes_total.max(batch.flush_count);
            if op.kind == DescriptorKind::Data {
                totals.bytes_total += u64::from(op.blocks) * BLOCK_BYTES;
            }
            self.push_entries(op, batch.timeline);
            match self.times.last_mut() {
                Some(entry) if entry.time == totals.time => *entry = totals,
                _ => self.times.push(totals),
            }
        }
        for &(seq, time) in events.filter(|e| e.0 <= last) {
            totals.time = time;
            totals.seq = seq;
            self.times.push(totals);
        }
        self.start.last_time = totals.time.max(known.last.time);
        self.start.bytes_total = totals.bytes_total;
        self.start.flushes_total = totals.flushes_total.max(found.flush_count);
        // The mark of a flush is behind what it covers.
        if let Some(entry) = self.times.last_mut() {
            entry.flushes_total = self.start.flushes_total;
        }
    }

    /// The log ends at `highest`, also where the last seqs came to nothing: whoever was told of one
    /// of them as the latest finds it again by the time.
    fn end_at(&mut self, known: &KnownLog, highest: Seq) {
        let start = &mut self.start;
        start.last_seq = highest;
        if self.times.last().map_or(known.last.seq, |entry| entry.seq) >= highest {
            return;
        }
        start.last_time = WallTime::from_nanos(start.last_time.as_nanos().saturating_add(1));
        self.times.push(TimeEntry {
            time: start.last_time,
            seq: highest,
            bytes_total: start.bytes_total,
            flushes_total: start.flushes_total,
        });
    }

    fn note_segment(&mut self, op: &Op, last: Seq) {
        let at = self.segments.binary_search_by_key(&op.segment, |s| s.number);
        let segment = &mut self.segments[at.expect("ops come from these segments")];
        segment.last_seq = segment.last_seq.max(op.seq);
        if op.seq <= last {
            segment.live_entries += entries_of(op.kind, op.block, op.blocks);
        }
    }

    fn push_entries(&mut self, op: &Op, timeline: u64) {
        match op.kind {
            DescriptorKind::Data => {
                for (i, &crc) in op.crcs.iter().enumerate() {
                    let key = Key { level: 0, index: op.block + i as u64 };
                    let location = block_location(op.location, i);
                    self.entries.push((timeline, Entry { key, seq: op.seq, location, crc }));
                }
            }
            DescriptorKind::Zero => {
                for key in cover(Lba(op.block), BlockCount(u64::from(op.blocks))) {
                    let entry = Entry { key, seq: op.seq, location: op.location, crc: 0 };
                    self.entries.push((timeline, entry));
                }
            }
        }
    }
}

/// How many map entries an op makes.
#[must_use]
pub fn entries_of(kind: DescriptorKind, block: u64, blocks: u32) -> i64 {
    match kind {
        DescriptorKind::Data => i64::from(blocks),
        DescriptorKind::Zero => cover(Lba(block), BlockCount(u64::from(blocks))).count() as i64,
    }
}
