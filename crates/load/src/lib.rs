//! Load on the engine as it is: a real pool on real files, a number of requests kept in flight, in
//! real time. The lab says which requests, and sets what comes out beside the papers.
//!
//! 1. What is measured is what the server would run: the layers, the engine, its background work
//!    and its schedules, called by threads. Only sockets are missing.
//! 2. No promise is turned off to be faster. Where a workload asks for no flush none is made, and
//!    whoever reports says so.
//! 3. Configurations that are compared are there at the same time, and take turns.
//!
//! The index of what is here:
//! - `compaction`: `compact(dir, asked)`, what Clotho's figures need.
//! - `darc`: `measure(settings, say)`, what DARC's figures and tables need.
//! - `checked`: `CheckedDevice`, checksums beside everything, for DARC's EDC alone.
//! - `drive`: `drive(targets, source, settings)`, requests in flight; `Target`.
//! - `rig`: `Rig`, a stack or a pool on files, with what runs in the background.
//! - `recovery`: DARC's Table 4, with bytes really overwritten.
//! - `machine`: processor time, the file system under a directory, the cost of a checksum.

pub mod checked;
pub mod compaction;
pub mod darc;
pub mod drive;
pub mod machine;
pub mod recovery;
pub mod rig;

mod background;
mod clock;
mod counted;
mod error;

pub use error::{LoadError, Result};
