//! The reads that the operation log has, so that each is there once.

use std::collections::HashMap;

use units::FileId;

/// Reads that are remembered; beyond that they are forgotten, and recorded once more.
const SEEN_MAX: usize = 64 << 10;

/// A client, a user, and the file that they read.
pub(crate) type Reader = (u128, u32, FileId);

/// By reader the last operation that had changed the file.
#[derive(Debug, Default)]
pub(crate) struct SeenReads {
    /// The opening, or the revert, since which they are.
    incarnation: u64,
    all: HashMap<Reader, u64>,
}

impl SeenReads {
    /// None, since an opening or a revert.
    pub(crate) fn new(incarnation: u64) -> SeenReads {
        SeenReads { incarnation, all: HashMap::new() }
    }

    /// Whether the log has a read of the file as it was after an operation, or later.
    pub(crate) fn has(&self, reader: &Reader, operation: u64) -> bool {
        self.all.get(reader).is_some_and(|seen| *seen >= operation)
    }

    /// Takes up one that was logged in an opening. A revert since may have taken it away.
    pub(crate) fn insert(&mut self, incarnation: u64, reader: Reader, operation: u64) {
        if self.incarnation != incarnation {
            return;
        }
        if self.all.len() >= SEEN_MAX {
            self.all.clear();
        }
        self.all.insert(reader, operation);
    }
}
