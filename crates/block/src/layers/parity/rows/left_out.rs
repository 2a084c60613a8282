//! Reading a part without some of the sides.

use super::ways::{Without, set, sets};
use super::{Rows, is_lost, lay_over};
use crate::Result;
use crate::layers::parity::layout::Part;

impl Rows {
    /// The sides that are in, and how many of them can be left out.
    fn to_leave_out(&self) -> (Vec<usize>, usize) {
        let sides_in: Vec<usize> = self.sides.all_in().collect();
        let out = self.sides.count() - sides_in.len();
        (sides_in, self.layout.parities.saturating_sub(out))
    }

    /// In how many ways all of it can be read.
    pub fn count_ways(&self) -> usize {
        let (sides_in, most) = self.to_leave_out();
        sets(sides_in.len(), most)
    }

    /// The sides that each of the ways leaves out, beside those that are not in.
    pub fn all_left_out(&self) -> impl Iterator<Item = Without> {
        let (sides_in, most) = self.to_leave_out();
        (0..sets(sides_in.len(), most)).map(move |way| set(&sides_in, most, way))
    }

    /// A part in one of the ways, under what waits.
    pub fn read_part_way(&self, part: &Part, way: usize, to: &mut [u8]) -> Result<()> {
        let (sides_in, most) = self.to_leave_out();
        let without = set(&sides_in, most, way);
        let cells = self.layout.cells(part.chunk, &part.within);
        let overlay = self.cache().overlay(part.stripe, cells.clone());
        if (overlay.len() as u64) < cells.end - cells.start {
            let _shared = self.gate_shared(part.stripe);
            self.read_by_others(part, without, to)?;
        }
        lay_over(&overlay, self.layout.rows(), &part.within, to);
        Ok(())
    }

    /// What is in the place of a part, as its side says or as the others do without some sides; the
    /// caller holds the gate.
    fn read_by_others(&self, part: &Part, without: Without, to: &mut [u8]) -> Result<()> {
        let side = self.layout.data_side(part.stripe, part.chunk);
        if without >> side & 1 == 0 {
            let at = self.layout.offset(part.stripe) + part.within.start;
            match self.sides.read(side, at, to) {
                Ok(true) => return Ok(()),
                Err(error) if !is_lost(&error) => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        self.compute(part.stripe, part.chunk, &part.within, without, to)
    }
}
