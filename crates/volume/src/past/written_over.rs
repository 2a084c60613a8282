//! The data of a moment that was written over by a later one, told by a sample.
//!
//! The map says which pages some write touched; of at most so many of these, evenly picked, it is
//! looked which blocks held data and hold something else now. Where a trim of whole pages would
//! have the whole map read for that, the pages under it are left out.

use units::BLOCK_BYTES;

use std::collections::BTreeSet;

use super::diff::{Apart, crc_of, is_stored, same_place, since_parting, suspects, touched};
use crate::read::view::View;
use crate::{Error, Result};
use history::{BLOCKS_PER_PAGE, Slot};

/// Map entries between the two moments, above which nothing is told.
const ENTRIES_MAX: u64 = 4_000_000;

/// A sample of the blocks that were written over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenOver {
    /// Pages that were written to for each one of the sample.
    pub pages_each: u64,
    /// Offsets of blocks that held data at the first moment and hold something else at the second,
    /// ascending.
    pub blocks: Vec<u64>,
}

impl View {
    /// Blocks of its data that a later moment wrote over, in at most `pages_max` pages, evenly
    /// picked from one on that `start` picks. `None` across a revert.
    ///
    /// # Errors
    /// `Invalid` for views of two volumes, and where too much was written to tell; `Corrupt`, `Io`.
    pub fn written_over(
        &self,
        later: &View,
        pages_max: usize,
        start: u64,
    ) -> Result<Option<WrittenOver>> {
        if self.volume().id() != later.volume().id() {
            let text = "what was written over is told of two moments of one volume";
            return Err(Error::invalid(text));
        }
        let (a, b) = (self.opening(), later.opening());
        if a.timeline.id != b.timeline.id {
            return Ok(None);
        }
        let apart = Apart::of(a, b);
        if apart.entries > ENTRIES_MAX {
            let text = "too much was written to tell what of it was written over data";
            return Err(Error::invalid(text));
        }
        let _epoch = a.store.enter();
        let end = a.size_bytes.min(b.size_bytes) / BLOCK_BYTES;
        let pages: BTreeSet<u64> = match apart.is_quick || !apart.has_nodes {
            true => suspects(a, b, 0..end)?,
            false => {
                let keys = touched(&a.store, &since_parting(a, b))?;
                let pages = keys.iter().filter(|key| key.level == 1).map(|key| key.index);
                pages.take_while(|page| page * (BLOCKS_PER_PAGE as u64) < end).collect()
            }
        };
        let step = pages.len().div_ceil(pages_max.max(1)).max(1);
        let skipped = usize::try_from(start % step as u64).expect("less than a usize");
        let mut slots_a = vec![Slot::default(); BLOCKS_PER_PAGE];
        let mut slots_b = vec![Slot::default(); BLOCKS_PER_PAGE];
        let mut blocks = Vec::new();
        for page in pages.iter().skip(skipped).step_by(step) {
            let first = page * BLOCKS_PER_PAGE as u64;
            a.look_up_within(first, &mut slots_a)?;
            b.look_up_within(first, &mut slots_b)?;
            for (block, (x, y)) in (first..end).zip(slots_a.iter().zip(&slots_b)) {
                if is_stored(x) && !same_place(x, y) && crc_of(x) != crc_of(y) {
                    blocks.push(block * BLOCK_BYTES);
                }
            }
        }
        Ok(Some(WrittenOver { pages_each: step as u64, blocks }))
    }
}
