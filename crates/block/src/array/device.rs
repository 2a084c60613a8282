//! The array as a device.

use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::RankedMutex;

use super::member::MemberDevice;
use super::shared::{EVENTS_MAX, Event, Shared, number_of};
use super::upkeep::Upkeep;
use crate::heal::{Ledger, Outcome, Right};
use crate::layers::{MirrorDevice, Standing};
use crate::{BlockDevice, Result, Resync};

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

/// A stack of layers over members with labels: an array whose members change.
///
/// It holds its `upkeep`, which brings members up to date, and that the `marks` of its regions,
/// which hold the stack; each reads as what it holds (`Deref`).
pub struct Array {
    pub(super) shared: Arc<Shared>,
    pub(super) upkeep: Upkeep,
    /// The uppermost layer, if that is a mirror of single members.
    pub(super) mirror: RankedMutex<Option<Arc<MirrorDevice>>>,
    /// Whether nobody is to use it any more.
    pub(super) is_closed: AtomicBool,
    /// The right to make new members ready.
    pub(super) growing: RankedMutex<()>,
}

impl Deref for Array {
    type Target = Upkeep;

    fn deref(&self) -> &Upkeep {
        &self.upkeep
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

    /// Ends the use of the stack: everything is flushed and no region stays open. What is written
    /// after this, by whoever lets go of it last, is seen to when it is dropped.
    ///
    /// # Errors
    /// Those of the device: what is open is settled at the next opening.
    pub fn close(&self) -> Result<()> {
        if !self.has_copies() {
            return self.top().flush();
        }
        self.is_closed.store(true, Ordering::SeqCst);
        self.tidy()?;
        self.tidy()?;
        while self.is_tidying_behind() {
            self.tidy()?;
        }
        Ok(())
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
    forward! {
        self.top() =>
        fn len_bytes(&self) -> u64;
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool>;
        fn flush(&self) -> Result<()>;
        fn copies(&self, offset: u64, length_bytes: u64) -> usize;
        fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn ways(&self) -> usize;
        fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome>;
        fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()>;
        fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>>;
    }

    fn is_ready(&self, offset: u64, length_bytes: u64) -> bool {
        self.are_ready(offset, length_bytes)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        let _inside = self.enter_to_write(offset, length_bytes)?;
        self.top().write_at(offset, slices)
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.top().allocate(offset, length_bytes)?;
        // Whoever reserves space is about to write there: the mark is made before it is waited for.
        self.enter(offset, length_bytes).map(drop)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let _inside = self.enter_to_discard(offset, length_bytes)?;
        self.top().discard(offset, length_bytes)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        let _inside = self.enter_to_write(offset, length_bytes)?;
        self.top().write_durable(offset, slices)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.take_noticed()
    }

    fn describe(&self) -> String {
        self.stack()
    }
}
