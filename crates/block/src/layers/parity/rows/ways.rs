//! Ways of reading all of a parity: each leaves out some sides, and computes what they have.

use super::{Rows, is_lost, lay_over};
use crate::Result;
use crate::layers::parity::layout::Part;

/// Sides that are left out, a bit each.
pub type Without = u64;

/// How many sets of so many there are among some.
fn choose(among: usize, size: usize) -> usize {
    match size > among {
        true => 0,
        false => (0..size).fold(1, |count, i| count * (among - i) / (i + 1)),
    }
}

/// How many sets of at most so many.
fn sets(among: usize, most: usize) -> usize {
    (0..=most).map(|size| choose(among, size)).sum()
}

/// One of these by its number: the smaller ones come first.
fn set(of: &[usize], most: usize, mut number: usize) -> Without {
    for size in 0..=most {
        let count = choose(of.len(), size);
        if number < count {
            return set_of_size(of, size, number);
        }
        number -= count;
    }
    0
}

fn set_of_size(of: &[usize], size: usize, number: usize) -> Without {
    let (Some((first, rest)), Some(others)) = (of.split_first(), size.checked_sub(1)) else {
        return 0;
    };
    let with_first = choose(rest.len(), others);
    match number.checked_sub(with_first) {
        None => 1 << first | set_of_size(rest, others, number),
        Some(number) => set_of_size(rest, size, number),
    }
}

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{set, sets};

    #[test]
    fn every_set_has_one_number() {
        for (of, most) in [(&[0, 1, 2][..], 1), (&[1, 2, 4, 7], 2), (&[0, 3, 4, 5, 6], 3), (&[], 1)]
        {
            let all: Vec<u64> = (0..sets(of.len(), most)).map(|n| set(of, most, n)).collect();
            assert_eq!(all[0], 0, "the first leaves out nothing");
            assert!(all.is_sorted_by_key(|set| set.count_ones()), "{all:?}");
            let expected: BTreeSet<u64> = (0..1 << 8_u64)
                .filter(|set: &u64| set.count_ones() as usize <= most)
                .filter(|set| (0..8).all(|side| set >> side & 1 == 0 || of.contains(&side)))
                .collect();
            assert_eq!(all.len(), expected.len());
            assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
