//! Entries of the time-indexed map, and the leaf pages they are kept in. `docs/format/map-run.md`.
//!
//! 1. A key is a block (level 0), or an aligned range of 512^level blocks (levels 1 to 4).
//! 2. An entry of level 1 or more is a hole: the trim of its whole range.
//! 3. Entries are in the order of keys, and for one key from the newest seq to the oldest.

mod builder;
mod cover;
mod entry;
mod grouped;
mod leaf;
mod places;

pub use builder::LeafBuilder;
pub use cover::{Cover, cover};
pub use entry::{BLOCK_BITS, Entry, Key, LEVEL_BITS, LEVEL_MAX, layout};
pub use grouped::GROUPED_ENTRIES_MAX;
pub use leaf::{LEAF_ENTRIES_MAX, LeafPage};
pub use places::{Places, Stride};
