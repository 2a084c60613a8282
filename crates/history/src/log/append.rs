//! Appending: a place in the open segment, then the write.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block::emptied;
use env::{Held, HeldRange, Ranges, Rank, RankedGuard, RankedMutex};
use format::batch::{
    BATCH_ALIGNMENT, BATCH_HEADER_FIXED_BYTES, BatchEncoder, BatchHeader, BatchKind, header_bytes,
};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use format::time::TimeEntry;
use parking_lot::Condvar;
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::io_tally::{IoKind, IoTally};
use crate::segment::Segment;
use crate::store::{Behind, Spare, Store};
use crate::{Error, ErrorKind, Result};

/// Bytes of a mark: those of a header without descriptors.
pub(super) const MARK_BYTES: u32 =
    (BATCH_HEADER_FIXED_BYTES as u32).next_multiple_of(BATCH_ALIGNMENT);
/// Operations in one batch.
const BATCH_OPS_MAX: usize = 1000;
/// Blocks in one batch: with the operations' share this keeps headers well below their limit.
const BATCH_BLOCKS_MAX: usize = 8192;
/// Blocks and trims of a batch that may not be split, at most: with a descriptor for each they fit
/// the largest segment.
const WHOLE_BLOCKS_MAX: usize = 8000;

/// How often who must not wait for a closed gate looks whether it is one that it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(1);

thread_local! {
    /// Memory for the slices of a batch, used again from batch to batch.
    static SLICES: Cell<Vec<IoSlice<'static>>> = const { Cell::new(Vec::new()) };
}

/// One write in whole blocks, checksummed.
#[derive(Clone, Copy, Debug)]
pub enum BlockOp<'a> {
    /// Store these blocks.
    Data {
        /// First block.
        block: u64,
        /// Whole blocks.
        bytes: &'a [u8],
        /// CRC32C of each.
        crcs: &'a [u32],
    },
    /// These blocks read as zeros from now on.
    Zero {
        /// First block.
        block: u64,
        /// How many.
        blocks: u32,
    },
}

impl BlockOp<'_> {
    /// Its blocks.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match *self {
            BlockOp::Data { block, crcs, .. } => block..block + crcs.len() as u64,
            BlockOp::Zero { block, blocks } => block..block + u64::from(blocks),
        }
    }
}

/// How an append stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stance {
    /// It holds the lock of its blocks itself.
    pub holds_lock: bool,
    /// It may wait until the gate is open, no block of it is locked, and a segment is ready.
    pub may_wait: bool,
    /// It is the rest of what the batch before has the begin of: its time follows that batch's at
    /// once, so that hardly any time lies between them; unless somebody has looked in between,
    /// for whom a time must go on meaning what it meant.
    pub goes_on: bool,
    /// All of it goes into one batch: [`Log::whole_blocks_max`] says how much that may be.
    pub whole: bool,
}

/// Where a log gets its next segment from.
pub trait SegmentSource {
    /// A segment number and zone that the catalogue knows durably, if one is ready, for a caller
    /// who may wait when he writes there, or not. Waits for no device.
    fn take_ready(&self, may_wait: bool) -> Option<Spare>;

    /// Makes some ready. Waits for a commit; no log is locked meanwhile.
    ///
    /// # Errors
    /// `Full` when there is no room; `Refused`.
    fn make_ready(&self) -> Result<()>;
}

/// The findings of recovery, from which a log goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogStart {
    /// Highest seq ever given.
    pub last_seq: Seq,
    /// Up to where everything was flushed.
    pub durable: Seq,
    /// Time of the last write.
    pub last_time: WallTime,
    /// Bytes written so far.
    pub bytes_total: u64,
    /// Flushes completed so far.
    pub flushes_total: u64,
}

pub(super) struct InFlight {
    pub(super) last_seq: u64,
    pub(super) ended: bool,
}

/// The mutable part of a log.
pub struct LogState {
    pub(super) open: Option<Arc<Segment>>,
    pub(super) tail: u32,
    pub(super) last_seq: u64,
    pub(super) stable: u64,
    pub(super) durable: u64,
    pub(super) in_flight: VecDeque<InFlight>,
    gate_closed: bool,
    /// One batch is in flight at a time.
    is_strict: bool,
    /// Blocks that are merged with what is there.
    locked: Ranges,
    pub(super) last_time: WallTime,
    pub(super) behind: Option<Behind>,
    /// The end of the log was asked for since the last batch.
    looked: bool,
    pub(super) bytes_total: u64,
    pub(super) flushes_total: u64,
    pub(super) times: Vec<TimeEntry>,
}

/// A log.
pub struct Log {
    /// Its id, the same as its volume's.
    pub id: u64,
    pub(super) store: Arc<Store>,
    pub(super) io: Arc<IoTally>,
    /// Its batches are counted as what is on its way into place.
    is_journal: AtomicBool,
    pub(super) state: RankedMutex<LogState>,
    /// The gate is closed, and the state locked, for longer than an instant.
    stands_still: AtomicBool,
    changed: Condvar,
}

/// A batch on its way: written, not yet visible as stable.
pub struct Appended<'l> {
    pub(super) log: &'l Log,
    pub(super) _in_flight: Held,
    pub(super) last_seq: u64,
    pub(super) ended: bool,
    /// Seq of the first op.
    pub base_seq: Seq,
    /// How many of the ops given are in it.
    pub ops: usize,
    /// Offset in the segment of the first data block; later ones follow in order.
    pub payload_offset: u32,
    /// Where it was written.
    pub segment: Arc<Segment>,
}

struct Reservation {
    segment: Arc<Segment>,
    header: BatchHeader,
    header_bytes: u32,
    payload_bytes: u32,
    ops: usize,
    last_seq: u64,
}

impl Log {
    /// A log that goes on from `start`.
    pub fn new(id: u64, store: Arc<Store>, start: LogStart) -> Log {
        let state = LogState {
            open: None,
            tail: 0,
            last_seq: start.last_seq.0,
            stable: start.last_seq.0,
            durable: start.durable.0,
            in_flight: VecDeque::new(),
            gate_closed: false,
            is_strict: false,
            locked: Ranges::default(),
            last_time: start.last_time,
            behind: None,
            looked: false,
            bytes_total: start.bytes_total,
            flushes_total: start.flushes_total,
            times: Vec::new(),
        };
        Log {
            id,
            io: store.io(id),
            is_journal: AtomicBool::new(false),
            store,
            state: RankedMutex::numbered(Rank::Log, 2 * id + 1, state),
            stands_still: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    /// Where batches in flight stand among locks: before the state, which they are ended under.
    pub(super) fn in_flight_place(&self) -> u64 {
        2 * self.id
    }

    /// From now on its batches are counted as what is on its way into place, or no longer so.
    pub fn set_journal(&self, is_journal: bool) {
        self.is_journal.store(is_journal, Ordering::Relaxed);
    }

    /// The kind that its batches are counted as.
    pub(super) fn kind(&self) -> IoKind {
        match self.is_journal.load(Ordering::Relaxed) {
            true => IoKind::JournalWrite,
            false => IoKind::HistoryWrite,
        }
    }

    /// One batch is to be in flight at a time.
    pub fn set_strict(&mut self, is_strict: bool) {
        self.state.get_mut().is_strict = is_strict;
    }

    /// How many blocks of data and trims together always fit one batch.
    pub fn whole_blocks_max(&self) -> usize {
        let header = |count| u64::from(header_bytes(BatchKind::Writes, count, count));
        let kept = SEGMENT_HEADER_BYTES as u64 + u64::from(MARK_BYTES + BATCH_ALIGNMENT);
        // So many descriptors and checksums are padded like none.
        let each = (header(BATCH_ALIGNMENT as usize) - header(0)) / u64::from(BATCH_ALIGNMENT);
        let fit = (self.store.zone_bytes - kept - header(0)) / (BLOCK_BYTES + each);
        usize::try_from(fit).expect("zones are small").min(WHOLE_BLOCKS_MAX)
    }

    /// Appends as many of `ops` as fit the open segment, in one vectored write. The caller enters
    /// the locations in the map, ends the result, and comes again with the rest. `timeline` is
    /// asked once nothing can change it any more; `None` means that the request is no longer right.
    ///
    /// # Errors
    /// `Moved` when `timeline` says `None`; `WouldWait` as `stance` says; `Full` before anything is
    /// reserved; `Refused` or the device's after.
    pub fn append(
        &self,
        timeline: impl Fn() -> Option<u64>,
        ops: &[BlockOp<'_>],
        stance: Stance,
        source: &dyn SegmentSource,
        scratch: &mut Vec<u8>,
    ) -> Result<Appended<'_>> {
        assert!(!ops.is_empty(), "an append has ops");
        let ops = if stance.whole { ops } else { &ops[..ops.len().min(BATCH_OPS_MAX)] };
        if stance.may_wait {
            Held::will_wait(Rank::Log, self.in_flight_place());
        }
        let in_flight = Held::new(Rank::Log, self.in_flight_place());
        let reservation = self.reserve(&timeline, ops, stance, source)?;
        let appended = Appended {
            log: self,
            _in_flight: in_flight,
            last_seq: reservation.last_seq,
            ended: false,
            base_seq: reservation.header.base_seq,
            ops: reservation.ops,
            payload_offset: reservation.header.offset + reservation.header_bytes,
            segment: Arc::clone(&reservation.segment),
        };
        let ops = &ops[..reservation.ops];
        scratch.clear();
        encode(ops, &reservation.header, scratch);
        assert_eq!(scratch.len(), reservation.header_bytes as usize, "header size was foreseen");
        let mut slices = emptied(SLICES.take());
        slices.push(IoSlice::new(scratch));
        for op in ops {
            if let BlockOp::Data { bytes, .. } = op {
                slices.push(IoSlice::new(bytes));
            }
        }
        let offset =
            self.store.zone_offset(reservation.segment.zone) + u64::from(reservation.header.offset);
        self.store.write(offset, &slices)?;
        SLICES.set(emptied(slices));
        let (headers, payload) = (reservation.header_bytes, reservation.payload_bytes);
        self.io.count_batches(self.kind(), u64::from(headers), u64::from(payload));
        Ok(appended)
    }

    fn reserve(
        &self,
        timeline: &dyn Fn() -> Option<u64>,
        ops: &[BlockOp<'_>],
        stance: Stance,
        source: &dyn SegmentSource,
    ) -> Result<Reservation> {
        let zone_bytes = self.store.zone_bytes;
        let least = if stance.whole { ops.len() } else { 1 };
        let (mut state, timeline) = self.turn(timeline, (ops, least), stance, source)?;
        let (count, header_bytes, payload_bytes) =
            state.fitting(ops, zone_bytes).expect("an op fits an empty segment");
        assert!(count >= least, "a whole batch fits an empty segment");
        let last_seq = state.last_seq + count as u64;
        if last_seq > Seq::MAX.0 {
            return Err(Error::new(ErrorKind::Full, "the volume has used up all seqs"));
        }
        let last = state.last_time;
        let looked = std::mem::take(&mut state.looked);
        state.last_time = match stance.goes_on && !looked {
            true => WallTime::from_nanos(last.as_nanos() + 1),
            false => self.store.time_after(last, &mut state.behind),
        };
        let segment = Arc::clone(state.open.as_ref().expect("rolled to an open segment"));
        let header = state.next_header(&segment, timeline);
        state.tail += header_bytes + payload_bytes;
        assert!(u64::from(state.tail) <= zone_bytes, "a batch stays within its segment");
        assert!(!state.gate_closed && state.last_time > last, "a write after all before it");
        state.last_seq = last_seq;
        segment.last_seq.store(last_seq, Ordering::Release);
        segment.end.store(state.tail, Ordering::Release);
        state.bytes_total += ops[..count].iter().map(op_bytes).sum::<u64>();
        state.in_flight.push_back(InFlight { last_seq, ended: false });
        state.push_time();
        Ok(Reservation { segment, header, header_bytes, payload_bytes, ops: count, last_seq })
    }

    /// Waits until ops may be appended, and for a segment in which at least so many of them fit if
    /// that has to be made ready; says which timeline they belong to. The log stays locked.
    pub(super) fn turn(
        &self,
        timeline: &dyn Fn() -> Option<u64>,
        (ops, least): (&[BlockOp<'_>], usize),
        stance: Stance,
        source: &dyn SegmentSource,
    ) -> Result<(RankedGuard<'_, LogState>, u64)> {
        loop {
            let mut state = self.lock_as(stance)?;
            let meets = |held: &Ranges| held.meet(ops.iter().map(BlockOp::range));
            while state.gate_closed
                || state.is_strict && !state.in_flight.is_empty()
                || !stance.holds_lock && meets(&state.locked)
            {
                self.check()?;
                if !stance.may_wait {
                    return Err(would_wait());
                }
                RankedGuard::wait(&mut state, &self.changed);
            }
            self.check()?;
            let timeline = timeline().ok_or_else(|| {
                Error::new(ErrorKind::Moved, "the volume changed under the request")
            })?;
            let fit = state.fitting(ops, self.store.zone_bytes);
            if let (Some(open), Some((_, header, payload))) =
                (&state.open, fit.filter(|fit| fit.0 >= least))
            {
                let is_ready = stance.may_wait || self.is_ready(open, state.tail, header + payload);
                return if is_ready { Ok((state, timeline)) } else { Err(would_wait()) };
            }
            if let Some(spare) = source.take_ready(stance.may_wait) {
                self.roll(&mut state, spare)?;
                return Ok((state, timeline));
            }
            drop(state);
            if !stance.may_wait {
                return Err(would_wait());
            }
            source.make_ready()?;
        }
    }

    /// Whether a batch can be written without waiting for anything else on the device.
    pub(super) fn is_ready(&self, segment: &Segment, offset: u32, bytes: u32) -> bool {
        let at = self.store.zone_offset(segment.zone) + u64::from(offset);
        self.store.device.is_ready(at, u64::from(bytes))
    }

    /// Whether its gate is closed for longer than an instant.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        self.stands_still.load(Ordering::Acquire)
    }

    /// The one that closes the gate keeps the state locked.
    fn lock_as(&self, stance: Stance) -> Result<RankedGuard<'_, LogState>> {
        if stance.may_wait {
            return Ok(self.state.lock());
        }
        loop {
            if self.stands_still() {
                return Err(would_wait());
            }
            if let Some(state) = self.state.try_lock_for(LOOK_EVERY) {
                return Ok(state);
            }
        }
    }

    fn check(&self) -> Result<()> {
        if self.store.has_failed() { Err(Error::refused()) } else { Ok(()) }
    }

    /// Seals the open segment and opens a spare.
    fn roll(&self, state: &mut LogState, spare: Spare) -> Result<()> {
        let first_seq = Seq(state.last_seq + 1);
        let nonce = self.store.draw_nonce(spare.number);
        let header = SegmentHeader {
            pool_id: self.store.pool_id,
            segment: spare.number,
            zone: spare.zone,
            log: self.id,
            nonce,
            created: self.store.clock.wall(),
            first_seq,
        };
        self.store.write(self.store.zone_offset(spare.zone), &[IoSlice::new(&header.encode())])?;
        self.io.count(IoKind::Other, SEGMENT_HEADER_BYTES as u64);
        state.seal();
        let segment = Arc::new(Segment {
            last_seq: AtomicU64::new(state.last_seq),
            sealed: AtomicBool::new(false),
            ..Segment::new((spare.number, spare.zone), (self.id, nonce))
        });
        self.store.add_segment(Arc::clone(&segment));
        state.open = Some(segment);
        state.tail = SEGMENT_HEADER_BYTES as u32;
        Ok(())
    }

    fn end(&self, last_seq: u64) {
        let mut state = self.state.lock();
        let mine = state
            .in_flight
            .iter_mut()
            .find(|f| f.last_seq == last_seq)
            .expect("a batch ends once, after it began");
        mine.ended = true;
        while state.in_flight.front().is_some_and(|f| f.ended) {
            let front = state.in_flight.pop_front().expect("just seen");
            assert!(front.last_seq > state.stable, "batches end in the order of their seqs");
            state.stable = front.last_seq;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// `Refused` or the device's.
    pub fn flush(&self) -> Result<()> {
        // A write that is still on its way may have a lower seq than one that was acknowledged. If
        // a power cut took it after later batches had called it ended, recovery would cut the log
        // before it, and what was flushed with it. So the flush covers all of a prefix.
        let stable = self.settle()?.0;
        self.store.flush()?;
        self.note_flushed(stable);
        Ok(())
    }

    /// Waits until everything given a seq before this call has ended, and says the last such seq.
    ///
    /// # Errors
    /// `Refused` when a write failed, for then some never end.
    pub fn settle(&self) -> Result<Seq> {
        Held::will_wait(Rank::Log, self.in_flight_place());
        let mut state = self.state.lock();
        state.looked = true;
        let target = state.last_seq;
        while state.stable < target {
            self.check()?;
            RankedGuard::wait(&mut state, &self.changed);
        }
        Ok(Seq(target))
    }

    /// The highest seq at and below which every write has ended, without waiting.
    pub fn stable(&self) -> Seq {
        Seq(self.state.lock().stable)
    }

    /// Stops new writes, waits for those in flight, and runs `f` while nothing moves.
    ///
    /// # Errors
    /// `Refused` when a write failed; those of `f`.
    pub fn with_gate<T, E: From<Error>>(
        &self,
        f: impl FnOnce(&mut Gate<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        Held::will_wait(Rank::Log, self.in_flight_place());
        let mut state = self.state.lock();
        while state.gate_closed {
            RankedGuard::wait(&mut state, &self.changed);
        }
        state.gate_closed = true;
        self.stands_still.store(true, Ordering::Release);
        while !state.in_flight.is_empty() && !self.store.has_failed() {
            RankedGuard::wait(&mut state, &self.changed);
        }
        let outcome = if self.store.has_failed() {
            Err(E::from(Error::refused()))
        } else {
            state.looked = true;
            assert_eq!(state.stable, state.last_seq, "nothing is in flight behind a closed gate");
            let mut gate = Gate { log: self, state: &mut state };
            match catch_unwind(AssertUnwindSafe(|| f(&mut gate))) {
                Ok(outcome) => outcome,
                Err(panic) => {
                    // Its half-done work is used no more; waiters are told, not left.
                    self.store.fail();
                    state.gate_closed = false;
                    self.stands_still.store(false, Ordering::Release);
                    drop(state);
                    self.changed.notify_all();
                    resume_unwind(panic);
                }
            }
        };
        state.gate_closed = false;
        self.stands_still.store(false, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        outcome
    }

    /// Wakes those who wait, after a failure elsewhere.
    pub fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Locks blocks `first..end` against other writes, and waits for those in flight.
    ///
    /// # Errors
    /// `Refused` when a write failed.
    pub fn lock_blocks(&self, first: u64, end: u64) -> Result<LockedBlocks<'_>> {
        Held::will_wait(Rank::Log, self.in_flight_place());
        let lock = (&self.state, &self.changed);
        let (mut state, locked) = HeldRange::wait(lock, first..end, false, || self.check())?;
        let target = state.last_seq;
        while state.stable < target {
            if let Err(e) = self.check() {
                drop(state);
                return Err(e);
            }
            RankedGuard::wait(&mut state, &self.changed);
        }
        drop(state);
        Ok(locked)
    }

    /// Runs `f` on the times of batches not yet in a time run, in order.
    pub fn with_times<T>(&self, f: impl FnOnce(&[TimeEntry]) -> T) -> T {
        f(&self.state.lock().times)
    }

    /// Forgets the times up to and including `seq`, which are in a time run now.
    pub fn drop_times(&self, seq: Seq) {
        self.state.lock().times.retain(|t| t.seq > seq);
    }

    /// Puts back the times recovered from the tail.
    pub fn restore_times(&mut self, times: Vec<TimeEntry>) {
        self.state.get_mut().times = times;
    }

    /// Time of the last write.
    pub fn last_time(&self) -> WallTime {
        self.state.lock().last_time
    }

    /// The time so long ago, as its writes have it.
    pub fn time_ago(&self, span_ns: u64) -> WallTime {
        let mut state = self.state.lock();
        self.store.time_ago(state.last_time, &mut state.behind, span_ns)
    }

    /// The open segment's number.
    pub fn open_segment(&self) -> Option<u64> {
        self.state.lock().open.as_ref().map(|s| s.number)
    }
}

fn would_wait() -> Error {
    Error::new(ErrorKind::WouldWait, "the log has to be waited for")
}

impl LogState {
    /// How many of `ops` fit the open segment, with the sizes of header and payload.
    pub(super) fn fitting(
        &self,
        ops: &[BlockOp<'_>],
        zone_bytes: u64,
    ) -> Option<(usize, u32, u32)> {
        let zone_bytes = u32::try_from(zone_bytes).expect("zones are at most 32 MiB");
        let room = zone_bytes.saturating_sub(self.tail + MARK_BYTES);
        let mut best = None;
        let (mut data_ops, mut zero_ops, mut blocks) = (0usize, 0usize, 0usize);
        for op in ops {
            match op {
                BlockOp::Data { crcs, .. } => {
                    data_ops += 1;
                    blocks += crcs.len();
                }
                BlockOp::Zero { .. } => zero_ops += 1,
            }
            let header = header_bytes(BatchKind::Writes, data_ops + zero_ops, blocks);
            let payload = blocks as u64 * BLOCK_BYTES;
            if blocks > BATCH_BLOCKS_MAX || u64::from(header) + payload > u64::from(room) {
                break;
            }
            let payload = u32::try_from(payload).expect("smaller than a zone");
            best = Some((data_ops + zero_ops, header, payload));
        }
        best
    }

    /// The header of a batch that comes next.
    pub(super) fn next_header(&self, segment: &Segment, timeline: u64) -> BatchHeader {
        BatchHeader {
            segment: segment.number,
            offset: self.tail,
            kind: BatchKind::Writes,
            nonce: segment.nonce,
            timeline,
            time: self.last_time,
            base_seq: Seq(self.last_seq + 1),
            stable_seq: Seq(self.stable),
            durable_seq: Seq(self.durable),
            flush_count: self.flushes_total,
        }
    }

    fn seal(&mut self) {
        if let Some(segment) = self.open.take() {
            segment.sealed.store(true, Ordering::Release);
            segment.settle();
        }
    }

    pub(super) fn push_time(&mut self) {
        let last = self.times.last();
        assert!(last.is_none_or(|last| last.seq.0 < self.last_seq), "times in the order of seqs");
        self.times.push(TimeEntry {
            time: self.last_time,
            seq: Seq(self.last_seq),
            bytes_total: self.bytes_total,
            flushes_total: self.flushes_total,
        });
    }
}

/// Appends the header of a batch with its descriptors.
pub(super) fn encode(ops: &[BlockOp<'_>], header: &BatchHeader, scratch: &mut Vec<u8>) {
    let mut encoder = BatchEncoder::new(scratch);
    for op in ops {
        match *op {
            BlockOp::Data { block, crcs, .. } => encoder.push_data(block, crcs),
            BlockOp::Zero { block, blocks } => encoder.push_zero(block, blocks),
        }
    }
    encoder.finish(header);
}

pub(super) fn op_bytes(op: &BlockOp<'_>) -> u64 {
    match op {
        BlockOp::Data { bytes, .. } => bytes.len() as u64,
        BlockOp::Zero { .. } => 0,
    }
}

impl Appended<'_> {
    /// The map knows the batch: let it become stable.
    pub fn end(mut self) -> Seq {
        self.ended = true;
        self.log.end(self.last_seq);
        Seq(self.last_seq)
    }
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The write failed: it never ends, `stable` stays below it, and the store refuses
            // writes. Said under the lock, so that nobody begins to wait without knowing it.
            let state = self.log.state.lock();
            self.log.store.fail();
            drop(state);
            self.log.changed.notify_all();
        }
    }
}

/// A block range kept from other writers while a partial block is merged.
pub type LockedBlocks<'l> = HeldRange<'l, LogState>;

impl AsMut<Ranges> for LogState {
    fn as_mut(&mut self) -> &mut Ranges {
        &mut self.locked
    }
}

/// The log while nothing moves.
pub struct Gate<'s> {
    log: &'s Log,
    state: &'s mut LogState,
}

impl Gate<'_> {
    /// Ends the open segment: nothing more is written to it.
    pub fn seal(&mut self) {
        self.state.seal();
    }

    /// The last seq given; everything up to it has ended.
    pub fn last_seq(&self) -> Seq {
        Seq(self.state.last_seq)
    }

    /// Time of the last write or event.
    pub fn last_time(&self) -> WallTime {
        self.state.last_time
    }

    /// The stamp that [`Gate::take_event`] would give.
    pub fn peek_event(&self) -> (Seq, WallTime) {
        let time = self.log.store.time_after(self.state.last_time, &mut self.state.behind.clone());
        (Seq(self.state.last_seq + 1), time)
    }

    /// Gives an event (a revert, a resize) the next seq, at this time. It is not in the log: the
    /// catalogue holds it durably before this is called.
    pub fn take_event(&mut self, seq: Seq, time: WallTime) {
        assert_eq!(seq.0, self.state.last_seq + 1, "an event takes the next seq");
        assert!(time > self.state.last_time, "time rises");
        self.state.last_seq = seq.0;
        self.state.stable = seq.0;
        self.state.durable = seq.0;
        self.state.last_time = time;
        self.state.push_time();
    }

    /// The open segment's number.
    pub fn open_segment(&self) -> Option<u64> {
        self.state.open.as_ref().map(|s| s.number)
    }

    /// Bytes written and flushes completed so far.
    pub fn totals(&self) -> (u64, u64) {
        (self.state.bytes_total, self.state.flushes_total)
    }

    /// The times not yet in a time run.
    pub fn times(&self) -> &[TimeEntry] {
        &self.state.times
    }
}
