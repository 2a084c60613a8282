//! Readers against what other programs make and say: mke2fs, e2fsck, debugfs, mkfs.vfat, mtools,
//! mkntfs, sfdisk. None needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod archives;
mod fats;
mod images;
mod journals;
mod lvm;
mod mutations;
mod ntfs;
mod oracle;
mod tables;
mod xfs;
mod xfs_log;
mod xfs_mutations;
mod xfs_sums;
