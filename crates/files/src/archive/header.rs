//! The fields of a header.

/// The unit of an archive.
pub(super) const BLOCK_BYTES: usize = 512;

/// A field of a header.
pub(super) type Field = std::ops::Range<usize>;

pub(super) const NAME: Field = 0..100;
pub(super) const MODE: Field = 100..108;
pub(super) const UID: Field = 108..116;
pub(super) const GID: Field = 116..124;
pub(super) const SIZE: Field = 124..136;
pub(super) const MTIME: Field = 136..148;
pub(super) const SUM: Field = 148..156;
pub(super) const TYPE: usize = 156;
pub(super) const TARGET: Field = 157..257;
pub(super) const MAGIC: Field = 257..265;
pub(super) const MAJOR: Field = 329..337;
pub(super) const MINOR: Field = 337..345;
pub(super) const PREFIX: Field = 345..500;

/// The key of an extended attribute begins with this.
pub(super) const EXTENDED: &[u8] = b"SCHILY.xattr.";

/// Magic and version of POSIX.
pub(super) const USTAR: &[u8; 8] = b"ustar\x0000";

/// The sum of a header's bytes, those of the sum itself taken as blanks.
pub(super) fn sum_of(header: &[u8; BLOCK_BYTES]) -> u64 {
    let of =
        |(at, byte): (usize, &u8)| if SUM.contains(&at) { b' '.into() } else { u64::from(*byte) };
    header.iter().enumerate().map(of).sum()
}
