//! The layers: block devices over other block devices, and the one that is memory.
//!
//! A layer forwards by default and overrides only what it changes.

mod fault;
mod gates;
mod memory;
mod mirror;
mod stripe;
mod tap;

pub use fault::{Effect, FaultDevice, FaultPlan, FaultRule, Pause};
pub use memory::MemoryDevice;
pub use mirror::{Keeper, MirrorDevice, Side, Standing};
pub use stripe::StripeDevice;
pub use tap::{OperationCounters, Tap, TapDevice, TraceRecord};
