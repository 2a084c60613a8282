//! The cost model's answers for a volume: those of `/volumes/{v}/model` and `/volumes/{v}/advice`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Granularity, SpanInput};

/// The question to the model.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelQuery {
    /// Granularities with commas between them; a ladder of them by default.
    pub granularity: Option<String>,
    /// The write-back cache, such as `64MiB`; none by default.
    pub cache: Option<String>,
    /// Percent of the cache that may be dirty; 3 by default.
    pub dirty: Option<f64>,
}

/// The settings that are decided when advice is asked for; the rest is chosen.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AdviceQuery {
    /// The granularity.
    pub granularity: Option<String>,
    /// How far back every retained moment is kept; `1d`, or what fits, by default.
    pub window: Option<String>,
    /// The space that history may take; the volume's limit by default, or its size if it has none.
    pub history_limit: Option<String>,
    /// The write-back cache, such as `64MiB`; 0 is none.
    pub cache: Option<String>,
    /// Percent of the cache that may be dirty; 3 by default.
    pub dirty: Option<f64>,
}

/// Device I/Os for one extent written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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

/// Device I/Os of this engine for one extent written, in extents: bytes by those of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EngineIos {
    /// Reads of user data: what is copied elsewhere.
    pub reads: f64,
    /// Writes of user data, with the headers of its batches.
    pub writes: f64,
    /// Of the map and the index of times.
    pub map: DeviceIos,
}

impl EngineIos {
    /// All of it.
    #[must_use]
    pub fn total(self) -> f64 {
        self.reads + self.writes + self.map.total()
    }
}

/// Shares of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shares {
    /// The last of their granularity window.
    pub retained: f64,
    /// Destaged from the cache before they were overwritten.
    pub evicted: f64,
    /// One or the other.
    pub incurred: f64,
}

/// Device I/Os of one architecture for one extent written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArchitectureIos {
    /// The architecture.
    pub architecture: String,
    /// Reads, by the formulas of Laden et al.
    pub reads: f64,
    /// Writes, likewise.
    pub writes: f64,
    /// The I/Os of this engine, with flushes, headers, journal and map; null where that cannot be
    /// told from the times between writes.
    pub engine: Option<EngineIos>,
}

/// The expectation at one granularity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The granularity.
    #[schema(value_type = String, example = "1min")]
    pub granularity: Granularity,
    /// Shares of the writes.
    pub shares: Shares,
    /// How far off they may be with 95 %, where extents were sampled.
    pub shares_error: Shares,
    /// Device I/Os by architecture.
    pub ios: Vec<ArchitectureIos>,
    /// Device I/Os without history.
    pub ios_without_history: DeviceIos,
    /// Whether the granularity is longer than what was measured.
    pub is_beyond_trace: bool,
}

/// Granularities from which on checkpointing costs no more, in nanoseconds; null where there is
/// none up to the time that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Crossovers {
    /// Than split-downstream.
    pub split_downstream_ns: Option<u64>,
    /// Than split-stream.
    pub split_stream_ns: Option<u64>,
}

/// A workload, and the expectations of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// Requests of all kinds.
    pub requests: u64,
    /// Extents written.
    pub writes: u64,
    /// The same a second.
    pub writes_per_second: f64,
    /// How long it was measured.
    pub duration_ns: u64,
    /// Different extents written.
    pub extents: f64,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Whether only a sample of the extents was looked at.
    pub is_sampled: bool,
    /// Pages of the cache that may be dirty.
    pub dirty_pages: u64,
    /// How long a write waits in the cache; null when it never has to leave.
    pub wait_ns: Option<f64>,
    /// By granularity.
    pub forecasts: Vec<Forecast>,
    /// Where checkpointing becomes the cheaper one.
    pub crossovers: Crossovers,
}

/// One way to set up the volume, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Architecture.
    pub architecture: String,
    /// Granularity.
    #[schema(value_type = String, example = "every-write")]
    pub granularity: Granularity,
    /// Window.
    #[schema(value_type = String, example = "1d")]
    pub window: SpanInput,
    /// The write-back cache in bytes; 0 is none.
    pub cache_bytes: u64,
    /// Device I/Os for one extent written, by the formulas of Laden et al.
    pub ios_per_write: DeviceIos,
    /// The same of this engine, by which is chosen; null where that cannot be told.
    pub engine_ios_per_write: Option<EngineIos>,
    /// Device I/Os of this engine a second, at the rate that was measured; by the formulas where it
    /// has no price.
    pub ios_per_second: f64,
    /// The same a day.
    pub ios_per_day: f64,
    /// Bytes of history that come every day.
    pub history_bytes_per_day: f64,
    /// Bytes of history once the window is full.
    pub history_bytes: f64,
    /// Bytes of the present, apart from history.
    pub current_bytes: f64,
}

/// The advice, and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Advice {
    /// The best plan.
    pub plan: Plan,
    /// Device I/Os for one extent written without any history, with the same cache.
    pub ios_without_history: f64,
    /// Why.
    pub reasons: Vec<String>,
    /// The sources of doubt.
    pub cautions: Vec<String>,
    /// The other architectures with the same granularity, window and cache.
    pub others: Vec<Plan>,
}
