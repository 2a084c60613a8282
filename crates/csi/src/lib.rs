//! The messages of the driver, for those that call it.

pub mod proto;
