//! A stack over members, with what has to outlive the program: who belongs to it, who failed, which
//! regions may be in flight. The format is `docs/format/label.md`.
//!
//! Invariants
//! 1. Before a byte is written into a region, the region is marked as open on every member that is
//!    not out; while a member is not in, as stale too.
//! 2. A member is out on the others before a request is answered that it did not take part in.
//! 3. A mark is taken back only of a region in which nobody writes, after a flush that began after
//!    the last write there ended.
//!
//! Where nothing has copies nothing is marked: there is nothing to settle. Beside a part that has,
//! all is. Writers share the gate all the same: whoever attaches a copy waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use env::{RankedMutex, RankedReadGuard, RankedRwLock};
use format::label::{self, Label, MemberStanding};

use crate::heal::{Ledger, Outcome, Right};
use crate::layers::{Keeper, MirrorDevice, Standing};
use crate::stack::Stack;
use crate::{BlockDevice, DeviceError, Result, Resync, Together};

mod add;
mod attach;
mod book;
mod bring;
mod build;
mod found;
mod grow;
mod kept;
mod longer;
mod loose;
mod member;
mod opening;
mod regions;
mod renewed;
mod replace;
mod spares;
mod succession;
mod successor;
mod top;

use book::Book;
pub use build::Materials;
pub use found::{has_label, is_superseded, named_by};
pub use grow::{Added, strangers};
use loose::Loose;
use member::MemberDevice;
use opening::share;
pub use opening::{ArrayError, Candidate, Identities, Opening};
use regions::{Inside, Regions};
use renewed::Renewed;
use spares::Spare;
pub use spares::SpareStatus;
use top::Top;

/// Bytes whose parity is computed in one go when their regions are closed.
const TIDY_BYTES: u64 = 256 << 20;
/// Events kept for whoever asks; older ones are dropped.
const EVENTS_MAX: usize = 1000;

/// Something that happened to a member; for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The member's path.
    pub member: String,
    /// What: `member-out`, `member-back`, `member-in`, `member-replaced`, `member-attached`,
    /// `member-ignored`, `read-healed`, `replace-begun`, `replace-failed`, `spare-added`,
    /// `spare-removed`.
    pub what: &'static str,
    /// Why, or how.
    pub detail: String,
}

/// A member, as it stands.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Where it was found.
    pub path: String,
    /// Its identity.
    pub id: u128,
    /// How it stands.
    pub standing: Standing,
    /// Whether there is a device.
    pub is_there: bool,
    /// Bytes that the stack has of it.
    pub data_bytes: u64,
    /// Requests that failed on it since it was opened.
    pub errors: u64,
    /// Bytes read from it and written to it.
    pub counters: (u64, u64),
}

/// A stack of layers over members with labels.
pub struct Array {
    shared: Arc<Shared>,
    top: Top,
    /// The uppermost layer, if that is a mirror of single members.
    mirror: RankedMutex<Option<Arc<MirrorDevice>>>,
    /// Whether something can be settled or brought up to date at all: in one part is enough.
    has_copies: AtomicBool,
    /// What a parity needs to know of regions.
    loose: Loose,
    /// Whether there is one.
    has_parity: AtomicBool,
    /// Writers share it; a change of the regions, or of where they are, has it alone.
    gate: RankedRwLock<()>,
    /// Whether nobody is to use it any more.
    is_closed: AtomicBool,
    /// Regions that were in flight when the array was used last.
    unsettled: RankedMutex<Vec<usize>>,
    /// Ranges that the layers noticed and nobody was told of yet: begin and end.
    noticed: RankedMutex<BTreeMap<u64, u64>>,
    /// The right to bring up to date.
    work: RankedMutex<()>,
    /// How it is flushed and gone on with at the same time.
    together: Arc<dyn Together>,
    /// The right to make new members ready.
    growing: RankedMutex<()>,
    /// The right to settle parity and take marks off: who does knows of what is being settled.
    tidying: RankedMutex<()>,
    /// Bytes that were brought up to date.
    resynced: AtomicU64,
}

/// Somebody who writes, while no growth changes what regions there are, nor who has them.
struct Writing<'a> {
    /// None where nothing is marked.
    inside: Option<Inside<'a>>,
    _gate: RankedReadGuard<'a, ()>,
}

/// What layers, members and the array share.
struct Shared {
    /// They change when the array grows: with the book, and more come behind those that are there.
    stack: RankedRwLock<Arc<Stack>>,
    members: RankedRwLock<Vec<Arc<MemberDevice>>>,
    /// Those of the rows after the members'.
    spares: RankedMutex<Vec<Spare>>,
    standings: Vec<AtomicU8>,
    /// Layers that are made anew with their members.
    renewed: RankedMutex<Vec<Arc<Renewed>>>,
    /// How often each was put out.
    absences: Vec<AtomicU64>,
    book: RankedMutex<Book>,
    /// Why nobody knows which labels count, if so: none is written any more.
    torn: OnceLock<DeviceError>,
    /// Whether these are no members yet: a failure is its request's, and nobody is put out.
    is_making: AtomicBool,
    regions: Regions,
    is_unsettled: AtomicBool,
    ledger: Arc<Ledger>,
    events: RankedMutex<VecDeque<Event>>,
    /// Regions that have still to be brought up to date.
    behind: AtomicU64,
}

fn code(standing: Standing) -> u8 {
    match standing {
        Standing::In => 0,
        Standing::Stale => 1,
        Standing::Out => 2,
    }
}

fn of_label(standing: MemberStanding) -> Standing {
    match standing {
        MemberStanding::In => Standing::In,
        MemberStanding::Stale => Standing::Stale,
        MemberStanding::Out => Standing::Out,
        MemberStanding::Spare => unreachable!("a spare is no member"),
    }
}

/// Whether everything can be read of a stack with these members in.
fn is_readable(stack: &Stack, is_in: &dyn Fn(usize) -> bool) -> bool {
    match stack {
        Stack::Member(number) => is_in(number_of(number)),
        Stack::Stripe { below, .. } | Stack::Concat { below } => {
            below.iter().all(|s| is_readable(s, is_in))
        }
        Stack::Mirror { below } => below.iter().any(|s| is_readable(s, is_in)),
        Stack::Parity { failures, below, .. } => {
            below.iter().filter(|s| !is_readable(s, is_in)).count() <= *failures
        }
        Stack::Crypt { below, .. } | Stack::Delay { below, .. } => is_readable(below, is_in),
    }
}

fn number_of(member: &str) -> usize {
    member.parse().expect("a label's stack names members by number: checked when it was read")
}

impl Shared {
    fn stack(&self) -> Arc<Stack> {
        Arc::clone(&self.stack.read())
    }

    fn members(&self) -> Vec<Arc<MemberDevice>> {
        self.members.read().clone()
    }

    fn member(&self, number: usize) -> Arc<MemberDevice> {
        Arc::clone(&self.members.read()[number])
    }

    fn standing_of(&self, member: usize) -> Standing {
        match self.standings[member].load(Ordering::SeqCst) {
            0 => Standing::In,
            1 => Standing::Stale,
            _ => Standing::Out,
        }
    }

    fn set_standing(&self, member: usize, standing: Standing) {
        self.standings[member].store(code(standing), Ordering::SeqCst);
    }

    fn tell(&self, member: usize, what: &'static str, detail: String) {
        self.push_event(Event { member: self.member(member).path(), what, detail });
    }

    fn push_event(&self, event: Event) {
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Goes into the regions of a range and sees to it that they are marked.
    fn enter(&self, offset: u64, length_bytes: u64) -> Result<Inside<'_>> {
        let range = self.regions.of(offset, length_bytes);
        let inside = self.regions.enter(range.clone());
        if !range.clone().all(|region| self.regions.is_ready(region)) {
            self.mark(range)?;
        }
        Ok(inside)
    }

    /// Marks regions on all members.
    fn mark(&self, range: Range<usize>) -> Result<()> {
        let mut book = self.book.lock();
        loop {
            let before = book.label.generation;
            if book.open(range.clone()) {
                self.write_regions(&mut book)?;
            }
            // Where a member was put out by that, what is stale changed.
            if book.label.generation == before {
                break;
            }
        }
        range.for_each(|region| self.regions.set_ready(region));
        Ok(())
    }

    /// Writes the maps to every member that is not out; one that fails is put out.
    fn write_regions(&self, book: &mut Book) -> Result<()> {
        book.regions.sequence += 1;
        let (address, bytes) = book.regions.encode();
        self.write_members(book, |_| vec![(address, bytes.clone())])?;
        book.is_changed = false;
        Ok(())
    }

    fn write_labels(&self, book: &mut Book) -> Result<()> {
        book.label.generation += 1;
        let label = book.label.clone();
        self.write_members(book, |number| {
            let own = Label { member_id: label.members[number].id, ..label.clone() };
            label::copies_of_generation(own.generation)
                .map(|copy| (label::COPY_OFFSETS[copy], own.encode(copy)))
                .to_vec()
        })
    }

    fn write_members(
        &self,
        book: &mut Book,
        bytes_of: impl Fn(usize) -> Vec<(u64, Vec<u8>)>,
    ) -> Result<()> {
        if let Some(error) = self.torn.get() {
            return Err(error.again());
        }
        let mut written = 0;
        let mut failure = None;
        for (number, member) in self.members().into_iter().enumerate() {
            if book.label.members[number].standing == MemberStanding::Out {
                continue;
            }
            let outcome = bytes_of(number)
                .into_iter()
                .try_for_each(|(at, bytes)| member.write_area(at, &bytes));
            match outcome {
                Ok(()) => written += 1,
                Err(error) => failure = Some((number, error)),
            }
        }
        match failure {
            None => Ok(()),
            Some((_, error)) if written == 0 => Err(error),
            Some((number, error)) => self.put_out_with(book, &[number], &error),
        }
    }

    /// Puts members out: on the others first, then here.
    fn put_out_with(
        &self,
        book: &mut Book,
        members: &[usize],
        failure: &DeviceError,
    ) -> Result<()> {
        let count = self.members.read().len();
        if self.is_making.load(Ordering::SeqCst) || members.iter().any(|&m| m >= count) {
            return Err(failure.again());
        }
        let fresh: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&m| book.label.members[m].standing != MemberStanding::Out)
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let stays =
            |m: usize| !fresh.contains(&m) && book.label.members[m].standing == MemberStanding::In;
        if !is_readable(&self.stack(), &stays) {
            return Err(failure.again());
        }
        // Whoever writes is in a region that is open, and so becomes stale with this; whoever comes
        // into another marks it as stale too.
        let stood: Vec<_> = fresh.iter().map(|&m| (m, book.label.members[m].clone())).collect();
        book.put_out(&fresh);
        let outcome = self.write_regions(book).and_then(|()| self.write_labels(book));
        if let Err(error) = outcome {
            stood.into_iter().for_each(|(m, member)| book.label.members[m] = member);
            return Err(error);
        }
        for &member in &fresh {
            self.set_standing(member, Standing::Out);
            // Who counts, then finds it in, and counts the same afterwards read the same device.
            self.absences[member].fetch_add(1, Ordering::SeqCst);
            // What was to take its place has not everything, and may take it like any spare.
            if let Some(successor) = self.member(member).successor().filter(|s| !s.is_turning()) {
                successor.end("the member is out".to_owned(), false);
            }
            self.tell(member, "member-out", failure.to_string());
        }
        Ok(())
    }
}

impl Keeper for Shared {
    fn standing(&self, members: &[usize]) -> Standing {
        let worst = members.iter().map(|&m| self.standings[m].load(Ordering::SeqCst)).max();
        match worst {
            None | Some(0) => Standing::In,
            Some(1) => Standing::Stale,
            Some(_) => Standing::Out,
        }
    }

    fn put_out(&self, members: &[usize], failure: &DeviceError) -> Result<()> {
        self.put_out_with(&mut self.book.lock(), members, failure)
    }

    fn note_failed_read(&self, members: &[usize], failure: &DeviceError) {
        let count = self.members.read().len();
        if let Some(&member) = members.first().filter(|&&member| member < count) {
            self.tell(member, "read-healed", failure.to_string());
        }
    }

    fn absences(&self, members: &[usize]) -> u64 {
        members.iter().map(|&m| self.absences[m].load(Ordering::SeqCst)).sum()
    }

    fn is_unsettled(&self) -> bool {
        self.is_unsettled.load(Ordering::SeqCst)
    }
}

impl Array {
    /// The stack with the members' paths.
    #[must_use]
    pub fn stack(&self) -> String {
        let members = self.shared.members();
        self.shared.stack().renamed(&mut |number| members[number_of(number)].path()).to_string()
    }

    /// What healing took and how it ended.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// The members by number.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        let status = |(number, member): (usize, &Arc<MemberDevice>)| MemberStatus {
            path: member.path(),
            id: member.id(),
            standing: self.shared.standing_of(number),
            is_there: member.is_there(),
            data_bytes: member.len_bytes(),
            errors: member.counters.errors.load(Ordering::Relaxed),
            counters: (
                member.counters.read_bytes.load(Ordering::Relaxed),
                member.counters.written_bytes.load(Ordering::Relaxed),
            ),
        };
        self.shared.members().iter().enumerate().map(status).collect()
    }

    /// Bytes of the stack that were brought up to date on members since it was opened.
    #[must_use]
    pub fn resynced_bytes(&self) -> u64 {
        self.resynced.load(Ordering::Relaxed)
    }

    /// Bytes that have still to be brought up to date on members that came back, and to be copied
    /// to devices that take the place of others.
    #[must_use]
    pub fn behind_bytes(&self) -> u64 {
        let behind = self.shared.behind.load(Ordering::Relaxed);
        behind * self.shared.book.lock().label.region_bytes + self.shared.left_to_copy()
    }

    /// What happened since this was asked last.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.shared.events.lock()).into()
    }

    /// Takes events back that could not be written down, before those that came meanwhile.
    pub fn put_back(&self, events: impl Iterator<Item = Event>) {
        let mut kept = self.shared.events.lock();
        let later = std::mem::take(&mut *kept);
        kept.extend(events.chain(later).take(EVENTS_MAX));
    }

    /// Takes the marks off regions that have been quiet since the last call; what they hold is
    /// flushed before. To be called every some seconds.
    ///
    /// # Errors
    /// Those of the device.
    pub fn tidy(&self) -> Result<()> {
        if !self.has_copies() || self.shared.is_unsettled() {
            return Ok(());
        }
        let _tidying = self.tidying.lock();
        let quiet: Vec<usize> = {
            let book = self.shared.book.lock();
            let open = (0..book.regions.count as usize)
                .filter(|&region| regions::is_set(&book.regions.open, region));
            open.filter(|&region| !self.shared.regions.was_touched(region)).collect()
        };
        let quiet = self.tighten(quiet, TIDY_BYTES);
        if quiet.is_empty() {
            return Ok(());
        }
        self.flush_places()?;
        self.close_regions(&quiet)
    }

    /// Makes everything durable in its place.
    fn flush_places(&self) -> Result<()> {
        self.top.flush()?;
        // A parity's flush ends with writing what waited to its places.
        if self.parity().is_some() { self.top.flush() } else { Ok(()) }
    }

    fn close_regions(&self, quiet: &[usize]) -> Result<()> {
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
            closed += 1;
        }
        if closed > 0 { shared.write_regions(&mut book) } else { Ok(()) }
    }

    /// Ends the use of the stack: everything is flushed and no region stays open. What is written
    /// after this, by whoever lets go of it last, is seen to when it is dropped.
    ///
    /// # Errors
    /// Those of the device: what is open is settled at the next opening.
    pub fn close(&self) -> Result<()> {
        if !self.has_copies() {
            return self.top.flush();
        }
        self.is_closed.store(true, Ordering::SeqCst);
        self.tidy()?;
        self.tidy()?;
        while self.parity().is_some_and(Loose::is_behind) {
            self.tidy()?;
        }
        Ok(())
    }

    fn enter(&self, offset: u64, length_bytes: u64) -> Result<Option<Writing<'_>>> {
        let is_within = offset.checked_add(length_bytes).is_some_and(|e| e <= self.len_bytes());
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

    fn has_copies(&self) -> bool {
        self.has_copies.load(Ordering::SeqCst)
    }

    /// What a parity needs to know, if there is one.
    fn parity(&self) -> Option<&Loose> {
        self.has_parity.load(Ordering::SeqCst).then_some(&self.loose)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.is_closed.load(Ordering::SeqCst) {
            // A region that stays open is looked at by the next opening.
            let _ = self.close();
        }
    }
}

impl BlockDevice for Array {
    fn len_bytes(&self) -> u64 {
        self.top.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.top.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.top.try_read_at(offset, buffer)
    }

    fn is_ready(&self, offset: u64, length_bytes: u64) -> bool {
        // A growth is waited for as well.
        let Some(_gate) = self.gate.try_read() else { return false };
        if !self.has_copies() {
            return true;
        }
        let regions = &self.shared.regions;
        regions.are_ready(regions.of(offset, length_bytes))
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        let _inside = self.enter(offset, length_bytes)?;
        self.top.write_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.top.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.top.allocate(offset, length_bytes)?;
        // Whoever reserves space is about to write there: the mark is made before it is waited for.
        self.enter(offset, length_bytes).map(drop)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let writing = self.enter(offset, length_bytes)?;
        if writing.as_ref().is_some_and(|writing| writing.inside.is_some()) {
            self.note_loose(self.shared.regions.of(offset, length_bytes));
            let mut book = self.shared.book.lock();
            for region in self.shared.regions.within(offset, length_bytes) {
                // Whoever writes there next marks it again.
                self.shared.regions.clear_ready(region);
                if self.shared.regions.is_alone(region) {
                    book.forget_use(region);
                }
            }
        }
        self.top.discard(offset, length_bytes)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        let _inside = self.enter(offset, length_bytes)?;
        self.top.write_durable(offset, slices)
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        self.top.copies(offset, length_bytes)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.top.read_copy(copy, offset, buffer)
    }

    fn ways(&self) -> usize {
        self.top.ways()
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.top.read_way(way, offset, buffer)
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.top.heal(offset, buffer, right)
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.top.resync(offset, length_bytes, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.top.disagreements(offset, length_bytes)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.ask_noticed();
        let noticed = std::mem::take(&mut *self.noticed.lock());
        noticed.into_iter().map(|(start, end)| start..end).collect()
    }

    fn describe(&self) -> String {
        self.stack()
    }
}
