//! Forecasts: I/Os and space at a granularity, and where architectures cross.

use serde::Serialize;
use units::Granularity;

use super::cost::{Architecture, DeviceIos, Shares};
use super::engine::{EngineIos, EngineSettings, window_ns};
use super::profile::Profile;

/// What is to be expected at one granularity with one cache.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// The granularity.
    pub granularity: Granularity,
    /// r, c and d.
    pub shares: Shares,
    /// How far off they may be with 95 %, where extents were sampled.
    pub shares_error: Shares,
    /// Device I/Os for one write.
    pub ios: Vec<ArchitectureIos>,
    /// The same without history.
    pub ios_without_history: DeviceIos,
    /// Whether the granularity is longer than the trace: then it is an extrapolation.
    pub is_beyond_trace: bool,
}

/// Device I/Os of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArchitectureIos {
    /// The architecture.
    pub architecture: Architecture,
    /// For one write, by the paper's formulas.
    #[serde(flatten)]
    pub ios: DeviceIos,
    /// The same of this engine, with flushes, headers, journal and map; `None` where that cannot be
    /// told from distances between writes (`redirect` on demand).
    pub engine: Option<EngineIos>,
}

/// What a workload is, and what is to be expected of it.
#[derive(Clone, Debug, Serialize)]
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
    /// How long a write waits in the cache; `null` when it never has to leave.
    pub wait_ns: Option<f64>,
    /// By granularity.
    pub forecasts: Vec<Forecast>,
    /// Where checkpointing becomes the cheaper one.
    pub crossovers: Crossovers,
}

/// Granularities from which on checkpointing costs no more, nanoseconds; `None` where it always
/// costs more within the length of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossovers {
    /// With split-downstream: d = 2r.
    pub split_downstream_ns: Option<u64>,
    /// With split-stream: c = 2r.
    pub split_stream_ns: Option<u64>,
}

/// Space that an architecture takes (Fig. 6 of the paper), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Space {
    /// What holds the present.
    pub current_bytes: f64,
    /// What holds the past.
    pub history_bytes: f64,
}

impl Profile {
    /// All of it, at these granularities.
    #[must_use]
    pub fn model(&self, granularities: &[Granularity], settings: EngineSettings) -> Model {
        let dirty_pages = settings.dirty_pages;
        let wait_ns = self.wait_ns(dirty_pages);
        Model {
            requests: self.requests(),
            writes: self.writes(),
            writes_per_second: self.writes_per_second(),
            duration_ns: self.duration_ns(),
            extents: self.distinct(),
            extent_bytes: self.extent_bytes(),
            is_sampled: self.is_sampled(),
            dirty_pages,
            wait_ns: wait_ns.is_finite().then_some(wait_ns),
            forecasts: granularities.iter().map(|one| self.forecast(*one, settings)).collect(),
            crossovers: self.crossovers(dirty_pages),
        }
    }

    /// What is to be expected. On demand stands for the time between captures.
    #[must_use]
    pub fn forecast(&self, granularity: Granularity, settings: EngineSettings) -> Forecast {
        let window_ns = window_ns(granularity);
        let wait_ns = self.wait_ns(settings.dirty_pages);
        let shares = self.shares(window_ns, wait_ns);
        Forecast {
            granularity,
            shares,
            shares_error: self.shares_error(window_ns, wait_ns),
            ios: Architecture::ALL
                .map(|one| ArchitectureIos {
                    architecture: one,
                    ios: self.ios(one, window_ns, wait_ns),
                    engine: self.engine_ios(one, granularity, settings),
                })
                .to_vec(),
            ios_without_history: shares.ios_without_history(),
            is_beyond_trace: window_ns.is_finite() && window_ns > self.duration_ns() as f64,
        }
    }

    /// Where checkpointing becomes the cheaper one.
    #[must_use]
    pub fn crossovers(&self, dirty_pages: u64) -> Crossovers {
        let wait_ns = self.wait_ns(dirty_pages);
        let shares = |window_ns: f64| self.shares(window_ns, wait_ns);
        Crossovers {
            split_downstream_ns: self.first_window(|w| {
                let Shares { retained, incurred, .. } = shares(w);
                incurred >= 2.0 * retained
            }),
            split_stream_ns: self.first_window(|w| {
                let Shares { retained, evicted, .. } = shares(w);
                evicted >= 2.0 * retained
            }),
        }
    }

    /// The shortest window, up to the trace's length, for which something holds.
    fn first_window(&self, holds: impl Fn(f64) -> bool) -> Option<u64> {
        /// Windows that are tried grow by this; the first that holds is then narrowed down.
        const STEP: f64 = 1.02;
        let end = self.duration_ns() as f64;
        let mut low = 1e6_f64.min(end);
        if holds(low) {
            return Some(low as u64);
        }
        while low < end {
            let mut high = (low * STEP).min(end);
            if !holds(high) {
                low = high;
                continue;
            }
            while high - low > 1e-6 * high {
                let middle = (low + high) / 2.0;
                if holds(middle) {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            return Some(high as u64);
        }
        None
    }

    /// Space with this retention window, for a volume of this size.
    #[must_use]
    pub fn space(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        retention_ns: u64,
        volume_bytes: u64,
    ) -> Space {
        let retention_ns = retention_ns as f64;
        let window_ns = window_ns(granularity);
        let extent_bytes = self.extent_bytes() as f64;
        let writes = self.writes_per_second() * retention_ns / 1e9;
        let retained = if window_ns.is_infinite() { 0.0 } else { self.retained(window_ns).value };
        let retained_bytes = retained * writes * extent_bytes;
        let volume_bytes = volume_bytes as f64;
        let written_bytes = (self.extents_within(retention_ns) * extent_bytes).min(volume_bytes);
        let (current_bytes, history_bytes) = match architecture {
            Architecture::Logging => (0.0, retained_bytes),
            // What is newest stays mapped over the base.
            Architecture::Redirect => (volume_bytes, retained_bytes),
            Architecture::SplitStream | Architecture::SplitDownstream | Architecture::Hybrid => {
                (volume_bytes, retained_bytes)
            }
            // The newest of each extent is in the current store only.
            Architecture::Checkpointing => {
                (volume_bytes, (retained_bytes - written_bytes).max(0.0))
            }
        };
        Space { current_bytes, history_bytes }
    }
}
