//! How far the reclamation of a volume is: passes of full merges over its timelines.
//!
//! Invariant: a pass that waits for clients is bounded in time. It may take as long as it took to
//! come due, so that what comes due meanwhile is no more than it was for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Rank, RankedMutex};

/// A pass may take at least this long, in nanoseconds, and at most so long.
const ALLOWED_MIN_NS: u64 = 60_000_000_000;
const ALLOWED_MAX_NS: u64 = 3_600_000_000_000;
/// Entries that have been pending for so long go out, in nanoseconds: time bounds what a restart
/// reads, and a full merge can neither bring home nor drop what lies in memory.
pub const SETTLE_NS: u64 = 5_000_000_000;

/// The reclamation of a volume.
pub struct Reclamation {
    /// Something was deleted or expired since the last pass began.
    is_wanted: AtomicBool,
    /// Background work met damage in the volume.
    is_ailing: AtomicBool,
    /// Timelines that the pass under way has still to merge.
    left: RankedMutex<Vec<u64>>,
    pass: RankedMutex<Pass>,
}

impl Default for Reclamation {
    fn default() -> Reclamation {
        Reclamation {
            is_wanted: AtomicBool::new(false),
            is_ailing: AtomicBool::new(false),
            left: RankedMutex::new(Rank::Reclaiming, Vec::new()),
            pass: RankedMutex::new(Rank::Pass, Pass::default()),
        }
    }
}

impl Reclamation {
    /// Asks for a pass.
    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Asks for one that keeps a limit: it cannot wait for clients.
    pub fn press(&self) {
        self.want();
        self.pass.lock().is_next_pressed = true;
    }

    /// The pass under way was given up: another one is wanted, which keeps the same limit.
    pub fn want_again(&self) {
        self.want();
        let mut pass = self.pass.lock();
        pass.is_next_pressed |= pass.is_pressed;
    }

    /// Whether one was asked for.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        !self.left.lock().is_empty()
    }

    /// One begins.
    pub fn begin(&self, now_ns: u64) {
        let mut pass = self.pass.lock();
        let due_after = pass.begun_ns.map_or(0, |begun| now_ns.saturating_sub(begun));
        pass.allowed_ns = due_after.clamp(ALLOWED_MIN_NS, ALLOWED_MAX_NS);
        pass.begun_ns = Some(now_ns);
        pass.is_pressed = std::mem::take(&mut pass.is_next_pressed);
    }

    /// It goes over the timelines of now. A pass that is asked for from now on is another one.
    pub fn set_out(&self, timelines: impl FnOnce() -> Vec<u64>) {
        self.is_wanted.store(false, Ordering::Relaxed);
        let timelines = timelines();
        *self.left.lock() = timelines;
    }

    /// The next timeline of the pass under way.
    pub fn next(&self) -> Option<u64> {
        self.left.lock().pop()
    }

    /// How long no pass has begun, at most since the clock's start.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.pass.lock().begun_ns.unwrap_or(0))
    }

    /// How long the pass under way has been going on, and how long it may wait for clients (0 is as
    /// long as it likes); `None` if it cannot.
    pub fn waits(&self, now_ns: u64) -> Option<(u64, u64)> {
        let pass = self.pass.lock();
        let since_ns = pass.begun_ns.map_or(0, |begun| now_ns.saturating_sub(begun));
        (!pass.is_pressed).then_some((since_ns, pass.allowed_ns))
    }

    /// Notes whether background work met damage: then other volumes go first, and nothing of this
    /// one is given up for room.
    pub fn set_ailing(&self, is_ailing: bool) {
        self.is_ailing.store(is_ailing, Ordering::Relaxed);
    }

    /// Whether background work met damage.
    pub fn is_ailing(&self) -> bool {
        self.is_ailing.load(Ordering::Relaxed)
    }
}

/// Since when something has been pending that is not in runs.
#[derive(Debug)]
pub struct Pending {
    /// On the monotonic clock, as background steps saw it.
    since_ns: AtomicU64,
    /// The last map flush failed.
    has_failed: AtomicBool,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { since_ns: AtomicU64::new(u64::MAX), has_failed: AtomicBool::new(false) }
    }
}

impl Pending {
    /// Nothing is, or it is tried again as late.
    pub fn reset(&self) {
        self.since_ns.store(u64::MAX, Ordering::Relaxed);
    }

    /// Notes how a map flush went.
    pub fn note_flush(&self, has_failed: bool) {
        self.has_failed.store(has_failed, Ordering::Relaxed);
    }

    /// Whether the last map flush failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A step sees something pending: whether a map flush is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let since_ns = self.since_ns().min(now_ns);
        self.since_ns.store(since_ns, Ordering::Relaxed);
        now_ns - since_ns >= SETTLE_NS
    }

    /// Since when.
    pub fn since_ns(&self) -> u64 {
        self.since_ns.load(Ordering::Relaxed)
    }
}

/// The last pass of full merges over a volume.
#[derive(Debug, Default)]
struct Pass {
    /// When it began, by the monotonic clock.
    begun_ns: Option<u64>,
    /// How long it may take.
    allowed_ns: u64,
    /// A limit is exceeded until it is done.
    is_pressed: bool,
    /// The same of the next one.
    is_next_pressed: bool,
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED_MAX_NS, ALLOWED_MIN_NS, Reclamation};

    #[test]
    fn a_pass_may_take_as_long_as_it_took_to_come_due() {
        let pass = Reclamation::default();
        assert_eq!(pass.waits(7), Some((0, 0)));
        let mut now_ns = 5;
        pass.begin(now_ns);
        let allowed_ns = ALLOWED_MIN_NS;
        assert_eq!(pass.waits(8), Some((3, allowed_ns)));
        for (due_after, allowed_ns) in [
            (ALLOWED_MIN_NS / 2, ALLOWED_MIN_NS),
            (ALLOWED_MIN_NS * 2, ALLOWED_MIN_NS * 2),
            (ALLOWED_MAX_NS * 2, ALLOWED_MAX_NS),
        ] {
            now_ns += due_after;
            pass.begin(now_ns);
            assert_eq!(pass.waits(now_ns), Some((0, allowed_ns)));
        }
        pass.press();
        assert!(pass.waits(now_ns).is_some(), "the next one");
        pass.begin(now_ns);
        assert_eq!(pass.waits(now_ns), None);
        pass.begin(now_ns);
        assert!(pass.waits(now_ns).is_some(), "no longer");
    }
}
