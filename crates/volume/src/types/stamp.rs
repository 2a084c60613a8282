//! A seq with its time.

use units::{Seq, WallTime};

/// A seq with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The seq.
    pub seq: Seq,
    /// When it was written; never goes back as seq rises.
    pub time: WallTime,
}
