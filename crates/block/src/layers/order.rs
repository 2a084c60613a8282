//! The order of the locks of layers: those of a layer come before those of what it lies over, and
//! within a layer they come as in this list.
//!
//! A layer has the depth that it is built with: 0 is the uppermost.

use env::{Held, Rank, RankedMutex, RankedRwLock};

/// Gates of a device: see `gates`.
pub(super) const GATES: usize = 64;

/// A lock of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LayerLock {
    /// The layers on a member, which are made anew with it.
    Renewed,
    /// Ranges that requests hold.
    Ranges,
    /// A parity's journal.
    Journal,
    /// A parity's right to write whole stripes.
    Directs,
    /// Ranges that writers share: as many as there are gates.
    Gate(usize),
    /// A parity's pending log.
    Pending,
}

/// Locks of one layer, at most.
const LOCKS: u64 = 128;
const _: () = assert!(GATES as u64 + 5 <= LOCKS);

impl LayerLock {
    fn number(self, depth: usize) -> u64 {
        let within = match self {
            LayerLock::Renewed => 0,
            LayerLock::Ranges => 1,
            LayerLock::Journal => 2,
            LayerLock::Directs => 3,
            LayerLock::Gate(gate) => 4 + gate as u64,
            LayerLock::Pending => 4 + GATES as u64,
        };
        depth as u64 * LOCKS + within
    }

    pub(crate) fn mutex<T>(self, depth: usize, value: T) -> RankedMutex<T> {
        RankedMutex::numbered(Rank::Layers, self.number(depth), value)
    }

    pub(crate) fn rw_lock<T>(self, depth: usize, value: T) -> RankedRwLock<T> {
        RankedRwLock::numbered(Rank::Layers, self.number(depth), value)
    }

    /// Something without a lock of its own that others wait for.
    pub(crate) fn held(self, depth: usize) -> Held {
        Held::new(Rank::Layers, self.number(depth))
    }

    /// Says that a thread is about to wait for that.
    #[track_caller]
    pub(crate) fn will_wait(self, depth: usize) {
        Held::will_wait(Rank::Layers, self.number(depth));
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use env::{Rank, RankedMutex};

    use super::LayerLock;
    use crate::layers::Gates;
    use crate::ranges::RangeLock;

    fn panics(f: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn a_layer_comes_before_what_it_lies_over_and_the_book_after_both() {
        let book = RankedMutex::new(Rank::ArrayBook, ());
        let upper = (RangeLock::at_depth(0), LayerLock::Pending.mutex(0, ()));
        let lower = (RangeLock::at_depth(1), Gates::at_depth(1));
        let (range, pending) = (upper.0.hold(0..1), upper.1.lock());
        let (below, gate) = (lower.0.hold(0..1), lower.1.take(0, 3 << 20));
        drop(book.lock());
        drop((range, pending));
        assert!(panics(|| drop(upper.0.hold(2..3))), "the lower layer asks the upper one");
        drop(below);
        assert!(panics(|| drop(lower.0.hold(2..3))), "ranges come before gates");
        drop(gate);
        let book = book.lock();
        assert!(panics(|| drop(lower.1.share(0, 1))), "whoever has a gate may put a member out");
        drop(book);
        drop(upper.0.hold(2..3));
    }
}
