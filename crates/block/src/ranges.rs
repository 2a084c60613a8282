//! Ranges that requests hold: who writes a part of a block reads the rest of it first, and nobody
//! may write in between, or read what is half written.
//!
//! Invariants: 1. ranges that are held do not overlap, but that several may share one; 2. a request
//! takes all that it needs at once, so that no two wait for each other.

use std::ops::Range;

use env::{Held, RankedGuard, RankedMutex};
use parking_lot::Condvar;

use crate::layers::order::LayerLock;

/// Ranges that are held.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    /// How deep the layer lies that it is of, if that is one of a stack.
    depth: Option<usize>,
    held: RankedMutex<Vec<Hold>>,
    freed: Condvar,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    range: Range<u64>,
    shared: bool,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldRange<'l> {
    lock: &'l RangeLock,
    hold: Hold,
    _held: Option<Held>,
}

impl RangeLock {
    /// That of a layer of a stack.
    pub(crate) fn at_depth(depth: usize) -> RangeLock {
        RangeLock { depth: Some(depth), ..RangeLock::default() }
    }

    /// Waits until nothing of the range is held, and holds it alone.
    pub(crate) fn hold(&self, range: Range<u64>) -> HeldRange<'_> {
        self.wait_for(Hold { range, shared: false })
    }

    /// Waits until nobody holds a part of the range alone, and holds it with others.
    pub(crate) fn share(&self, range: Range<u64>) -> HeldRange<'_> {
        self.wait_for(Hold { range, shared: true })
    }

    /// The same if that needs no waiting.
    pub(crate) fn try_share(&self, range: Range<u64>) -> Option<HeldRange<'_>> {
        let hold = Hold { range, shared: true };
        let mut held = self.held.lock();
        if held.iter().any(|other| other.excludes(&hold)) {
            return None;
        }
        held.push(hold.clone());
        Some(self.held_range(hold))
    }

    fn wait_for(&self, hold: Hold) -> HeldRange<'_> {
        if let Some(depth) = self.depth {
            LayerLock::Ranges.will_wait(depth);
        }
        let mut held = self.held.lock();
        while held.iter().any(|other| other.excludes(&hold)) {
            RankedGuard::wait(&mut held, &self.freed);
        }
        held.push(hold.clone());
        self.held_range(hold)
    }

    fn held_range(&self, hold: Hold) -> HeldRange<'_> {
        let held = self.depth.map(|depth| LayerLock::Ranges.held(depth));
        HeldRange { lock: self, hold, _held: held }
    }
}

impl Hold {
    fn excludes(&self, other: &Hold) -> bool {
        let overlaps = self.range.start < other.range.end && other.range.start < self.range.end;
        overlaps && !(self.shared && other.shared)
    }
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held.lock();
        let place = held.iter().position(|hold| *hold == self.hold);
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

    #[test]
    fn readers_share_what_a_writer_has_alone() {
        let lock = RangeLock::default();
        let reader = lock.share(0..10);
        let other = lock.try_share(5..15).expect("both read");
        drop(reader);
        let writer = lock.hold(0..5);
        assert!(lock.try_share(4..6).is_none());
        assert!(lock.try_share(5..6).is_some());
        drop((other, writer));
        assert!(lock.try_share(4..6).is_some() && lock.held.lock().is_empty());
    }
}
