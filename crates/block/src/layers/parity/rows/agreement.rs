//! Where parity is not of the data in its rows, and computing it anew.
//!
//! Data that rotted must not get into the parity: that could heal it. So it is told where parity
//! does not agree, whoever has checksums looks at all that is there, and has parity computed of
//! just that.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::settle::steps;
use super::{Rows, agree, is_lost};
use crate::layers::parity::codes;
use crate::layers::parity::layout::CELL;
use crate::together::ask_all;
use crate::{Result, Resync};

/// Bytes of each side that are looked at together, and how many of these beside each other.
const LOOK_BYTES: u64 = 1 << 20;
const LANES: usize = 4;
/// Bytes of rows that are added up at a time: they stay in the processor's cache.
const SUM_BYTES: usize = 16 << 10;

/// A stripe, and the range of its chunks that is asked about.
type Touched = (u64, Range<u64>);

/// Stripes after one another that are looked at together.
struct Part<'t> {
    stripes: &'t [Touched],
    /// What each side has of them, in runs: whether one is a hole, and its bytes.
    runs: Vec<Vec<(bool, Range<u64>)>>,
}

impl Rows {
    /// The stripes of a range in which parity is not of the data in some row. Those that nobody has
    /// anything in are computed when somebody has.
    pub fn look(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        if self.sides.all_in().count() <= self.layout.data() {
            // Nothing is left to compare with.
            return Ok(Vec::new());
        }
        let touched: Vec<Touched> = self.layout.touched(offset, length_bytes).collect();
        let count = (LOOK_BYTES / self.layout.chunk_bytes).max(1) as usize;
        let stay_in: Vec<_> =
            (0..self.sides.count()).map(|side| self.sides.stays_in(side)).collect();
        let are_in = || stay_in.iter().all(|stays_in| stays_in());
        // Asked before anything is read: the kernel reads ahead, and what it reads of a hole is
        // data from then on, which is read, and more ahead of that.
        let parts: Vec<Part<'_>> = touched.chunks(count).map(|some| self.part(some)).collect();
        let begun = AtomicUsize::new(0);
        let look = |_| {
            let (mut apart, mut sides) = (Vec::new(), vec![Vec::new(); self.sides.count()]);
            while let Some(part) = parts.get(begun.fetch_add(1, Ordering::Relaxed)) {
                let is_loose =
                    |(stripe, _): &Touched| self.cache().loose.contains(*stripe..stripe + 1);
                if !part.stripes.iter().all(is_loose) {
                    // No side is asked that is not in: it may be a disk that takes long to fail.
                    let are_read = are_in() && self.read_sides(part, &mut sides) && are_in();
                    self.look_at(part.stripes, are_read.then_some(&sides), &mut apart)?;
                }
            }
            Ok(apart)
        };
        let lanes = ask_all(self.sides.together(), LANES.min(parts.len()), look);
        let mut apart = lanes.into_iter().collect::<Result<Vec<Vec<u64>>>>()?.concat();
        apart.sort_unstable();
        let size = self.layout.stripe_bytes();
        Ok(apart.into_iter().map(|stripe| stripe * size..(stripe + 1) * size).collect())
    }

    /// Looks at stripes after one another. They were read as a whole while others may write there:
    /// where they agree nothing is wrong, and the others are read again without.
    fn look_at(
        &self,
        stripes: &[Touched],
        sides: Option<&Vec<Vec<u8>>>,
        apart: &mut Vec<u64>,
    ) -> Result<()> {
        for (number, (stripe, within)) in stripes.iter().enumerate() {
            let agrees = sides.is_some_and(|sides| self.agrees(*stripe, number, sides));
            if agrees || self.cache().loose.contains(*stripe..stripe + 1) {
                continue;
            }
            let is_apart = match self.is_apart(*stripe, within) {
                Err(error) if is_lost(&error) => {
                    self.read_cells(*stripe, within);
                    self.is_apart(*stripe, within)?
                }
                other => other?,
            };
            if is_apart {
                apart.push(*stripe);
            }
        }
        Ok(())
    }

    fn part<'t>(&self, stripes: &'t [Touched]) -> Part<'t> {
        let at = self.layout.offset(stripes[0].0);
        let all = 0..stripes.len() as u64 * self.layout.chunk_bytes;
        let runs_of = |side: usize| {
            let device = self.sides.device(side);
            let mut runs: Vec<(bool, Range<u64>)> = Vec::new();
            for piece in steps(&all) {
                let is_hole = device.is_hole(at + piece.start, piece.end - piece.start);
                match runs.last_mut() {
                    Some((before, run)) if *before == is_hole => run.end = piece.end,
                    _ => runs.push((is_hole, piece)),
                }
            }
            runs
        };
        Part { stripes, runs: (0..self.sides.count()).map(runs_of).collect() }
    }

    /// Reads what all sides have of a part, but for holes; false if one cannot be read.
    fn read_sides(&self, part: &Part<'_>, sides: &mut [Vec<u8>]) -> bool {
        let at = self.layout.offset(part.stripes[0].0);
        let length = part.stripes.len() * self.layout.chunk_bytes as usize;
        let mut sides = sides.iter_mut().zip(&part.runs).enumerate();
        sides.all(|(side, (bytes, runs))| {
            bytes.resize(length, 0);
            runs.iter().all(|(is_hole, run)| {
                let bytes = &mut bytes[run.start as usize..run.end as usize];
                if *is_hole {
                    bytes.fill(0);
                    return true;
                }
                self.sides.device(side).read_at(at + run.start, bytes).is_ok()
            })
        })
    }

    /// Whether all rows of a stripe agree, as they were read of the sides.
    fn agrees(&self, stripe: u64, number: usize, sides: &[Vec<u8>]) -> bool {
        let chunk = self.layout.chunk_bytes as usize;
        let mut sum = [0; SUM_BYTES];
        (number * chunk..(number + 1) * chunk).step_by(SUM_BYTES).all(|from| {
            let rows = from..(from + SUM_BYTES).min((number + 1) * chunk);
            (0..self.layout.parities).all(|k| {
                let sum = &mut sum[..rows.len()];
                sum.copy_from_slice(&sides[self.layout.data_side(stripe, 0)][rows.clone()]);
                for i in 1..self.layout.data() {
                    let side = self.layout.data_side(stripe, i);
                    codes::add(sum, k, i, &sides[side][rows.clone()]);
                }
                *sum == sides[self.layout.parity_side(stripe, k)][rows.clone()]
            })
        })
    }

    fn is_apart(&self, stripe: u64, within: &Range<u64>) -> Result<bool> {
        let _shared = self.gate_shared(stripe);
        for rows in steps(within) {
            let all = self.read_all(stripe, &rows);
            if all.is_some_and(|(data, parities)| agree(&data, &parities)) {
                continue;
            }
            if !self.wrong_in(stripe, &rows, Resync::Computed)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
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
}
