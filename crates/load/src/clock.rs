//! The machine's clock, which can be set ahead.

use std::sync::atomic::{AtomicU64, Ordering};

use env::{Clock, RealClock};
use units::WallTime;

/// Schedules prune in the background only where wall and monotonic clock have gone evenly for ten
/// minutes (`volume/schedule`).
const STEADY_NS: u64 = 601_000_000_000;

/// The operating system's clocks, both ahead by the same.
#[derive(Debug, Default)]
pub(crate) struct AheadClock {
    real: RealClock,
    ahead_ns: AtomicU64,
}

impl AheadClock {
    /// Sets both clocks ahead by ten minutes, so that a pool which is measured for seconds prunes
    /// as one does that was opened ten minutes ago.
    pub(crate) fn be_steady(&self) {
        self.ahead_ns.fetch_add(STEADY_NS, Ordering::Relaxed);
    }
}

impl Clock for AheadClock {
    fn wall(&self) -> WallTime {
        let ahead_ns = self.ahead_ns.load(Ordering::Relaxed);
        WallTime::from_nanos(self.real.wall().as_nanos().saturating_add(ahead_ns))
    }

    fn monotonic_ns(&self) -> u64 {
        self.real.monotonic_ns().saturating_add(self.ahead_ns.load(Ordering::Relaxed))
    }
}
