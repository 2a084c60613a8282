//! Taking runs from the head of the order, and what becomes of them.

use std::ops::Range;

use history::FastSet;
use units::Seq;

use super::Cache;
use super::run::{Piece, Run};

impl Cache {
    /// Takes about so many versions from the head of the order, whole groups, none after `upto`,
    /// into a run, which is the one that goes with the right to destage. False when there are none.
    pub fn begin_run(&self, run: &mut Run, blocks: usize, upto: Option<u64>) -> bool {
        let mut state = self.lock();
        assert!(state.going == 0, "one run goes at a time");
        run.clear();
        for (taken, page) in state.pages.waiting().enumerate() {
            let begins_group = run.groups.last().is_none_or(|(time, _)| *time != page.time);
            if begins_group {
                if taken >= blocks || upto.is_some_and(|upto| page.write > upto) {
                    break;
                }
                run.groups.push((page.time, run.pieces.len()..run.pieces.len()));
            }
            run.push(page);
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
            for block in piece.block..piece.block + piece.blocks as u64 {
                // Gone with its volume otherwise.
                let is_there = state.pages.written(block, piece.write);
                state.destaged += u64::from(is_there);
            }
        }
        assert!(seq >= state.logged, "the log does not go back from {} to {seq}", state.logged);
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
