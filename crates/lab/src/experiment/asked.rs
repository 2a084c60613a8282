//! What the engine is asked for, by who hands it in: it is not known here.

use model::{Architecture, EngineIos, Result};
use trace::Source;
use units::Granularity;

/// What the engine is to count.
#[derive(Clone, Copy, Debug)]
pub struct EngineAsked {
    /// The architecture.
    pub architecture: Architecture,
    /// The granularity.
    pub granularity: Granularity,
    /// The cache.
    pub cache_bytes: u64,
    /// Memory of the engine.
    pub memory_bytes: u64,
}

/// Sends a workload through the engine, and says what it asked of its device.
pub type EngineCount = Box<dyn FnMut(&mut dyn Source, EngineAsked) -> Result<EngineIos>>;

/// A figure at one granularity and cache.
#[derive(Clone, Copy)]
pub(super) struct EnginePoint {
    pub(super) granularity_s: u64,
    pub(super) architecture: Architecture,
    pub(super) counted: f64,
    pub(super) price: f64,
}

/// The versions to compact and read.
#[derive(Clone, Copy, Debug)]
pub struct CompactionAsked {
    /// Percent of the pages of which one byte in a hundred differs from the version before; the
    /// others are new.
    pub share_percent: u64,
    /// Pages of 4 KiB of the volume.
    pub pages: u64,
    /// Random reads of a page.
    pub reads: u64,
    /// The seed of pages and reads.
    pub seed: u64,
}

/// The outcome, by the engine's own counts.
#[derive(Clone, Copy, Debug)]
pub struct Compacted {
    /// Blocks of the version that are in packs.
    pub packed: u64,
    /// Blocks that stayed as they were.
    pub raw: u64,
    /// Bytes of history before.
    pub raw_bytes: u64,
    /// The same after.
    pub bytes: u64,
    /// Reads of a version that is not compacted.
    pub raw_reads: VersionReads,
    /// Reads of the one that is.
    pub reads: VersionReads,
}

/// The cost of a random read of a version.
#[derive(Clone, Copy, Debug)]
pub struct VersionReads {
    /// Reads of the device for it.
    pub device_reads: f64,
    /// Bytes of them.
    pub device_bytes: f64,
    /// How long it took.
    pub seconds: f64,
}

/// Makes versions, compacts one, and reads it in turns with one that is not compacted.
pub type CompactionRun = Box<dyn FnMut(CompactionAsked) -> Result<Compacted>>;
