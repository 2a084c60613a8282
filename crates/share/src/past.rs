//! A share as it was: the tree at a moment of the past.

use format::share::log::{LogBlock, State};
use format::share::root::ShareRoot;

use crate::blocks::{Blocks, Wait};
use crate::cache::Cache;
use crate::error::Result;
use crate::moment::{Ends, Moment, read_ends, read_log_block};

/// A share at a moment of the past; it reads as a [`crate::Tree`] by [`Past::tree`].
pub struct Past<B> {
    blocks: B,
    cache: Cache,
    root: ShareRoot,
    last: LogBlock,
}

impl<B: Blocks> Past<B> {
    /// Opens the share that is in these blocks.
    ///
    /// # Errors
    /// `NotFound` if there was none yet; `Corrupt`, `Storage`.
    pub fn open(blocks: B, cache_blocks_max: usize) -> Result<Past<B>> {
        let Ends { root, last, .. } = read_ends(&blocks)?;
        Ok(Past { blocks, cache: Cache::new(cache_blocks_max), root, last })
    }

    /// The tree.
    pub fn tree(&self, wait: Wait) -> Moment<'_> {
        Moment { blocks: &self.blocks, cache: &self.cache, root: &self.root, wait }
    }

    /// Counters, and the last operation; older ones if the log is damaged.
    pub fn state(&self) -> &State {
        &self.last.state
    }

    /// The number of the last block of the operation log.
    pub fn last_log_block(&self) -> u64 {
        self.last.number
    }

    /// A block of the operation log; none if the ring does not have it.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn log_block(&self, number: u64) -> Result<Option<LogBlock>> {
        if number < self.last.state.log_first {
            return Ok(None);
        }
        read_log_block(&self.blocks, &self.root, number)
    }
}
