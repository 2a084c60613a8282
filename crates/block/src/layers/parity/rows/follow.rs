//! The parities of rows of which a part is written.
//!
//! They follow from what changes, so that what they say of the rest stays: it may be the only sound
//! copy of what rotted, or of what a side has that is missing. If what is written over is what had
//! rotted they are wrong about what is written, until they are computed anew: nobody here knows
//! which it was, so the stripe is told of, and whoever has checksums looks. Of what changes on a
//! side that is missing the old bytes are what the first parities say. Only a parity whose side is
//! missing is computed of all of the row.
//!
//! Invariant: of a cell whose side is missing a parity changes only in sectors in which something
//! was written: the others were computed, and may be wrong.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Chunks, Rows, SECTOR};
use crate::Result;
use crate::layers::parity::cache::Cells;
use crate::layers::parity::codes;
use crate::layers::parity::layout::CELL;

/// Sectors of a cell, a bit each.
type Sectors = u8;

/// The cells of a chunk that are written, in rows after one another.
pub struct New {
    pub bytes: Vec<u8>,
    /// Of each row the sectors in which something was.
    touched: Vec<Sectors>,
}

impl New {
    /// Those of some rows: each of them waits.
    pub fn of(cells: &Cells, numbers: Range<u64>) -> New {
        let cells = numbers.map(|number| &cells[&number]);
        let touched = cells.clone().map(|cell| cell.touched).collect();
        let bytes = cells.map(|cell| &cell.bytes[..]).collect::<Vec<_>>().concat();
        New { bytes, touched }
    }

    /// Lays what was written over what was there.
    fn lay_over(&self, to: &mut [u8]) {
        let size = SECTOR as usize;
        let sectors = to.chunks_exact_mut(size).zip(self.bytes.chunks_exact(size));
        for (number, (to, new)) in sectors.enumerate() {
            let of_cell = CELL as usize / size;
            if self.touched[number / of_cell] >> (number % of_cell) & 1 == 1 {
                to.copy_from_slice(new);
            }
        }
    }
}

/// What is written of rows, by chunk.
pub type News = BTreeMap<usize, New>;

/// What sides have of some rows.
struct There {
    data: Vec<Option<Vec<u8>>>,
    parities: Vec<Option<Vec<u8>>>,
}

/// By what something changes.
fn change(old: &[u8], new: &[u8]) -> Vec<u8> {
    old.iter().zip(new).map(|(old, new)| old ^ new).collect()
}

/// A parity of rows.
fn parity(k: usize, row: &Chunks) -> Vec<u8> {
    codes::parity(k, row[0].len(), row.iter().map(|bytes| &bytes[..]))
}

impl Rows {
    /// The parities of rows of which some chunks are written anew, or all there is of them is.
    /// Nobody writes the stripe in place meanwhile.
    pub fn parities_with(
        &self,
        stripe: u64,
        within: &Range<u64>,
        new: &News,
        is_whole: bool,
    ) -> Result<Chunks> {
        if !is_whole && !self.cache().loose.contains(stripe..stripe + 1) {
            // Where they do not agree a read may have been of elsewhere.
            for is_last in [false, true] {
                let there = self.there(stripe, within);
                if let Some(parities) = self.parities_that_follow(stripe, new, there, is_last)? {
                    return Ok(parities);
                }
            }
        }
        let row = match new.len() == self.layout.data() {
            true => new.values().map(|new| new.bytes.clone()).collect(),
            false => self.neighbours(stripe, within, new)?,
        };
        Ok((0..self.layout.parities).map(|k| parity(k, &row)).collect())
    }

    /// Rows with what is written anew.
    fn neighbours(&self, stripe: u64, within: &Range<u64>, new: &News) -> Result<Chunks> {
        let at = self.layout.offset(stripe) + within.start;
        let mut row = vec![Vec::new(); self.layout.data()];
        for (chunk, bytes) in row.iter_mut().enumerate().filter(|(i, _)| !new.contains_key(i)) {
            let side = self.layout.data_side(stripe, chunk);
            bytes.resize((within.end - within.start) as usize, 0);
            if !matches!(self.sides.read(side, at, bytes), Ok(true)) {
                row = self.row_with(stripe, within, 0, true)?;
                break;
            }
        }
        new.iter().for_each(|(&chunk, new)| row[chunk].clone_from(&new.bytes));
        Ok(row)
    }

    /// The parities by the old ones and what changes; `None` if too few sides can be read, or rows
    /// that all can be read do not agree and are to be read again. If they still do not, something
    /// rotted, and what the parities say stays.
    fn parities_that_follow(
        &self,
        stripe: u64,
        new: &News,
        There { mut data, parities }: There,
        is_last: bool,
    ) -> Result<Option<Chunks>> {
        let is_there: Vec<bool> = data.iter().map(Option::is_some).collect();
        let is_whole = is_there.iter().all(|is| *is) && parities.iter().all(Option::is_some);
        let old = self.row_of(stripe, 0, |side| {
            Ok(match self.layout.role(stripe, side) {
                Ok(chunk) => data[chunk].take(),
                Err(k) => parities[k].clone(),
            })
        })?;
        let Some(old) = old else { return Ok(None) };
        let is_wrong = |k: usize, said: &[u8]| said != parity(k, &old);
        let mut said = parities.iter().enumerate();
        if said.any(|(k, said)| said.as_ref().is_some_and(|said| is_wrong(k, said))) {
            if is_whole && !is_last {
                return Ok(None);
            }
            self.notice(stripe);
        }
        let changes = new.iter().map(|(&chunk, new)| match is_there[chunk] {
            true => (chunk, change(&old[chunk], &new.bytes)),
            false => {
                let mut now = old[chunk].clone();
                new.lay_over(&mut now);
                (chunk, change(&old[chunk], &now))
            }
        });
        let changes: Vec<(usize, Vec<u8>)> = changes.collect();
        let follow = |(k, said): (usize, Option<Vec<u8>>)| {
            let mut said = said.unwrap_or_else(|| parity(k, &old));
            changes.iter().for_each(|(chunk, change)| codes::add(&mut said, k, *chunk, change));
            said
        };
        Ok(Some(parities.into_iter().enumerate().map(follow).collect()))
    }

    fn there(&self, stripe: u64, within: &Range<u64>) -> There {
        let at = self.layout.offset(stripe) + within.start;
        let read = |side: usize| {
            let mut bytes = vec![0; (within.end - within.start) as usize];
            matches!(self.sides.read(side, at, &mut bytes), Ok(true)).then_some(bytes)
        };
        let data = (0..self.layout.data()).map(|i| read(self.layout.data_side(stripe, i)));
        let parities = (0..self.layout.parities).map(|k| read(self.layout.parity_side(stripe, k)));
        There { data: data.collect(), parities: parities.collect() }
    }

    /// Rows as all sides have them, if all can be read: the data, and the parities.
    pub fn read_all(&self, stripe: u64, within: &Range<u64>) -> Option<(Chunks, Chunks)> {
        let There { data, parities } = self.there(stripe, within);
        Some((
            data.into_iter().collect::<Option<_>>()?,
            parities.into_iter().collect::<Option<_>>()?,
        ))
    }
}
