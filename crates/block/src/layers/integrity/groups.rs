//! The groups whose checksums are in memory: marking them open, writing their pages at a flush,
//! marking them clean.
//!
//! Invariants: 1. no data of a group is written before the device says durably that it is open;
//! 2. a group is marked clean only when a flush that succeeded came after its last write and after
//! its page; never again after a flush that failed; 3. a group that is not clean, or is in use, is
//! not forgotten; 4. locks are taken in this order: a range of blocks, `flushing`, a
//! group or `slots`, `active`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::IntegrityDevice;
use super::geometry::{Span, page_offset};
use super::group::{Group, sector_number};
use super::guard::Handed;
use crate::{BlockDevice, Operation, Result};

/// A place for a group: empty until its page was read.
#[derive(Default)]
pub(super) struct Slot {
    group: Mutex<Option<Group>>,
    used: AtomicU64,
}

/// Groups by their numbers.
#[derive(Default)]
pub(super) struct Groups {
    slots: Mutex<BTreeMap<u64, Arc<Slot>>>,
    /// Groups that the device may call open, or whose page is to be written.
    active: Mutex<BTreeSet<u64>>,
    /// Groups whose page the next flush writes.
    dirty: Mutex<Vec<u64>>,
    /// Groups that have another guard.
    pub(super) handed: Handed,
    flushing: Mutex<Flushing>,
    clock: AtomicU64,
}

/// What is held while flushing.
#[derive(Default)]
struct Flushing {
    /// Whether a flush has failed.
    has_failed: bool,
    /// Flushes until now.
    count: u64,
    /// The flushes that wrote pages, and the groups of these, in this order.
    written: VecDeque<(u64, u64)>,
}

impl Groups {
    fn slot(&self, number: u64, groups_max: usize) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if !slots.contains_key(&number) && slots.len() >= groups_max {
            self.forget_some(&mut slots);
        }
        let slot = slots.entry(number).or_default();
        slot.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Arc::clone(slot)
    }

    /// Makes room: a quarter of those that can be forgotten, the longest unused.
    fn forget_some(&self, slots: &mut BTreeMap<u64, Arc<Slot>>) {
        let active = self.active.lock();
        // Whoever uses a slot has a reference, and references are made under the lock of `slots`.
        let free = slots.iter().filter(|(n, s)| !active.contains(n) && Arc::strong_count(s) == 1);
        let mut free: Vec<(u64, u64)> =
            free.map(|(number, slot)| (slot.used.load(Ordering::Relaxed), *number)).collect();
        free.sort_unstable();
        for (_, number) in &free[..free.len().div_ceil(4)] {
            slots.remove(number);
        }
    }

    /// A group that a crash left open is to be written at a flush, and made clean.
    pub(super) fn note_active(&self, number: u64) {
        self.active.lock().insert(number);
    }

    /// Whether this group would be one too many.
    fn is_full_for(&self, number: u64, open_max: usize) -> bool {
        let active = self.active.lock();
        active.len() >= open_max && !active.contains(&number)
    }

    fn active(&self) -> Vec<u64> {
        self.active.lock().iter().copied().collect()
    }

    /// When a group was used last.
    fn used(&self, number: u64) -> u64 {
        self.slots.lock().get(&number).map_or(0, |slot| slot.used.load(Ordering::Relaxed))
    }
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Lets `act` have a group; reads its page first if need be.
    pub(super) fn with_group<T>(
        &self,
        number: u64,
        act: impl FnOnce(&mut Group) -> Result<T>,
    ) -> Result<T> {
        let slot = self.groups.slot(number, self.options.groups_max);
        let mut group = slot.group.lock();
        if group.is_none() {
            *group = Some(self.load(number)?);
        }
        let group = group.as_mut().expect("it was just read");
        let outcome = act(group);
        if group.dirty && !group.listed {
            group.listed = true;
            self.groups.dirty.lock().push(number);
        }
        outcome
    }

    /// The same if that needs no waiting; else `None`.
    pub(super) fn try_with_group<T>(
        &self,
        number: u64,
        act: impl FnOnce(&Group) -> T,
    ) -> Option<T> {
        let slot = self.groups.slots.lock().get(&number).map(Arc::clone)?;
        let group = slot.group.try_lock()?;
        slot.used.store(self.groups.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        group.as_ref().map(act)
    }

    /// Fails if a write to these blocks would need checksums that were lost: in a sector of which
    /// it leaves blocks as they are.
    pub(super) fn refuse_damaged(&self, span: &Span) -> Result<()> {
        let last = self.blocks_in(span.group);
        match self.with_group(span.group, |group| Ok(group.damaged_in_part(span, last)))? {
            None => Ok(()),
            Some(place) => {
                let number = sector_number(span.group, place);
                let text = format!("checksum sector {number} is damaged");
                Err(self.corrupt(Operation::Write, span.group, span.blocks.start, text))
            }
        }
    }

    /// Begins a write to blocks of a group: the device calls it open from now on.
    pub(super) fn begin(&self, span: &Span) -> Result<()> {
        if self.groups.is_full_for(span.group, self.options.open_max) {
            self.clean_some(self.options.open_max / 2)?;
        }
        self.with_group(span.group, |group| {
            if !group.open || group.unsure {
                self.groups.active.lock().insert(span.group);
                let page = group.encode(self.header.tag(), span.group, true);
                let slices = [IoSlice::new(page)];
                self.below.write_durable(page_offset(span.group), &slices)?;
                (group.open, group.unsure) = (true, false);
            }
            group.writers += 1;
            Ok(())
        })
    }

    /// Ends a write: `act` notes what it came to.
    pub(super) fn end(&self, span: &Span, act: impl FnOnce(&mut Group)) -> Result<()> {
        self.with_group(span.group, |group| {
            group.writers -= 1;
            group.dirty = true;
            act(group);
            Ok(())
        })
    }

    /// Writes a group's page so that it is on the device.
    pub(super) fn write_page_durably(&self, number: u64, group: &mut Group) -> Result<()> {
        let page = group.encode(self.header.tag(), number, group.open);
        self.below.write_durable(page_offset(number), &[IoSlice::new(page)])?;
        group.unsure = false;
        // One that is open is to be written at a flush all the same, to be marked clean later.
        group.dirty &= group.open;
        Ok(())
    }

    /// Writes a group's page without making it durable: the next flush writes it again.
    pub(super) fn hand_over(&self, number: u64, group: &mut Group) -> Result<()> {
        let page = group.encode(self.header.tag(), number, group.open);
        self.below.write_at(page_offset(number), &[IoSlice::new(page)])
    }

    /// Makes data and checksums durable, and marks groups clean that were quiet.
    pub(super) fn flush_all(&self) -> Result<()> {
        self.flush_with(&mut self.groups.flushing.lock())
    }

    /// Makes all durable, then marks every group clean that nobody writes to: after this nothing
    /// needs to be settled when the device is opened again.
    ///
    /// # Errors
    /// Those of the device below.
    pub fn clean(&self) -> Result<()> {
        self.clean_some(0)?;
        self.below.flush()
    }

    fn flush_with(&self, flushing: &mut Flushing) -> Result<()> {
        flushing.count += 1;
        let handed = self.groups.handed.last();
        let flushed = self
            .write_pages(flushing)
            .and_then(|()| self.clean_quiet(flushing))
            .and_then(|()| self.below.flush());
        if flushed.is_ok() {
            self.groups.handed.flushed(handed);
        } else {
            // What is on the device is not known any more.
            flushing.has_failed = true;
            for number in self.groups.active() {
                self.with_group(number, |group| {
                    (group.dirty, group.listed) = (true, false);
                    Ok(())
                })?;
            }
        }
        flushed
    }

    /// Writes the pages that say something else than the device.
    fn write_pages(&self, flushing: &mut Flushing) -> Result<()> {
        let dirty = std::mem::take(&mut *self.groups.dirty.lock());
        for number in dirty {
            self.with_group(number, |group| {
                group.listed = false;
                if !group.dirty {
                    return Ok(());
                }
                let page = group.encode(self.header.tag(), number, true);
                self.below.write_at(page_offset(number), &[IoSlice::new(page)])?;
                group.dirty = false;
                group.written_by = flushing.count;
                flushing.written.push_back((flushing.count, number));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Marks groups clean that some flushes found unchanged.
    fn clean_quiet(&self, flushing: &mut Flushing) -> Result<()> {
        while let Some(&(count, number)) = flushing.written.front() {
            if count + QUIET_FLUSHES > flushing.count {
                return Ok(());
            }
            flushing.written.pop_front();
            if flushing.has_failed {
                continue;
            }
            self.with_group(number, |group| {
                // One that was written since comes again.
                let is_quiet = group.written_by == count;
                if is_quiet { self.mark_clean(number, group) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    /// Marks a group clean if nothing of it can be in flight.
    fn mark_clean(&self, number: u64, group: &mut Group) -> Result<()> {
        if group.dirty || group.writers > 0 {
            return Ok(());
        }
        self.settle(number, group);
        if group.dirty || !group.blocks_in_flight().is_empty() {
            return Ok(());
        }
        // Whether the write arrives or not, the next one to the group marks it again.
        group.open = false;
        group.written_by = 0;
        self.groups.active.lock().remove(&number);
        let page = group.encode(self.header.tag(), number, false);
        let written = self.below.write_at(page_offset(number), &[IoSlice::new(page)]);
        group.forget_page();
        written
    }

    /// Flushes, and marks groups clean, the longest unused first, until `left` are left.
    fn clean_some(&self, left: usize) -> Result<()> {
        let mut flushing = self.groups.flushing.lock();
        self.flush_with(&mut flushing)?;
        if flushing.has_failed {
            return Ok(());
        }
        let mut active: Vec<(u64, u64)> =
            self.groups.active().iter().map(|&number| (self.groups.used(number), number)).collect();
        active.sort_unstable();
        let count = active.len().saturating_sub(left);
        for (_, number) in &active[..count] {
            self.with_group(*number, |group| self.mark_clean(*number, group))?;
        }
        Ok(())
    }
}

/// Flushes that find nothing to write for a group before it is marked clean. Few: what a lying
/// device made of an open group is taken for what was in flight when the power fails.
const QUIET_FLUSHES: u64 = 2;
