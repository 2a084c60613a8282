//! Map runs: the immutable, sorted parts of the time-indexed map. `docs/format/map-run.md`.
//!
//! 1. A run is written once, in order, and never changes. One reader serves all threads.
//! 2. Every page that is looked at was verified, with its place in the run, since it was read.
//! 3. A look-up costs two searches a block at most, however many versions the block has.
//! 4. Memory: 12 bytes a leaf for the index of a run in use; leaves are in one bounded cache.
//!
//! Deliberately unaware of where pages are, of retention, and of which runs a timeline has.
//!
//! - Writing: `RunWriter::new(sink, pool_id, run, timeline, extent)`, `push`, `finish`.
//! - Reading: `Run::open(pages, pool_id, run, page_count)`; then, with a
//!   `RunSource { pages, cache }`, `run.fill_page(..)` for look-ups, `run.cursor_at(..)`
//!   and `run.scan(..)` to walk it.
//! - Merging: `MergeIter::new(cursors)`.

mod cursor;
mod fill;
mod leaf_cache;
mod leaf_index;
mod merge;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::RunCursor;
pub use leaf_cache::LeafCache;
pub use merge::MergeIter;
pub use reader::Run;
pub(crate) use reader::read_sound;
pub use writer::RunWriter;

use format::PAGE_BYTES;

use crate::Result;

/// Where a run's pages are read from.
pub trait PageStore {
    /// Reads one page of the run.
    ///
    /// # Errors
    /// The device's.
    fn read_page(&self, page: u32, buffer: &mut [u8; PAGE_BYTES]) -> Result<()>;
    /// Fills `buffer` with a page that was read and is not right; false if there is no better one.
    fn heal_page(
        &self,
        _page: u32,
        _buffer: &mut [u8; PAGE_BYTES],
        _right: &dyn Fn(&[u8; PAGE_BYTES]) -> bool,
    ) -> bool {
        false
    }
}

/// Where a run's pages are written to.
pub trait PageSink {
    /// Appends the run's next page.
    ///
    /// # Errors
    /// The device's, or `Full`.
    fn append_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<()>;
}

/// The needs of reading a run: its pages, and the cache of leaves that all runs share.
#[derive(Clone, Copy)]
pub struct RunSource<'a> {
    /// The run's pages.
    pub pages: &'a dyn PageStore,
    /// Verified leaves.
    pub cache: &'a LeafCache,
}
