//! Making what sides say agree: healing, bringing up to date, computing parity anew.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ways::Without;
use super::{Rows, lay_over};
use crate::heal::{Ledger, Outcome, Right};
use crate::layers::parity::codes;
use crate::layers::parity::layout::Part;
use crate::layers::sides::Standing;
use crate::slices::is_zero;
use crate::{DeviceError, Operation, Result, Resync};

/// Bytes of each side that are computed at a time.
const STEP_BYTES: u64 = 64 << 10;

/// Bytes of some rows, each with its side.
type BySide = Vec<(usize, Vec<u8>)>;

/// Computes a part from what was read once of each side; its gate is held.
struct Once<'p> {
    rows: &'p Rows,
    part: &'p Part,
    of_sides: BTreeMap<usize, Option<Vec<u8>>>,
}

impl Once<'_> {
    fn compute(&mut self, without: Without, buffer: &mut [u8]) -> Result<()> {
        let Once { rows, part, of_sides } = self;
        let Part { stripe, chunk, within, .. } = part;
        let own = 1 << rows.layout.data_side(*stripe, *chunk);
        let placing = rows.cache().placing.clone();
        let row = rows.row_of(*stripe, without | own, |side| {
            let read = || {
                Ledger::add(&rows.sides.ledger().data_ios, 1);
                rows.read_row(*stripe, within, side, placing.as_deref()).ok().flatten()
            };
            Ok(of_sides.entry(side).or_insert_with(read).clone())
        })?;
        let row = row.ok_or_else(|| {
            let at = rows.layout.offset(*stripe) + within.start;
            let range = (at, within.end - within.start);
            rows.sides.error(Operation::Read, range, "too few sides can be read")
        })?;
        buffer.copy_from_slice(&row[*chunk]);
        Ok(())
    }
}

/// How it ended where nothing that was said is right.
fn not_healed(said: &[Vec<u8>], failure: Option<DeviceError>) -> Result<Outcome> {
    match failure {
        Some(error) if said.is_empty() => Err(error),
        _ if said.len() > 1 && said.iter().all(|bytes| *bytes == said[0]) => Ok(Outcome::Agreed),
        _ => Ok(Outcome::Unrecoverable),
    }
}

impl Rows {
    /// Whether the side of a chunk can be read, and for each copy that the others say: the parities
    /// that it is computed without.
    fn copies_by(&self, stripe: u64, chunk: usize) -> (bool, Vec<Without>) {
        let is_in = |chunk: usize| self.sides.is_in(self.layout.data_side(stripe, chunk));
        let lost = (0..self.layout.data()).filter(|&other| other != chunk && !is_in(other));
        let parities = (0..self.layout.parities).map(|k| self.layout.parity_side(stripe, k));
        let parities: Vec<usize> = parities.filter(|&side| self.sides.is_in(side)).collect();
        let others = parities.len().saturating_sub(lost.count());
        let without = |copy: usize| parities[..copy].iter().fold(0, |set, side| set | 1 << side);
        (is_in(chunk), (0..others).map(without).collect())
    }

    /// The copies of a part: as its side says, and by what the others say.
    fn copies(&self, part: &Part) -> Vec<Option<Without>> {
        let (direct, others) = self.copies_by(part.stripe, part.chunk);
        direct.then_some(None).into_iter().chain(others.into_iter().map(Some)).collect()
    }

    /// How many they are.
    pub fn copies_of(&self, part: &Part) -> usize {
        self.copies(part).len()
    }

    /// What is in the place of a part: as its side says, or computed without some of the others;
    /// the caller holds the gate.
    fn read_by(&self, part: &Part, without: Option<Without>, buffer: &mut [u8]) -> Result<()> {
        if let Some(without) = without {
            return self.compute(part.stripe, part.chunk, &part.within, without, buffer);
        }
        let side = self.layout.data_side(part.stripe, part.chunk);
        let at = self.layout.offset(part.stripe) + part.within.start;
        if self.sides.read_or_hole(side, at, buffer)? {
            return Ok(());
        }
        let range = (at, buffer.len() as u64);
        Err(self.sides.error(Operation::Read, range, "its side is not in"))
    }

    /// All ways of having a part: its copies first, then what the others say without any few of
    /// them.
    fn ways_of(&self, part: &Part) -> Vec<Option<Without>> {
        let mut ways = self.copies(part);
        let most = self.all_left_out().map(Without::count_ones).max().unwrap_or(0);
        let own = u32::from(ways.first() == Some(&None));
        let bit = 1 << self.layout.data_side(part.stripe, part.chunk);
        for without in self.all_left_out().map(|without| without & !bit) {
            if without.count_ones() + own <= most && !ways.contains(&Some(without)) {
                ways.push(Some(without));
            }
        }
        ways
    }

    /// A part in one of the ways, under what waits.
    pub fn read_part_copy(&self, part: &Part, copy: usize, to: &mut [u8]) -> Result<()> {
        let cells = self.layout.cells(part.chunk, &part.within);
        let overlay = self.cache().overlay(part.stripe, cells.clone());
        if (overlay.len() as u64) < cells.end - cells.start {
            let _shared = self.gate_shared(part.stripe);
            let copies = self.copies(part);
            self.read_by(part, copies.get(copy).or(copies.last()).copied().flatten(), to)?;
        }
        lay_over(&overlay, self.layout.rows(), &part.within, to);
        Ok(())
    }

    /// Heals a part of one chunk. Only the chunk itself is written: where the others are wrong
    /// about it, nobody here knows which of them. The caller holds the journal, so that nothing
    /// goes from it to its place meanwhile.
    pub fn heal_part(&self, part: &Part, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let _alone = self.gate_alone(part.stripe);
        let cells = self.layout.cells(part.chunk, &part.within);
        let overlay = self.cache().overlay(part.stripe, cells);
        let mut said: Vec<Vec<u8>> = Vec::new();
        let (mut failure, mut outcome) = (None, None);
        let ways = self.ways_of(part);
        let direct = ways.first() == Some(&None);
        let copies = self.copies_of(part);
        let mut once = Once { rows: self, part, of_sides: BTreeMap::new() };
        for (copy, without) in ways.into_iter().enumerate() {
            let mut placed = vec![0; buffer.len()];
            // Each copy is read; what else there is are combinations, and they are many.
            let read = match without.filter(|_| copy >= copies) {
                Some(without) => once.compute(without, &mut placed),
                None => {
                    Ledger::add(&self.sides.ledger().data_ios, 1);
                    self.read_by(part, without, &mut placed)
                }
            };
            if let Err(error) = read {
                failure = Some(error);
                continue;
            }
            let mut bytes = placed.clone();
            lay_over(&overlay, self.layout.rows(), &part.within, &mut bytes);
            Ledger::add(&self.sides.ledger().checksums, 1);
            if !right(&bytes) {
                said.push(bytes);
                continue;
            }
            buffer.copy_from_slice(&bytes);
            if copy == 0 {
                outcome = Some(Outcome::Transient);
                break;
            }
            outcome = Some(Outcome::Recovered);
            if direct {
                Ledger::add(&self.sides.ledger().data_ios, 1);
                let side = self.layout.data_side(part.stripe, part.chunk);
                let at = self.layout.offset(part.stripe) + part.within.start;
                // One that cannot be written and not be put out stays; the bytes are there.
                let _ = self.sides.write_over(side, at, &placed);
            }
            break;
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => not_healed(&said, failure),
        }
    }

    /// Forgets what whole stripes say. Those that are in the range in part have neighbours.
    pub fn loosen(&self, offset: u64, length_bytes: u64) {
        let size = self.layout.stripe_bytes();
        let (first, last) = (offset.div_ceil(size), (offset + length_bytes) / size);
        self.cache().loose.insert(first..last.max(first));
    }

    /// Makes a stripe agree in which nobody has anything yet, because somebody is about to. Where
    /// that cannot be, its parity is computed of all that is in its rows.
    pub fn fasten(&self, stripe: u64) {
        if !self.cache().loose.contains(stripe..stripe + 1) {
            return;
        }
        let _alone = self.gate_alone(stripe);
        if self.settle(stripe, &(0..self.layout.chunk_bytes), Resync::All).is_ok() {
            self.cache().loose.remove(stripe..stripe + 1);
        }
    }

    /// Computes what sides should have of some rows and writes it where it differs; the caller
    /// holds the gate.
    pub fn settle(&self, stripe: u64, within: &Range<u64>, which: Resync) -> Result<()> {
        steps(within).try_for_each(|rows| self.settle_rows(stripe, &rows, which))
    }

    fn settle_rows(&self, stripe: u64, within: &Range<u64>, which: Resync) -> Result<()> {
        if which == Resync::Stale && self.is_hole(stripe, within) {
            return Ok(());
        }
        let wrong = self.wrong_in(stripe, within, which)?;
        let at = self.layout.offset(stripe) + within.start;
        wrong.iter().try_for_each(|(side, bytes)| self.sides.write(*side, at, bytes))
    }

    /// Whether nobody has anything but zeros in some rows, so that their parity is zeros as well:
    /// that much can be told without reading it. The caller holds the gate.
    fn is_hole(&self, stripe: u64, within: &Range<u64>) -> bool {
        // Of what is being placed the places may have a part only.
        if self.cache().is_held(stripe) {
            return false;
        }
        let at = self.layout.offset(stripe) + within.start;
        let mut sides_in = 0;
        for side in 0..self.sides.count() {
            let stays_in = self.sides.stays_in(side);
            let standing = self.sides.standing(side);
            if standing == Standing::Out {
                continue;
            }
            let is_hole = self.sides.device(side).is_hole(at, within.end - within.start);
            if !is_hole || standing == Standing::In && !stays_in() {
                return false;
            }
            sides_in += usize::from(standing == Standing::In);
        }
        sides_in >= self.layout.data()
    }

    /// What sides should have of some rows and have not.
    pub fn wrong_in(&self, stripe: u64, within: &Range<u64>, which: Resync) -> Result<BySide> {
        let wanted = |side: usize| match self.layout.role(stripe, side) {
            Err(_) if which != Resync::Stale => self.sides.standing(side) != Standing::Out,
            _ => self.sides.standing(side) == Standing::Stale,
        };
        let mut sides: Vec<usize> = (0..self.sides.count()).filter(|&side| wanted(side)).collect();
        // Parity is computed of all data, so before some of that is given away.
        sides.sort_by_key(|&side| self.layout.role(stripe, side).is_ok());
        let mut wrong = BySide::new();
        if sides.is_empty() {
            return Ok(wrong);
        }
        // Nothing is computed from a parity that may be the one that is wrong.
        let read = || self.row_with(stripe, within, 0, which == Resync::Stale);
        let (mut row, again) = (read()?, read()?);
        if row != again {
            // One of them was of elsewhere.
            row = read()?;
        }
        let at = self.layout.offset(stripe) + within.start;
        let length = (within.end - within.start) as usize;
        let mut there = Vec::new();
        for side in sides {
            let bytes = match self.layout.role(stripe, side) {
                Ok(chunk) if which == Resync::Stale => std::mem::take(&mut row[chunk]),
                Ok(chunk) => row[chunk].clone(),
                Err(k) => codes::parity(k, length, row.iter().map(|bytes| &bytes[..])),
            };
            // Of who is brought up to date most is to be written: what is there is looked at only
            // where a hole may stay one.
            let device = self.sides.device(side);
            let is_zero = is_zero(&bytes);
            let is_looked_at = which != Resync::Stale || is_zero;
            there.resize(if is_looked_at { length } else { 0 }, 0);
            let mut is_right = || device.read_at(at, &mut there).is_ok() && there == bytes;
            let is_hole = || is_zero && device.is_hole(at, length as u64);
            if !is_looked_at || !is_hole() && !is_right() {
                wrong.push((side, bytes));
            }
        }
        Ok(wrong)
    }
}

/// A range of rows, in parts that are read at a time.
pub fn steps(within: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = within.end;
    within.clone().step_by(STEP_BYTES as usize).map(move |from| from..(from + STEP_BYTES).min(end))
}
