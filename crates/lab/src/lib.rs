//! The laboratory: traces of what devices were asked to do, generators of workloads, and the model
//! that says what each architecture makes of them.
//!
//! 1. Everything streams: memory does not grow with the length of a trace.
//! 2. A seed and a description make the same requests everywhere and for ever.
//! 3. It opens no file and reads no clock; whoever calls it hands in readers and writers.
//!
//! Replay through the engine is the crate `replay`; traces of live volumes come from the server.
//!
//! The index of what is here:
//! - `Request`, `RequestKind`; `Source` (`next`, `devices`, `start`), `Devices`.
//! - `read`: `Reader::open(inputs, options)`, `Format`, `ReadReport`; `write`: `write_all`.
//! - `times`: `Times` (how long requests took: mean, quantiles).
//! - `change`: `CutSource`, `ScaledSource`; `summary`: `summarise`.
//! - `generate`: `Generator::new(workload, extent)`.
//! - `model`: `Meter` (`add`, `finish`), `Profile` (`shares`, `forecast`, `crossovers`, `space`),
//!   `advise(profile, constraints)`.
//! - `simulate`: `Simulation`, `PlainSimulation` (caches and stores, write by write), `Snapshots`.
//! - `experiment`: `EXPERIMENTS`, `chosen(names)`, `Bench`, `Outcome`; `plot`: `svg`, `png`;
//!   `report`: `report(outcomes)`.
//! - `Error { kind, message, hint }`.

pub mod change;
pub mod experiment;
pub mod generate;
pub mod model;
pub mod plot;
pub mod read;
pub mod report;
pub mod simulate;
pub mod source;
pub mod summary;
pub mod times;
pub mod write;

mod error;

pub use error::{Error, ErrorKind, Result};
pub use format::trace::{NAME_BYTES_MAX, Request, RequestKind};
pub use source::{Devices, Source};
