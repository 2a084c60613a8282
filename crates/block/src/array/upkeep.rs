//! Bringing members up to date: those that came back, and those that took another's place.
//!
//! Region by region, a step at a time. Every so often what they got is made durable, and then that
//! it need not be done again. A device takes as long for that as for the writing, so whoever has
//! the time goes on meanwhile.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Rank, RankedGuard, RankedMutex};
use format::label::MemberStanding;

use super::book::{Book, Piece};
use super::marks::Marks;
use super::shared::Shared;
use crate::layers::Keeper;
use crate::together::{ask_all, make_steps};
use crate::{BlockDevice, Result, Resync, Standing, Together};

mod succession;

/// Bytes brought up to date in one step.
const STEP_BYTES: u64 = 1 << 20;
/// Steps made beside each other by whoever goes on: while one waits for a device another copies.
const LANES: usize = 4;
/// Bytes brought up to date between two flushes, at least a region.
const FLUSHED_BYTES: u64 = 64 << 20;
/// Steps that are made without a look at whether a flush is due.
const STEPS_MAX: usize = (FLUSHED_BYTES / STEP_BYTES) as usize;

/// An array whose members are brought up to date.
pub struct Upkeep {
    shared: Arc<Shared>,
    marks: Marks,
    /// The right to bring up to date.
    work: RankedMutex<()>,
    /// How it is flushed and gone on with at the same time.
    together: Arc<dyn Together>,
    /// Bytes that were brought up to date.
    resynced: AtomicU64,
}

impl Deref for Upkeep {
    type Target = Marks;

    fn deref(&self) -> &Marks {
        &self.marks
    }
}

impl Upkeep {
    pub(super) fn new(marks: Marks, shared: Arc<Shared>, together: Arc<dyn Together>) -> Upkeep {
        let (work, resynced) = (RankedMutex::new(Rank::ArrayWork, ()), AtomicU64::new(0));
        Upkeep { shared, marks, work, together, resynced }
    }

    /// Bytes of the stack that were brought up to date on members since it was opened.
    #[must_use]
    pub fn resynced_bytes(&self) -> u64 {
        self.resynced.load(Ordering::Relaxed)
    }

    /// Has nobody bring members up to date meanwhile.
    pub(super) fn hold_work(&self) -> RankedGuard<'_, ()> {
        self.work.lock()
    }

    /// How several devices, or logs, are asked at a time.
    pub fn together(&self) -> &Arc<dyn Together> {
        &self.together
    }

    /// Computes the parity of a range anew where [`BlockDevice::disagreements`] found it to differ.
    /// Only after everything in the ranges that it told of was looked at, and what was wrong is
    /// right: parity of what rotted could heal nothing any more. It is computed of what is there by
    /// then.
    ///
    /// # Errors
    /// Those of the device.
    pub fn compute_again(&self, range: &Range<u64>) -> Result<()> {
        let _work = self.work.lock();
        self.top().resync(range.start, range.end - range.start, Resync::Computed)
    }

    /// Brings some of what members missed up to date; false when there is nothing to do.
    ///
    /// # Errors
    /// Those of the device; what could not be read stays to be done.
    pub fn step(&self) -> Result<bool> {
        self.step_while(&|| false)
    }

    /// The same, and goes on for as long as it may, also while what members got is flushed.
    ///
    /// # Errors
    /// Those of the device; what could not be read stays to be done.
    pub fn step_while(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        let _work = self.work.lock();
        loop {
            if !self.bring_some(goes_on)? {
                return Ok(self.end_bringing()? || self.copy_some(goes_on)?);
            }
            if self.is_flush_due() {
                self.flush_brought(goes_on)?;
            }
            if !goes_on() {
                return Ok(true);
            }
        }
    }

    /// Makes a step, and more of them beside each other for as long as it goes on; false when
    /// nothing is behind.
    fn bring_some(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        let shared = &self.shared;
        let (lanes, steps) = if goes_on() { (LANES, STEPS_MAX) } else { (1, 1) };
        let pieces = shared.book.lock().next_behind(steps, STEP_BYTES, self.top().len_bytes());
        if pieces.is_empty() {
            return Ok(false);
        }
        let bring = |number: usize| match pieces[number] {
            Piece { length_bytes: 0, .. } => Ok(()),
            Piece { start, length_bytes, which, .. } => {
                self.top().resync(start, length_bytes, which)
            }
        };
        let made = make_steps(&*self.together, lanes, pieces.len(), goes_on, bring)?;
        let done = &pieces[..made];
        // Of what is not in use next to nothing is written.
        let used = done.iter().filter(|piece| piece.which == Resync::Stale);
        self.resynced.fetch_add(used.map(|piece| piece.length_bytes).sum(), Ordering::Relaxed);
        shared.behind.store(shared.book.lock().came_up(done), Ordering::Relaxed);
        Ok(true)
    }

    fn is_flush_due(&self) -> bool {
        let book = self.shared.book.lock();
        book.brought() as u64 * book.label.region_bytes >= FLUSHED_BYTES
    }

    /// Makes what members got durable, and says so: that need not be done again after a crash. What
    /// they get meanwhile is for the next time.
    fn flush_brought(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        let shared = &self.shared;
        let flushed = shared.book.lock().take_brought();
        let is_over = AtomicBool::new(false);
        let flush = || {
            let outcome = self.flush_stale().and_then(|()| self.top().flush());
            is_over.store(true, Ordering::SeqCst);
            outcome
        };
        let bring = || {
            let may_go_on = || !is_over.load(Ordering::SeqCst) && goes_on();
            if may_go_on() { self.bring_some(&may_go_on).map(drop) } else { Ok(()) }
        };
        let both = |number| if number == 0 { flush() } else { bring() };
        let count = if goes_on() { 2 } else { 1 };
        let mut outcomes = ask_all(&*self.together, count, both).into_iter();
        let outcome = outcomes.next().expect("it was flushed");
        {
            // Nobody is in the midst of a region now.
            let mut book = shared.book.lock();
            shared.behind.store(book.flushed(flushed, outcome.is_ok()), Ordering::Relaxed);
            outcome?;
            shared.write_regions(&mut book)?;
        }
        outcomes.try_for_each(|brought| brought)
    }

    /// Makes durable what stale members have: clients may have to wait for the flush of all, and it
    /// is mostly theirs. One that fails is put out, as by the flush of all.
    fn flush_stale(&self) -> Result<()> {
        let shared = &self.shared;
        let stale = shared.book.lock().stale_members();
        stale.into_iter().try_for_each(|member| match shared.member(member).flush() {
            Err(error) => shared.put_out(&[member], &error),
            Ok(()) => Ok(()),
        })
    }

    /// Nothing is behind: who was stale is in, if there is somebody.
    fn end_bringing(&self) -> Result<bool> {
        while self.shared.book.lock().brought() > 0 {
            self.flush_brought(&|| false)?;
        }
        if self.has_parity() && !self.shared.book.lock().stale_members().is_empty() {
            // Before it counts, the records of a journal on it must be of now.
            self.top().flush()?;
        }
        self.take_in(&mut self.shared.book.lock())
    }

    /// Takes stale members in when nothing is left to do for them.
    fn take_in(&self, book: &mut Book) -> Result<bool> {
        let shared = &self.shared;
        let stale = book.stale_members();
        if stale.is_empty() {
            return Ok(false);
        }
        book.stand(&stale, MemberStanding::In);
        if let Err(error) = shared.write_labels(book) {
            book.stand(&stale, MemberStanding::Stale);
            return Err(error);
        }
        for &member in &stale {
            // First this: whoever sees that it is in finds it in the audit log as well.
            shared.tell(member, "member-in", "everything it missed was brought up to date".into());
            shared.set_standing(member, Standing::In);
        }
        shared.behind.store(0, Ordering::Relaxed);
        if !book.has(MemberStanding::Out) {
            book.forget_stale();
            shared.write_regions(book)?;
        }
        Ok(true)
    }
}
