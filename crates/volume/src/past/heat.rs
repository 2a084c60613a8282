//! Where two moments differ: a map of the volume, told by its own map alone.
//!
//! Blocks with one checksum are taken to be the same and those that were written again with the
//! same bytes are too; nothing is read but the map. `diff` settles by content what a checksum does
//! not say.

use std::sync::Arc;

use units::{BLOCK_BYTES, Moment};

use super::diff::compare;
use crate::types::Heat;
use crate::volume::Volume;
use crate::{Error, Result};

impl Volume {
    /// Blocks that differ between two moments, counted in so many parts of equal size at most.
    ///
    /// # Errors
    /// `Invalid` for no parts; those of resolving; `Corrupt` or `Io`.
    pub fn heat(self: &Arc<Self>, from: &Moment, to: &Moment, cells: u64) -> Result<Heat> {
        if cells == 0 {
            return Err(Error::invalid("a map has one part at least"));
        }
        let views = (self.view(from)?, self.view(to)?);
        let between = (views.0.resolved(), views.1.resolved());
        let (a, b) = (self.open_at(between.0.seq)?, self.open_at(between.1.seq)?);
        let blocks = a.size_bytes.max(b.size_bytes).div_ceil(BLOCK_BYTES);
        let cell_blocks = blocks.div_ceil(cells).max(1);
        let count = usize::try_from(blocks.div_ceil(cell_blocks)).expect("not more than asked for");
        let mut heat = vec![0; count];
        compare(&a, &b, 0..u64::MAX, false, |block| {
            let cell = usize::try_from(block / cell_blocks).expect("one of the cells");
            heat[cell] += 1;
            true
        })?;
        Ok(Heat { between, cell_bytes: cell_blocks * BLOCK_BYTES, blocks: heat })
    }
}
