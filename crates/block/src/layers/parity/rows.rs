//! What sides have of stripes, and computing what they have not.
//!
//! Invariants
//! 1. Only sides that are in are read.
//! 2. Nobody computes from rows while they are written in place with their parity: whoever writes a
//!    stripe in place holds its gate alone.
//!
//! Deliberately unaware of when a record of the journal begins, is synced or goes to its place: the
//! slots that rows are read through are told here.

use std::collections::BTreeSet;
use std::ops::Range;

use env::{Rank, RankedGuard, RankedMutex, RankedWriteGuard};

use self::ways::Without;
use super::cache::{Cache, Cell};
use super::codes;
use super::draining::Draining;
use super::layout::{CELL, Layout, Part};
use crate::layers::gates::{Gates, Held};
use crate::layers::sides::Sides;
use crate::{DeviceError, DeviceErrorKind, Operation, Result};

mod agreement;
pub mod follow;
mod left_out;
mod settle;
mod ways;

/// A stripe's gate is that of so many bytes, as a power of two.
const GATE_SHIFT: u32 = 20;

/// Bytes that the power never tears.
pub const SECTOR: u64 = 512;

/// Lays cells over the bytes of a range of a chunk.
pub fn lay_over(overlay: &[(u64, Cell)], rows: u64, within: &Range<u64>, to: &mut [u8]) {
    for (number, cell) in overlay {
        let start = number % rows * CELL;
        let both = start.max(within.start)..(start + CELL).min(within.end);
        to[(both.start - within.start) as usize..(both.end - within.start) as usize]
            .copy_from_slice(
                &cell.bytes[(both.start - start) as usize..(both.end - start) as usize],
            );
    }
}

/// What chunks have of some rows.
pub type Chunks = Vec<Vec<u8>>;

pub fn agree(data: &Chunks, parities: &Chunks) -> bool {
    parities.iter().enumerate().all(|(k, parity)| {
        *parity == codes::parity(k, parity.len(), data.iter().map(|bytes| &bytes[..]))
    })
}

/// Whether what a side answered is a reason to compute the bytes from the others.
pub fn is_lost(error: &DeviceError) -> bool {
    error.kind == DeviceErrorKind::Io
}

/// What the sides have of stripes, in their places, and what is on the way there.
pub struct Rows {
    sides: Sides,
    layout: Layout,
    cache: RankedMutex<Cache>,
    gates: Gates,
    /// Stripes in which a write met rows that do not agree.
    noticed: RankedMutex<BTreeSet<u64>>,
}

impl Rows {
    pub fn new(sides: Sides, layout: Layout, depth: usize) -> Rows {
        Rows {
            sides,
            layout,
            cache: RankedMutex::new(Rank::Leaf, Cache::new(layout)),
            gates: Gates::at_depth(depth),
            noticed: RankedMutex::default(),
        }
    }

    pub fn sides(&self) -> &Sides {
        &self.sides
    }

    /// What is on the way; nothing is waited for under it.
    pub fn cache(&self) -> RankedGuard<'_, Cache> {
        self.cache.lock()
    }

    /// Waits until nobody else reads rows of some stripes that belong together, or writes there.
    pub fn gates_alone(&self, stripes: &Range<u64>) -> Vec<RankedWriteGuard<'_, ()>> {
        let count = stripes.end - stripes.start;
        self.gates.take(stripes.start << GATE_SHIFT, count << GATE_SHIFT)
    }

    /// The same for one.
    pub fn gate_alone(&self, stripe: u64) -> Vec<RankedWriteGuard<'_, ()>> {
        self.gates.take(stripe << GATE_SHIFT, 1)
    }

    /// Waits until nobody writes a stripe.
    pub fn gate_shared(&self, stripe: u64) -> Held<'_> {
        self.gates.share(stripe << GATE_SHIFT, 1)
    }

    /// Notes that a stripe has rows that do not agree.
    pub fn notice(&self, stripe: u64) {
        self.noticed.lock().insert(stripe);
    }

    /// Takes what was noted.
    pub fn take_noticed(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.noticed.lock())
    }

    /// The newest bytes of a part of a chunk.
    pub fn read_part(&self, part: &Part, buffer: &mut [u8]) -> Result<()> {
        let cells = self.layout.cells(part.chunk, &part.within);
        let count = cells.end - cells.start;
        // What is not in its place now is looked for first: it may get there meanwhile.
        let overlay = self.cache().overlay(part.stripe, cells);
        if (overlay.len() as u64) < count {
            self.read_placed(part.stripe, part.chunk, &part.within, buffer)?;
        }
        lay_over(&overlay, self.layout.rows(), &part.within, buffer);
        Ok(())
    }

    /// The same if that needs no waiting; false if it would, or something is not there or fails:
    /// then it may be computed by those who may wait.
    pub fn try_read_part(&self, part: &Part, buffer: &mut [u8]) -> bool {
        let cells = self.layout.cells(part.chunk, &part.within);
        let overlay = self.cache().overlay(part.stripe, cells.clone());
        if (overlay.len() as u64) < cells.end - cells.start {
            let side = self.layout.data_side(part.stripe, part.chunk);
            let at = self.layout.offset(part.stripe) + part.within.start;
            let is_read = match self.sides.is_in(side) {
                true => self.sides.try_read(side, at, buffer),
                false => self.try_compute(part, at, buffer),
            };
            if !is_read {
                return false;
            }
        }
        lay_over(&overlay, self.layout.rows(), &part.within, buffer);
        true
    }

    /// A part of a chunk whose side is not in, in its place, from the first parity and the other
    /// chunks; false if one of them is not there, or something would have to be waited for.
    fn try_compute(&self, part: &Part, at: u64, buffer: &mut [u8]) -> bool {
        let Some(_shared) = self.gates.try_share_one(part.stripe << GATE_SHIFT) else {
            return false;
        };
        // Of what is being placed the places may have a part only.
        if self.cache().placing.is_some() {
            return false;
        }
        buffer.fill(0);
        let mut bytes = vec![0; buffer.len()];
        let others = (0..self.layout.data()).filter(|chunk| *chunk != part.chunk);
        let sides = others.map(|chunk| self.layout.data_side(part.stripe, chunk));
        sides.chain([self.layout.parity_side(part.stripe, 0)]).all(|side| {
            let is_read = self.sides.try_read(side, at, &mut bytes);
            if is_read {
                codes::add(buffer, 0, 0, &bytes);
            }
            is_read
        })
    }

    /// The bytes in their places. Cells that their side fails to read twice are computed and
    /// written again; their neighbours are not, for a row of these may have another fault.
    pub fn read_placed(
        &self,
        stripe: u64,
        chunk: usize,
        within: &Range<u64>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let side = self.layout.data_side(stripe, chunk);
        let at = self.layout.offset(stripe) + within.start;
        let failure = match self.sides.read(side, at, buffer) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let _shared = self.gate_shared(stripe);
                return self.compute(stripe, chunk, within, 0, buffer);
            }
            Err(failure) if is_lost(&failure) => failure,
            Err(error) => return Err(error),
        };
        self.sides.note_failed_read(side, &failure);
        let _alone = self.gate_alone(stripe);
        let mut rest = buffer;
        let mut start = within.start;
        while !rest.is_empty() {
            let end = within.end.min((start / CELL + 1) * CELL);
            let (cell, others) = rest.split_at_mut((end - start) as usize);
            let at = self.layout.offset(stripe) + start;
            match self.sides.read(side, at, cell) {
                Ok(true) => {}
                Err(error) if !is_lost(&error) => return Err(error),
                _ if self.compute(stripe, chunk, &(start..end), 0, cell).is_err() => {
                    return Err(failure);
                }
                _ if self.sides.is_in(side) => self.sides.write_over(side, at, cell)?,
                _ => {}
            }
            (rest, start) = (others, end);
        }
        Ok(())
    }

    /// A part of a chunk by what the others say, without some of them; the caller holds the
    /// stripe's gate.
    pub fn compute(
        &self,
        stripe: u64,
        chunk: usize,
        within: &Range<u64>,
        without: Without,
        buffer: &mut [u8],
    ) -> Result<()> {
        let own = 1 << self.layout.data_side(stripe, chunk);
        buffer.copy_from_slice(&self.row_with(stripe, within, without | own, true)?[chunk]);
        Ok(())
    }

    /// The data of some rows, as it is in their places; some sides are not read, others may not be
    /// there. Whether a side that is in and fails to be read is as one that is not there.
    pub fn row_with(
        &self,
        stripe: u64,
        within: &Range<u64>,
        without: Without,
        is_forgiving: bool,
    ) -> Result<Chunks> {
        let placing = self.cache().placing.clone();
        let mut failure = None;
        let row = self.row_of(stripe, without, |side| {
            match self.read_row(stripe, within, side, placing.as_deref()) {
                Err(error) if is_forgiving && is_lost(&error) => {
                    failure = Some(error);
                    Ok(None)
                }
                read => read,
            }
        })?;
        let at = self.layout.offset(stripe) + within.start;
        let none = || {
            let range = (at, within.end - within.start);
            self.sides.error(Operation::Read, range, "too few sides are in")
        };
        row.ok_or_else(|| failure.unwrap_or_else(none))
    }

    /// What a side has of some rows, in its place or on the way there; `None` if it is not in.
    pub fn read_row(
        &self,
        stripe: u64,
        within: &Range<u64>,
        side: usize,
        placing: Option<&Draining>,
    ) -> Result<Option<Vec<u8>>> {
        let at = self.layout.offset(stripe) + within.start;
        let mut bytes = vec![0; (within.end - within.start) as usize];
        if !self.sides.read_or_hole(side, at, &mut bytes)? {
            return Ok(None);
        }
        // Of what is being placed the places may have a part only.
        if let Some(draining) = placing {
            draining.lay_over(side, at, &mut bytes);
        }
        Ok(Some(bytes))
    }

    /// The data of some rows, by what is read of sides; `None` if too few say anything.
    pub fn row_of(
        &self,
        stripe: u64,
        without: Without,
        mut read: impl FnMut(usize) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Chunks>> {
        let mut read = |side: usize| match without >> side & 1 {
            0 => read(side),
            _ => Ok(None),
        };
        let mut data = Vec::with_capacity(self.layout.data());
        for chunk in 0..self.layout.data() {
            data.push(read(self.layout.data_side(stripe, chunk))?);
        }
        let lost = data.iter().filter(|bytes| bytes.is_none()).count();
        let mut parities = Vec::with_capacity(lost);
        for k in 0..self.layout.parities {
            if parities.len() == lost {
                break;
            }
            if let Some(bytes) = read(self.layout.parity_side(stripe, k))? {
                parities.push((k, bytes));
            }
        }
        if parities.len() < lost {
            return Ok(None);
        }
        codes::recover(&mut data, parities);
        Ok(Some(data.into_iter().flatten().collect()))
    }
}
