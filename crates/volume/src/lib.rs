//! Pools and the volumes in them: writing, reading, the past, versions, marks, clones, reverts.
//!
//! Everything here is synchronous and thread-safe; `Pool::step` does background work and is called
//! by the server's threads or by the simulator.

use std::sync::Arc;

use env::{Clock, Entropy};

mod base;
mod beside;
mod beyond;
mod cache;
mod caches;
mod caller;
mod catalogue;
mod change;
mod compaction;
mod conversion;
mod convert;
mod copy_unit;
mod copying;
mod core;
mod current_store;
mod dedup;
mod deferred;
mod destage;
mod diff;
mod encoding;
mod error;
mod events;
mod expiry;
mod explain;
mod figures;
mod fresh;
mod grace;
mod group_schedule;
mod groups;
mod growth;
mod healing;
mod history_query;
mod homecoming;
mod hooked;
mod import;
mod in_place;
mod leisure;
mod line;
mod map_flush;
mod members;
mod merge;
mod mover;
mod names;
mod needed;
mod newborn;
mod open_files;
mod opening;
mod pace;
mod packer;
mod pins;
mod pool;
mod pool_time;
mod rates;
mod rebuild;
mod reclaim;
mod record;
mod recovery;
mod rename;
mod resolve;
mod retention;
mod schedule;
mod scrub;
mod scrubbing;
mod sift;
mod source;
mod space;
mod together;
mod trash;
mod types;
mod verify;
mod versions;
mod view;
mod volume;
mod write;
mod write_back;

pub use caller::on_behalf_of;
pub use catalogue::panic_becomes_error;
pub use copy_unit::CopyInfo;
pub use explain::{Explained, MadeBy};
pub use groups::{GroupInfo, GroupVersion};
pub use hooked::{NO_HOOK, PlannedHook};
pub use open_files::{OpenFiles, Quiet};
pub use pace::{Lack, Written};
pub use pool::{Pool, read_superblock};
pub use rates::{RATE_BYTES_MIN, RateChange, Rates};
pub use reclaim::RoomWait;
pub use retention::KeepRules;
pub use schedule::{ScheduleInfo, ScheduleSpec};
pub use together::GroupMoment;
pub use trash::TRASH_NS;
pub use view::View;
pub use volume::Volume;

pub use error::{Error, ErrorKind, Result};
pub use history::{IoCount, IoKind};
pub use types::{
    AgeBytes, Architecture, AuditRecord, Bucket, Budget, CacheChange, CacheInfo, CacheSetting,
    CacheUse, Compaction, CompactionInfo, CompactionState, Consistency, ConversionInfo, DedupInfo,
    DeletedVolume, Deletion, Dependants, DiffPage, Encoding, EncodingChange, EncodingInfo,
    EncodingSetting, Event, Extent, GraceInfo, Granularity, Growth, HistoryPage, Holder,
    ImportInfo, ImportSpec, KeptFor, Leisure, Mark, PoolSpace, PoolStatus, Range, Resolved,
    RevertReport, Sacrifice, ScrubInfo, ScrubState, SettlePhase, Settling, Stamp, Version,
    VersionPage, VolumeChange, VolumeCounters, VolumeInfo, VolumeSpace, VolumeSpec, WriteOp,
};

/// The machine under a pool: its clock and its randomness.
#[derive(Clone)]
pub struct Machine {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub entropy: Arc<dyn Entropy>,
}

/// Properties that are fixed when a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct PoolFormat {
    /// Bytes of a zone: a power of two from 256 KiB to 32 MiB.
    pub zone_bytes: u64,
}

impl Default for PoolFormat {
    fn default() -> Self {
        PoolFormat { zone_bytes: 32 << 20 }
    }
}

/// Options that may differ from one opening of a pool to the next.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of memory for map pages, pending map entries and the caches of volumes together.
    pub memory_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { memory_bytes: 384 << 20 }
    }
}

/// The findings of `Pool::rebuild`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebuildReport {
    /// Segments read.
    pub segments: u64,
    /// Writes put back into the map.
    pub writes: u64,
    /// Bytes of log that could not be read as batches.
    pub damaged_bytes: u64,
}
