//! The way of a write: cells wait, are logged, and go to the journal and to their places; whole
//! stripes go there at once.
//!
//! Invariants
//! 1. A stripe of which only a part is written goes through the journal first, and so does one that
//!    is in the journal already.
//! 2. What waits is in the pending log before its write is answered: it is there though the process
//!    ends.
//!
//! Locks, in this order (`order`): the journal, the right to write whole stripes, a stripe's gate,
//! the pending log; and the cache, under which nothing is waited for.
//!
//! Deliberately unaware of who writes the same cells: the caller holds them.

use std::collections::VecDeque;
use std::ops::{Deref, Range};

use env::{RankedGuard, RankedMutex, RankedRwLock};

use self::journal::Journal;
use self::pending::Pending;
use super::cache::Waiting;
use super::codes;
use super::layout::{CELL, Layout};
use super::rows::{Rows, SECTOR};
use crate::Result;
use crate::layers::order::LayerLock;

mod drain;
mod journal;
mod log;
mod pending;

pub use journal::format;

/// Rows, and how they are written.
pub struct Intake {
    rows: Rows,
    layout: Layout,
    id: u128,
    /// Bytes of data.
    len_bytes: u64,
    pending: RankedMutex<Pending>,
    journal: RankedMutex<Journal>,
    /// Whoever writes a whole stripe in place shares it; who takes what waits has it alone.
    directs: RankedRwLock<()>,
}

impl Deref for Intake {
    type Target = Rows;

    fn deref(&self) -> &Rows {
        &self.rows
    }
}

impl Intake {
    pub fn new(rows: Rows, layout: Layout, id: u128, depth: usize) -> Intake {
        let (sides, len_bytes) = (rows.sides().count(), layout.len_bytes(rows.sides().len_bytes()));
        Intake {
            rows,
            layout,
            id,
            len_bytes,
            pending: LayerLock::Pending.mutex(depth, Pending::new(layout.slot_bytes)),
            journal: LayerLock::Journal.mutex(depth, Journal::new(sides)),
            directs: LayerLock::Directs.rw_lock(depth, ()),
        }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Holds the journal: nothing goes from there to its place meanwhile.
    pub fn hold_journal(&self) -> RankedGuard<'_, Journal> {
        self.journal.lock()
    }

    /// The newest bytes of a range.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for part in self.layout.parts(offset, buffer.len()) {
            self.read_part(&part, &mut buffer[part.range.clone()])?;
        }
        Ok(())
    }

    /// Writes bytes of one stripe; the caller holds their cells.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size = self.layout.stripe_bytes();
        let is_whole = bytes.len() as u64 == size;
        if is_whole && self.write_stripe(offset / size, Some(bytes))? {
            return Ok(());
        }
        self.write_cells(offset, bytes)
    }

    /// Writes a whole stripe in place, with its parity: these bytes, or the cells that wait if they
    /// are all there. False if it has to go through the journal, or is not whole any more.
    fn write_stripe(&self, stripe: u64, whole: Option<&[u8]>) -> Result<bool> {
        let _among_others = self.directs.read();
        let _alone = self.gate_alone(stripe);
        let (waiting, void) = {
            let pending = self.pending.lock();
            let mut cache = self.cache();
            let void = match pending.entries_of(stripe) {
                Ok(void) if !cache.is_held(stripe) => void,
                _ => return Ok(false),
            };
            if whole.is_none() && !cache.is_whole(stripe) {
                return Ok(false);
            }
            // Until it is there as a whole its parity is of nothing that counts.
            cache.loose.insert(stripe..stripe + 1);
            (cache.waiting(stripe), void)
        };
        let joined: Vec<u8>;
        let bytes = match whole {
            Some(bytes) => bytes,
            None => {
                joined = waiting.values().map(|cell| &cell.bytes[..]).collect::<Vec<_>>().concat();
                &joined
            }
        };
        let length = self.layout.chunk_bytes as usize;
        let at = self.layout.offset(stripe);
        for (chunk, bytes) in bytes.chunks_exact(length).enumerate() {
            self.sides().write(self.layout.data_side(stripe, chunk), at, bytes)?;
        }
        for k in 0..self.layout.parities {
            let parity = codes::parity(k, length, bytes.chunks_exact(length));
            self.sides().write(self.layout.parity_side(stripe, k), at, &parity)?;
        }
        if let Some(before) = void {
            self.log_note(stripe, before)?;
        }
        let mut cache = self.cache();
        cache.forget(stripe, &waiting);
        cache.loose.remove(stripe..stripe + 1);
        Ok(true)
    }

    /// Takes cells in that are to wait, with the bytes that were written there, making room first
    /// if need be.
    fn take_in(&self, offset: u64, bytes: &[u8], mut cells: VecDeque<Waiting>) -> Result<()> {
        let mut done = 0;
        loop {
            done += self.take_some(offset + done as u64, &bytes[done..], &mut cells)?;
            if cells.is_empty() {
                return Ok(());
            }
            self.drain(&mut self.journal.lock())?;
        }
    }

    /// Takes in as many of these cells as there is room for; says how many bytes they are.
    fn take_some(&self, offset: u64, bytes: &[u8], cells: &mut VecDeque<Waiting>) -> Result<usize> {
        let per_stripe = self.layout.stripe_bytes() / CELL;
        let mut pending = self.pending.lock();
        let mut taken = 0;
        {
            let mut cache = self.cache();
            while let Some(cell) = cells.pop_front() {
                let number = (offset + taken as u64) / CELL;
                let end = (((number + 1) * CELL - offset) as usize).min(bytes.len());
                if !pending.has_room(end) {
                    cells.push_front(cell);
                    break;
                }
                if let Err(back) = cache.insert(number / per_stripe, number % per_stripe, cell) {
                    cells.push_front(back);
                    break;
                }
                taken = end;
            }
        }
        if taken > 0 {
            // In the order in which the cells got there, and each before those after it.
            self.log(&mut pending, offset, &bytes[..taken])?;
        }
        Ok(taken)
    }

    /// Reads what is about to be written again with something else, and counts for right then: a
    /// read of elsewhere, which nobody's checksum sees here, is told by reading once more.
    fn read_surely(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut again = vec![0; buffer.len()];
        self.read(offset, buffer)?;
        for _ in 0..3 {
            self.read(offset, &mut again)?;
            if again == *buffer {
                break;
            }
            buffer.copy_from_slice(&again);
        }
        Ok(())
    }

    /// Writes bytes of one stripe that are not all of it; the caller holds their cells.
    fn write_cells(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let cells = self.cells_with(offset, bytes)?;
        self.take_in(offset, bytes, cells)?;
        let stripe = offset / self.layout.stripe_bytes();
        if self.cache().is_whole(stripe) {
            self.write_stripe(stripe, None)?;
        }
        Ok(())
    }

    /// The cells that hold some bytes, with what else is there.
    fn cells_with(&self, offset: u64, bytes: &[u8]) -> Result<VecDeque<Waiting>> {
        let end = offset + bytes.len() as u64;
        let mut cells = VecDeque::new();
        for cell in offset / CELL..end.div_ceil(CELL) {
            let start = cell * CELL;
            let both = start.max(offset)..(start + CELL).min(end);
            let part = &bytes[(both.start - offset) as usize..(both.end - offset) as usize];
            let within = both.start - start..both.end - start;
            let bytes = if part.len() as u64 == CELL {
                Box::from(part)
            } else {
                let mut whole = vec![0; CELL as usize].into_boxed_slice();
                self.read_surely(start, &mut whole)?;
                whole[within.start as usize..within.end as usize].copy_from_slice(part);
                whole
            };
            let sectors = within.start.div_ceil(SECTOR)..within.end / SECTOR;
            let bits = |of: Range<u64>| of.fold(0, |bits, sector| bits | 1 << sector);
            let touched = bits(within.start / SECTOR..within.end.div_ceil(SECTOR));
            cells.push_back(Waiting { bytes, written: bits(sectors), touched });
        }
        Ok(cells)
    }
}
