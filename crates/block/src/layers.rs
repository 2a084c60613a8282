//! The layers: block devices over other block devices, and the one that is memory.
//!
//! A layer forwards by default and overrides only what it changes.

mod delay;
mod fault;
mod integrity;
mod memory;
mod tap;

pub use delay::{DelayDevice, Delays};
pub use fault::{Effect, FaultDevice, FaultPlan, FaultRule, Pause};
pub use integrity::{IntegrityDevice, IntegrityOptions, Mismatch};
pub use memory::MemoryDevice;
pub use tap::{OperationCounters, Tap, TapDevice, TraceRecord};
