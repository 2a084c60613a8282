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

impl Stamp {
    /// As records have it: a seq, and nanoseconds since 1970.
    pub(crate) fn of(seq: u64, time_ns: u64) -> Stamp {
        Stamp { seq: Seq(seq), time: WallTime::from_nanos(time_ns) }
    }
}
