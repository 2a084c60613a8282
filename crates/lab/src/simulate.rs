//! Counting what each architecture does, write by write: the measured side of the model.
//!
//! 1. Nothing here knows the model's formulas: a cache, stores, and counters that go up when a
//!    device would be asked.
//! 2. A volume that was in use before: what its stores held is of an earlier window, so that
//!    checkpointing copies it at the first overwrite. Laden's trace of an hour is one of a server
//!    that ran before, too. What was never overwritten in the trace is counted apart.
//! 3. It ends with a whole window, at which all that is still in the cache is the last of its
//!    window. Only the volume without history has writes whose fate is open at the end; those are
//!    left out of its shares.
//!
//! I/Os are counted by extent, as in the paper: neighbours that one request could reach count each.

mod cache;
mod extents;
mod guess;
mod in_turn;
mod snapshot;
mod stores;

pub use extents::{EXTENTS_MAX, Extents, Touch};
pub use snapshot::{SnapshotIos, SnapshotMethod, Snapshots};
pub use stores::StoreIos;

use serde::Serialize;

use cache::{PlainCache, Spill, VersionedCache};
use in_turn::InTurnCache;
use model::{Architecture, DeviceIos, Shares};
use stores::Stores;

/// What is counted with.
#[derive(Clone, Copy, Debug)]
pub struct SimulationSettings {
    /// The length of a granularity window; 0 is every write.
    pub window_ns: u64,
    /// Dirty pages of the cache; 0 is none.
    pub dirty_pages: u64,
    /// Where the trace ends; what comes after the last whole window is left out.
    pub end_ns: u64,
}

impl SimulationSettings {
    /// The end of the last whole window.
    #[must_use]
    pub fn last_window_ends_ns(&self) -> u64 {
        self.end_ns.checked_div(self.window_ns).map_or(self.end_ns, |n| n * self.window_ns)
    }
}

/// When versions leave the cache.
enum WriteCache {
    /// As soon as their window is over.
    AtOnce(VersionedCache),
    /// When their turn comes.
    InTurn(InTurnCache),
}

impl WriteCache {
    #[inline]
    fn is_new_window(&mut self, extent: u32, window: u64) -> bool {
        match self {
            WriteCache::AtOnce(cache) => cache.is_new_window(extent, window),
            WriteCache::InTurn(cache) => cache.is_new_window(extent, window),
        }
    }

    #[inline]
    fn write(&mut self, extent: u32, window: u64, destage: impl FnMut(Spill)) {
        match self {
            WriteCache::AtOnce(cache) => cache.write(extent, window, destage),
            WriteCache::InTurn(cache) => cache.write(extent, window, destage),
        }
    }

    fn drain(&mut self, destage: impl FnMut(Spill)) {
        match self {
            WriteCache::AtOnce(cache) => cache.drain(destage),
            WriteCache::InTurn(cache) => cache.drain(destage),
        }
    }
}

/// A versioned write cache with the stores of every architecture that is behind one.
pub struct Simulation {
    settings: SimulationSettings,
    ends_ns: u64,
    cache: WriteCache,
    stores: Stores,
    writes: u64,
    retained: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// Extents written.
    pub writes: u64,
    /// Of them, the last of their window.
    pub retained: u64,
    /// Of them, destaged.
    pub incurred: u64,
    /// `logging`.
    pub logging: StoreIos,
    /// `split-downstream`.
    pub split_downstream: StoreIos,
    /// `checkpointing`.
    pub checkpointing: StoreIos,
    /// Split-downstream or checkpointing, chosen at each destage.
    pub hybrid: StoreIos,
    /// The same where a place waits for what the cache has a newer version of, as the engine's do.
    pub hybrid_of_newest: StoreIos,
    /// Copies that checkpointing made of what was there before the trace.
    pub copies_of_before: u64,
    /// The most device I/Os that one destage came to: logging, split-downstream, checkpointing.
    pub most: [u64; 3],
}

impl Simulation {
    /// Nothing is written yet. Versions whose window is over take no pages, as in the paper.
    #[must_use]
    pub fn new(settings: SimulationSettings) -> Simulation {
        let cache = WriteCache::AtOnce(VersionedCache::new(settings.dirty_pages));
        Simulation::with(settings, cache)
    }

    /// The same with a cache in which they wait for their turn, and take pages until then: the
    /// engine's.
    #[must_use]
    pub fn in_turn(settings: SimulationSettings) -> Simulation {
        let cache = WriteCache::InTurn(InTurnCache::new(settings.dirty_pages));
        Simulation::with(settings, cache)
    }

    fn with(settings: SimulationSettings, cache: WriteCache) -> Simulation {
        Simulation {
            settings,
            ends_ns: settings.last_window_ends_ns(),
            cache,
            stores: Stores::new(settings.window_ns),
            writes: 0,
            retained: 0,
        }
    }

    /// One extent written.
    pub fn write(&mut self, touch: Touch) {
        if touch.time_ns >= self.ends_ns {
            return;
        }
        self.writes += 1;
        // Every write is in a window of its own when all are kept.
        let window = touch.time_ns.checked_div(self.settings.window_ns).unwrap_or(self.writes);
        self.stores.met(touch);
        let Simulation { cache, stores, retained, .. } = self;
        *retained += u64::from(cache.is_new_window(touch.extent, window));
        cache.write(touch.extent, window, |spill: Spill| {
            stores.destage(spill, touch.time_ns);
        });
    }

    /// The end: all that is in the cache is destaged, since its window is over.
    #[must_use]
    pub fn finish(mut self) -> Counted {
        let Simulation { cache, stores, ends_ns, .. } = &mut self;
        cache.drain(|spill| stores.destage(spill, *ends_ns));
        let incurred = self.stores.logging.writes;
        Counted {
            writes: self.writes,
            retained: self.retained,
            incurred,
            logging: self.stores.logging,
            split_downstream: self.stores.split_downstream,
            checkpointing: self.stores.checkpointing,
            hybrid: self.stores.hybrid_in_balance(),
            hybrid_of_newest: self.stores.hybrid_of_newest(),
            copies_of_before: self.stores.copies_of_before,
            most: self.stores.most,
        }
    }
}

/// A write cache over a volume without history: also the current store of `split-stream`.
pub struct PlainSimulation {
    cache: PlainCache,
}

impl PlainSimulation {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(dirty_pages: u64) -> PlainSimulation {
        PlainSimulation { cache: PlainCache::new(dirty_pages) }
    }

    /// One extent written.
    pub fn write(&mut self, extent: u32) {
        self.cache.write(extent);
    }

    /// The share of writes that were destaged, of those whose fate is known.
    #[must_use]
    pub fn evicted_share(&self) -> f64 {
        self.cache.evicted_share()
    }
}

impl Counted {
    /// The measured shares; `evicted` comes from the volume without history.
    #[must_use]
    pub fn shares(&self, evicted: f64) -> Shares {
        let share = |part: u64| part as f64 / (self.writes as f64).max(1.0);
        Shares { retained: share(self.retained), evicted, incurred: share(self.incurred) }
    }

    /// Device I/Os for one extent written; `evicted` as above.
    #[must_use]
    pub fn ios(&self, architecture: Architecture, evicted: f64) -> DeviceIos {
        match architecture {
            // At an interval a capture is at each window's end: the first write after it goes
            // beside, the next ones over it.
            Architecture::Logging | Architecture::Redirect => self.per_write(self.logging),
            Architecture::SplitStream => {
                let history = self.per_write(self.logging);
                DeviceIos { writes: history.writes + evicted, ..history }
            }
            Architecture::SplitDownstream => self.per_write(self.split_downstream),
            Architecture::Checkpointing => self.per_write(self.checkpointing),
            // As the engine's, not as the paper's: `hybrid_ios`.
            Architecture::Hybrid => self.per_write(self.hybrid_of_newest),
        }
    }

    /// Device I/Os of the hybrid for one extent written.
    #[must_use]
    pub fn hybrid_ios(&self) -> DeviceIos {
        self.per_write(self.hybrid)
    }

    /// Checkpointing on a volume that was empty before: nothing is there to be copied first.
    #[must_use]
    pub fn checkpointing_when_new(&self) -> f64 {
        let copied = 2.0 * self.copies_of_before as f64 / (self.writes as f64).max(1.0);
        self.per_write(self.checkpointing).total() - copied
    }

    fn per_write(&self, ios: StoreIos) -> DeviceIos {
        let writes = (self.writes as f64).max(1.0);
        DeviceIos { reads: ios.reads as f64 / writes, writes: ios.writes as f64 / writes }
    }
}
