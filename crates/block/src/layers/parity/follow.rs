//! The parities of rows of which a part is written.
//!
//! They follow from what changes, so that what they say of the rest stays: it may be the only sound
//! copy of what rotted, or of what a side has that is missing. Of what changes on a side that is
//! missing the old bytes are what the first parities say. Only a parity whose side is missing is
//! computed of all of the row.
//!
//! Invariants: 1. of a cell whose side is missing a parity changes only in sectors in which
//! something was written: the others were computed without differences, and may be wrong; 2. a
//! difference is that of the parity as it will be.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cache::Cells;
use super::layout::CELL;
use super::rows::{Chunks, SECTOR, agree};
use super::ways::{Added, By};
use super::{ParityDevice, codes};
use crate::Result;

/// Sectors of a cell, a bit each.
type Sectors = u8;

/// The cells of a chunk that are written, in rows after one another.
pub struct New {
    pub bytes: Vec<u8>,
    /// Of each row the sectors that were written as a whole, and those in which something was.
    sectors: Vec<(Sectors, Sectors)>,
}

impl New {
    /// Those of some rows: each of them waits.
    pub fn of(cells: &Cells, numbers: Range<u64>) -> New {
        let cells = numbers.map(|number| &cells[&number]);
        let sectors = cells.clone().map(|cell| (cell.written, cell.touched)).collect();
        New { bytes: cells.flat_map(|cell| cell.bytes.iter().copied()).collect(), sectors }
    }

    /// Lays what was written over what was there.
    fn lay_over(&self, to: &mut [u8]) {
        for at in self.touched() {
            to[at.clone()].copy_from_slice(&self.bytes[at]);
        }
    }

    /// The bytes of sectors in which something was written.
    fn touched(&self) -> impl Iterator<Item = Range<usize>> {
        let of_row = |(row, (_, touched)): (usize, &(Sectors, Sectors))| {
            let (start, touched) = (row * CELL as usize, *touched);
            let sectors = (0..(CELL / SECTOR) as usize).filter(move |i| touched >> i & 1 == 1);
            let bytes = SECTOR as usize;
            sectors.map(move |i| start + i * bytes..start + (i + 1) * bytes)
        };
        self.sectors.iter().enumerate().flat_map(of_row)
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

    /// By what parities are apart from rows that were computed with as few of them as it takes, if
    /// there are more; nothing for those that are not there.
    fn apart(&self, row: &Chunks) -> Option<Chunks> {
        let lost = self.data.iter().filter(|bytes| bytes.is_none()).count();
        let more = self.parities.iter().flatten().count() > lost;
        let of = |(k, said): (usize, &Option<Vec<u8>>)| {
            let parity = codes::parity(k, row[0].len(), row.iter().map(|bytes| &bytes[..]));
            said.as_ref().map_or_else(|| vec![0; parity.len()], |said| change(&parity, said))
        };
        more.then(|| self.parities.iter().enumerate().map(of).collect())
    }
}

/// By what something changes.
fn change(old: &[u8], new: &[u8]) -> Vec<u8> {
    old.iter().zip(new).map(|(old, new)| old ^ new).collect()
}

/// What is to be added to each parity of rows to have that of their data.
fn differences(data: &Chunks, parities: &Chunks) -> Chunks {
    let of = |(k, parity): (usize, &Vec<u8>)| {
        change(&codes::parity(k, parity.len(), data.iter().map(|bytes| &bytes[..])), parity)
    };
    parities.iter().enumerate().map(of).collect()
}

impl ParityDevice {
    /// The parities of rows of which some chunks are written anew, or all there is of them is.
    /// Nobody writes the stripe in place meanwhile.
    pub(super) fn parities_with(
        &self,
        stripe: u64,
        within: &Range<u64>,
        new: &News,
        is_whole: bool,
    ) -> Result<Chunks> {
        if is_whole {
            self.differences.lock().forget(stripe, within);
        } else if !self.cache.lock().loose.contains(stripe) {
            let mut there = self.there(stripe, within);
            if let Some(rows) = there.whole() {
                if let Some(parities) = self.parities_that_follow(stripe, within, new, rows) {
                    return Ok(parities);
                }
                there = self.there(stripe, within);
            }
            if let Some(parities) = self.parities_without_some(stripe, within, new, there)? {
                return Ok(parities);
            }
        }
        let row = match new.len() == self.layout.data() {
            true => new.values().map(|new| new.bytes.clone()).collect(),
            false => self.neighbours(stripe, within, new)?,
        };
        // They are of what is there.
        self.differences.lock().forget(stripe, within);
        let length = (within.end - within.start) as usize;
        let parity = |k| codes::parity(k, length, row.iter().map(|bytes| &bytes[..]));
        Ok((0..self.layout.parities).map(parity).collect())
    }

    /// Rows with what is written anew.
    fn neighbours(&self, stripe: u64, within: &Range<u64>, new: &News) -> Result<Chunks> {
        let at = self.layout.offset(stripe) + within.start;
        let mut row = vec![Vec::new(); self.layout.data()];
        for (chunk, bytes) in row.iter_mut().enumerate().filter(|(i, _)| !new.contains_key(i)) {
            let side = self.layout.data_side(stripe, chunk);
            bytes.resize((within.end - within.start) as usize, 0);
            if !matches!(self.read_side(side, at, bytes), Ok(true)) {
                row = self.row_with(stripe, within, By::default(), true)?;
                break;
            }
        }
        new.iter().for_each(|(&chunk, new)| row[chunk].clone_from(&new.bytes));
        Ok(row)
    }

    /// The parities by the old ones and what changes, of rows as every side has them.
    ///
    /// The whole rows are read: where they do not agree a read may have been of elsewhere, and is
    /// done again. If they still do not, something rotted, and what the parities say stays. That
    /// may have been what is written over now, of which the parities say something wrong then: by
    /// how much is kept, and whoever can tell is to look.
    fn parities_that_follow(
        &self,
        stripe: u64,
        within: &Range<u64>,
        new: &News,
        (mut data, mut parities): (Chunks, Chunks),
    ) -> Option<Chunks> {
        let mut apart = None;
        if !agree(&data, &parities) {
            (data, parities) = self.read_all(stripe, within)?;
            if !agree(&data, &parities) {
                apart = Some(differences(&data, &parities));
                self.noticed.lock().insert(stripe);
            }
        }
        for (&chunk, new) in new {
            let change = change(&data[chunk], &new.bytes);
            parities.iter_mut().enumerate().for_each(|(k, p)| codes::add(p, k, chunk, &change));
        }
        let mut kept = self.differences.lock();
        if let Some(apart) = &apart {
            kept.keep(stripe, within, apart);
        }
        for (&chunk, new) in new {
            for (row, (written, _)) in (within.start / CELL..).zip(&new.sectors) {
                let at = ((row * CELL - within.start) / SECTOR) as usize;
                let is_apart = |apart: &Chunks| sectors_apart(apart, at);
                let apart = apart.as_ref().map_or(0, is_apart);
                kept.note_written((stripe, row), chunk, written & apart);
                kept.note_right((stripe, row), chunk, written & !apart);
            }
        }
        Some(parities)
    }

    /// The same where some sides cannot be read; `None` if too few can.
    fn parities_without_some(
        &self,
        stripe: u64,
        within: &Range<u64>,
        new: &News,
        there: There,
    ) -> Result<Option<Chunks>> {
        let row_by = |differences| {
            let by = By { without: 0, differences };
            self.row_of(stripe, within, by, |side| {
                Ok(match self.layout.role(stripe, side) {
                    Ok(chunk) => there.data[chunk].clone(),
                    Err(k) => there.parities[k].clone(),
                })
            })
        };
        let Some(old) = row_by(Added::Nowhere)? else { return Ok(None) };
        self.keep_what_is_apart(stripe, within, &there, &old);
        let has_any = self.differences.lock().has_any(stripe, within);
        let with = if has_any { row_by(Added::Everywhere)? } else { None };
        let mut row = old.clone();
        for (&chunk, new) in new {
            match there.data[chunk] {
                Some(_) => row[chunk].clone_from(&new.bytes),
                None => new.lay_over(&mut row[chunk]),
            }
        }
        if let Some(with) = with {
            self.adjust_differences((stripe, within), new, &there, (&old, &with));
        }
        let length = (within.end - within.start) as usize;
        let mut parities = Vec::with_capacity(self.layout.parities);
        for (k, said) in there.parities.into_iter().enumerate() {
            parities.push(match said {
                None => codes::parity(k, length, row.iter().map(|bytes| &bytes[..])),
                Some(mut said) => {
                    for &chunk in new.keys() {
                        codes::add(&mut said, k, chunk, &change(&old[chunk], &row[chunk]));
                    }
                    said
                }
            });
        }
        Ok(Some(parities))
    }

    /// Keeps differences of rows that have none, and of which more can be read than it takes to
    /// have their data: as where all can be read. Else the parities would follow from what one of
    /// them says, and which one that was nobody would know any more.
    fn keep_what_is_apart(&self, stripe: u64, within: &Range<u64>, there: &There, old: &Chunks) {
        let Some(mut apart) = there.apart(old) else { return };
        let mut kept = self.differences.lock();
        for start in within.clone().step_by(CELL as usize) {
            if kept.has_any(stripe, &(start..start + CELL)) {
                let at = (start - within.start) as usize;
                apart.iter_mut().for_each(|bytes| bytes[at..at + CELL as usize].fill(0));
            }
        }
        if apart.iter().flatten().any(|&byte| byte != 0) {
            kept.keep(stripe, within, &apart);
            self.noticed.lock().insert(stripe);
        }
    }

    /// Differences of rows of which something is written while sides are missing; what was there is
    /// computed without them, and with them.
    ///
    /// What is written on a missing side is what parities are of, whatever was there: with the
    /// differences as well. They followed as if the old bytes had been those without.
    fn adjust_differences(
        &self,
        (stripe, within): (u64, &Range<u64>),
        new: &News,
        there: &There,
        (without, with): (&Chunks, &Chunks),
    ) {
        let apart = there.apart(without);
        let mut kept = self.differences.lock();
        for (&chunk, new) in new {
            let is_there = there.data[chunk].is_some();
            if !is_there {
                let mut apart = vec![0; without[chunk].len()];
                for at in new.touched() {
                    let change = change(&without[chunk][at.clone()], &with[chunk][at.clone()]);
                    apart[at].copy_from_slice(&change);
                }
                kept.change(stripe, within, chunk, &apart);
            }
            for (row, &(written, touched)) in (within.start / CELL..).zip(&new.sectors) {
                let at = ((row * CELL - within.start) / SECTOR) as usize;
                let apart = apart.as_ref().map_or(u8::MAX, |apart| sectors_apart(apart, at));
                let (apart, right) = match is_there {
                    true => (written & apart, written & !apart),
                    false => (0, touched),
                };
                kept.note_written((stripe, row), chunk, apart);
                kept.note_right((stripe, row), chunk, right);
            }
        }
    }

    fn there(&self, stripe: u64, within: &Range<u64>) -> There {
        let at = self.layout.offset(stripe) + within.start;
        let read = |side: usize| {
            let mut bytes = vec![0; (within.end - within.start) as usize];
            matches!(self.read_side(side, at, &mut bytes), Ok(true)).then_some(bytes)
        };
        let data = (0..self.layout.data()).map(|i| read(self.layout.data_side(stripe, i)));
        let parities = (0..self.layout.parities).map(|k| read(self.layout.parity_side(stripe, k)));
        There { data: data.collect(), parities: parities.collect() }
    }

    /// Rows as all sides have them, if all can be read: the data, and the parities.
    pub(super) fn read_all(&self, stripe: u64, within: &Range<u64>) -> Option<(Chunks, Chunks)> {
        self.there(stripe, within).whole()
    }
}

/// In which sectors of a row the parities are apart from the data; its first sector is given.
fn sectors_apart(apart: &Chunks, first: usize) -> Sectors {
    let size = SECTOR as usize;
    let is_apart = |i: usize| {
        let at = (first + i) * size..(first + i + 1) * size;
        apart.iter().any(|bytes| bytes[at.clone()].iter().any(|&byte| byte != 0))
    };
    (0..CELL as usize / size).filter(|&i| is_apart(i)).fold(0, |bits, i| bits | 1 << i)
}
