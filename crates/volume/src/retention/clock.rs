//! The time by which things expire, and whether the clock can be trusted: the one clock rule of a
//! pool.
//!
//! A clock goes evenly when wall and monotonic time go alike. Pool time is the clock's once it has
//! gone evenly for ten minutes. Before that it goes on as the monotonic clock does: from what it
//! was when the clock jumped, or, after an opening, from where the windows begin: what the logs
//! say may have been written under a wrong clock, too. So a wrong clock that is put right in time
//! expires nothing, and while the pool is open windows go on as time does. It is never ahead of the
//! clock.
//!
//! It does not know what expires: `expiry`, `grace` and `schedule` ask it.

use env::Clock;
use units::WallTime;

/// Wall and monotonic time may part by this much before the clock counts as having jumped.
const JUMP_NS: u64 = 60_000_000_000;
/// The clock goes evenly when it has not jumped for so long, in nanoseconds.
const STEADY_NS: u64 = 600_000_000_000;

/// Pool time.
#[derive(Debug)]
pub struct PoolTime {
    /// At the last look.
    time_ns: u64,
    /// The monotonic time then.
    looked_ns: u64,
    /// Wall and monotonic time at the last jump, or at the first look. Slow changes add up: they
    /// are measured from here until the next jump.
    since: Option<(u64, u64)>,
}

impl PoolTime {
    /// Of a pool without volumes.
    #[must_use]
    pub fn new(clock: &dyn Clock) -> PoolTime {
        let (wall_ns, now_ns) = (clock.wall().as_nanos(), clock.monotonic_ns());
        PoolTime { time_ns: wall_ns, looked_ns: now_ns, since: None }
    }

    /// A volume's history can be opened from then on.
    pub fn begin_by(&mut self, horizon_ns: u64) {
        self.time_ns = self.time_ns.min(horizon_ns);
    }

    /// Looks at the clock: says the pool's time, and whether the clock has gone evenly for long
    /// enough.
    pub fn look(&mut self, clock: &dyn Clock) -> (WallTime, bool) {
        let (wall_ns, now_ns) = (clock.wall().as_nanos(), clock.monotonic_ns());
        let (wall_before, before) = *self.since.get_or_insert((wall_ns, now_ns));
        let expected = wall_before.saturating_add(now_ns.saturating_sub(before));
        let jumped = wall_ns.abs_diff(expected) > JUMP_NS;
        let since_ns = if jumped { now_ns } else { before };
        if jumped {
            self.since = Some((wall_ns, now_ns));
        }
        let is_steady = now_ns.saturating_sub(since_ns) >= STEADY_NS;
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        // Never ahead of the clock: what was written since it went back would expire too early.
        let goes_on = self.time_ns.saturating_add(passed_ns).min(wall_ns);
        self.time_ns = if is_steady { wall_ns } else { goes_on };
        self.looked_ns = now_ns;
        (WallTime::from_nanos(self.time_ns), is_steady)
    }
}
