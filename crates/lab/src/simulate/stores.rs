//! What destaging a version costs each architecture, and what its stores hold afterwards.

use serde::Serialize;

use super::cache::Spill;
use super::extents::Touch;
use super::guess::Guess;

/// Device I/Os by extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreIos {
    /// Reads of the current store, to copy from it.
    pub reads: u64,
    /// Writes, of both stores.
    pub writes: u64,
}

impl StoreIos {
    /// Reads and writes.
    #[must_use]
    pub fn total(self) -> u64 {
        self.reads + self.writes
    }

    /// Old data is read, and written to the history.
    fn copy(&mut self) {
        self.reads += 1;
        self.writes += 1;
    }
}

/// What an extent of the current store holds, and how it was written so far.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// The window of what it holds, and one; 0 is from before.
    window: u64,
    last_write_ns: u64,
    /// A running mean of the time between its writes; 0 if there was only one.
    distance_ns: u64,
    /// Of the hybrid: whether the history has what the current store holds.
    is_in_history: bool,
    /// The class it was in when it left its window's cache; `CLOSED` when the window was over.
    class: u8,
    is_met: bool,
}

/// No class: the version's window was over.
const CLOSED: u8 = u8::MAX;

/// Stores of the architectures behind one versioned cache.
pub(super) struct Stores {
    window_ns: u64,
    extents: Vec<Extent>,
    guess: Guess,
    pub(super) logging: StoreIos,
    pub(super) split_downstream: StoreIos,
    pub(super) checkpointing: StoreIos,
    hybrid: StoreIos,
    /// Of it, writes in place of what the cache had a newer version of.
    hybrid_superseded: u64,
    pub(super) copies_of_before: u64,
    pub(super) most: [u64; 3],
}

impl Stores {
    pub(super) fn new(window_ns: u64) -> Stores {
        Stores {
            window_ns,
            extents: Vec::new(),
            guess: Guess::new(),
            logging: StoreIos::default(),
            split_downstream: StoreIos::default(),
            checkpointing: StoreIos::default(),
            hybrid: StoreIos::default(),
            hybrid_superseded: 0,
            copies_of_before: 0,
            most: [0; 3],
        }
    }

    /// A host's write: how far apart the writes of an extent are.
    #[inline]
    pub(super) fn met(&mut self, touch: Touch) {
        let index = touch.extent as usize;
        if index >= self.extents.len() {
            self.extents.resize(index + 1, Extent::default());
        }
        let extent = &mut self.extents[index];
        if extent.is_met {
            let distance_ns = touch.time_ns - extent.last_write_ns;
            extent.distance_ns = match extent.distance_ns {
                0 => distance_ns.max(1),
                before => (before + distance_ns).div_ceil(2),
            };
        }
        extent.is_met = true;
        extent.last_write_ns = touch.time_ns;
    }

    /// A version leaves the cache.
    #[inline]
    pub(super) fn destage(&mut self, spill: Spill, now_ns: u64) {
        let before = [self.logging, self.split_downstream, self.checkpointing].map(StoreIos::total);
        self.logging.writes += 1;
        self.split_downstream.writes += 2;
        let class = self.class(spill, now_ns);
        let is_split = class == CLOSED || self.guess.is_retained(class);
        let extent = &mut self.extents[spill.extent as usize];
        // What another window wrote is the last of that window, or it would not be there still.
        if extent.window != spill.window + 1 {
            self.checkpointing.copy();
            self.copies_of_before += u64::from(extent.window == 0);
            // What the hybrid did before the trace is not known: see `hybrid_in_balance`.
            if extent.window != 0 && !extent.is_in_history {
                self.hybrid.copy();
            }
        }
        if extent.window == spill.window + 1 && extent.class != CLOSED {
            self.guess.overwritten(extent.class);
        }
        if class != CLOSED {
            self.guess.decided(class, spill.window);
        }
        extent.class = class;
        extent.window = spill.window + 1;
        self.checkpointing.writes += 1;
        self.hybrid.writes += 1 + u64::from(is_split);
        self.hybrid_superseded += u64::from(is_split && spill.is_superseded);
        extent.is_in_history = is_split;
        let after = [self.logging, self.split_downstream, self.checkpointing].map(StoreIos::total);
        for (most, (before, after)) in self.most.iter_mut().zip(before.into_iter().zip(after)) {
            *most = (*most).max(after - before);
        }
    }

    /// The hybrid's I/Os, with the copies that it owes for what its current store holds at the end,
    /// in place of those it would have owed at the beginning. (Checkpointing owes one for every
    /// extent at both ends, so there the two are the same number.)
    pub(super) fn hybrid_in_balance(&self) -> StoreIos {
        let mut ios = self.hybrid;
        let owed = self.extents.iter().filter(|one| one.window != 0 && !one.is_in_history).count();
        ios.reads += owed as u64;
        ios.writes += owed as u64;
        ios
    }

    /// The same where a place waits for what the cache has a newer version of.
    pub(super) fn hybrid_of_newest(&self) -> StoreIos {
        let ios = self.hybrid_in_balance();
        StoreIos { writes: ios.writes - self.hybrid_superseded, ..ios }
    }

    /// How the hybrid sees a version: a second write now costs one I/O, a copy later two, but
    /// perhaps none. It pays if the version is retained more likely than not.
    fn class(&self, spill: Spill, now_ns: u64) -> u8 {
        if spill.is_closed || self.window_ns == 0 {
            return CLOSED;
        }
        let ends_ns = (spill.window + 1) as f64 * self.window_ns as f64;
        let distance_ns = self.extents[spill.extent as usize].distance_ns;
        Guess::class(distance_ns, ends_ns - now_ns as f64)
    }
}
