//! Keeps work to a limit in bytes a second.
//!
//! All work is paid for by waiting before the next step: over any time no more is done than the
//! limit allows in it, but for one step and [`CREDIT_NS`] that were not used before.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So much time that was not used may be used at once, in nanoseconds: whoever does the work looks
/// after it only now and then, and would never come up to the limit.
const CREDIT_NS: u64 = 100_000_000;
/// A step may be for so much time.
const STEP_NS: u64 = 100_000_000;
/// As many bytes as a step may be for at least.
pub const STEP_BYTES_MIN: u64 = 64 << 10;
const SECOND_NS: u128 = 1_000_000_000;

/// Keeps one kind of work to its limit.
#[derive(Debug, Default)]
pub struct Meter {
    /// 0 is no limit.
    bytes_per_second: AtomicU64,
    /// When what was done is paid for, by the monotonic clock.
    paid_ns: AtomicU64,
}

/// The limits of scrubs and rebuilds.
#[derive(Clone, Default)]
pub struct Limits {
    /// Of what a scrub reads, of all copies.
    pub scrub: Arc<Meter>,
    /// Of what a member that came back or takes another's place gets.
    pub rebuild: Arc<Meter>,
}

impl Meter {
    /// Another limit from now on.
    pub fn set(&self, limit: Option<NonZeroU64>) {
        self.bytes_per_second.store(limit.map_or(0, NonZeroU64::get), Ordering::Relaxed);
        // Work done under another limit is not charged for by this one.
        self.paid_ns.store(0, Ordering::Relaxed);
    }

    /// Its limit, in bytes a second.
    pub fn limit(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.bytes_per_second.load(Ordering::Relaxed))
    }

    /// How long it has to wait before the next step; 0 if it has not.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        let paid_ns = self.limit().map_or(0, |_| self.paid_ns.load(Ordering::Relaxed));
        paid_ns.saturating_sub(now_ns)
    }

    /// How much the next step may do of so many bytes.
    pub fn step(&self, bytes: u64) -> u64 {
        let in_step = |limit: NonZeroU64| limit.get() / (1_000_000_000 / STEP_NS);
        self.limit().map_or(bytes, |limit| bytes.min(in_step(limit).max(STEP_BYTES_MIN)))
    }

    /// So many bytes were done in a step that began then. Steps follow one another.
    pub fn note(&self, began_ns: u64, bytes: u64) {
        let Some(limit) = self.limit() else { return };
        let cost_ns = u128::from(bytes) * SECOND_NS / u128::from(limit.get());
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let from_ns = self.paid_ns.load(Ordering::Relaxed).max(began_ns.saturating_sub(CREDIT_NS));
        self.paid_ns.store(from_ns.saturating_add(cost_ns), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::{CREDIT_NS, Meter, STEP_BYTES_MIN};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_was_done_is_paid_for_by_waiting() {
        let meter = Meter::default();
        meter.note(5 * SECOND, u64::MAX);
        assert_eq!((meter.wait_ns(0), meter.step(7 << 20)), (0, 7 << 20), "there is no limit");
        meter.set(NonZeroU64::new(1000));
        assert_eq!((meter.wait_ns(0), meter.step(7 << 20)), (0, STEP_BYTES_MIN));
        // A long rest is worth no more than so much of it.
        meter.note(50 * SECOND, 3000);
        assert_eq!(meter.wait_ns(50 * SECOND), 3 * SECOND - CREDIT_NS);
        assert_eq!(meter.wait_ns(53 * SECOND), 0);
        meter.note(53 * SECOND - CREDIT_NS, 1000);
        assert_eq!(meter.wait_ns(53 * SECOND), SECOND - CREDIT_NS);
        meter.set(NonZeroU64::new(50 << 20));
        assert_eq!((meter.wait_ns(0), meter.step(7 << 20)), (0, 5 << 20), "another limit");
        meter.note(0, u64::MAX);
        meter.note(0, u64::MAX);
        assert!(meter.wait_ns(0) > SECOND, "no sum is too large");
    }
}
