//! Traces through the real engine, in virtual time, on a device that is memory: what its counters
//! say of device I/Os, beside what the cost model predicts for the same trace.
//!
//! 1. The engine runs as it is: pool, log, map, catalogue, background work. Only the machine under
//!    it is made up: the clock is the trace's, the device keeps no payload.
//! 2. One thread, one trace, one result: the same trace gives the same counts every time.
//! 3. What the model speaks of (user data, by extent) and what it leaves out (the map, cleaning,
//!    headers) are counted apart, and both are told.
//!
//! Payload is zeros, so what is counted holds for any data; no figure of time says anything of a
//! device.

mod count;
mod machine;
mod run;

use model::{Architecture as ModelArchitecture, DeviceIos, EngineIos};
use serde::Serialize;
use units::Granularity;

pub use model::MEMORY_BYTES_DEFAULT;
pub use run::replay;
pub use volume::Architecture;

/// What the trace goes through.
#[derive(Clone, Copy, Debug)]
pub struct ReplaySettings {
    /// Architecture of the volumes; one volume a device of the trace.
    pub architecture: Architecture,
    /// Their granularity.
    pub granularity: Granularity,
    /// Their window, nanoseconds.
    pub window_ns: u64,
    /// Bytes of each volume; requests beyond it are counted and left out.
    pub volume_bytes: u64,
    /// Whether reads are made, too.
    pub has_reads: bool,
    /// Bytes of the cache of each volume; `None` is as its architecture needs.
    pub cache_bytes: Option<u64>,
    /// Memory of the pool, as a server's: with less, the map is written out sooner, and
    /// `checkpointing` destages more often.
    pub memory_bytes: u64,
}

/// Device requests of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KindCount {
    /// Its name, as in metrics.
    pub kind: &'static str,
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// The architecture.
    pub architecture: &'static str,
    /// The granularity.
    pub granularity: Granularity,
    /// Requests that were made.
    pub requests: u64,
    /// Requests beyond the end of the volume, left out.
    pub beyond: u64,
    /// Extents of 4 KiB that were written.
    pub extents_written: u64,
    /// From the first request to the last, in the trace's time.
    pub duration_ns: u64,
    /// Device requests by kind, of all volumes together.
    pub kinds: Vec<KindCount>,
    /// Device I/Os for one extent written, of what the model speaks of.
    pub measured: DeviceIos,
    /// What the model says, with the dirty part of the cache if there is one; of `hybrid` what the
    /// lab counts.
    pub predicted: DeviceIos,
    /// Measured against predicted, less 1.
    pub off: f64,
    /// All that the engine asked of the device, but what clients read: bytes, in extents.
    pub counted: EngineIos,
    /// The price of this engine for the same trace; `None` where it has none.
    pub engine: Option<EngineIos>,
    /// That against what was counted, less 1.
    pub engine_off: Option<f64>,
    /// Device requests for one extent written that the model leaves out: map, cleaning, headers.
    pub besides: f64,
}

/// A failed replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] model::Error),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] volume::Error),
}

/// The model's name of an architecture of the engine.
fn lab_name(architecture: Architecture) -> ModelArchitecture {
    let mut all = ModelArchitecture::ALL.into_iter();
    let found = all.find(|one| one.name() == architecture.name());
    found.expect("the model has all architectures of the engine")
}

/// The same where it has a formula; what `hybrid` costs is forecast by distances, and counted where
/// there is a trace.
fn modelled(architecture: Architecture) -> Option<ModelArchitecture> {
    Some(lab_name(architecture)).filter(|one| *one != ModelArchitecture::Hybrid)
}
