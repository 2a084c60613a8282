//! The data of a moment that was written over by a later one, told by a sample.
//!
//! The map says which pages some write touched; of at most so many of these, evenly picked, it is
//! looked which blocks held data and hold something else now. The cost has a bound therefore,
//! whatever was written.

use units::BLOCK_BYTES;

use super::diff::{Suspects, crc_of, entries_apart, is_stored, same_place};
use crate::read::view::View;
use crate::{Error, ErrorKind, Result};
use history::{BLOCKS_PER_PAGE, Slot};

/// Map entries between the two moments, above which nothing is told.
const ENTRIES_MAX: u64 = 4_000_000;

/// A sample of the blocks that were written over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenOver {
    /// Bytes of the volume that each block of the sample stands for.
    pub bytes_each: u64,
    /// Offsets of blocks that held data at the first moment and hold something else at the second,
    /// ascending.
    pub blocks: Vec<u64>,
}

impl View {
    /// Blocks of its data that a later moment wrote over, in at most `pages_max` pages. `None`
    /// across a revert, and where too much was written to tell.
    ///
    /// # Errors
    /// `Invalid` for views of two volumes; `Corrupt` or `Io`.
    pub fn written_over(&self, later: &View, pages_max: usize) -> Result<Option<WrittenOver>> {
        if self.volume().id() != later.volume().id() {
            let text = "what was written over is told of two moments of one volume";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let (a, b) = (self.opening(), later.opening());
        if a.timeline.id != b.timeline.id || entries_apart(a, b) > ENTRIES_MAX {
            return Ok(None);
        }
        let _epoch = a.store.enter();
        let end = a.size_bytes.min(b.size_bytes) / BLOCK_BYTES;
        let suspects = Suspects::between(a, b, 0..end)?;
        let step = suspects.pages.len().div_ceil(pages_max.max(1)).max(1);
        let mut slots_a = vec![Slot::default(); BLOCKS_PER_PAGE];
        let mut slots_b = vec![Slot::default(); BLOCKS_PER_PAGE];
        let mut blocks = Vec::new();
        for page in suspects.pages.iter().step_by(step) {
            let first = page * BLOCKS_PER_PAGE as u64;
            a.look_up_within(first, &mut slots_a)?;
            b.look_up_within(first, &mut slots_b)?;
            for (block, (x, y)) in (first..end).zip(slots_a.iter().zip(&slots_b)) {
                if is_stored(x) && !same_place(x, y) && crc_of(x) != crc_of(y) {
                    blocks.push(block * BLOCK_BYTES);
                }
            }
        }
        Ok(Some(WrittenOver { bytes_each: step as u64 * BLOCK_BYTES, blocks }))
    }
}
