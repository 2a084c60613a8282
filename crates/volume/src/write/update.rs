//! A range that is read and written while nobody else writes there: what a compare-and-write, or
//! any change that depends on what is stored, is made with.
//!
//! Invariant: between the read and the write of a range no write to any of its blocks is ordered,
//! nor a revert or a resize: then all is done again, the change included.

use crate::types::{Wait, WriteOp};
use crate::write::pace::{Lack, Pace};
use crate::write::{BLOCK, Merged, Terms, Writer};
use crate::{Error, Result};
use units::BLOCK_BYTES;

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// It is written.
    Written,
    /// The change did not want it: nothing was written.
    Unchanged,
    /// Nothing was written yet, for want of this ([`Writer::wait_for`]).
    Lacks(Lack),
}

impl Writer {
    /// Reads a range, lets `change` make other bytes of it, and writes these as one write, unless
    /// `change` says no. It may be called again, with what is stored then.
    ///
    /// # Errors
    /// `OutOfBounds`; `Invalid` for more than is one write (64 KiB always is); those of reads and
    /// of [`Writer::write_batch`].
    pub fn update(
        &self,
        offset: u64,
        length_bytes: u64,
        change: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<Updated> {
        self.check_served()?;
        let first = offset / BLOCK_BYTES;
        loop {
            let live = self.present();
            live.check_range(offset, length_bytes)?;
            let end = (offset + length_bytes).div_ceil(BLOCK_BYTES);
            let bytes = (end - first) as usize * BLOCK;
            if bytes > self.piece_bytes_max() {
                return Err(Error::invalid("too long to be one write"));
            }
            // One lock or the other: should the cache be switched on or off, all is done again.
            let switches = self.cache().switches();
            let is_cached = switches % 2 == 1;
            let _waits = is_cached.then(|| self.cache().lock_blocks(first, end));
            let _locked = match is_cached {
                true => None,
                false => Some(self.log().lock_blocks(first, end)?),
            };
            let mut blocks = vec![0; bytes];
            let stored = (end * BLOCK_BYTES).min(live.size_bytes) - first * BLOCK_BYTES;
            let there = &mut blocks[..stored as usize];
            let is_read = match is_cached {
                true => self.read_cached(first * BLOCK_BYTES, there, Wait::Device)?,
                false => live.read(first * BLOCK_BYTES, there, Wait::Device)?,
            };
            assert!(is_read, "a patient read ends");
            let skew = (offset - first * BLOCK_BYTES) as usize;
            if !change(&mut blocks[skew..skew + length_bytes as usize]) {
                return Ok(Updated::Unchanged);
            }
            let ops = [WriteOp::Data { offset: first * BLOCK_BYTES, bytes: &blocks }];
            let pace = Pace::new(Wait::Device);
            let merged = Some(Merged { live: &live, switches });
            let end = offset + length_bytes;
            let terms = Terms { merged, ..Terms::new(end, &pace) };
            let written = match is_cached {
                true => self.write_cached(&ops, terms),
                false => self.write_logged(&ops, terms),
            };
            match written {
                Ok(Some(_)) => {
                    self.count_written(&ops, length_bytes);
                    return Ok(Updated::Written);
                }
                // The present is another than what was read.
                Ok(None) => {}
                Err(error) => {
                    let (_, lacks) = pace.stopped().ok_or(error)?;
                    return Ok(Updated::Lacks(lacks));
                }
            }
        }
    }
}
