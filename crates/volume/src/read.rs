//! Reading: the present, a moment opened as a snapshot, views,
//! and every structure held against every other.

pub mod present;
pub mod snapshot;
pub mod verify;
pub mod view;
