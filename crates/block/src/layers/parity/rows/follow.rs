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

use super::{Chunks, Rows, SECTOR, agree};
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

impl There {
    /// The data, and the parities, if all can be read; taken out then.
    fn whole(&mut self) -> Option<(Chunks, Chunks)> {
        let is_whole = self.data.iter().chain(&self.parities).all(Option::is_some);
        let take = |of: &mut Vec<Option<Vec<u8>>>| std::mem::take(of).into_iter().flatten();
        is_whole.then(|| (take(&mut self.data).collect(), take(&mut self.parities).collect()))
    }
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
            let mut there = self.there(stripe, within);
            if let Some(rows) = there.whole() {
                if let Some(parities) = self.parities_that_follow(stripe, within, new, rows) {
                    return Ok(parities);
                }
                there = self.there(stripe, within);
            }
            if let Some(parities) = self.parities_without_some(stripe, new, there)? {
                return Ok(parities);
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

    /// The parities by the old ones and what changes, of rows as every side has them.
    ///
    /// The whole rows are read: where they do not agree a read may have been of elsewhere, and is
    /// done again. If they still do not, something rotted, and what the parities say stays.
    fn parities_that_follow(
        &self,
        stripe: u64,
        within: &Range<u64>,
        new: &News,
        (mut data, mut parities): (Chunks, Chunks),
    ) -> Option<Chunks> {
        if !agree(&data, &parities) {
            (data, parities) = self.read_all(stripe, within)?;
            if !agree(&data, &parities) {
                self.notice(stripe);
            }
        }
        for (&chunk, new) in new {
            let change = change(&data[chunk], &new.bytes);
            parities.iter_mut().enumerate().for_each(|(k, p)| codes::add(p, k, chunk, &change));
        }
        Some(parities)
    }

    /// The same where some sides cannot be read; `None` if too few can.
    fn parities_without_some(
        &self,
        stripe: u64,
        new: &News,
        there: There,
    ) -> Result<Option<Chunks>> {
        let old = self.row_of(stripe, 0, |side| {
            Ok(match self.layout.role(stripe, side) {
                Ok(chunk) => there.data[chunk].clone(),
                Err(k) => there.parities[k].clone(),
            })
        })?;
        let Some(old) = old else { return Ok(None) };
        let mut row = old.clone();
        for (&chunk, new) in new {
            match there.data[chunk] {
                Some(_) => row[chunk].clone_from(&new.bytes),
                None => new.lay_over(&mut row[chunk]),
            }
        }
        let mut parities = Vec::with_capacity(self.layout.parities);
        for (k, said) in there.parities.into_iter().enumerate() {
            let Some(mut said) = said else {
                parities.push(parity(k, &row));
                continue;
            };
            if said != parity(k, &old) {
                self.notice(stripe);
            }
            for &chunk in new.keys() {
                codes::add(&mut said, k, chunk, &change(&old[chunk], &row[chunk]));
            }
            parities.push(said);
        }
        Ok(Some(parities))
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
        self.there(stripe, within).whole()
    }
}
