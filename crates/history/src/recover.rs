//! Recovery of a log's tail: what was written after the last run was committed.
//!
//! After `kill -9` every acknowledged write is there; a hole is a write that was in flight. After a
//! power cut any unflushed batch may be missing or torn. The two are told apart by `stable_seq`,
//! which later batches carry: a missing write that a later batch knew to have ended was lost with
//! the power. The log is then cut before it, so that what is recovered is a prefix of the history
//! (up to writes that were in flight together) which contains everything flushed. The seqs behind
//! the cut are void for ever.
//!
//! A strict log is cut before the first batch that is not whole, whatever later ones say: what is
//! recovered of it is a prefix of its batches.
//!
//! A flushed write that is missing is damage, not a crash: an error, never a shorter history.
//! Flushed writes are known from `durable_seq` of later batches, of which the last may be a mark,
//! and from the moments that the catalogue names.
//!
//! A recovered write that was not flushed is written once more where it is. If a sync failed
//! before, the operating system may return bytes that it neither wrote nor will write; a sync that
//! follows says nothing about them. Written again, the next sync does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;

use block::Right;
use format::batch::{Batch, BatchKind, DescriptorKind};
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, Key, cover};
use format::segment::SegmentHeader;
use format::time::TimeEntry;
use units::{BLOCK_BYTES, BlockCount, Lba, Seq, WallTime};

use crate::io_tally::IoKind;
use crate::log::LogStart;
use crate::scan::{ScanEnd, scan_segment};
use crate::slot::block_location;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Bytes of a block, as bytes in memory are counted.
const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes read and written at a time when batches are written again, unless one is longer.
const WRITTEN_BYTES: u64 = 8 << 20;

/// The catalogue's knowledge of a log.
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
    /// It is cut before the first batch that is not whole.
    pub is_strict: bool,
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
    /// Entries in seq order, those of one timeline that follow each other together.
    pub entries: Vec<(u64, Vec<Entry>)>,
    /// The times of batches and events.
    pub times: Vec<TimeEntry>,
    /// Seqs (inclusive) that were never acknowledged or are lost with the power: void from now on.
    /// They must be durable in the catalogue before the log goes on.
    pub voids: Vec<(Seq, Seq)>,
    /// Of these, those that are lost with the power.
    pub lost: Option<(Seq, Seq)>,
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
    /// Where its blocks begin in the batch, and their checksums.
    payload_offset: u32,
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
    /// The statements of batches, marks among them, about others: the highest seq that was given,
    /// up to where all had ended, and had been flushed; how many flushes there were.
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
    let mut void_ends: BTreeSet<Seq> = known.voids.iter().map(|void| void.1).collect();
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
    check_flushed(known, &found, durable)?;
    let torn = write_again(store, tail, &found, durable)?;
    let (cut, mut voids) = find_voids(known, &mut found, (durable, highest), &torn);
    let last = cut.map_or(highest, |first_void| Seq(first_void.0 - 1));
    if let Some(first_void) = cut {
        // Otherwise nobody knew it to have ended: it was in flight.
        recovered.lost = (first_void <= found.stable).then_some((first_void, highest));
        voids.push((first_void, highest));
    }
    void_ends.extend(voids.iter().map(|void| void.1));
    recovered.voids = voids;
    recovered.start.durable = durable;
    recovered.start.last_seq = highest;
    recovered.fill(known, &found, last, void_ends.split_off(&known.flushed_seq.next()));
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
                payload_offset: op.payload_offset,
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

    /// How many batches from this one on lie one after the other, are not all flushed, and can be
    /// read at a time.
    fn neighbours(&self, first: usize, durable: Seq) -> usize {
        let begin = self.batches[first].at;
        let follows = |(before, next): (&Found, &Found)| {
            let end = next.at + u64::from(next.bytes);
            let touch =
                before.segment == next.segment && before.at + u64::from(before.bytes) == next.at;
            touch && next.seqs.1 > durable && end - begin <= WRITTEN_BYTES
        };
        let later = &self.batches[first + 1..];
        1 + self.batches[first..].iter().zip(later).take_while(|&pair| follows(pair)).count()
    }

    /// Makes the bytes of a batch right, where some copy is; notes the seqs of which none is.
    fn make_right(&self, store: &Store, index: usize, bytes: &mut [u8], torn: &mut BTreeSet<Seq>) {
        let batch = &self.batches[index];
        let header = &mut bytes[..batch.header_bytes as usize];
        let is_its = |bytes: &[u8]| {
            Batch::decode(bytes).is_ok_and(|found| {
                (found.header.segment, found.header.base_seq) == (batch.segment, batch.seqs.0)
            })
        };
        is_made_right(store, batch.at, header, &is_its);
        for op in self.ops_of(index) {
            for (i, &crc) in op.crcs.iter().enumerate() {
                let from = op.payload_offset as usize + i * BLOCK;
                let block = &mut bytes[from..from + BLOCK];
                let right = |bytes: &[u8]| block_crc(bytes) == crc;
                if !is_made_right(store, batch.at + from as u64, block, &right) {
                    torn.insert(op.seq);
                }
            }
        }
    }

    /// The ops of a batch.
    fn ops_of(&self, index: usize) -> impl Iterator<Item = &Op> {
        self.ops_in(self.batches[index].seqs).iter().filter(move |op| op.batch == index)
    }

    /// The ops with seqs of a range. No others are looked at: each batch asks.
    fn ops_in(&self, (first, last): (Seq, Seq)) -> &[Op] {
        let start = self.ops.partition_point(|op| op.seq < first);
        let end = self.ops.partition_point(|op| op.seq <= last);
        &self.ops[start..end]
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

/// Whether a seq needs no batch.
fn is_elsewhere(known: &KnownLog, seq: Seq) -> bool {
    known.events.binary_search_by_key(&seq, |event| event.0).is_ok() || known.is_void(seq)
}

/// Whether everything that was flushed is described in the log.
fn check_flushed(known: &KnownLog, found: &Tail, durable: Seq) -> Result<()> {
    let mut ops = found.ops.iter().map(|op| op.seq).peekable();
    let mut expected = known.flushed_seq.next();
    while expected <= durable {
        if ops.next_if_eq(&expected).is_none() && !is_elsewhere(known, expected) {
            return Err(missing(expected));
        }
        expected = expected.next();
    }
    Ok(())
}

fn find_voids(
    known: &KnownLog,
    found: &mut Tail,
    (durable, highest): (Seq, Seq),
    torn: &BTreeSet<Seq>,
) -> Voids {
    let mut torn_batches: BTreeMap<usize, Seq> = BTreeMap::new();
    let mut voids = Vec::new();
    let mut cut = None;
    let mut expected = durable.next();
    let mut position = found.ops.partition_point(|op| op.seq < expected);
    while expected <= highest {
        let op = found.ops.get(position).filter(|op| op.seq == expected);
        position += usize::from(op.is_some());
        let whole = match op {
            None => is_elsewhere(known, expected),
            Some(_) => !torn.contains(&expected),
        };
        if !whole && (known.is_strict || expected <= found.stable) {
            // Of a strict log all of the batch goes, whichever of its writes is torn.
            let begin = op.filter(|_| known.is_strict).map(|op| found.batches[op.batch].seqs.0);
            cut = Some(begin.map_or(expected, |begin| begin.max(durable.next())));
            break;
        }
        if !whole {
            voids.push((expected, expected));
            if let Some(op) = op {
                torn_batches.entry(op.batch).or_insert(expected);
            }
        }
        expected = expected.next();
    }
    // Torn while in flight: that batch ends before the torn write; others went their own way.
    found.ops.retain(|op| {
        let goes = torn_batches.get(&op.batch).is_some_and(|&first| op.seq >= first);
        if goes {
            voids.push((op.seq, op.seq));
        }
        !goes
    });
    voids.sort_unstable();
    voids.dedup();
    (cut, voids)
}

fn missing(seq: Seq) -> Error {
    let text = format!(
        "the write with seq {seq} was flushed but is not in the log; \
         what described it is damaged"
    );
    Error::new(ErrorKind::Corrupt, text)
}

/// Writes the batches that may not have been flushed, and the headers of their segments, once more,
/// on all copies, whichever was read; returns the seqs of which no copy has all bytes.
fn write_again(
    store: &Store,
    tail: &[SegmentHeader],
    found: &Tail,
    durable: Seq,
) -> Result<BTreeSet<Seq>> {
    let io = store.io(tail.first().map_or(0, |header| header.log));
    let mut torn = BTreeSet::new();
    let mut segments = BTreeSet::new();
    let mut bytes = Vec::new();
    let mut first = 0;
    while let Some(batch) = found.batches.get(first) {
        if batch.seqs.1 <= durable {
            first += 1;
            continue;
        }
        let end = first + found.neighbours(first, durable);
        let last = &found.batches[end - 1];
        bytes.resize((last.at - batch.at) as usize + last.bytes as usize, 0);
        read_in_parts(store, batch.at, &mut bytes)?;
        io.count(IoKind::Other, bytes.len() as u64);
        let mut rest = &mut bytes[..];
        for index in first..end {
            let (own, others) = rest.split_at_mut(found.batches[index].bytes as usize);
            found.make_right(store, index, own, &mut torn);
            rest = others;
        }
        store.write(batch.at, &[IoSlice::new(&bytes)])?;
        segments.insert(batch.segment);
        first = end;
    }
    for header in tail.iter().filter(|h| segments.contains(&h.segment)) {
        store.write(store.zone_offset(header.zone), &[IoSlice::new(&header.encode())])?;
    }
    Ok(torn)
}

/// Reads a range, of which parts may have to come from different copies.
fn read_in_parts(store: &Store, at: u64, bytes: &mut [u8]) -> Result<()> {
    if store.device.read_at(at, bytes).is_ok() {
        return Ok(());
    }
    for (part, at) in bytes.chunks_mut(BLOCK_BYTES as usize).zip((at..).step_by(BLOCK)) {
        store.device.read_at(at, part)?;
    }
    Ok(())
}

/// Whether bytes are right, which they are made if some copy has them so.
fn is_made_right(store: &Store, at: u64, bytes: &mut [u8], right: &Right<'_>) -> bool {
    if right(bytes) {
        return true;
    }
    // A torn batch is no damage: it is asked for again only where there are copies.
    let mut other = bytes.to_vec();
    let is_healed = store.heal_if_known(at, &mut other, right);
    if is_healed {
        bytes.copy_from_slice(&other);
    }
    is_healed
}

impl RecoveredLog {
    /// Takes over everything up to `last`. The last of some void seqs has a time as well, right
    /// after that of the state that it names, at this opening and at the next: whoever was told of
    /// it as the latest finds it again by the time.
    fn fill(&mut self, known: &KnownLog, found: &Tail, last: Seq, void_ends: BTreeSet<Seq>) {
        let mut totals = known.last;
        let mut between: BTreeMap<Seq, Option<WallTime>> =
            void_ends.iter().map(|&seq| (seq, None)).collect();
        between.extend(known.events.iter().map(|&(seq, time)| (seq, Some(time))));
        let mut between = between.into_iter().peekable();
        let pass = |totals: &mut TimeEntry, (seq, time): (Seq, Option<WallTime>)| {
            totals.seq = seq;
            totals.time =
                time.unwrap_or(WallTime::from_nanos(totals.time.as_nanos().saturating_add(1)));
            *totals
        };
        for op in &found.ops {
            self.note_segment(op, last);
            if op.seq > last {
                continue;
            }
            while let Some(next) = between.next_if(|next| next.0 < op.seq) {
                self.push_time(pass(&mut totals, next), &void_ends);
            }
            let batch = &found.batches[op.batch];
            totals.time = batch.time;
            totals.seq = op.seq;
            totals.flushes_total = totals.flushes_total.max(batch.flush_count);
            if op.kind == DescriptorKind::Data {
                totals.bytes_total += u64::from(op.blocks) * BLOCK_BYTES;
            }
            self.push_entries(op, batch.timeline);
            self.push_time(totals, &void_ends);
        }
        between.for_each(|next| self.push_time(pass(&mut totals, next), &void_ends));
        self.start.last_time = totals.time.max(known.last.time);
        self.start.bytes_total = totals.bytes_total;
        self.start.flushes_total = totals.flushes_total.max(found.flush_count);
        // The mark of a flush is behind what it covers.
        if let Some(entry) = self.times.last_mut() {
            entry.flushes_total = self.start.flushes_total;
        }
    }

    /// Adds what comes next. Times rise: void seqs whose time would be that of what came later have
    /// none, and of seqs with one time the last has it.
    fn push_time(&mut self, next: TimeEntry, void_ends: &BTreeSet<Seq>) {
        let is_overtaken = |entry: &TimeEntry| {
            entry.time == next.time || (entry.time > next.time && void_ends.contains(&entry.seq))
        };
        while self.times.pop_if(|entry| is_overtaken(entry)).is_some() {}
        self.times.push(next);
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
        if self.entries.last().is_none_or(|last| last.0 != timeline) {
            self.entries.push((timeline, Vec::new()));
        }
        let entries = &mut self.entries.last_mut().expect("just pushed").1;
        match op.kind {
            DescriptorKind::Data => {
                for (i, &crc) in op.crcs.iter().enumerate() {
                    let key = Key { level: 0, index: op.block + i as u64 };
                    let location = block_location(op.location, i);
                    entries.push(Entry { key, seq: op.seq, location, crc });
                }
            }
            DescriptorKind::Zero => {
                for key in cover(Lba(op.block), BlockCount(u64::from(op.blocks))) {
                    entries.push(Entry { key, seq: op.seq, location: op.location, crc: 0 });
                }
            }
        }
    }
}

/// How many map entries an op makes.
pub fn entries_of(kind: DescriptorKind, block: u64, blocks: u32) -> i64 {
    match kind {
        DescriptorKind::Data => i64::from(blocks),
        DescriptorKind::Zero => cover(Lba(block), BlockCount(u64::from(blocks))).count() as i64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use format::batch::DescriptorKind;
    use format::location::Location;
    use format::time::TimeEntry;
    use units::{Seq, WallTime};

    use super::{Found, KnownLog, Op, RecoveredLog, RecoveredSegment, Tail, Voids, find_voids};

    fn known(is_strict: bool) -> KnownLog {
        KnownLog {
            log: 1,
            flushed_seq: Seq(0),
            last: TimeEntry::default(),
            durable: Seq(0),
            events: Vec::new(),
            voids: Vec::new(),
            is_strict,
        }
    }

    /// A tail of batches (first and last seq, time).
    fn tail(batches: &[(u64, u64, u64)], voids: &[u64]) -> Tail {
        let mut found = Tail::default();
        for (index, &(first, last, time_ns)) in batches.iter().enumerate() {
            found.batches.push(Found {
                segment: 1,
                at: 0,
                bytes: 4096,
                header_bytes: 4096,
                seqs: (Seq(first), Seq(last)),
                timeline: 1,
                time: WallTime::from_nanos(time_ns),
                flush_count: 0,
            });
            for seq in (first..=last).filter(|seq| !voids.contains(seq)) {
                found.ops.push(Op {
                    seq: Seq(seq),
                    batch: index,
                    segment: 1,
                    block: 0,
                    blocks: 1,
                    kind: DescriptorKind::Zero,
                    location: Location::hole_in(1),
                    payload_offset: 0,
                    crcs: Vec::new(),
                });
            }
        }
        found
    }

    /// The seqs and times of what is recovered of them.
    fn recovered(batches: &[(u64, u64, u64)], voids: &[u64]) -> Vec<(u64, u64)> {
        let known = known(false);
        let found = tail(batches, voids);
        let mut log = RecoveredLog::default();
        let (last_seq, end, live_entries) = (Seq(0), 0, 0);
        log.segments.push(RecoveredSegment { number: 1, last_seq, end, live_entries });
        let last = found.ops.last().map_or(Seq(0), |op| op.seq);
        let void_ends: BTreeSet<Seq> = voids.iter().map(|&seq| Seq(seq)).collect();
        log.fill(&known, &found, last, void_ends);
        assert!(log.start.last_time >= log.times.last().expect("some").time);
        log.times.iter().map(|entry| (entry.seq.0, entry.time.as_nanos())).collect()
    }

    #[test]
    fn times_rise_also_where_void_seqs_are_more_than_there_is_time_for() {
        assert_eq!(recovered(&[(5, 7, 100), (8, 8, 101)], &[6, 7]), [(5, 100), (8, 101)]);
        let some = [(5, 100), (6, 101), (8, 102)];
        assert_eq!(recovered(&[(5, 7, 100), (8, 8, 102)], &[6, 7]), some);
        let all = [(5, 100), (6, 101), (7, 102), (8, 200)];
        assert_eq!(recovered(&[(5, 7, 100), (8, 8, 200)], &[6, 7]), all);
        let behind = [(5, 100), (6, 101), (7, 102)];
        assert_eq!(recovered(&[(5, 7, 100)], &[6, 7]), behind, "the end of a log");
    }

    /// The cut and the voids of batches of which all after the first were in flight; some writes
    /// are torn.
    fn goes(is_strict: bool, batches: &[(u64, u64, u64)], torn: &[u64]) -> Voids {
        let mut found = tail(batches, &[]);
        let torn = torn.iter().map(|&seq| Seq(seq)).collect();
        let highest = Seq(batches.last().expect("some").1);
        find_voids(&known(is_strict), &mut found, (Seq(3), highest), &torn)
    }

    #[test]
    fn a_strict_log_is_cut_before_the_first_batch_that_is_not_whole() {
        let one = |seq| (Seq(seq), Seq(seq));
        let missing = [(1, 3, 100), (6, 9, 102)];
        assert_eq!(goes(false, &missing, &[]), (None, vec![one(4), one(5)]));
        assert_eq!(goes(true, &missing, &[]), (Some(Seq(4)), Vec::new()));
        let all = [(1, 3, 100), (4, 5, 101), (6, 9, 102), (10, 12, 103)];
        assert_eq!(goes(false, &all, &[8]), (None, vec![one(8), one(9)]));
        assert_eq!(goes(true, &all, &[8]), (Some(Seq(6)), Vec::new()));
        assert_eq!(goes(true, &all, &[12, 5]), (Some(Seq(4)), Vec::new()));
        assert_eq!(goes(true, &all, &[]), (None, Vec::new()));
        // Flushed writes stay, whatever is said of the rest of their batch.
        let across = [(1, 5, 100)];
        assert_eq!(goes(true, &across, &[4]).0, Some(Seq(4)));
    }

    #[test]
    fn each_batch_looks_at_its_own_operations_only() {
        let batches: Vec<_> = (0..1000).map(|n| (1 + 3 * n, 3 + 3 * n, 100)).collect();
        let found = tail(&batches, &[]);
        let looked_at = |batch: &Found| found.ops_in(batch.seqs).len();
        assert_eq!(found.batches.iter().map(looked_at).sum::<usize>(), 3 * batches.len());
        let of = |index| found.ops_of(index);
        assert!((0..1000).all(|index| of(index).count() == 3));
        // As many as it may look at, whatever it tells.
        assert!((0..1000).all(|index| of(index).size_hint().1 == Some(3)));
    }
}
