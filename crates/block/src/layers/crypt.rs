//! The crypt layer: everything on the device below it is encrypted. `docs/format/crypt.md` has the
//! bytes, `docs/design/2026-11-22-crypt.md` what it protects and what not.
//!
//! Invariants: 1. no byte that was written here reaches the device below in plain; 2. without the
//! right key nothing is read: a wrong one is refused by name; 3. a cell of 16 bytes is read and
//! written by one request at a time, or read by several: who writes a part of one reads the rest of
//! it first, and half of a cell that is written decrypts to bytes that nobody wrote; 4. a cell lies
//! in one sector, which arrives whole or not at all: what a write of a part of a cell leaves alone
//! stays, whatever a crash does; 5. no copy is written with bytes that the caller did not call
//! right: the rest of a cell that a range covers in part is never healed.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use format::crypt::{COPY_OFFSETS, CryptHeader, DATA_OFFSET, SECTOR_BYTES, SECTORS_MAX};
use zeroize::Zeroizing;

pub use self::error::CryptError;
pub use self::key::{CryptKey, KeySource};
use self::xts::{CELL, Xts};
use crate::ranges::RangeLock;
use crate::{BlockDevice, Operation, Outcome, Result, Resync, Right};

mod error;
mod header;
mod key;
mod xts;

const CELL_BYTES: u64 = CELL as u64;

/// A device whose bytes are encrypted.
pub struct CryptDevice {
    below: Arc<dyn BlockDevice>,
    xts: Xts,
    len_bytes: u64,
    ranges: RangeLock,
}

impl CryptDevice {
    /// Makes `below` an encrypted device that `key` opens; what is on it is lost. `random` fills
    /// bytes with what nobody can guess: the operating system's random numbers (`env::Entropy` is
    /// for identities, and not enough for keys).
    ///
    /// # Errors
    /// Those of the device below, or if it has no room, or if `random` gives the same twice.
    pub fn format(
        below: &dyn BlockDevice,
        key: &CryptKey,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> std::result::Result<(), CryptError> {
        let sector = SECTOR_BYTES as u64;
        let (device, bytes) = (below.describe(), below.len_bytes());
        let sectors = (bytes.saturating_sub(DATA_OFFSET) / sector).min(SECTORS_MAX);
        if sectors == 0 {
            let expected = DATA_OFFSET + sector;
            return Err(CryptError::TooShort { device, bytes, expected });
        }
        let mut data_key = Zeroizing::new([0; key::DATA_KEY_BYTES]);
        random(&mut data_key[..]);
        let (first, second) = data_key.split_at(32);
        let header = sealed(sectors, key, &data_key, random);
        if first == second || header.salt == *first || header.salt == *second {
            return Err(CryptError::Random);
        }
        for offset in COPY_OFFSETS {
            below.write_durable(offset, &[IoSlice::new(&[0; SECTOR_BYTES])])?;
        }
        Ok(header::write(below, &header)?)
    }

    /// The encrypted device that is on `below`, as long as that has room for.
    ///
    /// # Errors
    /// Those of the device below; `WrongKey`; `Header` if it is no encrypted device, or one of
    /// another version; `TooShort` if it was cut.
    pub fn open(
        below: Arc<dyn BlockDevice>,
        key: &CryptKey,
    ) -> std::result::Result<CryptDevice, CryptError> {
        let (header, data_key) = header::read(&*below, key)?;
        let (device, bytes) = (below.describe(), below.len_bytes());
        let expected = DATA_OFFSET + header.sectors * SECTOR_BYTES as u64;
        if bytes < expected {
            return Err(CryptError::TooShort { device, bytes, expected });
        }
        let len_bytes = CryptDevice::bytes_above(bytes);
        let (xts, ranges) = (Xts::new(&data_key), RangeLock::default());
        Ok(CryptDevice { below, xts, len_bytes, ranges })
    }

    /// The same, so deep in a stack.
    #[must_use]
    pub(crate) fn at_depth(self, depth: usize) -> CryptDevice {
        CryptDevice { ranges: RangeLock::at_depth(depth), ..self }
    }

    /// Bytes of data on a device with so many bytes.
    #[must_use]
    pub fn bytes_above(below_bytes: u64) -> u64 {
        let sector = SECTOR_BYTES as u64;
        (below_bytes.saturating_sub(DATA_OFFSET) / sector).min(SECTORS_MAX) * sector
    }

    /// Fills `buffer` with the plain bytes of what `read` reads below. The range is held.
    fn read_cells(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(u64, &mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let cells = Cells::of(offset, buffer.len());
        if cells.is_exact() {
            let done = read(DATA_OFFSET + cells.start, buffer)?;
            if done {
                self.xts.decrypt(cells.start, buffer);
            }
            return Ok(done);
        }
        let mut whole = vec![0; cells.length()];
        let done = read(DATA_OFFSET + cells.start, &mut whole)?;
        if done {
            self.xts.decrypt(cells.start, &mut whole);
            buffer.copy_from_slice(&whole[cells.wanted]);
        }
        Ok(done)
    }

    /// Fills `buffer` with the plain bytes of what `read` reads below.
    fn read_shared(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let cells = Cells::of(offset, buffer.len());
        let _held = self.ranges.share(cells.start..cells.end);
        self.read_cells(offset, buffer, |at, bytes| read(at, bytes).map(|()| true)).map(drop)
    }

    /// Encrypts a write, with the rest of its first and last cell, and gives it to `write`.
    fn write_cells(
        &self,
        offset: u64,
        slices: &[IoSlice<'_>],
        write: impl FnOnce(u64, &[IoSlice<'_>]) -> Result<()>,
    ) -> Result<()> {
        let length: u64 = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let cells = Cells::of(offset, length as usize);
        let _held = self.ranges.hold(cells.start..cells.end);
        let mut bytes = vec![0; cells.length()];
        let last = cells.length() - CELL;
        if cells.wanted.start > 0 {
            self.read_cell(cells.start, &mut bytes[..CELL])?;
        }
        if cells.wanted.end < bytes.len() && (last > 0 || cells.wanted.start == 0) {
            self.read_cell(cells.start + last as u64, &mut bytes[last..])?;
        }
        let mut at = cells.wanted.start;
        for slice in slices {
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        self.xts.encrypt(cells.start, &mut bytes);
        write(DATA_OFFSET + cells.start, &[IoSlice::new(&bytes)])
    }

    /// The data in a range below, if there is any.
    fn above(&self, below: &Range<u64>) -> Option<Range<u64>> {
        let above = |at: u64| at.saturating_sub(DATA_OFFSET).min(self.len_bytes);
        Some(above(below.start)..above(below.end)).filter(|range| !range.is_empty())
    }

    fn read_cell(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.below.read_at(DATA_OFFSET + offset, bytes)?;
        self.xts.decrypt(offset, bytes);
        Ok(())
    }

    /// Heals whole cells.
    fn heal_cells(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let mut bytes = vec![0; buffer.len()];
        let plain_is_right = |encrypted: &[u8]| {
            let mut plain = encrypted.to_vec();
            self.xts.decrypt(offset, &mut plain);
            right(&plain)
        };
        let outcome = self.below.heal(DATA_OFFSET + offset, &mut bytes, &plain_is_right)?;
        buffer.copy_from_slice(&bytes);
        self.xts.decrypt(offset, buffer);
        Ok(outcome)
    }

    /// Heals a range that covers cells in part: a copy that is right is found, and the cells that
    /// it covers whole are healed to it.
    fn heal_parts(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let cells = Cells::of(offset, buffer.len());
        let count = self.below.copies(DATA_OFFSET + cells.start, cells.length() as u64);
        let (mut failure, mut said) = (None, Vec::new());
        for copy in 0..count {
            let read =
                |at: u64, bytes: &mut [u8]| self.below.read_copy(copy, at, bytes).map(|()| true);
            match self.read_cells(offset, buffer, read) {
                Err(error) => failure = Some(error),
                Ok(_) if right(buffer) => return self.heal_inner(offset, buffer),
                Ok(_) => said.push(buffer.to_vec()),
            }
        }
        match failure {
            Some(error) if said.is_empty() => Err(error),
            None if count > 1 && said.iter().all(|bytes| *bytes == said[0]) => Ok(Outcome::Agreed),
            _ => Ok(Outcome::Unrecoverable),
        }
    }

    /// Heals the cells that a range covers whole to what is known to be right.
    fn heal_inner(&self, offset: u64, good: &[u8]) -> Result<Outcome> {
        let first = offset.next_multiple_of(CELL_BYTES);
        let end = (offset + good.len() as u64) / CELL_BYTES * CELL_BYTES;
        if first >= end {
            return Ok(Outcome::Transient);
        }
        let good = &good[(first - offset) as usize..(end - offset) as usize];
        let mut bytes = good.to_vec();
        let outcome = self.heal_cells(first, &mut bytes, &|plain| plain == good)?;
        Ok(if outcome == Outcome::Recovered { outcome } else { Outcome::Transient })
    }
}

impl BlockDevice for CryptDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_shared(offset, buffer, |at, bytes| self.below.read_at(at, bytes))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let cells = Cells::of(offset, buffer.len());
        let Some(_held) = self.ranges.try_share(cells.start..cells.end) else {
            return Ok(false);
        };
        self.read_cells(offset, buffer, |at, bytes| self.below.try_read_at(at, bytes))
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write_cells(offset, slices, |at, bytes| self.below.write_at(at, bytes))
    }

    forward! {
        self.below =>
        fn flush(&self) -> Result<()>;
        fn ways(&self) -> usize;
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        self.below.allocate(DATA_OFFSET + offset, length_bytes)
    }

    /// Whole cells only: a part of one that reads as anything would make the rest of it anything.
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let first = offset.next_multiple_of(CELL_BYTES);
        let end = (offset + length_bytes) / CELL_BYTES * CELL_BYTES;
        if first >= end {
            return Ok(());
        }
        let _held = self.ranges.hold(first..end);
        self.below.discard(DATA_OFFSET + first, end - first)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write_cells(offset, slices, |at, bytes| self.below.write_durable(at, bytes))
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        self.below.copies(DATA_OFFSET.saturating_add(offset), length_bytes)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_shared(offset, buffer, |at, bytes| self.below.read_copy(copy, at, bytes))
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_shared(offset, buffer, |at, bytes| self.below.read_way(way, at, bytes))
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let cells = Cells::of(offset, buffer.len());
        let _held = self.ranges.hold(cells.start..cells.end);
        if cells.is_exact() {
            self.heal_cells(offset, buffer, right)
        } else {
            self.heal_parts(offset, buffer, right)
        }
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        if offset == 0 && matches!(which, Resync::Stale | Resync::Beside) {
            // Without the header there is nothing.
            self.below.resync(0, DATA_OFFSET, Resync::Stale)?;
        }
        let mut range = DATA_OFFSET + offset..DATA_OFFSET + offset + length_bytes;
        if which == Resync::Unused && offset == 0 {
            range.start = header::forget_between(&*self.below)?;
        }
        if which == Resync::Computed {
            if offset == 0 && header::are_sound(&*self.below) {
                range.start = 0;
            }
            if offset + length_bytes == self.len_bytes {
                range.end = self.below.len_bytes();
            }
        }
        self.below.resync(range.start, range.end - range.start, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.check(Operation::Read, offset, length_bytes)?;
        let found = self.below.disagreements(DATA_OFFSET + offset, length_bytes)?;
        Ok(found.iter().filter_map(|range| self.above(range)).collect())
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.below.noticed().iter().filter_map(|range| self.above(range)).collect()
    }

    fn describe(&self) -> String {
        format!("crypt({})", self.below.describe())
    }
}

/// The cells of a range of data.
struct Cells {
    start: u64,
    end: u64,
    /// The range within them.
    wanted: Range<usize>,
}

impl Cells {
    fn of(offset: u64, length: usize) -> Cells {
        let start = offset / CELL_BYTES * CELL_BYTES;
        let end = (offset + length as u64).next_multiple_of(CELL_BYTES);
        let skip = (offset - start) as usize;
        Cells { start, end, wanted: skip..skip + length }
    }

    fn length(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn is_exact(&self) -> bool {
        self.wanted == (0..self.length())
    }
}

/// A header for a key, with a salt of its own.
fn sealed(
    sectors: u64,
    key: &CryptKey,
    data_key: &[u8; key::DATA_KEY_BYTES],
    random: &mut dyn FnMut(&mut [u8]),
) -> CryptHeader {
    let mut salt = [0; 32];
    random(&mut salt);
    CryptHeader { sectors, salt, wrapped_key: key.wrap(&salt, data_key) }
}
