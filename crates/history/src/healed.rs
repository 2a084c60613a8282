//! The faults that readers met.

/// The faults found since somebody last asked, for the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Ranges of which another copy was right; it was written over the wrong one.
    pub recovered: u64,
    /// Ranges that were right when they were read once more.
    pub transient: u64,
    /// Ranges of which no copy was right.
    pub unrecoverable: u64,
    /// Those of the first whose bytes were those of another version.
    pub elsewhere: u64,
    /// Where on the stack the first of them was, in bytes.
    pub first_at: u64,
}

impl Healed {
    /// How many ranges were found wrong.
    pub fn total(&self) -> u64 {
        self.recovered + self.transient + self.unrecoverable
    }
}
