//! Readers against what other programs make and say: mke2fs, e2fsck, debugfs. None needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod images;
mod journals;
mod mutations;
mod oracle;
mod tables;
