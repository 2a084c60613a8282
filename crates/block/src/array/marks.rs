//! The marks of regions: which may be in flight, and so would have to be settled after a crash.
//!
//! Invariants
//! 1. Before a byte is written into a region, the region is marked as open on every member that is
//!    not out; while a member is not in, as stale too.
//! 2. A mark is taken back only of a region in which nobody writes, after a flush that began after
//!    the last write there ended.
//!
//! Where nothing has copies nothing is marked: there is nothing to settle. Beside a part that has,
//! all is. Writers share the gate all the same: whoever attaches a copy waits for them.
//!
//! Deliberately unaware of who brings members up to date, and of members that come and go.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Rank, RankedGuard, RankedMutex, RankedReadGuard, RankedRwLock, RankedWriteGuard};
use format::label::{Label, MemberStanding};

use self::loose::Loose;
use super::candidate::{ArrayError, refused};
use super::regions::{self, Inside, Regions};
use super::shared::{Shared, members_of};
use super::top::Top;
use crate::layers::Keeper;
use crate::stack::Stack;
use crate::{BlockDevice, Result};

mod loose;
mod loosening;

/// Bytes whose parity is computed in one go when their regions are closed.
const TIDY_BYTES: u64 = 256 << 20;
/// Marks come off early where so much more is marked than was left the last time: the next opening
/// reads all of it. A few large regions are not much.
const MARKED_BYTES_MAX: u64 = 128 << 20;
const MARKED_REGIONS_MAX: u64 = 16;

/// A stack, and which of its regions are marked.
pub struct Marks {
    pub(super) shared: Arc<Shared>,
    top: Top,
    /// Whether something can be settled or brought up to date at all: in one part is enough.
    has_copies: AtomicBool,
    /// What a parity needs to know of regions.
    loose: Loose,
    /// Whether there is one.
    has_parity: AtomicBool,
    /// Writers share it; a change of the regions, or of where they are, has it alone.
    gate: RankedRwLock<()>,
    /// Regions that were in flight when the array was used last.
    unsettled: RankedMutex<Vec<usize>>,
    /// Ranges that the layers noticed and nobody was told of yet: begin and end.
    noticed: RankedMutex<BTreeMap<u64, u64>>,
    /// What was marked when marks came off last.
    left_bytes: AtomicU64,
    /// The right to settle parity and take marks off: who does knows of what is being settled.
    tidying: RankedMutex<()>,
}

/// Somebody who writes, while no growth changes what regions there are, nor who has them.
pub(super) struct Writing<'a> {
    /// None where nothing is marked.
    inside: Option<Inside<'a>>,
    _gate: RankedReadGuard<'a, ()>,
}

impl Marks {
    /// Those of a stack that was opened: what was in flight is to be settled.
    pub(super) fn new(shared: Arc<Shared>, top: Arc<dyn BlockDevice>, stack: &Stack) -> Marks {
        let mut open = Vec::new();
        if stack.has_copies() {
            open = shared.book.lock().open_regions();
            shared.is_unsettled.store(!open.is_empty(), Ordering::SeqCst);
        }
        Marks {
            shared,
            top: Top::new(top),
            has_copies: AtomicBool::new(stack.has_copies()),
            loose: Loose::new(),
            has_parity: AtomicBool::new(stack.has_parity()),
            gate: RankedRwLock::new(Rank::ArrayWriters, ()),
            unsettled: RankedMutex::new(Rank::Leaf, open),
            noticed: RankedMutex::default(),
            left_bytes: AtomicU64::new(0),
            tidying: RankedMutex::new(Rank::ArrayTidying, ()),
        }
    }

    /// The stack.
    pub(super) fn top(&self) -> &Top {
        &self.top
    }

    /// Keeps tidying out.
    pub(super) fn hold_tidying(&self) -> RankedGuard<'_, ()> {
        self.tidying.lock()
    }

    /// Keeps writers out.
    pub(super) fn hold_writers(&self) -> RankedWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Puts a layer over what is there; `stack` says what the whole is then. Writers are kept out:
    /// they see the layer and whether writes are marked together.
    pub(super) fn put_over(&self, top: Arc<dyn BlockDevice>, stack: &Stack) {
        self.has_copies.store(stack.has_copies(), Ordering::SeqCst);
        self.has_parity.store(stack.has_parity(), Ordering::SeqCst);
        self.top.put_over(top);
    }

    pub(super) fn bytes_of(&self, region: usize, region_bytes: u64) -> Range<u64> {
        let start = region as u64 * region_bytes;
        start..(start + region_bytes).min(self.top.len_bytes())
    }

    pub(super) fn enter(&self, offset: u64, length_bytes: u64) -> Result<Option<Writing<'_>>> {
        let is_within = offset.checked_add(length_bytes).is_some_and(|e| e <= self.top.len_bytes());
        if !is_within {
            return Ok(None);
        }
        let gate = self.gate.read();
        if !self.has_copies() {
            return Ok(Some(Writing { inside: None, _gate: gate }));
        }
        self.loosen(offset, length_bytes)?;
        let inside = Some(self.shared.enter(offset, length_bytes)?);
        Ok(Some(Writing { inside, _gate: gate }))
    }

    /// Goes into the regions of a range that is written.
    pub(super) fn enter_to_write(
        &self,
        offset: u64,
        length_bytes: u64,
    ) -> Result<Option<Writing<'_>>> {
        let writing = self.enter(offset, length_bytes)?;
        if writing.as_ref().is_some_and(|writing| writing.inside.is_some()) {
            self.shared.regions.count_written(offset, length_bytes);
        }
        Ok(writing)
    }

    pub(super) fn has_copies(&self) -> bool {
        self.has_copies.load(Ordering::SeqCst)
    }

    /// What a parity needs to know, if there is one.
    fn parity(&self) -> Option<&Loose> {
        self.has_parity.load(Ordering::SeqCst).then_some(&self.loose)
    }

    /// Whether the regions of a range can be written to without a wait.
    pub(super) fn are_ready(&self, offset: u64, length_bytes: u64) -> bool {
        // A growth is waited for as well.
        let Some(_gate) = self.gate.try_read() else { return false };
        let regions = &self.shared.regions;
        !self.has_copies() || regions.are_ready(regions.of(offset, length_bytes))
    }

    /// Goes into the regions of a range of which nothing is in use any more.
    pub(super) fn enter_to_discard(
        &self,
        offset: u64,
        length_bytes: u64,
    ) -> Result<Option<Writing<'_>>> {
        let writing = self.enter(offset, length_bytes)?;
        if writing.as_ref().is_some_and(|writing| writing.inside.is_some()) {
            self.note_loose(self.shared.regions.of(offset, length_bytes));
            let mut book = self.shared.book.lock();
            for region in self.shared.regions.within(offset, length_bytes) {
                // Whoever writes there next marks it again, and is another.
                self.shared.regions.clear_ready(region);
                self.shared.regions.note_closed(region, false);
                if self.shared.regions.is_alone(region) {
                    book.forget_use(region);
                }
            }
            // As good as written: what comes to rest need not be looked at.
            self.shared.regions.count_written(offset, length_bytes);
        }
        Ok(writing)
    }

    /// Takes the marks off regions that have been quiet since the last call; what they hold is
    /// flushed before. To be called every some seconds.
    ///
    /// # Errors
    /// Those of the device.
    pub fn tidy(&self) -> Result<()> {
        self.shared.regions.next_round();
        self.tidy_where(|regions, region| !regions.was_touched(region), false)
    }

    /// Where so much is marked that an opening would take long: takes the marks off regions that
    /// were written as far as half, and are quiet while they are flushed. Others are kept, and
    /// those that came back after this: a writer would wait for a mark.
    ///
    /// # Errors
    /// Those of the device.
    pub fn tidy_early(&self) -> Result<()> {
        self.tidy_where(Regions::may_close_early, true)
    }

    /// Whether so much more is marked than marks were left on that they are to come off early.
    #[must_use]
    pub fn has_many_marks(&self) -> bool {
        let (marked_bytes, region_bytes) = self.marked();
        let least = MARKED_BYTES_MAX.max(MARKED_REGIONS_MAX * region_bytes);
        marked_bytes >= self.left_bytes.load(Ordering::Relaxed) + least
    }

    /// Takes the marks off regions that seem quiet, and are while they are flushed.
    fn tidy_where(&self, is_quiet: impl Fn(&Regions, usize) -> bool, early: bool) -> Result<()> {
        let tidied = self.close_where(is_quiet, early);
        self.left_bytes.store(self.marked().0, Ordering::Relaxed);
        tidied
    }

    fn close_where(&self, is_quiet: impl Fn(&Regions, usize) -> bool, early: bool) -> Result<()> {
        if !self.has_copies() || self.shared.is_unsettled() {
            return Ok(());
        }
        let _tidying = self.tidying.lock();
        let quiet: Vec<usize> = {
            let book = self.shared.book.lock();
            let open = (0..book.regions.count as usize)
                .filter(|&region| regions::is_set(&book.regions.open, region));
            open.filter(|&region| is_quiet(&self.shared.regions, region)).collect()
        };
        let quiet = self.tighten(quiet, TIDY_BYTES);
        if quiet.is_empty() {
            return Ok(());
        }
        self.flush_places()?;
        self.close_regions(&quiet, early)
    }

    /// Bytes of regions with a mark, of which so much is looked at after a crash; and those of one.
    #[must_use]
    pub fn marked(&self) -> (u64, u64) {
        let book = self.shared.book.lock();
        let region_bytes = book.label.region_bytes;
        (u64::from(regions::count(&book.regions.open)) * region_bytes, region_bytes)
    }

    /// Makes everything durable in its place.
    fn flush_places(&self) -> Result<()> {
        self.top.flush()?;
        // A parity's flush ends with writing what waited to its places.
        if self.parity().is_some() { self.top.flush() } else { Ok(()) }
    }

    fn close_regions(&self, quiet: &[usize], early: bool) -> Result<()> {
        let shared = &self.shared;
        // The flush placed cells, and may have met rows that have to be looked at.
        self.ask_noticed();
        let mut book = shared.book.lock();
        let mut closed = 0;
        for &region in quiet {
            let is_noticed = self.has_noticed(region, book.label.region_bytes);
            if is_noticed || shared.regions.is_touched(region) {
                continue;
            }
            shared.regions.clear_ready(region);
            if shared.regions.is_touched(region) {
                // Whoever came meanwhile saw the mark, or waits for the book to set it.
                if book.is_marked(region) {
                    shared.regions.set_ready(region);
                }
                continue;
            }
            book.close(region);
            // Where nothing is, whoever comes next is another.
            let is_early = early && regions::is_set(&book.regions.used, region);
            shared.regions.note_closed(region, is_early);
            closed += 1;
        }
        if closed > 0 { shared.write_regions(&mut book) } else { Ok(()) }
    }

    /// Whether the last tidying left something for the next.
    pub(super) fn is_tidying_behind(&self) -> bool {
        self.parity().is_some_and(Loose::is_behind)
    }

    /// Takes what the layers noticed.
    fn ask_noticed(&self) {
        let noticed = self.top.noticed().into_iter().map(|range| (range.start, range.end));
        self.noticed.lock().extend(noticed);
    }

    /// Whether something was noticed in a region that nobody was told yet.
    fn has_noticed(&self, region: usize, region_bytes: u64) -> bool {
        let bytes = self.bytes_of(region, region_bytes);
        self.noticed.lock().range(..bytes.end).any(|(_, end)| *end > bytes.start)
    }

    /// The ranges that the layers noticed since this was asked last.
    pub(super) fn take_noticed(&self) -> Vec<Range<u64>> {
        self.ask_noticed();
        let noticed = std::mem::take(&mut *self.noticed.lock());
        noticed.into_iter().map(|(start, end)| start..end).collect()
    }

    /// What was in flight when the array was used last: copies may differ there. One side is read
    /// until [`Marks::end_settling`].
    #[must_use]
    pub fn unsettled(&self) -> Vec<Range<u64>> {
        if !self.shared.is_unsettled.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let region_bytes = self.shared.book.lock().label.region_bytes;
        let range = |&region: &usize| {
            let start = region as u64 * region_bytes;
            start..(start + region_bytes).min(self.top.len_bytes())
        };
        self.unsettled.lock().iter().map(range).collect()
    }

    /// Says that what was in flight was looked at: wherever copies differ still, whoever reads
    /// knows which is right, or nobody does. What could not be read stays to be settled. Regions
    /// stay open until somebody tidies: nobody waits here until all is durable.
    pub fn end_settling(&self, unread: &[Range<u64>]) {
        let _tidying = self.tidying.lock();
        let region_bytes = self.shared.book.lock().label.region_bytes;
        let stays = |region: &usize| {
            let start = *region as u64 * region_bytes;
            unread.iter().any(|range| range.contains(&start))
        };
        self.unsettled.lock().retain(stays);
        self.shared.is_unsettled.store(false, Ordering::SeqCst);
    }

    /// Fails unless all members are in and nothing is left of a crash.
    pub(super) fn check_settled(&self, label: &Label) -> std::result::Result<(), ArrayError> {
        if Keeper::is_unsettled(&*self.shared) || !self.unsettled.lock().is_empty() {
            return Err(refused("what was in flight at a crash is not settled yet", "try again"));
        }
        let members = members_of(label).iter().zip(self.shared.members());
        let mut lacking =
            members.filter(|(row, at)| row.standing != MemberStanding::In || !at.is_there());
        match lacking.next() {
            None => Ok(()),
            Some((_, member)) => {
                let what = format!("{} is not there or not up to date", member.path());
                Err(refused(what, "bring it back, or replace it, before the pool grows"))
            }
        }
    }
}
