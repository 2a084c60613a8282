//! Archives of trees, in the pax form (POSIX.1-2024, `pax`), which GNU tar, bsdtar, Python and
//! busybox read. `docs/design/2026-11-28-archives.md`.
//!
//! Owners, modes, times to the nanosecond, hard and symbolic links, devices and extended attributes
//! are in them. Holes are written as zeros: archivers have no one form for them; both forms of GNU
//! are read.

mod read;
mod write;

pub use read::{Member, Reader, What};
pub use write::{Link, Writer};

/// The unit of an archive.
const BLOCK_BYTES: usize = 512;

/// A field of a header.
type Field = std::ops::Range<usize>;

const NAME: Field = 0..100;
const MODE: Field = 100..108;
const UID: Field = 108..116;
const GID: Field = 116..124;
const SIZE: Field = 124..136;
const MTIME: Field = 136..148;
const SUM: Field = 148..156;
const TYPE: usize = 156;
const TARGET: Field = 157..257;
const MAGIC: Field = 257..265;
const MAJOR: Field = 329..337;
const MINOR: Field = 337..345;
const PREFIX: Field = 345..500;

/// The key of an extended attribute begins with this.
const EXTENDED: &[u8] = b"SCHILY.xattr.";

/// Magic and version of POSIX.
const USTAR: &[u8; 8] = b"ustar\x0000";

/// The sum of a header's bytes, those of the sum itself taken as blanks.
fn sum_of(header: &[u8; BLOCK_BYTES]) -> u64 {
    let of =
        |(at, byte): (usize, &u8)| if SUM.contains(&at) { b' '.into() } else { u64::from(*byte) };
    header.iter().enumerate().map(of).sum()
}
