//! Archives of trees, in the pax form (POSIX.1-2024, `pax`), which GNU tar, bsdtar, Python and
//! busybox read. `docs/design/2026-11-28-archives.md`.
//!
//! Owners, modes, times to the nanosecond, hard and symbolic links, devices and extended attributes
//! are in them. Holes are written as zeros: archivers have no one form for them; both forms of GNU
//! are read.

mod header;
mod read;
mod write;

pub use read::{Member, Reader, What};
pub use write::{Link, Writer};
