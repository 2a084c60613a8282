//! The way of a write: checked, cut into whole blocks, checksummed, appended, entered in the map.
//!
//! Invariants
//! 1. Whole blocks go from the client's buffer to the device without a copy.
//! 2. A partial block is merged with what is there while its range is locked, so that no other
//!    write to it can fall between the read and the append; should a revert or a resize, the merge
//!    is made again.
//! 3. Beyond the end of a volume nothing is written but zeros (`beyond`): before it is made larger,
//!    and once it was made smaller.

pub mod admission;
pub mod cache;
pub mod cache_sizes;
pub mod copy_unit;
pub mod edge;
pub mod ops;
pub mod pace;
pub mod update;
pub mod whole;
pub mod write_back;

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use block::emptied;
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, Key, cover};
use history::{
    Appended, AppendedRun, BLOCKS_PER_PAGE, BlockOp, Segment, SegmentSource, Slot, Stance,
    TimedOps, block_location, node_covers,
};
use units::{BLOCK_BYTES, BlockCount, Lba, Seq};

use crate::catalogue::VolumeRecord;
use crate::core::FromReserve;
use crate::host::RoomWait;
use crate::placement::Placement;
use crate::placement::current_store::Pen;
use crate::read::snapshot::Opening;
use crate::types::WriteOp;
use crate::volume::sizing::Sizing;
use crate::write::edge::{Edge, units_at_edges};
use crate::write::ops::{is_whole, is_zero, middle, span};
use crate::write::pace::{Lack, Pace};
use crate::{Error, ErrorKind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes of the largest single batch entry; longer writes become several, each with its own seq.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Blocks of the largest trim that is one entry of a batch; a multiple of what a map node covers.
const TRIM_BLOCKS_MAX: u64 = 1 << 30;
/// Pending entries of all volumes at which a writer waits, as a multiple of those at which the
/// background begins.
const PENDING_FACTOR: usize = 3;
/// Parts of the entries at which the background begins. A volume that has less than one does not
/// wait, and one that has more looks at the sum once for each: that many more may wait for the map.
const OWN_PARTS: usize = 8;

/// Why a write finds no room though its segment has some.
pub const TOOK_RESERVE: &str = "what was accepted took the reserve";

/// Buffers used again from call to call.
#[derive(Default)]
struct Scratch {
    header: Vec<u8>,
    crcs: Vec<u32>,
    entries: Vec<Entry>,
    /// Memory for the pieces of a request.
    pieces: Vec<BlockOp<'static>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The present that partial blocks were merged with, and how often the cache had been switched when
/// their range was locked: after another switch the lock keeps nobody away.
#[derive(Clone, Copy)]
pub struct Merged<'a> {
    pub live: &'a Arc<Opening>,
    pub switches: u64,
}

/// On what terms blocks are written.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Where the client's bytes end (blocks may end later).
    pub end: u64,
    /// The blocks that partial ones were merged with, while their range is locked.
    pub merged: Option<Merged<'a>>,
    /// These are zeros beyond the end of the volume: nobody else writes there.
    pub cuts: bool,
    /// It trims: room is made by it, so the reserve is there for it as for a delete.
    pub frees: bool,
    /// Past the cache, while it holds writes back and is empty.
    pub behind: bool,
    /// All of it is one batch.
    pub whole: bool,
    /// The reasons for which it may wait, and its progress.
    pub pace: &'a Pace,
}

impl<'a> Terms<'a> {
    /// Those of blocks that end there, which are as the client has them.
    pub(crate) fn new(end: u64, pace: &'a Pace) -> Terms<'a> {
        let (merged, [cuts, frees, behind, whole]) = (None, [false; 4]);
        Terms { end, merged, cuts, frees, behind, whole, pace }
    }

    /// How it stands to others that write.
    pub(crate) fn stance(self) -> Stance {
        let holds_lock = self.merged.is_some();
        let may_wait = self.pace.may_wait_for_turns();
        Stance { holds_lock, may_wait, goes_on: false, whole: self.whole }
    }
}

/// The way of writes to a volume: onto its placement, by its cache if it has one.
pub struct Writer {
    placement: Placement,
    /// The seq of the newest version or pinned mark; 0 without one.
    captured: Arc<AtomicU64>,
    /// Blocks of its copy unit.
    unit_blocks: AtomicU64,
    sizing: Sizing,
    /// Parts of pending entries that it had when it looked at the sum last, and in the lowest bit
    /// whether it was ahead.
    ahead: AtomicUsize,
}

impl Deref for Writer {
    type Target = Placement;

    fn deref(&self) -> &Placement {
        &self.placement
    }
}

impl Writer {
    /// The writer of a placement; `captured` has the seq of the newest version or pinned mark.
    pub fn new(placement: Placement, captured: Arc<AtomicU64>, record: &VolumeRecord) -> Writer {
        let unit_blocks = AtomicU64::new(record.copy_unit.blocks() as u64);
        let (sizing, ahead) = (Sizing::default(), AtomicUsize::new(0));
        Writer { placement, captured, unit_blocks, sizing, ahead }
    }

    pub(crate) fn sizing(&self) -> &Sizing {
        &self.sizing
    }

    /// Makes everything acknowledged before this call durable.
    ///
    /// # Errors
    /// `Refused` or `Io`; after that writes are refused until the pool is opened again.
    pub fn flush(&self) -> Result<()> {
        self.flush_while(&|| true)
    }

    /// The same for somebody who does not wait for room any more when `goes_on` says no: what waits
    /// in a cache then goes into the reserve at once.
    ///
    /// # Errors
    /// Those of [`Writer::flush`].
    pub fn flush_while(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.check_open()?;
        self.destage_all_while(goes_on)?;
        self.log().flush()?;
        if self.has_recovered() {
            // A full pool has flushed it all the same.
            self.core.host()?.at_work(goes_on, &mut || self.flush_map_if_room().map(drop))?;
        }
        self.tally().flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes; each op gets the next seq in order (an op longer than 256 KiB several). Returned
    /// means handed to the operating system, or in the cache of a volume that has one. Returns the
    /// last seq given; of a cached volume that does not retain every write, the last in its log.
    ///
    /// # Errors
    /// `OutOfBounds` before anything is written; `Full`; `Refused` or `Io` after a device failure.
    pub fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<Seq> {
        self.check_served()?;
        let bytes = self.check_ranges(ops)?;
        let last = self.write_ops(ops, &Pace::patient())?;
        self.hold_back(&|| true)?;
        self.count_written(ops, bytes);
        if last == Seq::ZERO { Ok(self.log().stable()) } else { Ok(last) }
    }

    /// Bytes of ops that lie within the present.
    pub(crate) fn check_ranges(&self, ops: &[WriteOp<'_>]) -> Result<u64> {
        let mut bytes = 0;
        for op in ops {
            let (offset, length_bytes) = span(op);
            self.present().check_range(offset, length_bytes)?;
            bytes = length_bytes.saturating_add(bytes);
        }
        Ok(bytes)
    }

    pub(crate) fn count_written(&self, ops: &[WriteOp<'_>], bytes: u64) {
        self.tally().writes.fetch_add(ops.len() as u64, Ordering::Relaxed);
        self.tally().written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn write_ops(&self, ops: &[WriteOp<'_>], pace: &Pace) -> Result<Seq> {
        let mut last = Seq::ZERO;
        let mut start = 0;
        while start < ops.len() {
            let goes_alone = |op: &&WriteOp<'_>| is_whole(op) && !self.takes_along(op, pace);
            let whole = ops[start..].iter().take_while(goes_alone).count();
            let count = whole.max(1);
            let ops = &ops[start..start + count];
            let seq = if whole > 0 {
                let end = ops.iter().map(|op| span(op).0 + span(op).1).max().unwrap_or(0);
                let frees = ops.iter().all(is_zero);
                let terms = Terms { frees, ..Terms::new(end, pace) };
                // None: the cache was switched on or off meanwhile. Then once more, all of it.
                let Some(seq) = self.write_either(ops, terms)? else { continue };
                seq
            } else {
                self.write_partial(&ops[0], pace)?
            };
            last = last.max(seq);
            start += count;
            pace.ended(ops);
        }
        Ok(last)
    }

    /// Whether a writer is so much faster than the background that it has to write the map out
    /// itself. All timelines are asked for the sum, so that is done once for each part of its own.
    pub(crate) fn is_ahead_of_map(&self) -> bool {
        let begun = self.core.pending_max;
        let own = self.present().timeline.pending_counts().0;
        let part = own / (begun / OWN_PARTS).max(1);
        let told = self.ahead.load(Ordering::Relaxed);
        if part == 0 {
            if told != 0 {
                self.ahead.store(0, Ordering::Relaxed);
            }
            return false;
        }
        if told >> 1 == part {
            return told & 1 == 1;
        }
        let is_ahead = self.core.pending_entries() >= PENDING_FACTOR * begun;
        self.ahead.store(part << 1 | usize::from(is_ahead), Ordering::Relaxed);
        is_ahead
    }

    /// Makes a writer that is faster than the background write the map out, as long as `goes_on`.
    pub(crate) fn hold_back(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !self.is_ahead_of_map() {
            return Ok(());
        }
        let Ok(host) = self.core.host() else { return Ok(()) };
        host.at_work(goes_on, &mut || {
            // The background may have written out what others had.
            self.ahead.store(0, Ordering::Relaxed);
            if !self.is_ahead_of_map() {
                return Ok(());
            }
            match self.flush_map().and_then(|()| self.free_empty_segments()) {
                // The writes are in the log; room is the next write's problem.
                Err(e) if e.kind == ErrorKind::Full => Ok(()),
                other => other,
            }
        })
    }

    /// Writes whole blocks into the cache or the log, whichever it is now.
    pub(crate) fn write_either(
        &self,
        ops: &[WriteOp<'_>],
        terms: Terms<'_>,
    ) -> Result<Option<Seq>> {
        if self.cache().is_on() {
            self.write_cached(ops, terms)
        } else {
            self.write_logged(ops, terms)
        }
    }

    /// Appends ops of whole blocks; `None` when what they were merged with is the present no more,
    /// when they have to go through a cache, or when the present is in place elsewhere now.
    pub(crate) fn write_logged(
        &self,
        ops: &[WriteOp<'_>],
        terms: Terms<'_>,
    ) -> Result<Option<Seq>> {
        SCRATCH.with_borrow_mut(|scratch| self.write_logged_with(ops, terms, scratch))
    }

    fn write_logged_with(
        &self,
        ops: &[WriteOp<'_>],
        terms: Terms<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<Seq>> {
        let Scratch { header, crcs, entries, pieces: kept } = scratch;
        checksums_into(ops, crcs);
        let mut pieces = emptied(std::mem::take(kept));
        cut_into(ops, crcs, self.piece_bytes_max(), &mut pieces);
        let pen = self.take_pen(&pieces, terms.stance().may_wait).inspect_err(|e| {
            if e.kind == ErrorKind::Busy {
                terms.pace.lacks(Lack::Turn, &[]);
            }
        })?;
        let mut done = 0;
        let mut last = Seq::ZERO;
        let mut wait = RoomWait::default();
        // Intervals may have ended while it waited for room.
        let mut has_waited = false;
        while done < pieces.len() {
            let rest = &pieces[done..];
            let still_right = || self.still_right(terms, pen.as_ref());
            let reserve = FromReserve(&self.core, &self.cache().short);
            let source: &dyn SegmentSource = if terms.frees { &reserve } else { &*self.core };
            let stance = Stance { goes_on: done > 0 && !has_waited, ..terms.stance() };
            // The rest of a zone of the reserve is for those that make room.
            let appended = match !terms.frees && self.cache().short.load(Ordering::Acquire) {
                true => Err(history::Error::new(history::ErrorKind::Full, TOOK_RESERVE)),
                false => self.log().append(still_right, rest, stance, source, header),
            };
            match appended {
                Ok(appended) => {
                    let taken = appended.ops;
                    last = self.enter_in_map(&rest[..taken], appended, entries);
                    if let Some(pen) = &pen {
                        self.write_in_place(pen, &rest[..taken])?;
                    }
                    done += taken;
                    wait = RoomWait::default();
                }
                Err(e) if e.kind == history::ErrorKind::Full => {
                    has_waited = true;
                    terms.pace.lacks(Lack::Room, &pieces[..done]);
                    let may_wait = terms.pace.may_wait_for_room();
                    if !may_wait || !self.core.host()?.wait_for_room(&mut wait, &|| true)? {
                        return Err(e.into());
                    }
                    self.cache().short.store(false, Ordering::Release);
                }
                Err(e) if e.kind == history::ErrorKind::WouldWait => {
                    terms.pace.lacks(Lack::Turn, &pieces[..done]);
                    return Err(e.into());
                }
                Err(e) if e.kind == history::ErrorKind::Moved => {
                    if !self.is_pen_right(pen.as_ref()) {
                        return Ok(None);
                    }
                    return self.moved(terms).map(|()| None);
                }
                Err(e) => return Err(e.into()),
            }
        }
        if let Some(pen) = pen {
            pen.let_go();
        }
        *kept = emptied(pieces);
        Ok(Some(last))
    }

    /// A write may not be made any more. Fails unless it is to be made again, in another way.
    pub(crate) fn moved(&self, terms: Terms<'_>) -> Result<()> {
        if terms.merged.is_some_and(|merged| !self.is_as_merged(merged)) {
            return Ok(());
        }
        self.check_open()?;
        // A cache that was switched on and is off again does not stand in the way of it either.
        if !terms.behind && self.may_write(terms) {
            return Ok(());
        }
        let text = "the volume was deleted or made smaller under the write";
        Err(Error::new(ErrorKind::OutOfBounds, text))
    }

    /// The timeline to write to, if the write may still be made past the cache. Asked while nothing
    /// can change it.
    fn still_right(&self, terms: Terms<'_>, pen: Option<&Pen>) -> Option<u64> {
        let by_way = terms.behind || !self.cache().is_on();
        (by_way && self.may_write(terms) && self.is_pen_right(pen))
            .then(|| self.present().timeline.id)
    }

    /// Whether a write may still be made. Asked while nothing can change it.
    pub(crate) fn may_write(&self, terms: Terms<'_>) -> bool {
        let live = self.present();
        let limit = live.size_bytes.min(self.sizing.limit());
        let fits = terms.cuts || terms.end <= limit;
        let is_merged = terms.merged.is_none_or(|merged| self.is_as_merged(merged));
        let is_gone = self.is_gone();
        fits && is_merged && !is_gone
    }

    fn is_as_merged(&self, Merged { live, switches }: Merged<'_>) -> bool {
        Arc::ptr_eq(live, &self.present()) && switches == self.cache().switches()
    }

    /// Tells the map where a batch is, then lets it become stable.
    fn enter_in_map(
        &self,
        ops: &[BlockOp<'_>],
        appended: Appended<'_>,
        entries: &mut Vec<Entry>,
    ) -> Seq {
        entries.clear();
        let segment = &appended.segment;
        enter(segment.number, (appended.base_seq, appended.payload_offset), ops, entries);
        self.tell_map(segment, entries);
        appended.end()
    }

    /// The same for the batches of a run.
    pub(crate) fn enter_run_in_map(
        &self,
        groups: &[TimedOps<'_>],
        run: AppendedRun<'_>,
        entries: &mut Vec<Entry>,
    ) -> Seq {
        entries.clear();
        for (group, batch) in groups.iter().zip(&run.batches) {
            let place = (batch.base_seq, batch.payload_offset);
            enter(run.segment().number, place, group.ops, entries);
        }
        self.tell_map(run.segment(), entries);
        run.end()
    }

    fn tell_map(&self, segment: &Segment, entries: &[Entry]) {
        let count = i64::try_from(entries.len()).expect("a batch is small");
        segment.add_entries(count);
        let live = self.present();
        live.timeline.insert(entries);
        update_pages(&live.pages, entries);
    }

    /// Writes an op whose edges lie within blocks. The blocks around them may be the present no
    /// more when they are written (after a revert or a resize): then all of it is done again.
    fn write_partial(&self, op: &WriteOp<'_>, pace: &Pace) -> Result<Seq> {
        if span(op).1 == 0 {
            return Ok(Seq::ZERO);
        }
        // A thread that may not wait comes back as one that may: the rest of the unit is read.
        if is_whole(op) && !pace.may_wait_for_turns() {
            pace.lacks(Lack::Turn, &[]);
            return Err(Error::busy("the rest of a copy unit is to be read"));
        }
        loop {
            let live = self.present();
            let (offset, length_bytes) = span(op);
            live.check_range(offset, length_bytes)?;
            if let Some(last) = self.write_merged(op, &live, false, pace)? {
                return Ok(last);
            }
        }
    }

    /// Writes an op whose edges lie within blocks or units: edges are merged, the middle goes as it
    /// is. `None` when `live` is the present no more.
    pub(crate) fn write_merged(
        &self,
        op: &WriteOp<'_>,
        live: &Arc<Opening>,
        cuts: bool,
        pace: &Pace,
    ) -> Result<Option<Seq>> {
        let unit_blocks = if cuts { 1 } else { self.unit_blocks_for(op) };
        match self.write_by_units(op, live, (cuts, unit_blocks), pace) {
            Err(e)
                if unit_blocks > 1
                    && edge::may_be_for_others(&e)
                    && !self.core.store.has_failed() =>
            {
                self.write_by_units(op, live, (cuts, 1), pace)
            }
            other => other,
        }
    }

    fn write_by_units(
        &self,
        op: &WriteOp<'_>,
        live: &Arc<Opening>,
        (cuts, unit_blocks): (bool, u64),
        pace: &Pace,
    ) -> Result<Option<Seq>> {
        let (offset, length_bytes) = span(op);
        let end = offset + length_bytes;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let (head, tail) = units_at_edges(&blocks, unit_blocks, live.size_bytes);
        // One lock or the other: should the cache be switched on or off, all is done again.
        let switches = self.cache().switches();
        let is_cached = switches % 2 == 1;
        let _waits = is_cached.then(|| self.cache().lock_blocks(head.start, tail.end));
        let _locked = match is_cached {
            true => None,
            false => Some(self.log().lock_blocks(head.start, tail.end)?),
        };
        let at_head = self.merged_edge(live, &head, op, is_cached)?;
        let has_tail = tail != head;
        let at_tail = if has_tail { self.merged_edge(live, &tail, op, is_cached)? } else { None };
        let mut parts: Vec<WriteOp<'_>> = at_head.iter().flat_map(Edge::parts).collect();
        let from = at_head.as_ref().map_or(offset, |_| (head.end * BLOCK_BYTES).min(end));
        let until = at_tail.as_ref().map_or(end, |_| tail.start * BLOCK_BYTES);
        if until > from {
            parts.push(middle(op, from, until));
        }
        parts.extend(at_tail.iter().flat_map(Edge::parts));
        // Blocks taken along behind it lie within the volume as well.
        let last = at_tail.as_ref().or(at_head.as_ref().filter(|_| !has_tail)).map_or(0, Edge::end);
        let end = if last > blocks.end { (last * BLOCK_BYTES).min(live.size_bytes) } else { end };
        let frees = is_zero(op) && parts.iter().any(is_zero);
        let merged = Some(Merged { live, switches });
        let terms = Terms { merged, cuts, frees, ..Terms::new(end, pace) };
        match is_cached {
            true => self.write_cached(&parts, terms),
            false => self.write_logged(&parts, terms),
        }
        .inspect_err(|_| {
            let before = at_head.as_ref().map_or(0, |edge| edge.blocks_before(blocks.start));
            let skew = before * BLOCK_BYTES + offset - blocks.start * BLOCK_BYTES;
            pace.began_before(skew, length_bytes);
        })
    }

    pub(crate) fn piece_bytes_max(&self) -> usize {
        let quarter = usize::try_from(self.core.store.zone_bytes / 4).expect("zones are small");
        PIECE_BYTES_MAX.min(quarter)
    }
}

/// The map entries of a batch in a segment, with its first seq and where its data begins.
fn enter(
    segment: u64,
    (base_seq, payload_offset): (Seq, u32),
    ops: &[BlockOp<'_>],
    entries: &mut Vec<Entry>,
) {
    let mut payload = Location::new(segment, payload_offset);
    for (i, op) in ops.iter().enumerate() {
        let seq = Seq(base_seq.0 + i as u64);
        match *op {
            BlockOp::Data { block, crcs, .. } => {
                for (j, &crc) in crcs.iter().enumerate() {
                    let location = block_location(payload, j);
                    entries.push(Entry::data(Lba(block + j as u64), seq, location, crc));
                }
                payload = after(payload, crcs.len());
            }
            BlockOp::Zero { block, blocks } => {
                let location = Location::hole_in(segment);
                let keys = cover(Lba(block), BlockCount(u64::from(blocks)));
                entries.extend(keys.map(|key| Entry { key, seq, location, crc: 0 }));
            }
        }
    }
}

fn after(payload: Location, blocks: usize) -> Location {
    let offset = u64::from(payload.offset_bytes()) + blocks as u64 * BLOCK_BYTES;
    if offset >= u64::from(format::location::SEGMENT_BYTES_MAX) {
        // The batch ends with its segment: no data follows.
        return payload;
    }
    block_location(payload, blocks)
}

/// Puts the checksums of all blocks of data into a vector that is used again and again.
pub fn checksums_into(ops: &[WriteOp<'_>], crcs: &mut Vec<u32>) {
    crcs.clear();
    for op in ops {
        if let WriteOp::Data { bytes, .. } = op {
            crcs.extend(bytes.chunks_exact(BLOCK).map(block_crc));
        }
    }
}

/// Cuts ops into pieces that fit any segment.
pub fn cut_into<'a>(
    ops: &[WriteOp<'a>],
    crcs: &'a [u32],
    piece_bytes_max: usize,
    pieces: &mut Vec<BlockOp<'a>>,
) {
    let mut used = 0;
    for op in ops {
        match *op {
            WriteOp::Data { offset, bytes } => {
                let mut block = offset / BLOCK_BYTES;
                for piece in bytes.chunks(piece_bytes_max) {
                    let blocks = piece.len() / BLOCK;
                    let crcs = &crcs[used..used + blocks];
                    pieces.push(BlockOp::Data { block, bytes: piece, crcs });
                    used += blocks;
                    block += blocks as u64;
                }
            }
            WriteOp::Zero { offset, length_bytes } => {
                let (mut block, end) =
                    (offset / BLOCK_BYTES, (offset + length_bytes) / BLOCK_BYTES);
                while block < end {
                    // Cut where large nodes of the map meet, so that each piece is few entries.
                    let until = (block / TRIM_BLOCKS_MAX + 1) * TRIM_BLOCKS_MAX;
                    let blocks = u32::try_from(end.min(until) - block).expect("at most 4 TiB");
                    pieces.push(BlockOp::Zero { block, blocks });
                    block += u64::from(blocks);
                }
            }
        }
    }
}

/// Tells cached pages of new entries.
fn update_pages(pages: &history::PageTable, entries: &[Entry]) {
    let slot = |e: &Entry| Slot { seq: e.seq, location: e.location, crc: e.crc, known: true };
    let page_of = |e: &Entry| e.key.index / BLOCKS_PER_PAGE as u64;
    let mut rest = entries;
    while let Some(first) = rest.first() {
        match first.key.level {
            0 => {
                let page = page_of(first);
                let count =
                    rest.iter().take_while(|e| e.key.level == 0 && page_of(e) == page).count();
                let index = |e: &Entry| (e.key.index % BLOCKS_PER_PAGE as u64) as usize;
                pages.update(page, rest[..count].iter().map(|e| (index(e), slot(e))));
                rest = &rest[count..];
            }
            1 => {
                pages.update(first.key.index, (0..BLOCKS_PER_PAGE).map(|i| (i, slot(first))));
                rest = &rest[1..];
            }
            _ => {
                let key: Key = first.key;
                pages.drop_pages(|page| node_covers(key, page));
                rest = &rest[1..];
            }
        }
    }
}
