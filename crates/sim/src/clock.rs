//! A clock that moves only when told to. The monotonic side never goes back; the wall may jump both
//! ways.

use std::sync::atomic::{AtomicU64, Ordering};

use env::Clock;
use units::WallTime;

/// Virtual time.
#[derive(Debug)]
pub struct SimClock {
    wall_ns: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl SimClock {
    /// A clock at `wall`; its monotonic side begins at zero.
    #[must_use]
    pub fn new(wall: WallTime) -> SimClock {
        SimClock { wall_ns: AtomicU64::new(wall.as_nanos()), monotonic_ns: AtomicU64::new(0) }
    }

    /// Lets `span_ns` nanoseconds pass on both sides.
    pub fn advance(&self, span_ns: u64) {
        let wall = self.wall_ns.load(Ordering::SeqCst).saturating_add(span_ns);
        self.wall_ns.store(wall, Ordering::SeqCst);
        self.monotonic_ns.fetch_add(span_ns, Ordering::SeqCst);
    }

    /// Sets the wall clock to `wall`, earlier or later; the monotonic side does not notice.
    pub fn set_wall(&self, wall: WallTime) {
        self.wall_ns.store(wall.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.wall_ns.load(Ordering::SeqCst))
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}
