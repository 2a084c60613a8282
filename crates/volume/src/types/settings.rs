//! The settings of a volume: what it is made with, and what can be changed.

use serde::{Deserialize, Serialize};
use units::MapExtent;

use crate::types::share::ShareSetting;

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

units::names!(
    Architecture: Logging "logging",
    SplitStream "split-stream",
    Redirect "redirect",
    Checkpointing "checkpointing",
    SplitDownstream "split-downstream",
    Hybrid "hybrid"
);

impl Architecture {
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
}

/// Which writes are retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Every one.
    #[default]
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

units::names!(Encoding: Raw "raw", Delta "delta", Xor "xor");

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

/// The properties of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or digit.
    pub name: String,
    /// Bytes; a multiple of 512, at least 4096, at most 4 PiB.
    pub size_bytes: u64,
    /// Where data lives.
    pub architecture: Architecture,
    /// Which writes are retained.
    pub granularity: Granularity,
    /// How far back the past can be opened, in nanoseconds.
    pub window_ns: u64,
    /// How many bytes of history may be kept; `None` is as many as the pool holds.
    pub history_limit_bytes: Option<u64>,
    /// Its write-back cache; what is not given is what its architecture needs, and 3 %.
    pub cache: CacheChange,
    /// The unit in which its map keeps entries.
    pub extent: MapExtent,
    /// The copy unit, which the first write to it after a capture takes along; more than a block is
    /// for `redirect` and `checkpointing` at `OnDemand`.
    pub copy_unit: MapExtent,
    /// How its history is kept; what is not given is raw, or 10 minutes.
    pub encoding: EncodingChange,
    /// Whether equal blocks are stored once.
    pub dedup: bool,
    /// Whether each batch of its log is there whole or not at all, after any crash and at every
    /// moment, and none without all before it; for `write_whole`. It cannot be changed, and such a
    /// volume has neither a write-back cache nor copy units of more than a block.
    pub strict: bool,
    /// Its settings as a share, if it is to be one: then it is strict, and has `SHARE_BYTES`.
    pub share: Option<ShareSetting>,
}

impl VolumeSpec {
    /// How far back the past can be opened unless something else is asked for, in nanoseconds.
    pub const WINDOW_NS: u64 = 24 * 3600 * 1_000_000_000;

    /// A volume as it is where nothing else is asked for: `logging`, every write, a day.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64) -> VolumeSpec {
        VolumeSpec {
            name: name.to_owned(),
            size_bytes,
            architecture: Architecture::Logging,
            granularity: Granularity::EveryWrite,
            window_ns: VolumeSpec::WINDOW_NS,
            history_limit_bytes: None,
            cache: CacheChange::default(),
            extent: MapExtent::BLOCK,
            copy_unit: MapExtent::BLOCK,
            encoding: EncodingChange::default(),
            dedup: false,
            strict: false,
            share: None,
        }
    }
}

/// Settings to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// Which writes are retained from now on.
    pub granularity: Option<Granularity>,
    /// How far back the past can be opened, in nanoseconds.
    pub window_ns: Option<u64>,
    /// `Some(None)` takes the limit away.
    pub history_limit_bytes: Option<Option<u64>>,
    /// For how long what a smaller window or limit takes away is kept, in nanoseconds; `None` is a
    /// day. 0 ends a grace period that is under way, too.
    pub grace_ns: Option<u64>,
    /// The write-back cache.
    pub cache: CacheChange,
    /// Where data lives: changes at once, and what follows from that is done in the background.
    pub architecture: Option<Architecture>,
    /// How history is kept; what is encoded stays so.
    pub encoding: EncodingChange,
    /// Whether equal blocks are stored once; what is shared stays so.
    pub dedup: Option<bool>,
    /// The copy unit, which the first write to it after a capture takes along.
    pub copy_unit: Option<MapExtent>,
    /// Bytes of the volume; with it all of the change is made, or nothing.
    pub size_bytes: Option<u64>,
    /// Refused, as `Busy`, if the size would be smaller than it is then: for callers that kept
    /// nobody away because it was not.
    pub never_smaller: bool,
    /// The hook around captures that name none; `Some(None)` takes it away.
    pub hook: Option<Option<String>>,
}
