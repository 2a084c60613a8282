//! One destage: versions from the head of the order, with their bytes.

use std::ops::Range;

use history::{BlockOp, FastSet};
use units::{BLOCK_BYTES, Seq, WallTime};

use super::Cache;
use super::pages::{Page, PageId};

/// One op of a run.
#[derive(Clone, Copy, Debug)]
struct Piece {
    write: u64,
    block: u64,
    blocks: usize,
    /// The first of its pages among the run's.
    first: usize,
    /// Where its blocks begin in the run's bytes; none: a hole.
    at: Option<usize>,
}

/// Versions on their way to the device; they stay in the cache until it is told that they are
/// there.
#[derive(Debug, Default)]
pub struct Run {
    pieces: Vec<Piece>,
    pages: Vec<PageId>,
    bytes: Vec<u8>,
    crcs: Vec<u32>,
    /// Time and pieces of each group.
    groups: Vec<(WallTime, Range<usize>)>,
}

impl Cache {
    /// Takes about so many versions from the head of the order, whole groups, none after `upto`,
    /// into a run, which is the one that goes with the right to destage. False when there are none.
    pub fn begin_run(&self, run: &mut Run, blocks: usize, upto: Option<u64>) -> bool {
        let mut state = self.lock();
        run.clear();
        for (taken, (id, page)) in state.pages.waiting().enumerate() {
            let begins_group = run.groups.last().is_none_or(|(time, _)| *time != page.time);
            if begins_group {
                if taken >= blocks || upto.is_some_and(|upto| page.write > upto) {
                    break;
                }
                run.groups.push((page.time, run.pieces.len()..run.pieces.len()));
            }
            run.push(id, page);
            run.groups.last_mut().expect("begun").1.end = run.pieces.len();
        }
        let Some(last) = run.pieces.last() else { return false };
        state.going = last.write + 1;
        true
    }

    /// The first `groups` groups of a run are in log and map, up to `seq`: they are clean now.
    pub fn end_groups(&self, run: &Run, groups: Range<usize>, seq: Seq) {
        let mut state = self.lock();
        let (first, end) = (run.groups[groups.start].1.start, run.groups[groups.end - 1].1.end);
        for piece in &run.pieces[first..end] {
            let pages = &run.pages[piece.first..piece.first + piece.blocks];
            for (&page, block) in pages.iter().zip(piece.block..) {
                // Gone with its volume otherwise.
                let is_there = state.pages.written(page, block, piece.write);
                state.destaged += u64::from(is_there);
            }
        }
        state.logged = seq;
        state.ops = state.ops.saturating_sub((end - first) as u64);
        if state.pages.waiting_len() == 0 {
            state.ops = 0;
        }
        state.shrink();
        drop(state);
        self.changed.notify_all();
    }

    /// Which blocks of a run have newer versions that wait behind it.
    #[must_use]
    pub fn superseded(&self, run: &Run) -> FastSet<u64> {
        let state = self.lock();
        let is_newest = |write: u64, block: u64| state.pages.newest_write(block) == Some(write);
        let blocks = |piece: &Piece| piece.block..piece.block + piece.blocks as u64;
        let mut all: FastSet<u64> = run.pieces.iter().flat_map(blocks).collect();
        for piece in &run.pieces {
            for block in blocks(piece).filter(|&block| is_newest(piece.write, block)) {
                all.remove(&block);
            }
        }
        all
    }

    /// A run came to its end, or did not: what is left of it waits as before.
    pub fn end_run(&self) {
        self.lock().going = 0;
        self.changed.notify_all();
    }
}

impl Run {
    fn clear(&mut self) {
        self.pieces.clear();
        self.pages.clear();
        self.bytes.clear();
        self.crcs.clear();
        self.groups.clear();
    }

    fn push(&mut self, id: PageId, page: &Page) {
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
                let (first, at) = (self.pages.len(), bytes.map(|_| self.bytes.len()));
                self.pieces.push(Piece { write, block, blocks: 1, first, at });
            }
        }
        self.pages.push(id);
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

    /// Time and ops (by index) of each group.
    #[must_use]
    pub fn groups(&self) -> &[(WallTime, Range<usize>)] {
        &self.groups
    }

    /// How many versions it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.blocks).sum()
    }
}
