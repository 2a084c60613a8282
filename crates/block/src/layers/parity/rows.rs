//! Reading what sides have, and computing what they have not.

use std::collections::VecDeque;
use std::ops::Range;

use super::cache::{Cell, Waiting};
use super::journal::Draining;
use super::layout::{CELL, Part};
use super::ways::Sides;
use super::{GATE_SHIFT, ParityDevice, codes};
use crate::layers::mirror::Standing;
use crate::layers::mirror::is_its_fault;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};

/// Bytes that the power never tears.
pub(super) const SECTOR: u64 = 512;

/// Lays cells over the bytes of a range of a chunk.
pub(super) fn lay_over(overlay: &[(u64, Cell)], rows: u64, within: &Range<u64>, to: &mut [u8]) {
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
pub(super) type Chunks = Vec<Vec<u8>>;

pub(super) fn agree(data: &Chunks, parities: &Chunks) -> bool {
    parities.iter().enumerate().all(|(k, parity)| {
        *parity == codes::parity(k, parity.len(), data.iter().map(|bytes| &bytes[..]))
    })
}

/// Whether what a side answered is a reason to compute the bytes from the others.
pub(super) fn is_lost(error: &DeviceError) -> bool {
    error.kind == DeviceErrorKind::Io
}

impl ParityDevice {
    /// The newest bytes of a part of a chunk.
    pub(super) fn read_part(&self, part: &Part, buffer: &mut [u8]) -> Result<()> {
        let cells = self.layout.cells(part.chunk, &part.within);
        let count = cells.end - cells.start;
        // What is not in its place now is looked for first: it may get there meanwhile.
        let overlay = self.cache.lock().overlay(part.stripe, cells);
        if (overlay.len() as u64) < count {
            self.read_placed(part.stripe, part.chunk, &part.within, buffer)?;
        }
        lay_over(&overlay, self.layout.rows(), &part.within, buffer);
        Ok(())
    }

    /// The same where all is well, by what `read` reads of its side; false if it is not there,
    /// fails, or is not read now: then it may be computed by those who may wait.
    pub(super) fn read_plainly(
        &self,
        part: &Part,
        buffer: &mut [u8],
        read: impl Fn(&dyn BlockDevice, u64, &mut [u8]) -> Result<bool>,
    ) -> bool {
        let cells = self.layout.cells(part.chunk, &part.within);
        let overlay = self.cache.lock().overlay(part.stripe, cells.clone());
        if (overlay.len() as u64) < cells.end - cells.start {
            let side = self.layout.data_side(part.stripe, part.chunk);
            let at = self.layout.offset(part.stripe) + part.within.start;
            let is_read = match self.is_in(side) {
                true => self.read_of(side, at, buffer, &read),
                false => self.computed_plainly(part, at, buffer, &read),
            };
            if !is_read {
                return false;
            }
        }
        lay_over(&overlay, self.layout.rows(), &part.within, buffer);
        true
    }

    /// Reads of a side; false if it was not in all the time, fails, or is not read now.
    fn read_of(
        &self,
        side: usize,
        at: u64,
        buffer: &mut [u8],
        read: impl Fn(&dyn BlockDevice, u64, &mut [u8]) -> Result<bool>,
    ) -> bool {
        let stays_in = self.stays_in(side);
        let read = |to: &mut [u8]| read(&*self.sides[side].device, at, to).unwrap_or(false);
        stays_in() && read(buffer) && stays_in()
    }

    /// A part of a chunk whose side is not in, in its place, from the first parity and the other
    /// chunks; false if one of them is not there, or something would have to be waited for.
    fn computed_plainly(
        &self,
        part: &Part,
        at: u64,
        buffer: &mut [u8],
        read: impl Fn(&dyn BlockDevice, u64, &mut [u8]) -> Result<bool>,
    ) -> bool {
        let Some(_shared) = self.gates.try_share_one(part.stripe << GATE_SHIFT) else {
            return false;
        };
        // Of what is being placed the places may have a part only.
        if self.cache.lock().placing.is_some() {
            return false;
        }
        buffer.fill(0);
        let mut bytes = vec![0; buffer.len()];
        let others = (0..self.layout.data()).filter(|chunk| *chunk != part.chunk);
        let sides = others.map(|chunk| self.layout.data_side(part.stripe, chunk));
        sides.chain([self.layout.parity_side(part.stripe, 0)]).all(|side| {
            let is_read = self.read_of(side, at, &mut bytes, &read);
            if is_read {
                codes::add(buffer, 0, 0, &bytes);
            }
            is_read
        })
    }

    /// The bytes in their places. Cells that their side fails to read twice are computed and
    /// written again; their neighbours are not, for a row of these may have another fault.
    pub(super) fn read_placed(
        &self,
        stripe: u64,
        chunk: usize,
        within: &Range<u64>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let side = self.layout.data_side(stripe, chunk);
        let at = self.layout.offset(stripe) + within.start;
        let failure = match self.read_side(side, at, buffer) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let _shared = self.gate_shared(stripe);
                return self.compute(stripe, chunk, within, 0, buffer);
            }
            Err(failure) if is_lost(&failure) => failure,
            Err(error) => return Err(error),
        };
        self.keeper.note_failed_read(&self.sides[side].members, &failure);
        let _alone = self.gate_alone(stripe);
        let mut rest = buffer;
        let mut start = within.start;
        while !rest.is_empty() {
            let end = within.end.min((start / CELL + 1) * CELL);
            let (cell, others) = rest.split_at_mut((end - start) as usize);
            let at = self.layout.offset(stripe) + start;
            match self.read_side(side, at, cell) {
                Ok(true) => {}
                Err(error) if !is_lost(&error) => return Err(error),
                _ if self.compute(stripe, chunk, &(start..end), 0, cell).is_err() => {
                    return Err(failure);
                }
                _ if self.is_in(side) => self.write_back(side, at, cell)?,
                _ => {}
            }
            (rest, start) = (others, end);
        }
        Ok(())
    }

    /// Reads from a side; false if it is not in, or was put out meanwhile: another device may have
    /// taken its place before the read got there.
    pub(super) fn read_side(&self, side: usize, at: u64, buffer: &mut [u8]) -> Result<bool> {
        let stays_in = self.stays_in(side);
        Ok(stays_in() && self.sides[side].device.read_at(at, buffer).map(|()| stays_in())?)
    }

    /// The same, where there may be holes: nothing is to be read of these.
    pub(super) fn read_side_with_holes(
        &self,
        side: usize,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<bool> {
        let stays_in = self.stays_in(side);
        if self.sides[side].device.is_hole(at, buffer.len() as u64) && stays_in() {
            buffer.fill(0);
            return Ok(true);
        }
        self.read_side(side, at, buffer)
    }

    /// Says later whether a side was in all the time since now.
    pub(super) fn stays_in(&self, side: usize) -> impl Fn() -> bool {
        // Counted before it is asked how the side stands, as it is counted after that changes.
        let absences = move || self.keeper.absences(&self.sides[side].members);
        let before = absences();
        let is_in = self.is_in(side);
        move || is_in && absences() == before
    }

    /// Writes over what a side had wrong, durably; a side that fails it is put out.
    pub(super) fn write_back(&self, side: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let side = &self.sides[side];
        match side.device.write_durable(at, &[std::io::IoSlice::new(bytes)]) {
            Err(error) => self.keeper.put_out(&side.members, &error),
            Ok(()) => Ok(()),
        }
    }

    /// A part of a chunk by what the others say, without some of them; the caller holds the
    /// stripe's gate.
    pub(super) fn compute(
        &self,
        stripe: u64,
        chunk: usize,
        within: &Range<u64>,
        without: Sides,
        buffer: &mut [u8],
    ) -> Result<()> {
        let own = 1 << self.layout.data_side(stripe, chunk);
        buffer.copy_from_slice(&self.row_with(stripe, within, without | own, true)?[chunk]);
        Ok(())
    }

    /// The data of some rows, as it is in their places; some sides are not read, others may not be
    /// there. Whether a side that is in and fails to be read is as one that is not there.
    pub(super) fn row_with(
        &self,
        stripe: u64,
        within: &Range<u64>,
        without: Sides,
        is_forgiving: bool,
    ) -> Result<Chunks> {
        let placing = self.cache.lock().placing.clone();
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
            let (kind, range) = (DeviceErrorKind::Io, (at, within.end - within.start));
            self.error(Operation::Read, range, kind, "too few sides are in")
        };
        row.ok_or_else(|| failure.unwrap_or_else(none))
    }

    /// What a side has of some rows, in its place or on the way there; `None` if it is not in.
    pub(super) fn read_row(
        &self,
        stripe: u64,
        within: &Range<u64>,
        side: usize,
        placing: Option<&Draining>,
    ) -> Result<Option<Vec<u8>>> {
        let at = self.layout.offset(stripe) + within.start;
        let mut bytes = vec![0; (within.end - within.start) as usize];
        if !self.read_side_with_holes(side, at, &mut bytes)? {
            return Ok(None);
        }
        // Of what is being placed the places may have a part only.
        if let Some(draining) = placing {
            draining.lay_over(side, at, &mut bytes);
        }
        Ok(Some(bytes))
    }

    /// The data of some rows, by what is read of sides; `None` if too few say anything.
    pub(super) fn row_of(
        &self,
        stripe: u64,
        without: Sides,
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

    /// Writes a whole stripe in place, with its parity: these bytes, or the cells that wait if they
    /// are all there. False if it has to go through the journal, or is not whole any more.
    pub(super) fn write_stripe(&self, stripe: u64, whole: Option<&[u8]>) -> Result<bool> {
        let _among_others = self.directs.read();
        let _alone = self.gate_alone(stripe);
        let (waiting, void) = {
            let pending = self.pending.lock();
            let mut cache = self.cache.lock();
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
            self.write_side(self.layout.data_side(stripe, chunk), at, bytes)?;
        }
        for k in 0..self.layout.parities {
            let parity = codes::parity(k, length, bytes.chunks_exact(length));
            self.write_side(self.layout.parity_side(stripe, k), at, &parity)?;
        }
        if let Some(before) = void {
            self.log_note(stripe, before)?;
        }
        let mut cache = self.cache.lock();
        cache.forget(stripe, &waiting);
        cache.loose.remove(stripe);
        Ok(true)
    }

    /// Writes to a side unless it is out; one that fails is put out.
    pub(super) fn write_side(&self, side: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let standing = self.standing(side);
        if standing == Standing::Out {
            return Ok(());
        }
        let side = &self.sides[side];
        match side.device.write_at(at, &[std::io::IoSlice::new(bytes)]) {
            Err(error) if is_its_fault(Operation::Write, standing, &error) => {
                self.keeper.put_out(&side.members, &error)
            }
            other => other,
        }
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
            let mut cache = self.cache.lock();
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
        self.read_at(offset, buffer)?;
        for _ in 0..3 {
            self.read_at(offset, &mut again)?;
            if again == *buffer {
                break;
            }
            buffer.copy_from_slice(&again);
        }
        Ok(())
    }

    /// Writes bytes of one stripe that are not all of it; the caller holds their cells.
    pub(super) fn write_cells(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let cells = self.cells_with(offset, bytes)?;
        self.take_in(offset, bytes, cells)?;
        let stripe = offset / self.layout.stripe_bytes();
        if self.cache.lock().is_whole(stripe) {
            self.write_stripe(stripe, None)?;
        }
        Ok(())
    }

    /// The cells that hold some bytes, with what else is there.
    pub(super) fn cells_with(&self, offset: u64, bytes: &[u8]) -> Result<VecDeque<Waiting>> {
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
