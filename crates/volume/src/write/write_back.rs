//! Through a volume's write-back cache: writes into it, and from it to the log and in place; writes
//! are held back for those who must see "now".
//!
//! Invariants
//! 1. While the cache is on only whoever destages appends to the log, but for those who hold writes
//!    back after everything was destaged.
//! 2. A destage takes neither `work` nor `pins`; their holder may destage, but not make room.
//! 3. While writes are held nothing waits, and nothing is accepted.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use env::RankedGuard;
use format::map::Entry;
use history::{BlockOp, FastSet, SegmentSource, TimedOps};
use units::{BLOCK_BYTES, Seq};

use crate::core::FromReserve;
use crate::placement::current_store::Pen;
use crate::placement::in_place::data_blocks;
use crate::types::{Architecture, WriteOp};
use crate::write::Writer;
use crate::write::cache::{Offered, Run};
use crate::write::pace::{Lack, Pace};
use crate::write::{TOOK_RESERVE, Terms, checksums_into, cut_into};
use crate::{Error, ErrorKind, Result};

/// Blocks of one run, unless its last group is large.
const RUN_BLOCKS: usize = 256;
/// The longest trim that waits in the cache, in blocks.
const WAITING_HOLE_BLOCKS_MAX: u32 = 64;
/// Sixteenths of the dirty limit up to which writes wait for others of their blocks.
const KEPT_SIXTEENTHS: usize = 15;
/// Nobody wrote for so long: everything is destaged.
const IDLE_NS: u64 = 5_000_000_000;

/// Buffers used again from run to run.
#[derive(Default)]
struct Scratch {
    header: Vec<u8>,
    entries: Vec<Entry>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The pens of a run.
struct Pens {
    /// For blocks that are written in place with it.
    now: Option<Pen>,
    /// For blocks that are not.
    later: Option<Pen>,
}

/// Writes are held back; they go on when this is dropped.
pub struct Hold<'v> {
    writer: &'v Writer,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let log = self.writer.log();
        self.writer.cache().release(log.stable(), log.last_time());
    }
}

impl Writer {
    /// Writes whole blocks into the cache; `None` when there is none any more, or when what they
    /// were merged with is the present no more.
    pub(crate) fn write_cached(
        &self,
        ops: &[WriteOp<'_>],
        terms: Terms<'_>,
    ) -> Result<Option<Seq>> {
        let (mut crcs, mut pieces) = (Vec::new(), Vec::new());
        checksums_into(ops, &mut crcs);
        cut_into(ops, &crcs, self.piece_bytes_max(), &mut pieces);
        let waits = |op: &&BlockOp<'_>| match op {
            BlockOp::Data { .. } => true,
            BlockOp::Zero { blocks, .. } => *blocks <= WAITING_HOLE_BLOCKS_MAX,
        };
        self.cache().offered_ns.store(self.core.machine.clock.monotonic_ns(), Ordering::Relaxed);
        let mut rest = &pieces[..];
        let mut last = Seq::ZERO;
        while let Some(first) = rest.first() {
            if !waits(&first) {
                let BlockOp::Zero { block, blocks } = *first else { unreachable!("a long trim") };
                let done = &pieces[..pieces.len() - rest.len()];
                if !terms.pace.may_wait_for_turns() {
                    return Err(would_wait(terms.pace, done));
                }
                let trimmed = self.trim_behind(block, blocks, terms);
                let trimmed = trimmed.inspect_err(|_| terms.pace.did_before(done));
                let Some(seq) = trimmed? else { return Ok(None) };
                last = last.max(seq);
                rest = &rest[1..];
                continue;
            }
            let count = rest.iter().take_while(waits).count();
            let done = &pieces[..pieces.len() - rest.len()];
            if !terms.frees {
                self.make_room_in_cache(terms.pace, done)?;
            }
            let goes_on = || !self.core.store.has_failed() && !self.core.is_closed();
            let may = || goes_on() && self.may_write(terms);
            let time = |last, behind: &mut _| self.core.store.time_after(last, behind);
            match self.cache().offer(&rest[..count], terms.stance(), may, time) {
                Offered::Taken(taken, seq) => {
                    rest = &rest[taken..];
                    last = seq.unwrap_or(last);
                    if taken == 0 {
                        self.destage_or_make_room(terms, done)?;
                    }
                }
                Offered::WouldWait => return Err(would_wait(terms.pace, done)),
                Offered::Off => return Ok(None),
                Offered::Moved if self.core.store.has_failed() => {
                    return Err(Error::from(history::Error::refused()));
                }
                Offered::Moved => return self.moved(terms).map(|()| None),
            }
        }
        Ok(Some(last))
    }

    fn make_room(&self) -> Result<()> {
        self.core.host()?.make_room(&|| true)
    }

    /// After something was destaged into the reserve no write is accepted before there is room.
    fn make_room_in_cache(&self, pace: &Pace, done: &[BlockOp<'_>]) -> Result<()> {
        if self.cache().short.load(Ordering::Acquire) {
            pace.lacks(Lack::Room, done);
            if !pace.may_wait_for_room() {
                return Err(Error::full(TOOK_RESERVE));
            }
            self.make_room()?;
            self.cache().short.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn destage_or_make_room(&self, terms: Terms<'_>, done: &[BlockOp<'_>]) -> Result<()> {
        let Terms { pace, frees, .. } = terms;
        let may_wait = pace.may_wait_for_turns();
        let run = match may_wait {
            true => Some(self.cache().destaging.lock()),
            // A destage that has to stop half way leaves places that are to be looked after.
            false if self.log().stands_still() || self.core.store.spares().is_empty() => None,
            false => self.cache().destaging.try_lock(),
        };
        let run = run.ok_or_else(|| would_wait(pace, done))?;
        let reserve = FromReserve(&self.core, &self.cache().short);
        let source: &dyn SegmentSource = if frees { &reserve } else { &*self.core };
        match self.destage_with(run, (self.cache().portion(), None), may_wait, source) {
            Err(e) if e.kind == ErrorKind::Busy && !may_wait => Err(would_wait(pace, done)),
            Err(e) if e.kind == ErrorKind::Full => {
                pace.lacks(Lack::Room, done);
                if !pace.may_wait_for_room() {
                    return Err(e);
                }
                self.make_room()
            }
            other => other.map(|_| ()),
        }
    }

    /// Trims what is too long to wait: behind everything that waits, into the log.
    fn trim_behind(&self, block: u64, blocks: u32, terms: Terms<'_>) -> Result<Option<Seq>> {
        let pace = terms.pace;
        // Accepted writes have their reserve: no room is made for them by a caller that must not
        // wait, nor with blocks locked.
        let room = || if pace.may_wait_for_room() { self.make_room() } else { Ok(()) };
        self.destage_all_with(&room).inspect_err(|e| lacks_room(pace, e))?;
        // Not while a part of it is being merged elsewhere: the merge would bring it back.
        let end = block + u64::from(blocks);
        let _locked = terms.merged.is_none().then(|| self.cache().lock_blocks(block, end));
        let _hold = self.hold_writes_now().inspect_err(|e| lacks_room(pace, e))?;
        let op = WriteOp::Zero {
            offset: block * BLOCK_BYTES,
            length_bytes: u64::from(blocks) * BLOCK_BYTES,
        };
        let written = self.write_logged(&[op], Terms { behind: true, ..terms })?;
        self.cache().forget_range(block, end);
        Ok(written)
    }

    /// Destages a run of about so many blocks from the head of the order, none after `upto`; says
    /// how many it were.
    pub(crate) fn destage_run(
        &self,
        blocks: usize,
        upto: Option<u64>,
        source: &dyn SegmentSource,
    ) -> Result<usize> {
        self.destage_with(self.cache().destaging.lock(), (blocks, upto), true, source)
    }

    /// The same with the right to destage. `Busy` when it would have to wait and may not; then what
    /// is not in the log stays where it is.
    fn destage_with(
        &self,
        mut run: RankedGuard<'_, Run>,
        (blocks, upto): (usize, Option<u64>),
        may_wait: bool,
        source: &dyn SegmentSource,
    ) -> Result<usize> {
        if !self.cache().begin_run(&mut run, blocks.min(RUN_BLOCKS), upto) {
            return Ok(0);
        }
        let outcome =
            SCRATCH.with_borrow_mut(|scratch| self.destage_groups(&run, may_wait, source, scratch));
        self.cache().end_run();
        match outcome {
            Err(_) if self.is_gone() => {
                self.cache().discard();
                Ok(0)
            }
            outcome => outcome.map(|()| run.len()),
        }
    }

    fn destage_groups(
        &self,
        run: &Run,
        may_wait: bool,
        source: &dyn SegmentSource,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ops = run.ops();
        let groups: Vec<TimedOps<'_>> = run
            .groups
            .iter()
            .map(|(time, range)| TimedOps { time: *time, ops: &ops[range.clone()] })
            .collect();
        let deferred = self.choose_deferred(run);
        let waits = self.waiting_places(run, &deferred);
        let mut pens = self.take_pens(&ops, waits.as_ref(), may_wait)?;
        let mut done = 0;
        while done < groups.len() {
            let rest = &groups[done..];
            let may = || !self.is_gone() && self.are_right(&pens);
            let timeline = || may().then(|| self.present().timeline.id);
            let header = &mut scratch.header;
            let appended = match self.log().append_run(timeline, rest, may_wait, source, header) {
                Err(e) if e.kind == history::ErrorKind::Moved && !self.are_right(&pens) => {
                    pens = self.take_pens(&ops, waits.as_ref(), may_wait)?;
                    continue;
                }
                other => other?,
            };
            let taken = done..done + appended.batches.len();
            let seq = self.enter_run_in_map(&groups[taken.clone()], appended, &mut scratch.entries);
            done = taken.end;
            self.cache().end_groups(run, taken, seq);
        }
        if let Some(pen) = pens.now {
            self.write_run_in_place(&pen, &ops, waits.as_ref())?;
            pen.let_go();
        }
        if let Some(later) = pens.later {
            later.give_up();
        }
        if self.architecture() == Architecture::Hybrid {
            self.note_deferred(data_blocks(&ops), &deferred);
        }
        Ok(())
    }

    /// Blocks that are not put in place with a run: the log answers until they are. With
    /// `split-stream` a place waits for the newest version of its block, with `hybrid` also for the
    /// end of its window.
    fn waiting_places(&self, run: &Run, deferred: &FastSet<u64>) -> Option<FastSet<u64>> {
        let has_newest_only =
            matches!(self.architecture(), Architecture::SplitStream | Architecture::Hybrid);
        let mut waits = has_newest_only.then(|| self.cache().superseded(run))?;
        waits.extend(deferred);
        Some(waits)
    }

    fn take_pens(
        &self,
        ops: &[BlockOp<'_>],
        waits: Option<&FastSet<u64>>,
        may_wait: bool,
    ) -> Result<Pens> {
        let is_waiting = |block: &u64| waits.is_some_and(|waits| waits.contains(block));
        let (later, now) = data_blocks(ops).partition(is_waiting);
        let later = self.take_pen_for_blocks(later, may_wait)?;
        Ok(Pens { now: self.take_pen_for_blocks(now, may_wait)?, later })
    }

    fn are_right(&self, pens: &Pens) -> bool {
        self.is_pen_right(pens.now.as_ref()) && self.is_pen_right(pens.later.as_ref())
    }

    /// Destages everything that was accepted before this call. Writes without room elsewhere go
    /// into the reserve. The caller holds no lock.
    ///
    /// # Errors
    /// `Full` when that is full too; `Refused` or `Io`: what was not destaged stays.
    pub(crate) fn destage_all(&self) -> Result<()> {
        self.destage_all_while(&|| true)
    }

    /// The same, but room is made for it only as long as `goes_on`.
    ///
    /// # Errors
    /// Those of [`Writer::destage_all`].
    pub(crate) fn destage_all_while(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.destage_all_with(&|| self.core.host()?.make_room(goes_on))
    }

    /// The same with a way to make room, which is tried once.
    fn destage_all_with(&self, make_room: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(upto) = self.cache().end_generation() else { return Ok(()) };
        let mut tried = false;
        while self.cache().has_waiting(upto) {
            match self.destage_run(RUN_BLOCKS, Some(upto), &*self.core) {
                Err(e) if e.kind == ErrorKind::Full && !tried => {
                    tried = true;
                    match make_room() {
                        Err(e) if e.kind != ErrorKind::Full => return Err(e),
                        _ => {}
                    }
                }
                Err(e) if e.kind == ErrorKind::Full => {
                    self.destage_into_reserve(Some(upto))?;
                }
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }

    fn destage_into_reserve(&self, upto: Option<u64>) -> Result<usize> {
        self.destage_run(RUN_BLOCKS, upto, &FromReserve(&self.core, &self.cache().short))
    }

    /// Destages everything and holds writes back, also those that a cache will take which is
    /// switched on meanwhile. The caller holds neither `work` nor `pins`.
    ///
    /// # Errors
    /// Those of [`Writer::destage_all`].
    pub(crate) fn hold_writes(&self) -> Result<Hold<'_>> {
        self.destage_all()?;
        self.hold_writes_now()
    }

    /// The same for those who hold `pins`, and have most of it destaged already.
    pub(crate) fn hold_writes_now(&self) -> Result<Hold<'_>> {
        self.cache().hold();
        let hold = Hold { writer: self };
        while self.cache().has_waiting(u64::MAX) {
            self.destage_into_reserve(None)?;
        }
        assert!(self.cache().first_waiting().is_none(), "nothing waits while writes are held");
        Ok(hold)
    }

    /// Destages in the background, within a budget; true when there is more. The caller may hold
    /// `work`.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn destage_behind(&self, budget_bytes: u64) -> Result<bool> {
        if !self.cache().is_on() {
            return Ok(false);
        }
        let idle_since = self.cache().offered_ns.load(Ordering::Relaxed).saturating_add(IDLE_NS);
        let is_idle = self.core.machine.clock.monotonic_ns() > idle_since;
        let keep = if is_idle { 0 } else { KEPT_SIXTEENTHS };
        let mut spent = 0;
        while spent < budget_bytes.max(1) {
            let excess = self.cache().excess(keep);
            if excess == 0 {
                return Ok(false);
            }
            match self.destage_run(excess, None, &*self.core) {
                Ok(0) => return Ok(false),
                Ok(blocks) => spent += blocks as u64 * BLOCK_BYTES,
                // The next writer or flush makes room.
                Err(e) if e.kind == ErrorKind::Full => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// A write stopped before anything of it was done, perhaps for lack of room.
fn lacks_room(pace: &Pace, error: &Error) {
    if error.kind == ErrorKind::Full {
        pace.lacks(Lack::Room, &[]);
    }
}

/// A write that was told not to wait for others.
fn would_wait(pace: &Pace, done: &[BlockOp<'_>]) -> Error {
    pace.lacks(Lack::Turn, done);
    Error::busy("the cache holds writes back")
}
