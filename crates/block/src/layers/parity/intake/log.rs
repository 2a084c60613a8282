//! Logging what waits, and taking it again at an opening.

use std::collections::BTreeMap;

use format::parity::{CELL_BYTES, Pending as Entry, peek_pending_bytes, pending_bytes};

use super::Intake;
use super::journal::Journal;
use super::pending::{NOTE_BYTES, Pending};
use crate::{Operation, Result};

impl Intake {
    /// Writes an entry for what waits now.
    pub fn log(&self, pending: &mut Pending, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(pending.has_room(bytes.len()), "the caller saw to that");
        let stripe = offset / self.layout.stripe_bytes();
        // One that fails may be there all the same.
        pending.stripes.insert(stripe, pending.count + 1);
        pending.reserved += NOTE_BYTES;
        self.append(pending, offset, 0, bytes.to_vec())
    }

    /// Notes that a stripe went to its sides: what its entries before a number have is older.
    pub fn log_note(&self, stripe: u64, before: u32) -> Result<()> {
        let mut pending = self.pending.lock();
        let offset = stripe * self.layout.stripe_bytes();
        if pending.is_broken {
            let text = "the pending log cannot be written";
            return Err(self.sides().error(Operation::Write, (offset, 0), text));
        }
        assert!(pending.reserved >= NOTE_BYTES, "a note makes an entry void");
        self.append(&mut pending, offset, before, Vec::new())?;
        pending.reserved -= NOTE_BYTES;
        if pending.stripes.get(&stripe).is_some_and(|&end| end <= before) {
            pending.stripes.remove(&stripe);
        }
        Ok(())
    }

    /// Writes the next entry to one side more than may be lost.
    fn append(&self, pending: &mut Pending, at: u64, before: u32, bytes: Vec<u8>) -> Result<()> {
        let (epoch, index) = (pending.epoch, pending.count);
        let entry = Entry { id: self.id, epoch, index, offset: at, before, bytes }.encode();
        let place = self.layout.area(epoch) + pending.used;
        pending.is_broken = true;
        let mut written = 0;
        for side in 0..self.sides().count() {
            if written <= self.layout.parities && self.sides().is_in(side) {
                self.sides().write(side, place, &entry)?;
                written += usize::from(self.sides().is_in(side));
            }
        }
        pending.is_broken = false;
        pending.count += 1;
        pending.used += entry.len() as u64;
        Ok(())
    }

    /// Puts what the entries from an epoch on have in its places; the records were placed before.
    pub fn replay(&self, journal: &mut Journal, epoch: u64) -> Result<()> {
        journal.recorded = epoch;
        let replaying = Pending::at(epoch, self.layout.slot_bytes);
        *self.pending.lock() = Pending { is_replay: true, ..replaying };
        for epoch in [epoch, epoch + 1] {
            let entries = self.entries(epoch);
            let stripe = |entry: &Entry| entry.offset / self.layout.stripe_bytes();
            let mut void: BTreeMap<u64, u32> = BTreeMap::new();
            for note in entries.iter().filter(|entry| entry.before > 0) {
                let before = void.entry(stripe(note)).or_default();
                *before = note.before.max(*before);
            }
            let counts = |entry: &&Entry| {
                void.get(&stripe(entry)).is_none_or(|&before| entry.index >= before)
            };
            for entry in entries.iter().filter(counts) {
                self.take_again(journal, entry)?;
            }
        }
        self.drain(journal)?;
        *self.pending.lock() = Pending::at(epoch + 2, self.layout.slot_bytes);
        Ok(())
    }

    fn take_again(&self, journal: &mut Journal, entry: &Entry) -> Result<()> {
        if entry.bytes.is_empty() {
            return Ok(());
        }
        let per_stripe = self.layout.stripe_bytes() / CELL_BYTES as u64;
        let first = entry.offset / CELL_BYTES as u64;
        for (cell, mut waiting) in (first..).zip(self.cells_with(entry.offset, &entry.bytes)?) {
            loop {
                let (stripe, number) = (cell / per_stripe, cell % per_stripe);
                let outcome = self.cache().insert(stripe, number, waiting);
                match outcome {
                    Ok(()) => break,
                    Err(back) => waiting = back,
                }
                self.drain(journal)?;
            }
        }
        Ok(())
    }

    /// The entries of an epoch, up to the first that no side that is in has.
    fn entries(&self, epoch: u64) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut used = 0;
        loop {
            let index = entries.len();
            let mut found = self.sides().all_in().filter_map(|side| self.entry(side, epoch, used));
            let Some(entry) = found.find(|entry| entry.index as usize == index) else {
                return entries;
            };
            used += pending_bytes(entry.bytes.len()) as u64;
            entries.push(entry);
        }
    }

    /// The entry of an epoch that a side has at an offset of the area, if it is sound.
    fn entry(&self, side: usize, epoch: u64, used: u64) -> Option<Entry> {
        let (at, left) = (self.layout.area(epoch) + used, self.layout.slot_bytes - used);
        if left < NOTE_BYTES {
            return None;
        }
        let side = self.sides().device(side);
        let mut bytes = vec![0; CELL_BYTES];
        side.read_at(at, &mut bytes).ok()?;
        let length = peek_pending_bytes(&bytes, at).ok()?;
        if length as u64 > left {
            return None;
        }
        bytes.resize(length, 0);
        side.read_at(at, &mut bytes).ok()?;
        let entry = Entry::decode(&bytes, at, self.id).ok()?;
        // What was read again may be something else.
        let is_within = pending_bytes(entry.bytes.len()) == length
            && entry.offset.checked_add(entry.bytes.len() as u64)? <= self.len_bytes
            && (entry.bytes.is_empty() || self.is_in_one_stripe(&entry));
        (is_within && entry.epoch == epoch).then_some(entry)
    }

    fn is_in_one_stripe(&self, entry: &Entry) -> bool {
        let size = self.layout.stripe_bytes();
        entry.offset % size + entry.bytes.len() as u64 <= size
    }
}
