//! Where the pages of a run are read from, and written to.

use format::PAGE_BYTES;

use super::leaf_cache::LeafCache;
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
