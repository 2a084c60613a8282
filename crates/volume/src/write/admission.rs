//! Writes that go as far as they get without waiting for room, for those that serve others too:
//! what is left they write once they have waited, with no lock and no thread held meanwhile.
//!
//! Invariant: what a write has done is a prefix of its bytes, in the order of its ops. It is not
//! written again, so a write that is made in parts gets to its end.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use history::BlockOp;
use units::BLOCK_BYTES;

use crate::jobs::reclaim::RoomWait;
use crate::types::WriteOp;
use crate::volume::Volume;
use crate::write::span;
use crate::{Error, ErrorKind, Result};

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

/// Reasons for which a write waits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Nothing,
    Turns,
    Room,
}

/// A write's patience, and its progress.
#[derive(Debug)]
pub struct Pace {
    patience: Patience,
    /// Bytes of the ops that have ended.
    ended: Cell<u64>,
    /// Bytes of the op, or of the ops that go together, at which it stopped.
    within: Cell<u64>,
    lack: Cell<Option<Lack>>,
}

impl Pace {
    fn new(patience: Patience) -> Pace {
        Pace { patience, ended: Cell::new(0), within: Cell::new(0), lack: Cell::new(None) }
    }

    /// Waits for everything.
    pub fn patient() -> Pace {
        Pace::new(Patience::Room)
    }

    pub fn may_wait_for_turns(&self) -> bool {
        self.patience != Patience::Nothing
    }

    pub fn may_wait_for_room(&self) -> bool {
        self.patience == Patience::Room
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

    fn stopped(&self) -> Option<(u64, Lack)> {
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

/// The rest of an op without its first bytes.
fn without<'a>(op: &WriteOp<'a>, skip: u64) -> WriteOp<'a> {
    match *op {
        WriteOp::Data { offset, bytes } => {
            let skipped = usize::try_from(skip).expect("less than the op has");
            WriteOp::Data { offset: offset + skip, bytes: &bytes[skipped..] }
        }
        WriteOp::Zero { offset, length_bytes } => {
            WriteOp::Zero { offset: offset + skip, length_bytes: length_bytes - skip }
        }
    }
}

impl Volume {
    /// Writes ops but for their first `done` bytes, as [`Volume::write_batch`] does, as far as it
    /// gets without waiting for room or for the map; unless it `may_wait`, also without waiting for
    /// others' turns or for a commit. [`Volume::wait_for`] waits for the lack.
    ///
    /// # Errors
    /// Those of [`Volume::write_batch`]; `Full` only where the reserve is full as well.
    pub fn write_some(&self, ops: &[WriteOp<'_>], done: u64, may_wait: bool) -> Result<Written> {
        self.check_served()?;
        let all = self.check_ranges(ops)?;
        let pace = Pace::new(if may_wait { Patience::Turns } else { Patience::Nothing });
        let written = match done {
            0 => self.write_ops(ops, &pace).map(drop),
            _ => self.write_rest(ops, done, &pace),
        };
        if let Err(error) = written {
            let (bytes, lacks) = pace.stopped().ok_or(error)?;
            return Ok(Written::Part { bytes: done + bytes, lacks });
        }
        // Once: should there be no room for the map either, the next write has to see to it.
        if done < all && self.is_ahead_of_map() {
            return Ok(Written::Part { bytes: all, lacks: Lack::Map });
        }
        self.count_written(ops, all);
        Ok(Written::All)
    }

    fn write_rest(&self, ops: &[WriteOp<'_>], mut skip: u64, pace: &Pace) -> Result<()> {
        for (index, op) in ops.iter().enumerate() {
            let length = span(op).1;
            if skip < length {
                self.write_ops(&[without(op, skip)], pace)?;
                return self.write_ops(&ops[index + 1..], pace).map(drop);
            }
            skip -= length;
        }
        Ok(())
    }

    /// Waits for what a write lacks, as long as `goes_on`, and does the work itself if nobody does.
    /// `wait` is new for each write, and again whenever it has got further.
    ///
    /// # Errors
    /// `Full` when there is no room to be had, or `goes_on` says no; `NotFound` and `Refused` when
    /// the volume or the pool is gone; those of making room.
    pub fn wait_for(
        &self,
        lack: Lack,
        wait: &mut RoomWait,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let goes_on = || goes_on() && self.check_open().is_ok();
        match lack {
            Lack::Turn => return Ok(()),
            Lack::Map => self.hold_back(&goes_on)?,
            Lack::Room => {
                let has_room = self.core.wait_for_room_while(wait, &goes_on);
                self.check_open()?;
                if !has_room? {
                    return Err(Error::new(ErrorKind::Full, "there is no room for the write")
                        .with_hint("delete versions, marks or volumes, or add space"));
                }
                self.cache.short.store(false, Ordering::Release);
            }
        }
        self.check_open()
    }
}
