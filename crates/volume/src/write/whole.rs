//! Operations of which all are there or none: one batch of a strict volume.
//!
//! Invariants
//! 1. It is one batch, in one segment, and recovery leaves out whole batches of a strict log
//!    (`history/recover`).
//! 2. No moment lies within it (`past/resolve`).
//! 3. A whole write that is refused, or finds no room, leaves nothing. If a device fails, all or
//!    nothing of it is there when the pool is next opened.
//!
//! A read of the present beside it may see a part of it: a file tree keeps its readers away from
//! its commits, and all others open a view.

use units::{BLOCK_BYTES, Seq};

use crate::catalogue::VolumeRecord;
use crate::types::{Wait, WriteOp};
use crate::write::ops::{is_whole, is_zero, span};
use crate::write::pace::{Lack, Pace};
use crate::write::{TRIM_BLOCKS_MAX, Terms, Writer};
use crate::{Error, Result};

/// The outcome of a whole write that does not wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It is written.
    Written {
        /// Its last seq: the moment after it.
        seq: Seq,
        /// The map is to be written out before the next one: wait for [`Lack::Map`].
        is_ahead_of_map: bool,
    },
    /// Nothing was written yet, for want of this ([`Writer::wait_for`]).
    Lacks(Lack),
}

/// Refuses a strict volume that is to have what its writes would not be whole with.
///
/// # Errors
/// `Invalid`.
pub fn check(record: &VolumeRecord) -> Result<()> {
    let text = match record {
        VolumeRecord { strict: false, .. } => return Ok(()),
        VolumeRecord { cache: Some(_), .. } => {
            "a strict volume has no write-back cache, nor an architecture that needs one: what \
             waits in a cache has no seq, and is replaced write by write"
        }
        VolumeRecord { copy_unit, .. } if !copy_unit.is_block() => {
            "a strict volume has copy units of a block: a whole write takes nothing along"
        }
        _ => return Ok(()),
    };
    Err(Error::invalid(text)
        .with_hint("logging, split-stream, redirect or checkpointing, without a cache"))
}

impl Writer {
    /// Blocks of data and trims that always fit one whole write together; a trim that crosses
    /// multiples of 4 TiB counts for each part.
    #[must_use]
    pub fn whole_blocks_max(&self) -> usize {
        self.log().whole_blocks_max()
    }

    /// Writes all of `ops`, of whole blocks, as one batch, and says its last seq. Each moment has
    /// all of it or nothing, as has the pool when it is opened after a crash. It waits for room as
    /// [`Writer::write_batch`] does, and for all writes before it.
    ///
    /// # Errors
    /// `Invalid` for a volume that is not strict, for parts of blocks, and for more than
    /// [`Writer::whole_blocks_max`]; `OutOfBounds`; `Full`; `Refused` or `Io` after a device
    /// failure.
    pub fn write_whole(&self, ops: &[WriteOp<'_>]) -> Result<Seq> {
        // First: what is written is no error.
        self.hold_back(&|| true)?;
        self.write_one_batch(ops, &Pace::patient())
    }

    /// The same without waiting for room or for the map; unless it `may_wait`, also without waiting
    /// for others' turns or for a commit.
    ///
    /// # Errors
    /// Those of [`Writer::write_whole`]; `Full` only where the reserve is full as well.
    pub fn try_write_whole(&self, ops: &[WriteOp<'_>], may_wait: bool) -> Result<Whole> {
        let pace = Pace::new(if may_wait { Wait::Device } else { Wait::Never });
        match self.write_one_batch(ops, &pace) {
            Ok(seq) => Ok(Whole::Written { seq, is_ahead_of_map: self.is_ahead_of_map() }),
            Err(error) => {
                let (_, lacks) = pace.stopped().ok_or(error)?;
                Ok(Whole::Lacks(lacks))
            }
        }
    }

    fn write_one_batch(&self, ops: &[WriteOp<'_>], pace: &Pace) -> Result<Seq> {
        self.check_served()?;
        let bytes = self.check_ranges(ops)?;
        self.check_whole(ops)?;
        if ops.is_empty() {
            return Ok(self.log().stable());
        }
        let end = ops.iter().map(|op| span(op).0 + span(op).1).max().unwrap_or(0);
        let frees = ops.iter().all(is_zero);
        let terms = Terms { frees, whole: true, ..Terms::new(end, pace) };
        loop {
            // None: the present is in place elsewhere since. Then once more.
            if let Some(seq) = self.write_logged(ops, terms)? {
                self.count_written(ops, bytes);
                return Ok(seq);
            }
        }
    }

    /// Fails unless ops, which lie within the volume, can be one batch.
    fn check_whole(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let invalid = |text: String| Err(Error::invalid(text));
        if !self.record.lock().strict {
            let hint = "a volume is strict from its creation on, or never";
            return Err(Error::invalid("whole writes are for strict volumes").with_hint(hint));
        }
        if !ops.iter().all(is_whole) {
            return invalid("a whole write is of whole blocks".to_owned());
        }
        let parts = |op: &WriteOp<'_>| {
            let (first, count) = (span(op).0 / BLOCK_BYTES, span(op).1 / BLOCK_BYTES);
            let last = first + count - 1;
            if is_zero(op) { last / TRIM_BLOCKS_MAX - first / TRIM_BLOCKS_MAX + 1 } else { count }
        };
        let (count, most) = (ops.iter().map(parts).sum::<u64>(), self.whole_blocks_max() as u64);
        if count > most {
            return invalid(format!("{count} blocks and trims are more than {most}, one batch's"));
        }
        Ok(())
    }
}
