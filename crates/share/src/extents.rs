//! Changes of blocks that were not written yet: of each block the last one.
//!
//! 1. Pieces do not overlap, and none is empty.
//! 2. Bytes that a caller has are borrowed, not copied.

use std::collections::BTreeMap;

use format::share::place::BLOCK_BYTES;

use crate::blocks::hole_parts;

/// A run of blocks.
#[derive(Debug)]
pub enum Piece<'d> {
    /// Bytes of whole blocks, of whoever asked for the change.
    Borrowed(&'d [u8]),
    /// The bytes of one block.
    Owned(Box<[u8; BLOCK_BYTES]>),
    /// So many holes.
    Zero(u64),
}

impl<'d> Piece<'d> {
    /// How many blocks.
    pub fn blocks(&self) -> u64 {
        match self {
            Piece::Borrowed(bytes) => (bytes.len() / BLOCK_BYTES) as u64,
            Piece::Owned(_) => 1,
            Piece::Zero(count) => *count,
        }
    }

    /// The bytes; none of holes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Piece::Borrowed(bytes) => Some(bytes),
            Piece::Owned(bytes) => Some(&bytes[..]),
            Piece::Zero(_) => None,
        }
    }

    /// As the volume counts it: blocks of data, and a hole for each part.
    fn cost(&self, first: u64) -> u64 {
        match self {
            Piece::Zero(count) => hole_parts(first, *count),
            _ => self.blocks(),
        }
    }

    /// Cuts `count` blocks off; some stay.
    fn split_off(&mut self, count: u64) -> Piece<'d> {
        match self {
            Piece::Borrowed(bytes) => {
                let (kept, cut) = bytes.split_at(count as usize * BLOCK_BYTES);
                *bytes = kept;
                Piece::Borrowed(cut)
            }
            Piece::Owned(_) => unreachable!("one block is not cut"),
            Piece::Zero(whole) => {
                let cut = *whole - count;
                *whole = count;
                Piece::Zero(cut)
            }
        }
    }
}

/// The change of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'e> {
    /// Nothing.
    None,
    /// They are holes.
    Hole,
    /// They have these bytes.
    Bytes(&'e [u8]),
}

/// A part of a run of blocks with one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'e> {
    /// Its first block.
    pub first: u64,
    /// How many it has.
    pub count: u64,
    /// Their change.
    pub change: Change<'e>,
}

/// Changed runs of blocks.
#[derive(Debug, Default)]
pub struct Extents<'d> {
    pieces: BTreeMap<u64, Piece<'d>>,
    cost: u64,
}

impl<'d> Extents<'d> {
    /// Blocks with bytes, and parts of holes.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Changes a run.
    pub fn insert(&mut self, first: u64, piece: Piece<'d>) {
        let blocks = piece.blocks();
        assert!(blocks > 0);
        self.cut(first, blocks);
        self.put(first, piece);
    }

    /// Forgets the changes of a run.
    pub fn cut(&mut self, first: u64, count: u64) {
        let end = first + count;
        let before =
            self.pieces.range(..first).next_back().map(|(at, piece)| (*at, piece.blocks()));
        if let Some((at, blocks)) = before.filter(|(at, blocks)| at + blocks > first) {
            let mut piece = self.take(at);
            let cut = piece.split_off(first - at);
            self.put(at, piece);
            if at + blocks > end {
                self.put_rest(first, cut, end);
            }
        }
        while let Some(at) = self.pieces.range(first..end).next().map(|(at, _)| *at) {
            let piece = self.take(at);
            if at + piece.blocks() > end {
                self.put_rest(at, piece, end);
            }
        }
    }

    /// Puts of a piece at `at` what is from `end` on.
    fn put_rest(&mut self, at: u64, mut piece: Piece<'d>, end: u64) {
        let rest = piece.split_off(end - at);
        self.put(end, rest);
    }

    fn put(&mut self, first: u64, piece: Piece<'d>) {
        self.cost += piece.cost(first);
        self.pieces.insert(first, piece);
    }

    fn take(&mut self, at: u64) -> Piece<'d> {
        let piece = self.pieces.remove(&at).expect("it was found there");
        self.cost -= piece.cost(at);
        piece
    }

    /// A run, in parts of one change each, in order.
    pub fn parts(&self, first: u64, count: u64) -> Vec<Part<'_>> {
        let end = first + count;
        let before = self.pieces.range(..first).next_back();
        let before = before.filter(|(at, piece)| *at + piece.blocks() > first);
        let mut parts = Vec::new();
        let mut at = first;
        let unchanged = |first, end| Part { first, count: end - first, change: Change::None };
        for (start, piece) in before.into_iter().chain(self.pieces.range(first..end)) {
            if at < *start {
                parts.push(unchanged(at, *start));
            }
            let from = first.max(*start);
            let to = end.min(start + piece.blocks());
            let byte = |block: u64| (block - start) as usize * BLOCK_BYTES;
            let change = match piece.bytes() {
                Some(bytes) => Change::Bytes(&bytes[byte(from)..byte(to)]),
                None => Change::Hole,
            };
            parts.push(Part { first: from, count: to - from, change });
            at = to;
        }
        if at < end {
            parts.push(unchanged(at, end));
        }
        parts
    }

    /// All pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Piece<'d>)> {
        self.pieces.iter().map(|(at, piece)| (*at, piece))
    }
}

impl<'d> IntoIterator for Extents<'d> {
    type Item = (u64, Piece<'d>);
    type IntoIter = std::collections::btree_map::IntoIter<u64, Piece<'d>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, Change, Extents, Part, Piece};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn of_each_block_the_last_change_counts(
            changes in proptest::collection::vec((0..20_u64, 1..8_u64, any::<Option<u8>>()), 1..20),
        ) {
            let bytes: Vec<Vec<u8>> = changes
                .iter()
                .map(|(_, blocks, byte)| {
                    vec![byte.unwrap_or_default(); *blocks as usize * BLOCK_BYTES]
                })
                .collect();
            let mut extents = Extents::default();
            let mut expected = [None; 32];
            for ((first, blocks, byte), bytes) in changes.iter().zip(&bytes) {
                let piece = match byte {
                    Some(_) => Piece::Borrowed(bytes),
                    None => Piece::Zero(*blocks),
                };
                extents.insert(*first, piece);
                expected[*first as usize..(*first + *blocks) as usize].fill(Some(*byte));
            }
            let mut found = Vec::new();
            for Part { first, count, change } in extents.parts(0, 32) {
                prop_assert_eq!(first, found.len() as u64);
                let byte = match change {
                    Change::None => None,
                    Change::Hole => Some(None),
                    Change::Bytes(bytes) => Some(Some(bytes[0])),
                };
                found.extend(std::iter::repeat_n(byte, count as usize));
                if let Change::Bytes(bytes) = change {
                    prop_assert_eq!(bytes.len(), count as usize * BLOCK_BYTES);
                }
            }
            prop_assert_eq!(&found[..], &expected[..]);
            let data = expected.iter().filter(|byte| matches!(byte, Some(Some(_)))).count();
            let holes = extents.iter().filter(|(_, piece)| piece.bytes().is_none()).count();
            prop_assert_eq!(extents.cost(), (data + holes) as u64);
        }
    }
}
