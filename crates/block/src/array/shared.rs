//! What the layers, the members and the array share: the stack, who stands how, the book, and the
//! events that are to be told.
//!
//! Deliberately unaware of what is done with them.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use env::{RankedMutex, RankedRwLock};
use format::label::{self, Label, Member, MemberStanding};

use super::book::Book;
use super::candidate::Spare;
use super::member::MemberDevice;
use super::regions::{Inside, Regions};
use super::renewed::Renewed;
use crate::heal::Ledger;
use crate::layers::{Keeper, Standing};
use crate::stack::Stack;
use crate::{DeviceError, Result};

/// Events kept for whoever asks; older ones are dropped.
pub(super) const EVENTS_MAX: usize = 1000;

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

/// What layers, members and the array share.
pub(super) struct Shared {
    /// They change when the array grows: with the book, and more come behind those that are there.
    pub stack: RankedRwLock<Arc<Stack>>,
    pub members: RankedRwLock<Vec<Arc<MemberDevice>>>,
    /// Those of the rows after the members'.
    pub spares: RankedMutex<Vec<Spare>>,
    /// How each stands, by the [`Standing`]'s number.
    pub standings: Vec<AtomicU8>,
    /// Layers that are made anew with their members.
    pub renewed: RankedMutex<Vec<Arc<Renewed>>>,
    /// How often each was put out.
    pub absences: Vec<AtomicU64>,
    pub book: RankedMutex<Book>,
    /// Why nobody knows which labels count, if so: none is written any more.
    pub torn: OnceLock<DeviceError>,
    /// Whether these are no members yet: a failure is its request's, and nobody is put out.
    pub is_making: AtomicBool,
    pub regions: Regions,
    pub is_unsettled: AtomicBool,
    pub ledger: Arc<Ledger>,
    pub events: RankedMutex<VecDeque<Event>>,
    /// Regions that have still to be brought up to date.
    pub behind: AtomicU64,
}

/// Whether everything can be read of a stack with these members in.
pub(super) fn is_readable(stack: &Stack, is_in: &dyn Fn(usize) -> bool) -> bool {
    match stack {
        Stack::Member(number) => is_in(number_of(number)),
        Stack::Stripe { below, .. } | Stack::Concat { below } => {
            below.iter().all(|s| is_readable(s, is_in))
        }
        Stack::Mirror { below } => below.iter().any(|s| is_readable(s, is_in)),
        Stack::Parity { failures, below, .. } => {
            below.iter().filter(|s| !is_readable(s, is_in)).count() <= *failures
        }
        Stack::Crypt { below, .. } => is_readable(below, is_in),
    }
}

pub(super) fn number_of(member: &str) -> usize {
    member.parse().expect("a label's stack names members by number: checked when it was read")
}

/// The rows of a label that are no spares'.
pub(super) fn members_of(label: &Label) -> &[Member] {
    let count = label.members.partition_point(|m| m.standing != MemberStanding::Spare);
    &label.members[..count]
}

impl Shared {
    pub fn stack(&self) -> Arc<Stack> {
        Arc::clone(&self.stack.read())
    }

    pub fn members(&self) -> Vec<Arc<MemberDevice>> {
        self.members.read().clone()
    }

    pub fn member(&self, number: usize) -> Arc<MemberDevice> {
        Arc::clone(&self.members.read()[number])
    }

    pub fn standing_of(&self, member: usize) -> Standing {
        let number = self.standings[member].load(Ordering::SeqCst);
        Standing::from_number(number.into()).expect("it was one of them")
    }

    pub fn set_standing(&self, member: usize, standing: Standing) {
        self.standings[member].store(standing as u8, Ordering::SeqCst);
    }

    pub fn tell(&self, member: usize, what: &'static str, detail: String) {
        self.note(what, &self.member(member).path(), detail);
    }

    /// Notes what happened to a device, which may be no member.
    pub fn note(&self, what: &'static str, path: &str, detail: String) {
        let event = Event { member: path.to_owned(), what, detail };
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Goes into the regions of a range and sees to it that they are marked.
    pub fn enter(&self, offset: u64, length_bytes: u64) -> Result<Inside<'_>> {
        let range = self.regions.of(offset, length_bytes);
        let inside = self.regions.enter(range.clone());
        if !range.clone().all(|region| self.regions.is_ready(region)) {
            self.mark(range)?;
        }
        Ok(inside)
    }

    /// Marks regions on all members.
    pub fn mark(&self, range: Range<usize>) -> Result<()> {
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
    pub fn write_regions(&self, book: &mut Book) -> Result<()> {
        book.regions.sequence += 1;
        let (address, bytes) = book.regions.encode();
        self.write_members(book, |_| vec![(address, bytes.clone())])?;
        book.is_changed = false;
        Ok(())
    }

    pub fn write_labels(&self, book: &mut Book) -> Result<()> {
        book.label.generation += 1;
        let label = book.label.clone();
        self.write_members(book, |number| {
            let own = Label { member_id: label.members[number].id, ..label.clone() };
            label::copies_of_generation(own.generation)
                .map(|copy| (label::COPY_OFFSETS[copy], own.encode(copy)))
                .to_vec()
        })
    }

    pub fn write_members(
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
    pub fn put_out_with(
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

impl Shared {
    /// Notes layers that are made anew with their member.
    pub(super) fn note_renewed(&self, layer: &Arc<Renewed>) {
        let mut renewed = self.renewed.lock();
        // That of a growth that came to nothing may be there.
        renewed.retain(|other| other.member != layer.member);
        renewed.push(Arc::clone(layer));
    }

    /// The layers that keep something of their own on a member.
    pub(super) fn renewed(&self, member: usize) -> Option<Arc<Renewed>> {
        self.renewed.lock().iter().find(|layer| layer.member == member).cloned()
    }

    /// Makes what layers keep on the device that is to take a member's place. If that is the
    /// member's own it is nobody's before: who finds it half made takes it for blank.
    pub(super) fn make_ready(&self, member: usize, with: &Spare, is_own: bool) -> Result<()> {
        let Some(layer) = self.renewed(member) else { return Ok(()) };
        if let Some(device) = with.device.as_ref().filter(|_| is_own) {
            let zeros = vec![0; label::layout::BYTES];
            for offset in label::COPY_OFFSETS {
                device.write_durable(offset, &[IoSlice::new(&zeros)])?;
            }
        }
        layer.make_on(with)
    }
}

impl Keeper for Shared {
    fn standing(&self, members: &[usize]) -> Standing {
        members.iter().map(|&m| self.standing_of(m)).max().unwrap_or(Standing::In)
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
