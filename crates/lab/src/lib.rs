//! The laboratory: what caches and stores do with a workload, counted write by write, beside what
//! the model predicts and what the papers say.
//!
//! It opens no file and reads no clock. The engine's own count is the crate `replay`, real files in
//! real time are `load`, and the program is `lab-cli`.
//!
//! The index of what is here:
//! - `times`: `Times` (how long requests took: mean, quantiles).
//! - `simulate`: `Simulation`, `PlainSimulation` (caches and stores, write by write), `Snapshots`.
//! - `experiment`: `EXPERIMENTS`, `chosen(names)`, `Bench`, `Outcome`; `plot`: `svg`, `png`;
//!   `report`: `report(outcomes)`.

pub mod experiment;
pub mod plot;
pub mod report;
pub mod simulate;
pub mod times;
