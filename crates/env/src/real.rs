//! The machine's own clock and entropy.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use units::WallTime;

use crate::{Clock, Entropy};

/// The operating system's clocks.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Starts the monotonic clock at zero.
    pub fn new() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn wall(&self) -> WallTime {
        // A clock before 1970 is answered as 1970: the log's own time never goes back anyway.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime::from_nanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Randomness seeded by the operating system (through the standard library's hasher keys).
#[derive(Debug, Default)]
pub struct RealEntropy {
    keys: RandomState,
    drawn: AtomicU64,
}

impl Entropy for RealEntropy {
    fn next_u64(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}
