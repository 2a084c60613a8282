//! A device that is memory: sparse, gone with the process, as durable as nothing.
//!
//! Invariants
//! 1. Reads give what was written; what is not kept is zeros.
//! 2. Memory is used for cells of 64 bytes that hold something else than zeros, not for the length:
//!    a log whose payload is zeros takes the room of its headers.
//! 3. A discarded chunk is freed and reads as zeros.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;

use env::RankedRwLock;

use crate::slices::is_zero;
use crate::{BlockDevice, Operation, Result};

/// Bytes of a chunk: large enough to keep the index small, small enough to be sparse.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that are kept or not.
const CELL_BYTES: usize = 64;
const CELLS: usize = CHUNK_BYTES / CELL_BYTES;
const WORDS: usize = CELLS / u64::BITS as usize;

static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// A device in memory.
pub struct MemoryDevice {
    chunks: RankedRwLock<BTreeMap<u64, Chunk>>,
    len_bytes: u64,
}

/// The cells of a chunk that are kept, one after the other.
#[derive(Default)]
struct Chunk {
    kept: [u64; WORDS],
    bytes: Vec<u8>,
}

impl MemoryDevice {
    /// An empty device of `len_bytes`, all zeros.
    #[must_use]
    pub fn new(len_bytes: u64) -> MemoryDevice {
        MemoryDevice { chunks: RankedRwLock::default(), len_bytes }
    }
}

impl Chunk {
    fn is_kept(&self, cell: usize) -> bool {
        self.kept[cell / 64] >> (cell % 64) & 1 == 1
    }

    /// How many cells before this one are kept.
    fn rank(&self, cell: usize) -> usize {
        let whole: u32 = self.kept[..cell / 64].iter().map(|word| word.count_ones()).sum();
        let part =
            if cell.is_multiple_of(64) { 0 } else { self.kept[cell / 64] << (64 - cell % 64) };
        (whole + part.count_ones()) as usize
    }

    /// Keeps cells that are not kept yet, as zeros.
    fn keep(&mut self, cells: Range<usize>) {
        let new = cells.clone().filter(|cell| !self.is_kept(*cell)).count();
        if new == cells.len() {
            // All at once: a log grows at its end.
            let at = self.rank(cells.start) * CELL_BYTES;
            self.bytes.splice(at..at, ZEROS[..new * CELL_BYTES].iter().copied());
            cells.for_each(|cell| self.kept[cell / 64] |= 1 << (cell % 64));
        } else if new > 0 {
            cells.for_each(|cell| {
                if !self.is_kept(cell) {
                    self.keep(cell..cell + 1);
                }
            });
        }
    }

    /// Writes within the chunk.
    fn write(&mut self, within: usize, piece: &[u8]) {
        let cells = within / CELL_BYTES..(within + piece.len()).div_ceil(CELL_BYTES);
        let kept = self.rank(cells.end) - self.rank(cells.start);
        if kept < cells.len() && is_zero(piece) {
            // Over those that are kept only; there are none where a log is new.
            if kept > 0 {
                self.fill_kept(cells, within..within + piece.len());
            }
            return;
        }
        self.keep(cells.clone());
        let at = self.rank(cells.start) * CELL_BYTES + within % CELL_BYTES;
        self.bytes[at..at + piece.len()].copy_from_slice(piece);
    }

    /// Zeros in what is kept of a range.
    fn fill_kept(&mut self, cells: Range<usize>, range: Range<usize>) {
        for cell in cells.filter(|cell| self.is_kept(*cell)).collect::<Vec<_>>() {
            let start = range.start.max(cell * CELL_BYTES) - cell * CELL_BYTES;
            let end = range.end.min((cell + 1) * CELL_BYTES) - cell * CELL_BYTES;
            let at = self.rank(cell) * CELL_BYTES;
            self.bytes[at + start..at + end].fill(0);
        }
    }

    /// Reads within the chunk.
    fn read(&self, within: usize, piece: &mut [u8]) {
        let cells = within / CELL_BYTES..(within + piece.len()).div_ceil(CELL_BYTES);
        let rank = self.rank(cells.start);
        if self.rank(cells.end) - rank == cells.len() {
            let at = rank * CELL_BYTES + within % CELL_BYTES;
            return piece.copy_from_slice(&self.bytes[at..at + piece.len()]);
        }
        piece.fill(0);
        let end = within + piece.len();
        for (rank, cell) in (rank..).zip(cells.filter(|cell| self.is_kept(*cell))) {
            let (from, to) = (within.max(cell * CELL_BYTES), end.min((cell + 1) * CELL_BYTES));
            let at = rank * CELL_BYTES + from - cell * CELL_BYTES;
            piece[from - within..to - within].copy_from_slice(&self.bytes[at..at + to - from]);
        }
    }
}

/// The part of a range of `left` bytes at `position` within one chunk: chunk number, offset in it,
/// bytes.
fn part(position: u64, left: usize) -> (u64, usize, usize) {
    let chunk = CHUNK_BYTES as u64;
    let within = usize::try_from(position % chunk).expect("within a chunk");
    (position / chunk, within, left.min(CHUNK_BYTES - within))
}

impl BlockDevice for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let chunks = self.chunks.read();
        let mut done = 0;
        while done < buffer.len() {
            let (number, within, take) = part(offset + done as u64, buffer.len() - done);
            let piece = &mut buffer[done..done + take];
            match chunks.get(&number) {
                Some(chunk) => chunk.read(within, piece),
                None => piece.fill(0),
            }
            done += take;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let mut chunks = self.chunks.write();
        let mut position = offset;
        for slice in slices {
            let mut done = 0;
            while done < slice.len() {
                let (number, within, take) = part(position, slice.len() - done);
                let piece = &slice[done..done + take];
                match chunks.get_mut(&number) {
                    Some(chunk) => chunk.write(within, piece),
                    None if is_zero(piece) => {}
                    None => chunks.entry(number).or_default().write(within, piece),
                }
                done += take;
                position += take as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let chunk = CHUNK_BYTES as u64;
        let (first, end) = (offset.div_ceil(chunk), (offset + length_bytes) / chunk);
        let mut chunks = self.chunks.write();
        let whole: Vec<u64> = if first < end {
            chunks.range(first..end).map(|(&number, _)| number).collect()
        } else {
            Vec::new()
        };
        for number in whole {
            chunks.remove(&number);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("memory {} bytes", self.len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::{CELL_BYTES, MemoryDevice};
    use crate::BlockDevice;

    fn kept_bytes(device: &MemoryDevice) -> usize {
        device.chunks.read().values().map(|chunk| chunk.bytes.len()).sum()
    }

    #[test]
    fn zeros_take_no_room() {
        let device = MemoryDevice::new(1 << 40);
        let (ones, zeros) = ([1; 1000], [0; 4096]);
        device.write_at(100, &[IoSlice::new(&ones), IoSlice::new(&zeros)]).unwrap();
        let mut found = [9; 6000];
        device.read_at(0, &mut found).unwrap();
        assert!(found.iter().enumerate().all(|(i, b)| *b == u8::from((100..1100).contains(&i))));
        let cells = 1100_usize.div_ceil(CELL_BYTES) - 100 / CELL_BYTES;
        assert_eq!(kept_bytes(&device), cells * CELL_BYTES);
        device.write_at(200, &[IoSlice::new(&zeros)]).unwrap();
        device.read_at(0, &mut found).unwrap();
        assert_eq!(found.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 100);
        device.write_at(1 << 30, &[IoSlice::new(&zeros)]).unwrap();
        device.discard(0, 1 << 40).unwrap();
        assert_eq!(kept_bytes(&device), 0);
    }

    /// Ranges, contents and an order of their own from a fixed rule, against an array.
    #[test]
    fn it_is_an_array_of_bytes() {
        const LEN: usize = 200 << 10;
        let device = MemoryDevice::new(LEN as u64);
        let mut array = vec![0_u8; LEN];
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        for _ in 0..4000 {
            let offset = next(LEN);
            let most = [70, 600, 9000][next(3)];
            let length = (1 + next(most)).min(LEN - offset);
            let byte = [0, 0, 1, 2][next(4)];
            device.write_at(offset as u64, &[IoSlice::new(&vec![byte; length])]).unwrap();
            array[offset..offset + length].fill(byte);
            let offset = next(LEN);
            let mut found = vec![9; next(LEN - offset) + 1];
            device.read_at(offset as u64, &mut found).unwrap();
            assert!(found == array[offset..offset + found.len()]);
        }
    }
}
