//! Memory that is promised to initiators.

use std::sync::atomic::AtomicUsize;

use crate::buffers::CLASS_BYTES;

/// Memory that waits for data of initiators, of all sessions together, by the size of buffers.
#[derive(Debug, Default)]
pub(super) struct Promises(pub(super) [AtomicUsize; CLASS_BYTES.len()]);
