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
mod source;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::RunCursor;
pub use leaf_cache::LeafCache;
pub use merge::MergeIter;
pub use reader::Run;
pub(crate) use reader::read_sound;
pub use source::{PageSink, PageStore, RunSource};
pub use writer::RunWriter;
