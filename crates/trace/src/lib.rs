//! Traces of what devices were asked to do: readers of the formats that are around, one of our own,
//! cutting and scaling, what is in them, and generators of workloads.
//!
//! 1. Everything streams: memory does not grow with the length of a trace.
//! 2. A seed and a description make the same requests everywhere and for ever.
//! 3. It opens no file and reads no clock; whoever calls it hands in readers and writers.
//!
//! The index of what is here:
//! - `Request`, `RequestKind`; `Source` (`next`, `devices`, `start`), `Devices`.
//! - `native`: the bytes of our own format (`docs/format/trace.md`).
//! - `read`: `Reader::open(inputs, options)`, `Format`, `ReadReport`; `write`: `write_all`.
//! - `change`: `CutSource`, `ScaledSource`; `summary`: `summarise`.
//! - `generate`: `Generator::new(workload, extent)`.

pub mod change;
pub mod generate;
pub mod native;
pub mod read;
pub mod source;
pub mod summary;
pub mod write;

mod error;

pub use error::{Error, ErrorKind, Result};
pub use model::{Request, RequestKind};
pub use native::NAME_BYTES_MAX;
pub use source::{Devices, Source};
