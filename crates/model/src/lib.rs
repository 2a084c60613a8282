//! The cost model of Laden et al. (FAST'07, section 3): from the distances in time between writes
//! of the same extent to device I/Os and space of each architecture, at every granularity and
//! cache size.
//!
//! 1. One pass, and memory within a limit: exact up to it, a sample with its error beyond.
//! 2. A write is one extent written: a request of 64 KiB is 16 writes of 4 KiB.
//! 3. Nothing is predicted beyond the length of the trace without saying so.
//!
//! It does not know devices: seconds are not predicted, only I/Os and bytes. There are two prices:
//! the paper's, which leaves out the map and knows no flushes, and this engine's (`engine`).
//!
//! The index of what is here:
//! - `Meter` (`add`, `finish`), `Profile` (`shares`, `forecast`, `crossovers`, `space`),
//!   `advise(profile, constraints)`.
//! - `Error { kind, message, hint }`, which the crates above have, too.

mod advice;
mod cost;
mod engine;
mod error;
mod forecast;
mod histogram;
mod meter;
mod places;
mod profile;
mod survival;

pub mod request;

use units::{Granularity, Span};

pub use advice::{Advice, Constraints, Plan, advise, rounded};
pub use cost::{Architecture, DeviceIos, Shares};
pub use engine::{EngineIos, EngineSettings, cache_bytes_max};
pub use error::{Error, ErrorKind, Result};
pub use forecast::{ArchitectureIos, Crossovers, Forecast, Model, Space};
pub use meter::{ENTRIES_MAX_DEFAULT, Meter, MeterSettings, MixedState, mix};
pub use profile::{Estimate, Profile};
pub use request::{Request, RequestKind};
pub use survival::LastWrites;

/// Of the cache's pages, how many may be dirty, unless told otherwise: 3 %, as in the paper.
pub const DIRTY_SHARE_DEFAULT: f64 = 0.03;
/// Memory of a server unless told otherwise.
pub const MEMORY_BYTES_DEFAULT: u64 = 384 << 20;

/// Granularities that are shown unless others are asked for.
#[must_use]
pub fn ladder() -> Vec<Granularity> {
    const SECONDS: [u64; 7] = [1, 10, 60, 300, 600, 1800, 3600];
    let intervals = SECONDS.into_iter().filter_map(Span::from_seconds).map(Granularity::Interval);
    let first = std::iter::once(Granularity::EveryWrite);
    first.chain(intervals).chain([Granularity::OnDemand]).collect()
}

/// Pages of a cache that may be dirty.
#[must_use]
pub fn dirty_pages(cache_bytes: u64, dirty_share: f64, extent_bytes: u64) -> u64 {
    (cache_bytes as f64 * dirty_share / extent_bytes as f64) as u64
}
