//! How long a write waits by itself, and how far it came.

use std::cell::Cell;

use history::BlockOp;
use units::BLOCK_BYTES;

use crate::types::{Wait, WriteOp};
use crate::write::ops::span;

/// The reason why a write has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The volume stands still, or somebody merges a part of a block, or a segment or a slab is to
    /// be made ready: an instant or a commit, on another thread.
    Turn,
    /// The map is to be written out first: the volume is written faster than the background does.
    Map,
    /// Room is to be made.
    Room,
}

/// How far a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it is done.
    All,
    /// The first bytes of it are.
    Part {
        /// How many, of all ops together.
        bytes: u64,
        /// The reason why the rest waits.
        lacks: Lack,
    },
}

/// The things that a write may wait for by itself, and its progress.
#[derive(Debug)]
pub struct Pace {
    wait: Wait,
    /// Bytes of the ops that have ended.
    ended: Cell<u64>,
    /// Bytes of the op, or of the ops that go together, at which it stopped.
    within: Cell<u64>,
    lack: Cell<Option<Lack>>,
}

impl Pace {
    /// None is done yet.
    pub fn new(wait: Wait) -> Pace {
        Pace { wait, ended: Cell::new(0), within: Cell::new(0), lack: Cell::new(None) }
    }

    /// Waits for everything.
    pub fn patient() -> Pace {
        Pace::new(Wait::Room)
    }

    pub fn may_wait_for_turns(&self) -> bool {
        self.wait != Wait::Never
    }

    pub fn may_wait_for_room(&self) -> bool {
        self.wait == Wait::Room
    }

    /// Ops have ended.
    pub fn ended(&self, ops: &[WriteOp<'_>]) {
        let bytes: u64 = ops.iter().map(|op| span(op).1).sum();
        self.ended.set(self.ended.get() + bytes);
    }

    /// The rest after these pieces of the ops that go together lacks something.
    pub fn lacks(&self, lack: Lack, done: &[BlockOp<'_>]) {
        self.lack.set(Some(lack));
        self.within.set(bytes_of(done));
    }

    /// These came before those that were said to be done.
    pub fn did_before(&self, done: &[BlockOp<'_>]) {
        self.within.set(self.within.get() + bytes_of(done));
    }

    /// Whole blocks are done of an op that begins `skew` bytes within the first.
    pub fn began_before(&self, skew: u64, length_bytes: u64) {
        self.within.set(self.within.get().saturating_sub(skew).min(length_bytes));
    }

    /// How many bytes are done of a write that stopped, and what it lacks.
    pub fn stopped(&self) -> Option<(u64, Lack)> {
        let lack = self.lack.get()?;
        Some((self.ended.get() + self.within.get(), lack))
    }
}

fn bytes_of(pieces: &[BlockOp<'_>]) -> u64 {
    let blocks = pieces.iter().map(|piece| match *piece {
        BlockOp::Data { crcs, .. } => crcs.len() as u64,
        BlockOp::Zero { blocks, .. } => u64::from(blocks),
    });
    blocks.sum::<u64>() * BLOCK_BYTES
}
