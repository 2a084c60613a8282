//! The trial layer: what is written to it stays in memory, and what is below is only read.
//!
//! Invariants: 1. reads give what was written here last, what is below where nothing was, and
//! anything where it was discarded; 2. nothing below is changed. It is used from when members are
//! opened until it is known that the pool on them can be: that writes what is in the journals of
//! parities, to all their sides, and some pages, and is gone with the trial.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use env::RankedRwLock;

use super::memory::MemoryDevice;
use crate::range_set::RangeSet;
use crate::{BlockDevice, Result};

/// A device on which everything can be tried.
pub struct TrialDevice {
    below: Arc<dyn BlockDevice>,
    written: MemoryDevice,
    /// Where something was written.
    ranges: RankedRwLock<RangeSet>,
}

impl TrialDevice {
    /// A trial of `below`.
    pub fn new(below: Arc<dyn BlockDevice>) -> TrialDevice {
        let written = MemoryDevice::new(below.len_bytes());
        TrialDevice { below, written, ranges: RankedRwLock::default() }
    }
}

impl BlockDevice for TrialDevice {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let within = |at: u64| (at - offset) as usize;
        let end = offset.saturating_add(buffer.len() as u64);
        // What is written from here on may be seen or not.
        let pieces: Vec<Range<u64>> = self.ranges.read().overlapping(offset..end).collect();
        if end > self.len_bytes() || pieces.is_empty() {
            return self.below.read_at(offset, buffer);
        }
        let mut at = offset;
        for piece in pieces {
            let written = piece.start.max(offset)..piece.end.min(end);
            if at < written.start {
                self.below.read_at(at, &mut buffer[within(at)..within(written.start)])?;
            }
            let piece = &mut buffer[within(written.start)..within(written.end)];
            self.written.read_at(written.start, piece)?;
            at = written.end;
        }
        match at < end {
            true => self.below.read_at(at, &mut buffer[within(at)..]),
            false => Ok(()),
        }
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        self.written.write_at(offset, slices)?;
        self.ranges.write().insert(offset..offset + length_bytes);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.written.allocate(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.written.discard(offset, length_bytes)
    }

    fn describe(&self) -> String {
        format!("trial({})", self.below.describe())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use super::TrialDevice;
    use crate::{BlockDevice, MemoryDevice};

    /// Ranges, contents and an order of their own from a fixed rule, against an array.
    #[test]
    fn it_is_what_is_below_with_what_was_written_over_it() {
        const LEN: usize = 40 << 10;
        let below = Arc::new(MemoryDevice::new(LEN as u64));
        let mut array: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let under = array.clone();
        below.write_at(0, &[IoSlice::new(&array)]).unwrap();
        let trial = TrialDevice::new(Arc::<MemoryDevice>::clone(&below));
        let mut state = 11_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        for _ in 0..600 {
            let offset = next(LEN);
            let length = next(300).min(LEN - offset);
            let byte = next(256) as u8;
            let half = length / 2;
            let bytes = vec![byte; length];
            let slices = [IoSlice::new(&bytes[..half]), IoSlice::new(&bytes[half..])];
            trial.write_at(offset as u64, &slices).unwrap();
            array[offset..offset + length].fill(byte);
            let offset = next(LEN);
            let mut found = vec![9; next(LEN - offset + 1).min(5000)];
            trial.read_at(offset as u64, &mut found).unwrap();
            assert!(found == array[offset..offset + found.len()]);
        }
        let mut found = vec![0; LEN];
        below.read_at(0, &mut found).unwrap();
        assert!(found == under, "nothing below was changed");
        assert!(trial.read_at(LEN as u64 - 1, &mut [0; 2]).is_err());
        assert!(trial.write_at(LEN as u64 - 1, &[IoSlice::new(&[0; 2])]).is_err());
    }
}
