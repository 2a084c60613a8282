//! Ranges that one request holds at a time: who writes a part of a block reads the rest of it
//! first, and nobody may write in between.
//!
//! Invariants: 1. ranges that are held do not overlap; 2. a request takes all that it needs at
//! once, so that no two wait for each other.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// Ranges that are held.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    held: Mutex<Vec<Range<u64>>>,
    freed: Condvar,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldRange<'l> {
    lock: &'l RangeLock,
    range: Range<u64>,
}

impl RangeLock {
    /// Waits until nothing of the range is held, and holds it.
    pub(crate) fn hold(&self, range: Range<u64>) -> HeldRange<'_> {
        let mut held = self.held.lock();
        while held.iter().any(|other| other.start < range.end && range.start < other.end) {
            self.freed.wait(&mut held);
        }
        held.push(range.clone());
        HeldRange { lock: self, range }
    }
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held.lock();
        let place = held.iter().position(|range| *range == self.range);
        held.swap_remove(place.expect("a range that is held"));
        self.lock.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::RangeLock;

    #[test]
    fn one_at_a_time_has_a_range_and_others_go_on() {
        let lock = RangeLock::default();
        let other = lock.hold(9..10);
        let (inside, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lock, inside, turns) = (&lock, &inside, &turns);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let held = lock.hold(thread..5);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 2000);
        drop(other);
        assert!(lock.held.lock().is_empty());
    }
}
