//! Where the bytes of a parity lie on its sides.
//!
//! Each side begins with the journal (two slots, two areas of pending entries), then has a chunk
//! of every stripe. The first parity of stripe s is on side n-1 - s mod n, the others and then the
//! data on the sides after it, around.

use std::ops::Range;

use format::parity::CELL_BYTES;

/// Bytes of a cell.
pub const CELL: u64 = CELL_BYTES as u64;

/// How a parity is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sides.
    pub sides: usize,
    /// How many of them may be lost.
    pub parities: usize,
    /// Bytes of a stripe on each side.
    pub chunk_bytes: u64,
    /// Bytes of one of the two slots of the journal, and of one of the two pending areas.
    pub slot_bytes: u64,
}

/// Bytes of a stripe's data in one of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub stripe: u64,
    /// The number of the chunk among the stripe's data.
    pub chunk: usize,
    /// Which bytes of the chunk.
    pub within: Range<u64>,
    /// Which bytes of the request.
    pub range: Range<usize>,
}

impl Layout {
    /// Chunks of data in a stripe.
    pub fn data(&self) -> usize {
        self.sides - self.parities
    }

    /// Bytes of data in a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.chunk_bytes * self.data() as u64
    }

    /// Cells of a chunk.
    pub fn rows(&self) -> u64 {
        self.chunk_bytes / CELL
    }

    /// Bytes of data on sides of a length.
    pub fn len_bytes(&self, side_bytes: u64) -> u64 {
        self.stripes(side_bytes) * self.stripe_bytes()
    }

    /// Stripes on sides of a length.
    pub fn stripes(&self, side_bytes: u64) -> u64 {
        side_bytes.saturating_sub(self.journal_bytes()) / self.chunk_bytes
    }

    /// Where the first stripe begins on each side.
    pub fn journal_bytes(&self) -> u64 {
        4 * self.slot_bytes
    }

    /// Where the pending entries of an epoch begin on each side.
    pub fn area(&self, epoch: u64) -> u64 {
        (2 + epoch % 2) * self.slot_bytes
    }

    /// Where a stripe begins on each side.
    pub fn offset(&self, stripe: u64) -> u64 {
        self.journal_bytes() + stripe * self.chunk_bytes
    }

    /// The stripe at an offset of a side that is behind the journal.
    pub fn stripe_at(&self, offset: u64) -> u64 {
        (offset - self.journal_bytes()) / self.chunk_bytes
    }

    /// The side with a parity of a stripe.
    pub fn parity_side(&self, stripe: u64, parity: usize) -> usize {
        let first = self.sides - 1 - (stripe % self.sides as u64) as usize;
        (first + parity) % self.sides
    }

    /// The side with a chunk of a stripe's data.
    pub fn data_side(&self, stripe: u64, chunk: usize) -> usize {
        self.parity_side(stripe, self.parities + chunk)
    }

    /// What a side has of a stripe: a chunk of its data, or else a parity.
    pub fn role(&self, stripe: u64, side: usize) -> Result<usize, usize> {
        let first = self.parity_side(stripe, 0);
        let number = (side + self.sides - first) % self.sides;
        number.checked_sub(self.parities).ok_or(number)
    }

    /// The chunks of a range, in its order.
    pub fn parts(self, offset: u64, length: usize) -> impl Iterator<Item = Part> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let at = offset + done as u64;
            let in_stripe = at % self.stripe_bytes();
            let from = in_stripe % self.chunk_bytes;
            let count = (self.chunk_bytes - from).min((length - done) as u64);
            let range = done..done + count as usize;
            done = range.end;
            Some(Part {
                stripe: at / self.stripe_bytes(),
                chunk: (in_stripe / self.chunk_bytes) as usize,
                within: from..from + count,
                range,
            })
        })
    }

    /// What of each stripe a range touches, as a range of its chunks; that of the whole stripe if
    /// it is in several.
    pub fn touched(
        self,
        offset: u64,
        length_bytes: u64,
    ) -> impl Iterator<Item = (u64, Range<u64>)> {
        let (size, end) = (self.stripe_bytes(), offset + length_bytes);
        let stripes = offset / size..end.div_ceil(size);
        stripes.filter(move |_| length_bytes > 0).map(move |stripe| {
            let from = offset.max(stripe * size) - stripe * size;
            let to = end.min((stripe + 1) * size) - stripe * size;
            let chunk = from / self.chunk_bytes;
            if (to - 1) / self.chunk_bytes > chunk {
                return (stripe, 0..self.chunk_bytes);
            }
            let start = chunk * self.chunk_bytes;
            let within = (from - start) / CELL * CELL..(to - start).next_multiple_of(CELL);
            (stripe, within)
        })
    }

    /// The rows of a stripe that are in a range as a whole; none if start and end are the same.
    pub fn whole_rows(&self, stripe: u64, range: &Range<u64>) -> Range<u64> {
        let start = stripe * self.stripe_bytes();
        let last = start + (self.data() as u64 - 1) * self.chunk_bytes;
        let from = range.start.saturating_sub(start).next_multiple_of(CELL);
        let to = range.end.saturating_sub(last).min(self.chunk_bytes) / CELL * CELL;
        from..to.max(from)
    }

    /// The cells of a stripe's data that hold bytes of a chunk.
    pub fn cells(&self, chunk: usize, within: &Range<u64>) -> Range<u64> {
        let first = chunk as u64 * self.rows();
        first + within.start / CELL..first + within.end.div_ceil(CELL)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn every_side_has_its_turn_with_every_parity() {
        let layout = Layout { sides: 5, parities: 2, chunk_bytes: 8192, slot_bytes: 65_536 };
        let mut seen = std::collections::BTreeSet::new();
        for stripe in 0..5 {
            let parities = (0..2).map(|k| (layout.parity_side(stripe, k), Err(k)));
            let data = (0..3).map(|i| (layout.data_side(stripe, i), Ok(i)));
            let mut sides: Vec<_> = parities.chain(data).collect();
            assert!(sides.iter().all(|&(side, role)| layout.role(stripe, side) == role));
            seen.extend(sides.iter().copied().map(|(side, role)| (side, format!("{role:?}"))));
            sides.sort_unstable_by_key(|(side, _)| *side);
            assert_eq!(sides.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
        assert_eq!(seen.len(), 25, "each side has each role once");
        // Left-symmetric, as in md: the data goes on behind the parity.
        let raid5 = Layout { sides: 3, parities: 1, ..layout };
        let sides = |stripe| [raid5.parity_side(stripe, 0), raid5.data_side(stripe, 0)];
        assert_eq!([sides(0), sides(1), sides(2)], [[2, 0], [1, 2], [0, 1]]);
    }

    #[test]
    fn parts_are_the_chunks_of_a_range() {
        let layout = Layout { sides: 3, parities: 1, chunk_bytes: 8192, slot_bytes: 65_536 };
        assert_eq!(layout.len_bytes(4 * 65_536 + 8192 * 3 + 5), 6 * 8192);
        let parts: Vec<_> = layout.parts(16_384 + 8000, 9000).collect();
        let found: Vec<_> = parts.iter().map(|p| (p.stripe, p.chunk, p.within.clone())).collect();
        assert_eq!(found, [(1, 0, 8000..8192), (1, 1, 0..8192), (2, 0, 0..616)]);
        assert_eq!(parts[2].range, 8384..9000);
        assert_eq!(layout.cells(1, &(4095..4097)), 2..4);
        assert_eq!(layout.stripe_at(layout.offset(7) + 8191), 7);
    }
}
