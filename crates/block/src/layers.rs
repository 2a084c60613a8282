//! The layers: block devices over other block devices, and the one that is memory.
//!
//! A layer forwards by default and overrides only what it changes.

mod crypt;
mod gates;
mod memory;
mod mirror;
pub(crate) mod order;
mod parity;
#[cfg(test)]
mod replaced_tests;
mod sides;
mod stripe;
mod trial;

pub use crypt::{CryptDevice, CryptError, CryptKey, KeySource};
pub(crate) use gates::Gates;
pub use memory::MemoryDevice;
pub use mirror::MirrorDevice;
pub use parity::{Layout, PARITIES_MAX, ParityDevice};
pub use sides::{Keeper, Setting, Side, Standing};
pub use stripe::StripeDevice;
pub use trial::TrialDevice;
