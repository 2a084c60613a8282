//! The blocks of a share on its volume. `docs/format/share.md`.
//!
//! 1. A block has no checksum of its own: the volume's map has that of each version of each block,
//!    and no read passes it by. A block does say what it is, whose, and where it belongs.
//! 2. A value that was decoded keeps every rule that can be seen in its block alone.

pub mod directory;
pub mod inode;
mod kind;
pub mod log;
pub mod name_hash;
pub mod operation;
pub mod place;
pub mod root;
pub mod stack;
