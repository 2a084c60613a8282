//! The properties that a volume is made with, and changes of them.

use units::MapExtent;

use super::settings::{Architecture, CacheChange, EncodingChange, Granularity};

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
