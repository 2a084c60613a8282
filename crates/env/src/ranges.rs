//! The range lock: who writes a part of a block reads the rest of it first, and nobody may write in
//! between, or read what is half written.
//!
//! Invariants
//! 1. Ranges that are held do not overlap, but that several may share one.
//! 2. A request takes all that it needs at once, so that no two wait for each other.
//!
//! The ranges lie in the state of their user, under its mutex: what else a waiter has to look at (a
//! gate, whether there is a cache) is seen in the same instant, and a request that holds no range
//! pays for one look at an empty list. Deliberately unaware of what the ranges are of.

use std::ops::Range;

use parking_lot::Condvar;

use crate::{RankedGuard, RankedMutex};

/// Ranges that are held.
#[derive(Debug, Default)]
pub struct Ranges(Vec<Hold>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    range: Range<u64>,
    shared: bool,
}

/// A range that is held until this is dropped: then all who wait on the condition look again.
#[derive(Debug)]
#[must_use = "the range is held as long as this is"]
pub struct HeldRange<'l, S: AsMut<Ranges>> {
    state: &'l RankedMutex<S>,
    changed: &'l Condvar,
    hold: Hold,
}

impl AsMut<Ranges> for Ranges {
    fn as_mut(&mut self) -> &mut Ranges {
        self
    }
}

impl Ranges {
    /// Whether somebody holds a part of some ranges.
    pub fn meet(&self, mut ranges: impl Iterator<Item = Range<u64>>) -> bool {
        !self.0.is_empty() && ranges.any(|range| self.exclude(&Hold { range, shared: false }))
    }

    fn exclude(&self, hold: &Hold) -> bool {
        let overlaps = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let excludes = |o: &Hold| overlaps(&o.range, &hold.range) && !(o.shared && hold.shared);
        self.0.iter().any(excludes)
    }
}

impl<'l, S: AsMut<Ranges>> HeldRange<'l, S> {
    /// Waits until nobody has what keeps from having the range, alone or shared with others, and
    /// holds it; the state stays locked. `check` says before each wait whether to wait.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn wait<E>(
        (state, changed): (&'l RankedMutex<S>, &'l Condvar),
        range: Range<u64>,
        shared: bool,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<(RankedGuard<'l, S>, HeldRange<'l, S>), E> {
        let hold = Hold { range, shared };
        let mut guard = state.lock();
        while guard.as_mut().exclude(&hold) {
            check()?;
            RankedGuard::wait(&mut guard, changed);
        }
        guard.as_mut().0.push(hold.clone());
        Ok((guard, HeldRange { state, changed, hold }))
    }
}

impl<S: AsMut<Ranges>> Drop for HeldRange<'_, S> {
    fn drop(&mut self) {
        let mut guard = self.state.lock();
        let held = &mut guard.as_mut().0;
        let place = held.iter().position(|hold| *hold == self.hold);
        held.swap_remove(place.expect("a range that is held"));
        drop(guard);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::ops::Range;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Condvar;

    use super::{HeldRange, Ranges};
    use crate::RankedMutex;

    #[derive(Default)]
    struct Lock(RankedMutex<Ranges>, Condvar);

    impl Lock {
        fn hold(&self, range: Range<u64>, shared: bool) -> HeldRange<'_, Ranges> {
            let waits = || Ok::<_, Infallible>(());
            let Ok((_, held)) = HeldRange::wait((&self.0, &self.1), range, shared, waits);
            held
        }

        fn try_share(&self, range: Range<u64>) -> Option<HeldRange<'_, Ranges>> {
            let held = HeldRange::wait((&self.0, &self.1), range, true, || Err(()));
            held.ok().map(|(_, held)| held)
        }
    }

    #[test]
    fn one_at_a_time_has_a_range_and_others_go_on() {
        let lock = Lock::default();
        let other = lock.hold(9..10, false);
        let (inside, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lock, inside, turns) = (&lock, &inside, &turns);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let held = lock.hold(thread..5, false);
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
        assert!(lock.0.lock().0.is_empty());
    }

    #[test]
    fn readers_share_what_a_writer_has_alone() {
        let lock = Lock::default();
        let reader = lock.hold(0..10, true);
        let other = lock.try_share(5..15).expect("both read");
        assert!(lock.0.lock().meet([20..30, 14..15].into_iter()), "no writer comes between");
        drop(reader);
        let writer = lock.hold(0..5, false);
        assert!(lock.try_share(4..6).is_none());
        assert!(lock.try_share(5..6).is_some());
        drop((other, writer));
        assert!(lock.try_share(4..6).is_some() && lock.0.lock().0.is_empty());
        assert!(!lock.0.lock().meet(std::iter::once(0..u64::MAX)));
    }

    #[test]
    fn a_wait_ends_when_it_is_not_worth_while_any_more() {
        let lock = Lock::default();
        let held = lock.hold(3..7, false);
        let waited = HeldRange::wait((&lock.0, &lock.1), 6..9, false, || Err("over"));
        assert_eq!(waited.map(drop), Err("over"));
        drop(held);
        assert!(lock.0.lock().0.is_empty(), "nothing is left of it");
    }
}
