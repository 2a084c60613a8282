//! What parities say beside the data of their rows, where these do not agree.
//!
//! The parity of a row of which a part is written follows from what changes, so it goes on saying
//! what it said of the rest. If something had rotted there it can heal that; if what was written
//! over had rotted it is wrong about what was written, by as much as it was apart from its row
//! before. Nobody here knows which it is. So that difference is kept: without it the parity gives
//! the one, with it the other, and whoever has checksums tells which is right. Of sectors that were
//! written since, what is computed without it is nothing: those are kept as well.
//!
//! Invariants: 1. every record has the differences there are when it is made, so they are on every
//! side that is not out; 2. one is forgotten when all of its row is written, or its parity is
//! computed of data that was looked at while all sides are in; one that is kept for too long does
//! no harm, as bytes count only for who has a checksum of them; 3. they never take more of a record
//! than what waits leaves.

use std::collections::BTreeMap;
use std::ops::Range;

use super::codes;
use super::layout::CELL;
use super::rows::SECTOR;
use super::ways::Sides;

/// The most that is kept of a slot's cells: one in so many.
const PART: usize = 8;

/// Chunks of a stripe's data are fewer: its sides have a bit each in a number.
const CHUNKS_MAX: usize = Sides::BITS as usize;

/// Other cells of a row that are tried for what rotted.
const OTHERS_MAX: usize = 2;

/// Cells of a record that are kept for differences, of so many: for each row those of its parities,
/// and one that says what was written.
pub fn reserve(cells: usize, parities: usize) -> usize {
    let of_row = parities + 1;
    (cells / PART / of_row).max(usize::from(cells > 3 * of_row)) * of_row
}

/// The sectors (512 bytes) of a row's cells that were written, a bit each: a byte for each chunk of
/// the stripe's data.
type Written = Vec<u8>;

/// What is kept of a row.
#[derive(PartialEq, Eq)]
struct Kept {
    /// For each parity what is to be added to it.
    parities: Vec<Vec<u8>>,
    written: Written,
    /// The sectors in which there is any.
    apart: u8,
}

/// The sectors of a cell.
fn sectors() -> impl Iterator<Item = (u8, Range<usize>)> {
    let bytes = SECTOR as usize;
    (0..CELL as usize / bytes).map(move |i| (1 << i, i * bytes..(i + 1) * bytes))
}

impl Kept {
    fn new(parities: Vec<Vec<u8>>) -> Kept {
        let mut kept = Kept { parities, written: vec![0; CELL as usize], apart: 0 };
        kept.look();
        kept
    }

    /// Sees where there is any.
    fn look(&mut self) {
        let is_any = |at: &Range<usize>| {
            self.parities.iter().any(|bytes| bytes[at.clone()].iter().any(|&byte| byte != 0))
        };
        let apart = sectors().filter(|(_, at)| is_any(at));
        self.apart = apart.fold(0, |bits, (bit, _)| bits | bit);
    }

    /// Takes what is read of the row now. Where it agrees it may do so because a side has what was
    /// computed of what does not. What was written since something else was apart is written
    /// anew.
    fn take(&mut self, parities: &[Vec<u8>]) {
        for (bit, at) in sectors() {
            let is_none = parities.iter().all(|now| now[at.clone()].iter().all(|&byte| byte == 0));
            let mut both = self.parities.iter_mut().zip(parities);
            if is_none || both.all(|(kept, now)| kept[at.clone()] == now[at.clone()]) {
                continue;
            }
            self.written.iter_mut().for_each(|written| *written &= !bit);
            for (kept, now) in self.parities.iter_mut().zip(parities) {
                kept[at.clone()].copy_from_slice(&now[at.clone()]);
            }
        }
        self.look();
    }

    /// Where a cell is computed with the difference: in what was written of it, or of another one,
    /// if that says something else.
    fn masks(&self, chunk: usize) -> Vec<u8> {
        let of = |written: &u8| written & self.apart;
        let mut masks = vec![of(&self.written[chunk])];
        let others = self.written[..CHUNKS_MAX].iter().map(of);
        for mask in others.filter(|&mask| mask != 0 && mask != self.apart) {
            if !masks.contains(&mask) && masks.len() <= OTHERS_MAX {
                masks.push(mask);
            }
        }
        masks
    }
}

/// A row: its stripe, and its number there.
type Row = (u64, u64);

/// The differences of an array's rows.
pub struct Differences {
    rows: BTreeMap<Row, Kept>,
    rows_max: usize,
    /// How often each side had been out when the stripes were told of.
    told: Option<Vec<u64>>,
    /// How many were told of again since.
    again: u32,
}

/// Rows that change whenever they are looked at are told of this often, all together; a scrub looks
/// at them as well.
const AGAIN_MAX: u32 = 64;

fn rows_of(within: &Range<u64>) -> Range<u64> {
    within.start / CELL..within.end.div_ceil(CELL)
}

impl Differences {
    pub fn new(cells: usize, parities: usize) -> Differences {
        let rows_max = reserve(cells, parities) / (parities + 1);
        Differences { rows: BTreeMap::new(), rows_max, told: None, again: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps what the parities of whole rows say beside the data, as far as there is room; rows
    /// that agree are passed over.
    pub fn keep(&mut self, stripe: u64, within: &Range<u64>, differences: &[Vec<u8>]) {
        for (i, row) in rows_of(within).enumerate() {
            let cell = i * CELL as usize..(i + 1) * CELL as usize;
            let of_row = differences.iter().map(|bytes| bytes[cell.clone()].to_vec());
            let of_row: Vec<Vec<u8>> = of_row.collect();
            if of_row.iter().flatten().all(|&byte| byte == 0) {
                continue;
            }
            let is_full = self.rows.len() >= self.rows_max;
            match self.rows.get_mut(&(stripe, row)) {
                Some(kept) => kept.take(&of_row),
                None if is_full => {}
                None => _ = self.rows.insert((stripe, row), Kept::new(of_row)),
            }
        }
    }

    /// Takes one in as a record has it, if there is room.
    pub fn put(&mut self, row: Row, parity: usize, parities: usize, bytes: &[u8]) {
        if self.rows.len() < self.rows_max || self.rows.contains_key(&row) {
            let none = || Kept::new(vec![vec![0; CELL as usize]; parities]);
            let kept = self.rows.entry(row).or_insert_with(none);
            kept.parities.get_mut(parity).unwrap_or(&mut kept.written).copy_from_slice(bytes);
            kept.look();
        }
    }

    /// Notes that sectors of a chunk's cell are about to be written while their row is apart, if it
    /// has a difference.
    pub fn note_written(&mut self, row: Row, chunk: usize, sectors: u8) {
        if let Some(kept) = self.rows.get_mut(&row) {
            kept.written[chunk] |= sectors;
        }
    }

    /// Notes that sectors of a chunk's cell are about to be what is computed without.
    pub fn note_right(&mut self, row: Row, chunk: usize, sectors: u8) {
        if let Some(kept) = self.rows.get_mut(&row) {
            kept.written[chunk] &= !sectors;
        }
    }

    /// Changes differences as parities do that follow a chunk's change.
    pub fn change(&mut self, stripe: u64, within: &Range<u64>, chunk: usize, change: &[u8]) {
        let rows = rows_of(within);
        let first = rows.start;
        for ((_, row), kept) in self.rows.range_mut((stripe, rows.start)..(stripe, rows.end)) {
            let change = &change[((row - first) * CELL) as usize..][..CELL as usize];
            for (k, parity) in kept.parities.iter_mut().enumerate() {
                codes::add(parity, k, chunk, change);
            }
            kept.look();
        }
    }

    /// Which bytes of a range of a chunk are computed with the difference, if what was written of
    /// the chunk, or of others, is what had rotted.
    pub fn written(
        &self,
        stripe: u64,
        (chunk, nth): (usize, usize),
        within: &Range<u64>,
    ) -> Vec<Range<u64>> {
        let rows = rows_of(within);
        let rows = self.rows.range((stripe, rows.start)..(stripe, rows.end));
        let of_row = |((_, row), kept): (&Row, &Kept)| {
            let masks = kept.masks(chunk);
            let (start, mask) = (row * CELL, masks.get(nth).copied().unwrap_or(masks[0]));
            let written = (0..CELL / SECTOR).filter(move |i| mask >> i & 1 == 1);
            written.map(move |i| start + i * SECTOR..start + (i + 1) * SECTOR)
        };
        let within = |part: Range<u64>| part.start.max(within.start)..part.end.min(within.end);
        rows.flat_map(of_row).map(within).filter(|part| !part.is_empty()).collect()
    }

    /// In how many ways a range of a chunk is computed: with and without, and in parts.
    pub fn count(&self, stripe: u64, chunk: usize, within: &Range<u64>) -> usize {
        let rows = rows_of(within);
        let rows = self.rows.range((stripe, rows.start)..(stripe, rows.end));
        rows.map(|(_, kept)| 2 + kept.masks(chunk).len()).max().unwrap_or(1)
    }

    /// The same of everything.
    pub fn count_all(&self) -> usize {
        // Of a chunk that was not written all are those of others.
        self.rows.values().map(|kept| 2 + kept.masks(CHUNKS_MAX).len()).max().unwrap_or(1)
    }

    /// The rows of some stripes that have one.
    pub fn rows_of_stripes(&self, stripes: Range<u64>) -> Vec<Row> {
        self.rows.range((stripes.start, 0)..(stripes.end, 0)).map(|(row, _)| *row).collect()
    }

    pub fn forget(&mut self, stripe: u64, within: &Range<u64>) {
        for row in rows_of(within) {
            self.rows.remove(&(stripe, row));
        }
    }

    pub fn forget_stripes(&mut self, stripes: Range<u64>) {
        self.rows.retain(|(stripe, _), _| !stripes.contains(stripe));
    }

    pub fn has_any(&self, stripe: u64, within: &Range<u64>) -> bool {
        let rows = rows_of(within);
        self.rows.range((stripe, rows.start)..(stripe, rows.end)).next().is_some()
    }

    /// Adds what there is of some bytes of a stripe's rows to what a parity says of them.
    pub fn add(&self, stripe: u64, parity: usize, within: &Range<u64>, to: &mut [u8]) {
        let rows = rows_of(within);
        for ((_, row), kept) in self.rows.range((stripe, rows.start)..(stripe, rows.end)) {
            let start = row * CELL;
            let both = start.max(within.start)..(start + CELL).min(within.end);
            let to = &mut to[(both.start - within.start) as usize..];
            let cell =
                &kept.parities[parity][(both.start - start) as usize..(both.end - start) as usize];
            to.iter_mut().zip(cell).for_each(|(byte, difference)| *byte ^= difference);
        }
    }

    /// All of them: stripe, row, parity, bytes; behind its parities what of a row was written.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64, usize, &[u8])> {
        self.rows.iter().flat_map(|((stripe, row), kept)| {
            let cells = kept.parities.iter().chain([&kept.written]).enumerate();
            cells.map(|(number, bytes)| (*stripe, *row, number, &bytes[..]))
        })
    }

    /// The stripes, once for each time that sides came and went.
    pub fn tell(&mut self, absences: Vec<u64>) -> Vec<u64> {
        if self.is_empty() || self.told.as_ref() == Some(&absences) {
            return Vec::new();
        }
        (self.told, self.again) = (Some(absences), 0);
        self.rows.keys().map(|(stripe, _)| *stripe).collect()
    }

    /// Whether rows that changed while they were looked at are to be told of again.
    pub fn may_tell_again(&mut self, stripe: u64, within: &Range<u64>) -> bool {
        let may = self.has_any(stripe, within) && self.again < AGAIN_MAX;
        self.again += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::{CELL, Differences, reserve};

    #[test]
    fn they_leave_most_of_a_record_to_what_waits() {
        assert_eq!([reserve(4080, 1), reserve(4080, 3), reserve(15, 1)], [510, 508, 2]);
        assert_eq!([reserve(15, 2), reserve(15, 3), reserve(7, 3)], [3, 4, 0]);
    }

    /// Cells of bytes that are set in some sectors.
    fn cells(bytes: [u8; 2], sectors: &[usize]) -> Vec<Vec<u8>> {
        let of = |byte| {
            let mut cell = vec![0; CELL as usize];
            sectors.iter().for_each(|i| cell[i * 512..(i + 1) * 512].fill(byte));
            cell
        };
        bytes.into_iter().map(of).collect()
    }

    #[test]
    fn a_row_is_computed_with_what_was_written_of_each_of_its_cells() {
        let mut all = Differences::new(64, 2);
        assert_eq!((all.count(0, 0, &(0..CELL)), all.count_all()), (1, 1));
        all.keep(0, &(0..CELL), &cells([1, 1], &[0, 1, 2]));
        all.note_written((0, 0), 0, 0b1001);
        // With and without, and what was written of the cell; its neighbour has that, too.
        assert_eq!([0, 1, 2].map(|chunk| all.count(0, chunk, &(0..CELL))), [3, 4, 4]);
        assert_eq!(
            all.written(0, (0, 0), &(0..CELL)).pop(),
            Some(0..512),
            "the fourth is not apart"
        );
        assert_eq!(all.written(0, (1, 0), &(0..CELL)), []);
        assert_eq!(all.written(0, (1, 1), &(0..CELL)).pop(), Some(0..512));
        // One that was written as a whole says nothing that is not tried.
        all.note_written((0, 0), 2, u8::MAX);
        assert_eq!([0, 1, 2].map(|chunk| all.count(0, chunk, &(0..CELL))), [3, 4, 4]);
        assert_eq!((all.count_all(), all.count(1, 0, &(0..CELL))), (4, 1));
        // What is right without is not what was written.
        all.note_right((0, 0), 0, 0b0001);
        assert_eq!((all.written(0, (0, 0), &(0..CELL)), all.count_all()), (vec![], 3));
    }

    #[test]
    fn a_difference_is_as_it_is_read_but_where_the_row_agrees() {
        let mut all = Differences::new(64, 2);
        all.keep(0, &(0..CELL), &cells([1, 1], &[0, 1]));
        all.note_written((0, 0), 0, 0b0111);
        all.keep(0, &(0..CELL), &cells([5, 1], &[1, 2]));
        let mut bytes = vec![0; CELL as usize];
        all.add(0, 0, &(0..CELL), &mut bytes);
        assert_eq!([0, 1, 2, 3].map(|i| bytes[i * 512]), [1, 5, 5, 0]);
        assert_eq!(
            all.written(0, (0, 0), &(0..CELL)).pop(),
            Some(0..512),
            "the others are other ones"
        );
    }

    #[test]
    fn a_difference_follows_a_chunk_as_parities_do() {
        let mut all = Differences::new(64, 2);
        // What chunk 1 was apart: by the second parity it counts twice.
        all.keep(0, &(0..CELL), &cells([3, 6], &[0, 1]));
        all.change(0, &(0..CELL), 1, &cells([3, 0], &[1])[0]);
        for (parity, byte) in [(0, 3), (1, 6)] {
            let mut bytes = vec![0; CELL as usize];
            all.add(0, parity, &(0..CELL), &mut bytes);
            assert_eq!([bytes[0], bytes[512]], [byte, 0]);
        }
        all.note_written((0, 0), 0, u8::MAX);
        assert_eq!(all.written(0, (0, 0), &(0..CELL)).pop(), Some(0..512));
    }

    #[test]
    fn what_is_kept_of_a_row_is_added_to_the_bytes_of_its_parity_and_to_no_others() {
        let mut all = Differences::new(16, 2);
        let (no, p, q) =
            (vec![0; 2 * CELL as usize], vec![3; CELL as usize], vec![5; CELL as usize]);
        all.keep(7, &(CELL..3 * CELL), &[no.clone(), no.clone()]);
        assert!(all.is_empty());
        let second = |bytes: &[u8]| [&no[..CELL as usize], bytes].concat();
        all.keep(7, &(CELL..3 * CELL), &[second(&p), second(&q)]);
        assert!(!all.has_any(7, &(0..2 * CELL)) && all.has_any(7, &(3 * CELL - 1..3 * CELL)));
        assert!(!all.has_any(6, &(0..9 * CELL)) && !all.has_any(8, &(0..9 * CELL)));
        let mut bytes = vec![1; 6];
        all.add(7, 1, &(2 * CELL - 3..2 * CELL + 3), &mut bytes);
        assert_eq!(bytes, [1, 1, 1, 4, 4, 4]);
        all.add(7, 0, &(3 * CELL - 3..3 * CELL + 3), &mut bytes);
        assert_eq!(bytes, [2, 2, 2, 4, 4, 4]);
        // One row is all it has room for; the newest of that row counts.
        all.keep(8, &(0..CELL), &[p.clone(), p.clone()]);
        all.keep(7, &(2 * CELL..3 * CELL), &[q.clone(), p.clone()]);
        let told: Vec<_> = all.all().map(|(s, r, k, bytes)| (s, r, k, bytes[0])).collect();
        assert_eq!(told, [(7, 2, 0, 5), (7, 2, 1, 3), (7, 2, 2, 0)]);
        // Of the second chunk the first sector and the last but one were written.
        all.note_written((7, 2), 1, 0b100_0001);
        all.note_written((7, 1), 1, 0xff);
        assert_eq!(all.written(7, (0, 0), &(0..9 * CELL)), []);
        assert_eq!(all.written(7, (1, 0), &(8192..12_288)), [8192..8704, 11_264..11_776]);
        assert_eq!(all.written(7, (1, 0), &(8200..11_265)), [8200..8704, 11_264..11_265]);
        assert_eq!(
            [all.tell(vec![0, 1]), all.tell(vec![0, 1]), all.tell(vec![0, 2])],
            [vec![7], vec![], vec![7]]
        );
        let mut copy = Differences::new(16, 2);
        all.all().for_each(|(s, r, k, bytes)| copy.put((s, r), k, 2, bytes));
        assert!(copy.all().eq(all.all()));
        all.forget(7, &(0..2 * CELL));
        assert!(!all.is_empty());
        all.forget(7, &(0..3 * CELL));
        copy.forget_stripes(7..8);
        assert!(all.is_empty() && copy.is_empty());
    }
}
