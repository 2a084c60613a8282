//! One destage: versions from the head of the order, with their bytes.

use std::ops::Range;

use history::BlockOp;
use units::{BLOCK_BYTES, WallTime};

use super::pages::Page;

/// One op of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) write: u64,
    pub(super) block: u64,
    pub(super) blocks: usize,
    /// Where its blocks begin in the run's bytes; none: a hole.
    at: Option<usize>,
}

/// Versions on their way to the device; they stay in the cache until it is told that they are
/// there.
#[derive(Debug, Default)]
pub struct Run {
    pub(super) pieces: Vec<Piece>,
    bytes: Vec<u8>,
    crcs: Vec<u32>,
    /// Time and ops (by index) of each group.
    pub groups: Vec<(WallTime, Range<usize>)>,
}

impl Run {
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
        self.crcs.clear();
        self.groups.clear();
    }

    pub(super) fn push(&mut self, page: &Page) {
        let (write, block, bytes) = (page.write, page.block, page.bytes());
        let hole = bytes.is_none();
        let follows = |piece: &Piece| {
            piece.write == write
                && piece.block + piece.blocks as u64 == block
                && piece.at.is_none() == hole
        };
        match self.pieces.last_mut().filter(|piece| follows(piece)) {
            Some(piece) => piece.blocks += 1,
            None => {
                let at = bytes.map(|_| self.bytes.len());
                self.pieces.push(Piece { write, block, blocks: 1, at });
            }
        }
        if let Some(bytes) = bytes {
            self.bytes.extend_from_slice(bytes);
            self.crcs.push(page.crc);
        }
    }

    /// Its ops, in order.
    #[must_use]
    pub fn ops(&self) -> Vec<BlockOp<'_>> {
        let op = |piece: &Piece| match piece.at {
            None => BlockOp::Zero { block: piece.block, blocks: piece.blocks as u32 },
            Some(at) => {
                let first = at / BLOCK_BYTES as usize;
                BlockOp::Data {
                    block: piece.block,
                    bytes: &self.bytes[at..at + piece.blocks * BLOCK_BYTES as usize],
                    crcs: &self.crcs[first..first + piece.blocks],
                }
            }
        };
        self.pieces.iter().map(op).collect()
    }

    /// The blocks of its versions that are no holes, in order, with the times of their writes.
    pub fn data_versions(&self) -> impl Iterator<Item = (u64, WallTime)> + '_ {
        let data = |range: &Range<usize>| self.pieces[range.clone()].iter();
        self.groups.iter().flat_map(move |(time, range)| {
            let data = data(range).filter(|piece| piece.at.is_some());
            let blocks = data.flat_map(|piece| piece.block..piece.block + piece.blocks as u64);
            blocks.map(move |block| (block, *time))
        })
    }

    /// How many versions it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.blocks).sum()
    }
}
