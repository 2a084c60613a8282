//! Where parity is not of the data in its rows, and computing it anew.
//!
//! Data that rotted since somebody looked at it must not get into the parity: that could heal it.
//! So it is noted of what data the parity is not, whoever has checksums looks at that, and then
//! parity is computed of just that data. Rows that are otherwise by then are left as they are.

use std::collections::BTreeMap;
use std::ops::Range;

use format::checksum::block_crc;

use super::ParityDevice;
use super::layout::CELL;
use super::rows::{Chunks, agree, is_lost};
use super::settle::STEP_BYTES;
use crate::{Result, Resync};

/// By stripe.
pub type Notes = BTreeMap<u64, Vec<Note>>;

/// What the data of some rows was when their parity was not of it.
pub struct Note {
    within: Range<u64>,
    crcs: Vec<u32>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn crcs_of(row: &Chunks) -> Vec<u32> {
    row.iter().map(|bytes| block_crc(bytes)).collect()
}

impl ParityDevice {
    /// Notes where parity is not of the data in rows of a range; returns the stripes. Those that
    /// nobody has anything in are computed when somebody has.
    pub(super) fn look(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        for (stripe, within) in self.touched(offset, length_bytes) {
            if self.cache.lock().loose.contains(stripe) {
                continue;
            }
            let notes = match self.look_at_stripe(stripe, &within) {
                Ok(notes) => notes,
                Err(error) if is_lost(&error) => {
                    self.read_cells(stripe, &within);
                    self.look_at_stripe(stripe, &within)?
                }
                Err(error) => return Err(error),
            };
            // Somebody may have looked before and be at work verifying that: it stays what counts.
            let is_apart = !notes.is_empty();
            let mut all = self.notes.lock();
            let mut before = all.remove(&stripe).unwrap_or_default();
            let is_still = |b: &Note| notes.iter().any(|n| overlap(&b.within, &n.within));
            before.retain(|b| !overlap(&b.within, &within) || is_still(b));
            let is_new = |n: &Note| before.iter().all(|b| !overlap(&b.within, &n.within));
            let fresh: Vec<Note> = notes.into_iter().filter(is_new).collect();
            let notes: Vec<Note> = before.into_iter().chain(fresh).collect();
            if !notes.is_empty() {
                all.insert(stripe, notes);
            }
            if is_apart {
                let size = self.layout.stripe_bytes();
                found.push(stripe * size..(stripe + 1) * size);
            }
        }
        Ok(found)
    }

    fn look_at_stripe(&self, stripe: u64, within: &Range<u64>) -> Result<Vec<Note>> {
        let _shared = self.gate_shared(stripe);
        let mut notes = Vec::new();
        let mut from = within.start;
        while from < within.end {
            let rows = from..(from + STEP_BYTES).min(within.end);
            from = rows.end;
            // Rows that agree may do so because a side has what was computed of what does not.
            let is_suspect = self.is_complete() && self.differences.lock().has_any(stripe, &rows);
            let all = if is_suspect { None } else { self.read_all(stripe, &rows) };
            if all.is_some_and(|(data, parities)| agree(&data, &parities)) {
                continue;
            }
            let (row, wrong) = self.wrong_in(stripe, &rows, Resync::Computed)?;
            if !wrong.is_empty() || is_suspect {
                notes.push(Note { crcs: crcs_of(&row), within: rows });
            }
        }
        Ok(notes)
    }

    /// Reads all data of rows as anybody would: what a side fails to read is written again. It may
    /// be in a place that nobody else reads.
    fn read_cells(&self, stripe: u64, within: &Range<u64>) {
        let mut bytes = vec![0; CELL as usize];
        for chunk in 0..self.layout.data() {
            for start in within.clone().step_by(CELL as usize) {
                // What cannot be had stays as it is, and the next look says so.
                let _ = self.read_placed(stripe, chunk, &(start..start + CELL), &mut bytes);
            }
        }
    }

    /// Rows are not computed anew: what is missing of them is not what their first parities say.
    /// Who asks for that is to look at them again.
    pub(super) fn forget_notes(&self, stripe: u64, within: &Range<u64>) {
        if let Some(notes) = self.notes.lock().get_mut(&stripe) {
            let count = notes.len();
            notes.retain(|note| !overlap(&note.within, within));
            if notes.len() < count {
                self.noticed.lock().insert(stripe);
            }
        }
    }

    /// Computes parity anew of what was noted of a stripe, where that is what is there, of rows
    /// that are in a range as a whole: who asks has looked at nothing else.
    pub(super) fn compute_noted(&self, stripe: u64, range: &Range<u64>) -> Result<()> {
        let start = stripe * self.layout.stripe_bytes();
        let last = start + (self.layout.data() as u64 - 1) * self.layout.chunk_bytes;
        let is_in = |note: &Note| {
            range.start <= start + note.within.start && last + note.within.end <= range.end
        };
        let notes: Vec<Note> = {
            let mut all = self.notes.lock();
            let notes = all.remove(&stripe).unwrap_or_default();
            let (notes, others) = notes.into_iter().partition::<Vec<_>, _>(is_in);
            if !others.is_empty() {
                all.insert(stripe, others);
            }
            notes
        };
        if notes.is_empty() {
            return Ok(());
        }
        let mut journal = self.journal.lock();
        self.release(&mut journal, stripe..stripe + 1)?;
        let _alone = self.gate_alone(stripe);
        for Note { within, crcs } in notes {
            let was_complete = self.is_complete();
            let (row, wrong) = self.wrong_in(stripe, &within, Resync::Computed)?;
            if crcs_of(&row) == crcs {
                self.write_rows(stripe, &within, wrong)?;
                self.forget_differences(stripe, &within, was_complete)?;
            } else if self.differences.lock().may_tell_again(stripe, &within) {
                self.noticed.lock().insert(stripe);
            }
        }
        Ok(())
    }
}
