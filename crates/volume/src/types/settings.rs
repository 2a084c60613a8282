//! Settings of a volume: where its data lives, which writes are retained, cache and encoding.

use serde::{Deserialize, Serialize};

/// Where current data lives and when old data is split off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// One mapped log holds the present and the history (Laden 2.4).
    #[default]
    Logging,
    /// The log holds everything, and the present lies in place as well (Laden 2.5).
    SplitStream,
    /// The log holds everything; what has settled moves to a base in place (Xiao's R-o-W, Clotho).
    Redirect,
    /// The present moves to a base in place; what it overwrites there leaves for the log before
    /// (Laden 2.7, Xiao's C-o-W).
    Checkpointing,
    /// The same, both written when the cache lets go of a block (Laden 2.6).
    SplitDownstream,
    /// Log and place at destage; but what will rather be written again within its granularity
    /// window is put in place only if it was not (what Laden 5 names as further work).
    Hybrid,
}

impl Architecture {
    /// Every one there is.
    pub const ALL: [Architecture; 6] = [
        Architecture::Logging,
        Architecture::SplitStream,
        Architecture::Redirect,
        Architecture::Checkpointing,
        Architecture::SplitDownstream,
        Architecture::Hybrid,
    ];

    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Logging => "logging",
            Architecture::SplitStream => "split-stream",
            Architecture::SplitDownstream => "split-downstream",
            Architecture::Hybrid => "hybrid",
            Architecture::Redirect => "redirect",
            Architecture::Checkpointing => "checkpointing",
        }
    }

    /// Whether it keeps the present in place.
    #[must_use]
    pub fn has_current_store(self) -> bool {
        use Architecture::{Hybrid, SplitDownstream, SplitStream};
        matches!(self, SplitStream | SplitDownstream | Hybrid)
    }

    /// Whether it must have one.
    #[must_use]
    pub fn needs_cache(self) -> bool {
        matches!(self, Architecture::SplitDownstream | Architecture::Hybrid)
    }

    /// Whether settled blocks have homes in a base.
    #[must_use]
    pub fn has_base(self) -> bool {
        matches!(self, Architecture::Redirect | Architecture::Checkpointing)
    }

    /// Whether what the present shows is brought home, whatever is there.
    #[must_use]
    pub fn destages(self) -> bool {
        self == Architecture::Checkpointing
    }

    /// Whether it is the one that records say nothing about.
    pub(crate) fn is_logging(&self) -> bool {
        *self == Architecture::Logging
    }
}

/// Which writes are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Every one.
    EveryWrite,
    /// The last write to an address in each window of this many nanoseconds, windows counted from
    /// 1970.
    Interval(u64),
    /// Only what versions and pinned marks need.
    OnDemand,
}

/// A volume's write-back cache, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSetting {
    /// Bytes of blocks.
    pub bytes: u64,
    /// How much of it may wait to be written, in percent.
    pub dirty_percent: u8,
}

/// The request for a volume's write-back cache; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheChange {
    /// Bytes; 0 is no cache.
    pub bytes: Option<u64>,
    /// How much of it may wait to be written, in percent.
    pub dirty_percent: Option<u8>,
}

/// How retained history is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// As it was written.
    #[default]
    Raw,
    /// Versions of a block one after another, compressed: what they share is found wherever it
    /// lies.
    Delta,
    /// The XOR of neighbouring versions, compressed (TRAP).
    Xor,
}

impl Encoding {
    /// Every one there is.
    pub const ALL: [Encoding; 3] = [Encoding::Raw, Encoding::Delta, Encoding::Xor];

    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Raw => "raw",
            Encoding::Delta => "delta",
            Encoding::Xor => "xor",
        }
    }
}

/// How a volume's history is encoded, and from which age on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncodingSetting {
    /// How; never raw.
    pub encoding: Encoding,
    /// How long ago a version was written over before it is encoded, in nanoseconds.
    pub after_ns: u64,
}

/// The request for a volume's encoding; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingChange {
    /// How.
    pub encoding: Option<Encoding>,
    /// From which age on, in nanoseconds.
    pub after_ns: Option<u64>,
}
