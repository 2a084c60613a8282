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
//!   `RunSource { pages, cache }`, `run.fill_page(..)` for look-ups, `run.cursor(..)` and
//!   `run.scan(..)` to walk it.
//! - Merging: `MergeIter::new(sources)` over cursors of runs and `SliceCursor`s.

mod cursor;
mod fill;
mod leaf_cache;
mod leaf_index;
mod merge;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::{EntrySource, RunCursor, SliceCursor};
pub use leaf_cache::LeafCache;
pub use merge::MergeIter;
pub use reader::Run;
pub use writer::RunWriter;

use format::PAGE_BYTES;
use format::map::Key;
use format::run::RunFooter;
use units::Seq;

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

impl<T: PageSink + ?Sized> PageSink for &mut T {
    fn append_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<()> {
        (**self).append_page(page)
    }
}

/// The needs of reading a run: its pages, and the cache of leaves that all runs share.
#[derive(Clone, Copy)]
pub struct RunSource<'a> {
    /// The run's pages.
    pub pages: &'a dyn PageStore,
    /// Verified leaves.
    pub cache: &'a LeafCache,
}

/// The content of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// The run's number.
    pub run: u64,
    /// The timeline whose writes it tells of.
    pub timeline: u64,
    /// All its pages.
    pub pages: u32,
    /// Its leaves.
    pub leaf_pages: u32,
    /// Entries in its leaves, at least 1.
    pub entries: u64,
    /// The first entry's key.
    pub key_first: Key,
    /// The last entry's key.
    pub key_last: Key,
    /// The smallest seq.
    pub seq_first: Seq,
    /// The largest seq.
    pub seq_last: Seq,
}

impl RunSummary {
    fn of(run: u64, footer: &RunFooter) -> RunSummary {
        RunSummary {
            run,
            timeline: footer.timeline,
            pages: footer.pages(),
            leaf_pages: footer.leaf_pages,
            entries: footer.entries,
            key_first: footer.key_first,
            key_last: footer.key_last,
            seq_first: footer.seq_first,
            seq_last: footer.seq_last,
        }
    }
}
