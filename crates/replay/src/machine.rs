//! A clock that goes as the trace goes, and randomness from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use env::{Clock, Entropy};
use units::WallTime;

/// Virtual time begins at a multiple of every window that anybody takes: 2024-01-01, a midnight.
const START_NS: u64 = 1_704_067_200 * 1_000_000_000;

/// A clock that stands until it is set.
#[derive(Default)]
pub(crate) struct VirtualClock {
    now_ns: AtomicU64,
}

impl VirtualClock {
    /// Sets it; it never goes back.
    pub(crate) fn set(&self, now_ns: u64) {
        self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn wall(&self) -> WallTime {
        WallTime::from_nanos(START_NS.saturating_add(self.now_ns.load(Ordering::Relaxed)))
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

/// Numbers that only need to differ.
#[derive(Default)]
pub(crate) struct Counting {
    drawn: AtomicU64,
}

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }
}
