//! The blocks whose places wait.

use std::collections::BTreeSet;
use std::ops::Range;

/// Blocks put in place together at most.
const BLOCKS_AT_ONCE: u64 = 256;

/// Blocks whose places wait.
#[derive(Debug, Default)]
pub struct Deferred {
    /// When the window of those in `open` is over.
    ends_ns: u64,
    /// Written in the window that is not over.
    open: BTreeSet<u64>,
    /// Of windows that are over.
    due: BTreeSet<u64>,
}

impl Deferred {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len() + self.due.len()
    }

    /// It is this late, and windows are this long, which may have changed. So may the clock.
    pub fn look_at_clock(&mut self, now_ns: u64, window_ns: u64) {
        let ends_ns = (now_ns / window_ns).saturating_add(1).saturating_mul(window_ns);
        if ends_ns != self.ends_ns {
            self.ends_ns = ends_ns;
            self.due.append(&mut self.open);
        }
    }

    /// All are due.
    pub fn all_due(&mut self) {
        self.due.append(&mut self.open);
    }

    /// One waits from now on.
    pub fn wait(&mut self, block: u64) {
        self.due.remove(&block);
        self.open.insert(block);
    }

    /// One waits no more.
    pub fn forget(&mut self, block: u64) {
        self.due.remove(&block);
        self.open.remove(&block);
    }

    /// Takes the first blocks that are due and follow one another.
    pub fn take(&mut self) -> Option<Range<u64>> {
        let first = self.due.pop_first()?;
        let mut end = first + 1;
        while end - first < BLOCKS_AT_ONCE && self.due.remove(&end) {
            end += 1;
        }
        Some(first..end)
    }
}

#[cfg(test)]
mod tests {
    use super::Deferred;

    #[test]
    fn what_waits_is_due_when_its_window_is_over_unless_it_was_written_again() {
        let mut deferred = Deferred::default();
        deferred.look_at_clock(70, 10);
        [5, 4, 9, 3].into_iter().for_each(|block| deferred.wait(block));
        assert_eq!((deferred.len(), deferred.take()), (4, None));
        deferred.look_at_clock(79, 10);
        assert_eq!(deferred.take(), None);
        deferred.look_at_clock(80, 10);
        deferred.wait(9);
        deferred.forget(4);
        assert_eq!((deferred.take(), deferred.take()), (Some(3..4), Some(5..6)));
        assert_eq!((deferred.take(), deferred.len()), (None, 1));
        deferred.all_due();
        assert_eq!(deferred.take(), Some(9..10));
    }
}
