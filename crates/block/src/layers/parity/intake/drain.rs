//! Draining: what waits goes to the journal, and from there to its places.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use env::RankedGuard;
use format::parity::{CELL_BYTES, Entry, Record, WRITTEN, peek_header_bytes};

use super::Intake;
use super::journal::{Journal, clear_areas, entry_of, record_of};
use crate::layers::parity::cache::Cells;
use crate::layers::parity::draining::{Draining, SLOTS, slot_of};
use crate::layers::parity::layout::CELL;
use crate::layers::parity::rows::follow::{New, News};
use crate::layers::sides::Standing;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};

/// Rows of a stripe of which the same is written.
struct Run {
    rows: Range<u64>,
    /// The chunks that have cells there.
    chunks: Vec<usize>,
    /// Whether that is all there is of the rows.
    is_whole: bool,
}

impl Intake {
    /// The journal of an array that was opened: what it holds was placed again.
    ///
    /// # Errors
    /// Those of the devices; `Corrupt` if no side has a sound record.
    pub fn recover(&self) -> Result<()> {
        let mut journal = self.journal.lock();
        let mut found: Vec<Draining> = (0..SLOTS).filter_map(|slot| self.newest(slot)).collect();
        found.sort_unstable_by_key(|draining| draining.record.sequence);
        let last = found.last().map(|draining| &draining.record);
        let Some((newest, epoch)) = last.map(|record| (record.sequence, record.epoch)) else {
            let kind = DeviceErrorKind::Corrupt;
            let text = "no side has a sound record of the parity's journal";
            let device = self.sides().describe();
            return Err(DeviceError::new(kind, Operation::Read, (0, 0), device, text));
        };
        // A record before the last two has left no trace that counts: its places are durable.
        found.retain(|draining| draining.record.sequence + 1 >= newest);
        if found.iter().any(|draining| !draining.record.entries.is_empty()) {
            // Everybody has to have them before places are written: who has them may be lost next.
            for draining in &found {
                let at = slot_of(draining.record.sequence) * self.layout.slot_bytes;
                self.write_to_all(at, &draining.bytes)?;
            }
            self.sides().flush()?;
            for (entry, cells) in found.iter().flat_map(Draining::cells) {
                self.sides().write(usize::from(entry.side), entry.offset, cells)?;
            }
            self.sides().flush()?;
        }
        // An earlier version kept by how much parities are apart from their rows: these are to be
        // looked at.
        let apart = found.last().into_iter().flat_map(|last| &last.record.differences);
        let stripes = apart.map(|entry| self.layout.stripe_at(entry.offset));
        stripes.for_each(|stripe| self.notice(stripe));
        journal.sequence = newest + 1;
        self.replay(&mut journal, epoch)?;
        (0..SLOTS).try_for_each(|_| self.write_empty(&mut journal))
    }

    /// The newest sound record of a slot on the sides that are in.
    fn newest(&self, slot: u64) -> Option<Draining> {
        let found = self.sides().all_in().filter_map(|side| self.read_record(side, slot));
        found.max_by_key(|draining| draining.record.sequence)
    }

    /// The record in a slot of a side, if it is sound.
    fn read_record(&self, side: usize, slot: u64) -> Option<Draining> {
        let (at, device) = (slot * self.layout.slot_bytes, self.sides().device(side));
        let mut bytes = vec![0; CELL_BYTES];
        device.read_at(at, &mut bytes).ok()?;
        let header_bytes = peek_header_bytes(&bytes, at).ok()?;
        if header_bytes as u64 > self.layout.slot_bytes {
            return None;
        }
        bytes.resize(header_bytes, 0);
        device.read_at(at, &mut bytes).ok()?;
        let record = Record::decode(&bytes, at, self.id).ok()?;
        let whole = header_bytes + record.cells_bytes();
        let fits = whole as u64 <= self.layout.slot_bytes && slot_of(record.sequence) == slot;
        let is_side = |entry: &Entry| usize::from(entry.side) < self.sides().count();
        let are_sides = record.entries.iter().all(is_side)
            && record.differences.iter().all(|entry| entry.side == WRITTEN || is_side(entry));
        if !fits || !are_sides || !record.all().all(|entry| self.is_within(entry)) {
            return None;
        }
        bytes.resize(whole, 0);
        device.read_at(at, &mut bytes).ok()?;
        let draining = Draining { record, bytes, header_bytes };
        // What was read again may be something else.
        let is_same = Record::decode(&draining.bytes, at, self.id).ok()? == draining.record;
        let is_whole = is_same && draining.all_cells().all(|(entry, cells)| entry.holds(cells));
        is_whole.then_some(draining)
    }

    fn is_within(&self, entry: &Entry) -> bool {
        let start = self.layout.journal_bytes();
        let end = self.layout.offset(self.len_bytes / self.layout.stripe_bytes());
        entry.offset >= start
            && entry.offset.checked_add(entry.bytes() as u64).is_some_and(|to| to <= end)
    }

    /// Takes what waits, so that it can go into a record; false if nothing is to go there.
    ///
    /// An area is left for the other one only when a record says so of the one before: what the
    /// other one has does not count then.
    fn begin(&self, journal: &Journal) -> bool {
        // What was written by those who are writing stripes is there, or waits.
        let _alone = self.directs.write();
        let mut pending = self.pending.lock();
        let mut cache = self.cache();
        if !cache.draining.is_empty() || pending.epoch != journal.recorded {
            return true;
        }
        if !cache.has_waiting() && !pending.is_used() {
            return false;
        }
        cache.drain();
        pending.next();
        true
    }

    /// Puts everything that waits into the journal and then in its places; false if nothing waited.
    pub fn drain(&self, journal: &mut Journal) -> Result<bool> {
        if journal.durable.is_none() {
            if !self.begin(journal) {
                return Ok(false);
            }
            let stripes = self.cache().draining.clone();
            stripes.keys().for_each(|&stripe| self.fasten(stripe));
            let draining = Arc::new(self.record(&stripes, journal.sequence)?);
            self.write_record(journal, &draining)?;
            self.cache().placing = Some(Arc::clone(&draining));
            journal.durable = Some(draining);
        }
        let draining = journal.durable.clone().expect("set above");
        self.place(&draining)?;
        journal.durable = None;
        let mut cache = self.cache();
        cache.draining.clear();
        cache.placing = None;
        Ok(true)
    }

    fn place(&self, draining: &Draining) -> Result<()> {
        let mut held = None;
        for (entry, cells) in draining.cells() {
            let stripe = self.layout.stripe_at(entry.offset);
            if held.as_ref().is_none_or(|(holding, _)| *holding != stripe) {
                // The one before is let go first.
                drop(held.take());
                held = Some((stripe, self.gate_alone(stripe)));
            }
            self.sides().write(usize::from(entry.side), entry.offset, cells)?;
        }
        Ok(())
    }

    /// The record of what drains.
    fn record(&self, stripes: &BTreeMap<u64, Cells>, sequence: u64) -> Result<Draining> {
        let mut entries = Vec::new();
        let mut bytes: Vec<u8> = Vec::new();
        let mut push = |side: usize, offset: u64, cells: &[u8]| {
            entries.push(entry_of(side, offset, cells));
            bytes.extend_from_slice(cells);
        };
        for (&stripe, cells) in stripes {
            for Run { rows, chunks, is_whole } in self.runs(cells) {
                let within = rows.start * CELL..rows.end * CELL;
                let at = self.layout.offset(stripe) + within.start;
                let new: News = chunks
                    .iter()
                    .map(|&chunk| {
                        let first = chunk as u64 * self.layout.rows();
                        (chunk, New::of(cells, first + rows.start..first + rows.end))
                    })
                    .collect();
                let parities = self.parities_with(stripe, &within, &new, is_whole)?;
                for (&chunk, New { bytes, .. }) in &new {
                    push(self.layout.data_side(stripe, chunk), at, bytes);
                }
                for (k, cells) in parities.iter().enumerate() {
                    push(self.layout.parity_side(stripe, k), at, cells);
                }
            }
        }
        let epoch = self.pending.lock().epoch;
        let record = record_of(self.id, sequence, epoch, entries);
        Ok(Draining::new(record, &bytes, &self.layout))
    }

    /// Rows after one another of which the same chunks' cells are there.
    fn runs(&self, cells: &Cells) -> Vec<Run> {
        let mut rows: BTreeMap<u64, (Vec<usize>, bool)> = BTreeMap::new();
        for (number, cell) in cells {
            let row = rows.entry(number % self.layout.rows()).or_insert((Vec::new(), true));
            row.0.push((number / self.layout.rows()) as usize);
            row.1 &= cell.written == u8::MAX;
        }
        let mut runs: Vec<Run> = Vec::new();
        for (row, (chunks, is_written)) in rows {
            let is_whole = is_written && chunks.len() == self.layout.data();
            match runs.last_mut() {
                Some(run)
                    if run.rows.end == row && run.chunks == chunks && run.is_whole == is_whole =>
                {
                    run.rows.end += 1;
                }
                _ => runs.push(Run { rows: row..row + 1, chunks, is_whole }),
            }
        }
        runs
    }

    /// Clears the areas of those that are getting their first record since they were out: what they
    /// have there is of an earlier time, or of another array's member that it was.
    fn clear_stale(&self, journal: &Journal) -> Result<()> {
        for (side, got) in journal.got.iter().enumerate() {
            let is_first = got.1 == 0 || got.0 != self.sides().absences(side);
            if is_first && self.sides().standing(side) == Standing::Stale {
                self.sides().ask_to_write(side, |device| clear_areas(device, &self.layout))?;
            }
        }
        Ok(())
    }

    fn write_to_all(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let write = |side: &dyn BlockDevice| side.write_at(at, &[IoSlice::new(bytes)]);
        self.sides().ask_all(Operation::Write, (at, bytes.len() as u64), write)
    }

    /// Writes a record to every side that is not out, durably.
    fn write_record(&self, journal: &mut Journal, draining: &Draining) -> Result<()> {
        let slot = slot_of(journal.sequence);
        let at = slot * self.layout.slot_bytes;
        let absences = || (0..self.sides().count()).map(|side| self.sides().absences(side));
        let before: Vec<u64> = absences().collect();
        self.clear_stale(journal)?;
        self.write_to_all(at, &draining.bytes)?;
        self.sides().flush()?;
        for (number, now) in absences().enumerate() {
            let got = &mut journal.got[number];
            let was_there = now == before[number] && self.sides().standing(number) != Standing::Out;
            let records = if got.0 == now { got.1 } else { 0 };
            *got = (now, if was_there { (records + 1).min(SLOTS) } else { 0 });
        }
        let stripe = |entry: &Entry| self.layout.stripe_at(entry.offset);
        let stripes = draining.record.entries.iter().map(stripe).collect();
        self.cache().slots[slot as usize] = stripes;
        journal.sequence += 1;
        journal.recorded = draining.record.epoch;
        Ok(())
    }

    fn write_empty(&self, journal: &mut Journal) -> Result<()> {
        let record = self.record(&BTreeMap::new(), journal.sequence)?;
        self.write_record(journal, &record)
    }

    /// Sees to it that no record has cells of some stripes, because they are to be written in
    /// another way: an opening would put the cells back. None comes there while the answer is held.
    pub fn release(&self, stripes: Range<u64>) -> Result<RankedGuard<'_, Journal>> {
        let mut journal = self.journal.lock();
        self.release_from(&mut journal, stripes)?;
        Ok(journal)
    }

    /// The same, and that no pending entry is of them, either.
    pub fn release_all(&self, stripes: Range<u64>) -> Result<RankedGuard<'_, Journal>> {
        let mut journal = self.journal.lock();
        if self.pending.lock().has_any(stripes.clone()) {
            self.drain_all(&mut journal)?;
        }
        self.release_from(&mut journal, stripes)?;
        Ok(journal)
    }

    fn release_from(&self, journal: &mut Journal, stripes: Range<u64>) -> Result<()> {
        let is_held = {
            let cache = self.cache();
            cache.slots.iter().any(|slot| slot.range(stripes.clone()).next().is_some())
        };
        if !is_held {
            return Ok(());
        }
        self.drain_all(journal)?;
        (0..SLOTS).try_for_each(|_| self.write_empty(journal))
    }

    /// Drains what drains already, and what waits.
    fn drain_all(&self, journal: &mut Journal) -> Result<bool> {
        let is_begun = self.pending.lock().epoch != journal.recorded;
        let is_stuck = is_begun || journal.durable.is_some();
        let is_drained = self.drain(journal)?;
        // That was what could not be drained before; what was written since waits still.
        if is_stuck { self.drain(journal) } else { Ok(is_drained) }
    }

    /// Whether a side that is not out has fewer records than slots since it was.
    fn is_owed(&self, journal: &Journal) -> bool {
        journal.got.iter().enumerate().any(|(side, got)| {
            let has_all = got.0 == self.sides().absences(side) && got.1 == SLOTS;
            self.sides().standing(side) != Standing::Out && !has_all
        })
    }

    /// Makes everything durable that was written.
    pub fn flush_all(&self) -> Result<()> {
        let mut journal = self.journal.lock();
        let mut is_flushed = self.drain_all(&mut journal)?;
        for _ in 0..2 * SLOTS {
            if self.is_owed(&journal) {
                self.write_empty(&mut journal)?;
                is_flushed = true;
            }
        }
        if self.is_owed(&journal) {
            return Err(self.sides().error(Operation::Flush, (0, 0), "sides come and go"));
        }
        if is_flushed {
            return Ok(());
        }
        self.sides().flush()
    }
}
