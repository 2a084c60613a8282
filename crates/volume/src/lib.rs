//! Pools and the volumes in them: writing, reading, the past, versions, marks, clones, reverts.
//!
//! Everything here is synchronous and thread-safe. Background work is done by whoever calls
//! `Pool::turn` (a server's thread) or `Pool::step` (the simulator).

use std::sync::Arc;

use env::{Clock, Entropy};

mod caller;
mod catalogue;
mod convert;
mod core;
mod error;
mod host;
mod jobs;
mod names;
mod past;
mod placement;
mod pool;
mod read;
mod retention;
mod types;
mod volume;
mod write;

pub use caller::on_behalf_of;
pub use catalogue::{ScrubRecord, panic_becomes_error};
pub use host::RoomWait;
pub use jobs::rates::{RATE_BYTES_MIN, RateChange, Rates};
pub use jobs::scrub_plan::progress::{ScrubInfo, Scrubs};
pub use past::groups::GroupMoment;
pub use past::written_over::WrittenOver;
pub use pool::handle::Pool;
pub use pool::layout::read_superblock;
pub use pool::opened_names::OpenedName;
pub use pool::targets::{TargetChange, TargetInfo, UnitInfo, UnitSpec, UnitsSpec};
pub use pool::token_book::{Token, TokenSpec};
pub use pool::tokens::{TOKEN_PATTERNS_MAX, TOKENS_MAX};
pub use pool::volumes::no_volume;
pub use read::view::View;
pub use retention::explain::{Explained, MadeBy};
pub use retention::groups::{GroupInfo, GroupVersion, no_group};
pub use retention::hooks::{NO_HOOK, PlannedHook};
pub use retention::keep_rules::KeepRules;
pub use retention::open_files::{OpenFiles, Quiet};
pub use retention::schedule::{ScheduleInfo, ScheduleSpec};
pub use retention::trash::{TRASH_NS, not_in_trash};
pub use volume::Volume;
pub use volume::creation::CloneSpec;
pub use write::copy_unit::CopyInfo;
pub use write::pace::{Lack, Written};
pub use write::update::Updated;
pub use write::whole::Whole;

pub use error::{Error, ErrorKind, Result};
pub use history::{IoCount, IoKind};
pub use types::{
    Access, AccessChange, AgeBytes, Alarm, AlarmKind, Allowed, Architecture, AuditRecord, Bucket,
    Budget, CacheChange, CacheInfo, CacheSetting, CacheUse, Compaction, CompactionInfo,
    CompactionState, Consistency, ConversionInfo, Credential, DedupInfo, DeletedVolume, Deletion,
    Dependants, DiffPage, Encoding, EncodingChange, EncodingInfo, EncodingSetting, Event, Extent,
    Grace, Granularity, Growth, Heat, HistoryPage, Holder, ImportInfo, ImportSpec, InitiatorPort,
    KeptFor, Mark, Metadata, PastAccess, PoolSpace, PoolStatus, Proof, Range, Registration,
    Reservation, ReservationKind, Reservations, Resolved, RevertReport, SHARE_BYTES, Sacrifice,
    ScrubState, Secret, SettlePhase, Settling, ShareChange, ShareSetting, Squash, Stamp,
    TimelineColumns, Verdict, Version, VersionPage, VolumeChange, VolumeCounters, VolumeInfo,
    VolumeSpace, VolumeSpec, WatchInfo, WriteOp,
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
