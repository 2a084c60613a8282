//! Device I/Os of each architecture for one write (Fig. 5 of the paper).

use serde::Serialize;

/// Where the current data lives, and when history is split off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// The log is the volume.
    Logging,
    /// New data beside the old, at the first write after a capture.
    Redirect,
    /// History is split off above the cache.
    SplitStream,
    /// History is split off at destage.
    SplitDownstream,
    /// Old data is copied away before it is overwritten.
    Checkpointing,
    /// In both places at destage, or in the current one only when its window is over, whichever a
    /// block's own writes speak for.
    Hybrid,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 6] = [
        Architecture::Logging,
        Architecture::Redirect,
        Architecture::SplitStream,
        Architecture::SplitDownstream,
        Architecture::Checkpointing,
        Architecture::Hybrid,
    ];

    /// Its name in the contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::Logging => "logging",
            Architecture::Redirect => "redirect",
            Architecture::SplitStream => "split-stream",
            Architecture::SplitDownstream => "split-downstream",
            Architecture::Checkpointing => "checkpointing",
            Architecture::Hybrid => "hybrid",
        }
    }
}

/// Shares of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// r: the last of their granularity window.
    pub retained: f64,
    /// c: destaged before they were overwritten.
    pub evicted: f64,
    /// d: one or the other, or both. Not r + c - rc: the two depend on each other.
    pub incurred: f64,
}

/// Device I/Os for one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DeviceIos {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

impl DeviceIos {
    /// Reads and writes.
    #[must_use]
    pub fn total(self) -> f64 {
        self.reads + self.writes
    }
}

impl Shares {
    /// What a write costs an architecture; `hybrid` at best, if it knew what will be written again:
    /// [`Profile::ios`](super::Profile::ios) has what it knows.
    #[must_use]
    pub fn ios(self, architecture: Architecture) -> DeviceIos {
        let Shares { retained, evicted, incurred } = self;
        let (reads, writes) = match architecture {
            Architecture::Logging | Architecture::Redirect => (0.0, incurred),
            Architecture::SplitStream => (0.0, incurred + evicted),
            Architecture::SplitDownstream => (0.0, 2.0 * incurred),
            // The old data is read and written elsewhere, then the new is written.
            Architecture::Checkpointing => (retained, retained + incurred),
            // The history gets d, and the current store what is retained and leaves the cache
            // before it is overwritten: r + c - d.
            Architecture::Hybrid => (0.0, retained + evicted),
        };
        DeviceIos { reads, writes }
    }

    /// What a write costs a volume without history.
    #[must_use]
    pub fn ios_without_history(self) -> DeviceIos {
        DeviceIos { reads: 0.0, writes: self.evicted }
    }
}
