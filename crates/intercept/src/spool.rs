//! What the primary did and the follower has not done yet.
//!
//! ```text
//! Queue: records in the order of their replies --- something may differ --> Dirty
//! Dirty: objects that are to be compared --- all of it is, while no call is under way --> Queue
//! ```

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::update::{Dirty, Record};

/// Bytes of records that wait; whoever brings more waits until there is room.
pub(crate) const QUEUE_BYTES_MAX: usize = 256 << 20;
/// Things to be compared one by one; beyond that all is.
const DIRTY_MAX: usize = 1 << 18;

/// The spool.
#[derive(Debug)]
pub(crate) struct Spool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    is_queue: bool,
    queue: VecDeque<Record>,
    queue_bytes: usize,
    dirty: HashSet<Dirty>,
    /// Records that were taken, and are being done.
    in_hand: usize,
    is_stopped: bool,
}

/// What the follower has to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// To do these, in order.
    Do(Vec<Record>),
    /// To compare.
    Compare,
    /// There was nothing for a while.
    Nothing,
    /// To end.
    Stop,
}

impl Spool {
    /// All has to be compared at first.
    pub(crate) fn new() -> Spool {
        let state = State {
            is_queue: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            dirty: HashSet::from([Dirty::Everything]),
            in_hand: 0,
            is_stopped: false,
        };
        Spool { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A call was carried out by the primary.
    pub(crate) fn push(&self, record: Record) {
        let mut state = self.state.lock();
        while state.is_queue && state.queue_bytes > QUEUE_BYTES_MAX && !state.is_stopped {
            self.changed.wait(&mut state);
        }
        if state.is_queue {
            state.queue_bytes += record.bytes();
            state.queue.push_back(record);
        } else {
            state.mark_dirty(record.dirty());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// It is not known what became of these. All that waits is compared too: it may rest on them.
    pub(crate) fn mark_dirty(&self, dirty: impl IntoIterator<Item = Dirty>) {
        let mut state = self.state.lock();
        state.is_queue = false;
        state.mark_dirty(dirty);
        state.queue_bytes = 0;
        for record in std::mem::take(&mut state.queue) {
            state.mark_dirty(record.dirty());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What is next, after `patience` if there is nothing.
    pub(crate) fn next(&self, records_max: usize, patience: Duration) -> Next {
        let mut state = self.state.lock();
        state.in_hand = 0;
        if state.is_queue && state.queue.is_empty() && !state.is_stopped {
            self.changed.wait_for(&mut state, patience);
        }
        if state.is_stopped {
            return Next::Stop;
        }
        if !state.is_queue {
            return Next::Compare;
        }
        let count = state.queue.len().min(records_max);
        if count == 0 {
            return Next::Nothing;
        }
        let records: Vec<Record> = state.queue.drain(..count).collect();
        state.in_hand = count;
        state.queue_bytes -= records.iter().map(Record::bytes).sum::<usize>();
        drop(state);
        self.changed.notify_all();
        Next::Do(records)
    }

    /// What is to be compared; it is taken.
    pub(crate) fn take_dirty(&self) -> HashSet<Dirty> {
        std::mem::take(&mut self.state.lock().dirty)
    }

    /// Queues records from now on; false if there is something to be compared again.
    pub(crate) fn begin_queue(&self) -> bool {
        let mut state = self.state.lock();
        state.is_queue = state.dirty.is_empty();
        state.is_queue
    }

    /// Whether records are queued, how many are not done, and the bytes of those that wait.
    pub(crate) fn waiting(&self) -> (bool, usize, usize) {
        let state = self.state.lock();
        (state.is_queue, state.queue.len() + state.in_hand, state.queue_bytes)
    }

    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Waits, unless it is stopped.
    pub(crate) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        let until = std::time::Instant::now() + time;
        while !state.is_stopped && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

impl State {
    fn mark_dirty(&mut self, dirty: impl IntoIterator<Item = Dirty>) {
        if self.dirty.contains(&Dirty::Everything) {
            return;
        }
        self.dirty.extend(dirty);
        if self.dirty.len() > DIRTY_MAX {
            self.dirty = HashSet::from([Dirty::Everything]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spool;
    use crate::update::Dirty;

    #[test]
    fn a_spool_is_a_queue_from_when_all_is_compared_until_something_may_differ() {
        let spool = Spool::new();
        assert!(!spool.begin_queue() && !spool.waiting().0);
        spool.take_dirty();
        assert!(spool.begin_queue() && spool.waiting().0);
        spool.mark_dirty([Dirty::Everything]);
        assert!(!spool.waiting().0, "before anybody compares");
    }
}
