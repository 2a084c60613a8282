//! The state that all logs and maps of a pool share, over its device and zones: the table of
//! segments, and the epochs that keep a zone from being used again while a reader may still look at
//! it.
//!
//! Invariants
//! 1. A segment number is in the table exactly while some map entry may point to it.
//! 2. A zone is freed only after every reader that began before its retirement has ended (`Epoch`).
//!
//! Deliberately unaware of volumes, timelines and the catalogue.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use block::{BlockDevice, Purpose, Zones};
use env::{Clock, Entropy, Rank, RankedMutex, RankedRwLock};
use format::location::Location;
use format::map::Entry;
use parking_lot::{Mutex, RwLock};
use units::WallTime;

use crate::hash::FastMap;
use crate::io_tally::IoTally;
use crate::map_zones::{MapZones, SharedMapZones};
use crate::pack_cache::PackCache;
use crate::page_table::PageBudget;
use crate::pool_device::PoolDevice;
use crate::room::Room;
use crate::run::LeafCache;
use crate::segment::{Content, Segment};
use crate::space_tally::{SpaceCount, SpaceTally};
use crate::{Error, Result};

/// A resource that is freed when its last reader has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retired {
    zone: u32,
    segment: Option<u64>,
}

/// A segment number and zone made ready ahead of need, known to the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The number the segment will have.
    pub number: u64,
    /// The zone it will fill.
    pub zone: u32,
}

/// Readers hold an epoch; zones retired in it are freed when the last of them lets go.
#[derive(Debug)]
pub struct Epoch {
    retired: Mutex<Vec<Retired>>,
    freed: Arc<Mutex<Vec<Retired>>>,
    /// Waiters for its end hold the other side of these.
    tokens: Mutex<Vec<Arc<()>>>,
    /// Keeps the next epoch alive: what is retired later must also outlive today's readers.
    next: Mutex<Option<Arc<Epoch>>>,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.freed.lock().append(&mut self.retired.lock());
    }
}

/// The shared parts of a pool's history, which reads as its room does, and that as its device.
pub struct Store {
    room: Room,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for nonces.
    pub entropy: Arc<dyn Entropy>,
    /// Identity of the pool.
    pub pool_id: u128,
    /// The pool's secret, which is in the nonces of its segments.
    pub(crate) secret: u64,
    /// Verified leaf pages of map runs.
    pub leaf_cache: LeafCache,
    /// Decoded packs.
    pub(crate) pack_cache: PackCache,
    /// Memory for map pages.
    pub page_budget: Arc<PageBudget>,
    /// Memory for map pages of views: however much of the past is read, the present keeps its own.
    pub view_budget: Arc<PageBudget>,
    /// Map pages looked up because they were not held.
    pub page_loads: AtomicU64,
    /// The source of other versions of a block that may have the same bytes.
    pub(crate) second_source: OnceLock<SecondSource>,
    segments: RankedRwLock<HashMap<u64, Arc<Segment>>>,
    spares: RankedMutex<VecDeque<Spare>>,
    pub(crate) map_zones: SharedMapZones,
    epoch: RwLock<Arc<Epoch>>,
    freed: Arc<Mutex<Vec<Retired>>>,
    tallies: Mutex<FastMap<u64, Arc<IoTally>>>,
    space: RwLock<FastMap<u64, Arc<SpaceTally>>>,
}

/// Versions of a block, by its number and checksum, wherever they are.
pub type SecondSource = Box<dyn Fn((u64, u32)) -> Vec<Entry> + Send + Sync>;

/// The parts of a store.
pub struct StoreParts {
    /// The stack of devices.
    pub device: Arc<dyn BlockDevice>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Identity of the pool.
    pub pool_id: u128,
    /// Its secret.
    pub secret: u64,
    /// The free table, with everything the catalogue names occupied.
    pub zones: Zones,
    /// Bytes of memory for verified leaf pages.
    pub leaf_cache_bytes: usize,
    /// Bytes of memory for map pages.
    pub page_cache_bytes: usize,
}

/// While the clock is behind a log its time goes slower by one part in so many.
const SLEW: u64 = 16;

/// When the clock was found to be behind a log.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// The log's time.
    time: WallTime,
    /// The monotonic clock's.
    since_ns: u64,
}

impl Deref for Store {
    type Target = Room;

    fn deref(&self) -> &Room {
        &self.room
    }
}

impl Store {
    /// A store with no segments yet.
    pub fn new(parts: StoreParts) -> Store {
        let freed = Arc::new(Mutex::new(Vec::new()));
        Store {
            room: Room::new(PoolDevice::new(parts.device), parts.zone_bytes, parts.zones),
            clock: parts.clock,
            entropy: parts.entropy,
            pool_id: parts.pool_id,
            secret: parts.secret,
            leaf_cache: LeafCache::new(parts.leaf_cache_bytes),
            pack_cache: PackCache::default(),
            page_budget: Arc::new(PageBudget::new(parts.page_cache_bytes / 4 * 3)),
            view_budget: Arc::new(PageBudget::new(parts.page_cache_bytes / 4)),
            page_loads: AtomicU64::new(0),
            second_source: OnceLock::new(),
            segments: RankedRwLock::new(Rank::Segments, HashMap::new()),
            spares: RankedMutex::new(Rank::Spares, VecDeque::new()),
            map_zones: SharedMapZones::new(Rank::MapZones, MapZones::default()),
            epoch: RwLock::new(Arc::new(Epoch::new(Arc::clone(&freed)))),
            freed,
            tallies: Mutex::default(),
            space: RwLock::default(),
        }
    }

    /// Gives map pages another amount of memory.
    pub fn set_page_cache_bytes(&self, bytes: usize) {
        self.page_budget.set_bytes(bytes / 4 * 3);
        self.view_budget.set_bytes(bytes / 4);
    }

    /// Where the device requests of a log's volume are counted.
    pub fn io(&self, log: u64) -> Arc<IoTally> {
        Arc::clone(self.tallies.lock().entry(log).or_default())
    }

    /// Where the segments of a log are summed up.
    pub fn space(&self, log: u64) -> Arc<SpaceTally> {
        if let Some(tally) = self.space.read().get(&log) {
            return Arc::clone(tally);
        }
        Arc::clone(self.space.write().entry(log).or_default())
    }

    /// The sum of all logs.
    pub fn space_of_all(&self) -> SpaceCount {
        self.space.read().values().map(|tally| tally.count()).sum()
    }

    /// Forgets the sum of a log that is no more.
    pub fn forget_space(&self, log: u64) {
        self.space.write().remove(&log);
    }

    /// Frees the zones whose last reader has gone.
    pub fn collect_freed(&self) {
        let freed = std::mem::take(&mut *self.freed.lock());
        for retired in freed {
            if let Some(number) = retired.segment {
                self.segments.write().remove(&number);
            }
            self.free_zone(retired.zone);
        }
    }

    /// Takes a zone whose space is reserved on the device, of those that readers have left too.
    ///
    /// # Errors
    /// `Full` when there is none for this purpose or the device has no room for it; those of the
    /// device.
    pub fn allocate_zone(&self, purpose: Purpose) -> Result<u32> {
        self.collect_freed();
        self.take_zone(purpose)
    }

    /// Whether a zone for new data can be had, space included.
    pub fn has_room(&self) -> bool {
        self.allocate_zone(Purpose::Data).map(|zone| self.free_unused(zone)).is_ok()
    }

    /// Holds back the reuse of everything a reader may find from now on.
    #[must_use]
    pub fn enter(&self) -> Arc<Epoch> {
        Arc::clone(&self.epoch.read())
    }

    /// Retires zones: they are freed once all who entered before have left. Call after the maps and
    /// page tables no longer lead to them.
    pub fn retire_zones(&self, zones: &[u32]) {
        self.retire(zones.iter().map(|&zone| Retired { zone, segment: None }).collect());
    }

    /// Retires segments with their zones, likewise.
    pub fn retire_segments(&self, segments: &[Arc<Segment>]) {
        for segment in segments {
            let before = segment.retired.swap(true, Ordering::AcqRel);
            assert!(!before, "segment {} retired twice", segment.number);
            segment.account.close();
        }
        let retired = |s: &Arc<Segment>| Retired { zone: s.zone, segment: Some(s.number) };
        self.retire(segments.iter().map(retired).collect());
    }

    fn retire(&self, mut retired: Vec<Retired>) {
        if retired.is_empty() {
            return;
        }
        self.end_epoch(|old| old.retired.lock().append(&mut retired));
    }

    /// Begins a new epoch; `f` leaves something in the old one that goes when its readers have.
    fn end_epoch(&self, f: impl FnOnce(&Epoch)) {
        let next = Arc::new(Epoch::new(Arc::clone(&self.freed)));
        let old = std::mem::replace(&mut *self.epoch.write(), Arc::clone(&next));
        f(&old);
        *old.next.lock() = Some(next);
    }

    /// Lives as long as a reader that entered before this call has not left. Call it after the maps
    /// and page tables no longer lead to the place that is to be written over.
    #[must_use]
    pub fn earlier_readers(&self) -> Weak<()> {
        let token = Arc::new(());
        let readers = Arc::downgrade(&token);
        self.end_epoch(|old| old.tokens.lock().push(token));
        readers
    }

    /// Adds a segment to the table.
    pub fn add_segment(&self, segment: Arc<Segment>) {
        segment.account.open(self.space(segment.log));
        segment.settle();
        let before = self.segments.write().insert(segment.number, segment);
        assert!(before.is_none(), "a segment number is used once");
    }

    /// The segment with this number.
    pub fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        self.segments.read().get(&number).cloned()
    }

    /// All segments that are not retired, by number.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.segments.read().values().cloned().collect();
        all.retain(|s| !s.retired.load(Ordering::Acquire));
        all.sort_by_key(|s| s.number);
        all
    }

    /// Where a location lies on the device, and what is there.
    ///
    /// # Errors
    /// `Corrupt` when no such segment exists.
    pub fn locate(&self, location: Location) -> Result<(u64, Content)> {
        let number = location.segment();
        let segments = self.segments.read();
        let segment = segments.get(&number).ok_or_else(|| Error::no_segment(number))?;
        let at = self.zone_offset(segment.zone) + u64::from(location.offset_bytes());
        Ok((at, segment.content()))
    }

    /// Takes a spare segment; unless the caller `may_wait`, one that can be written at once.
    pub fn take_spare(&self, may_wait: bool) -> Option<Spare> {
        let mut spares = self.spares.lock();
        let at = self.zone_offset(spares.front()?.zone);
        let is_ready = may_wait || self.device.is_ready(at, self.zone_bytes);
        is_ready.then(|| spares.pop_front())?
    }

    /// Adds a spare that the catalogue knows.
    pub fn add_spare(&self, spare: Spare) {
        self.spares.lock().push_back(spare);
    }

    /// The spares, oldest first.
    pub fn spares(&self) -> Vec<Spare> {
        self.spares.lock().iter().copied().collect()
    }

    /// The nonce of a segment that is begun.
    pub fn draw_nonce(&self, segment: u64) -> u64 {
        format::segment::nonce(self.secret, segment, (self.entropy.next_u64() >> 32) as u32)
    }

    /// The time to record after `last`: never goes back, never twice the same. While the clock is
    /// behind it goes on as the monotonic clock does, a little slower, so that intervals stay as
    /// long as they are and the clock catches up: `behind` is when it was found to be, and is kept
    /// from call to call.
    pub fn time_after(&self, last: WallTime, behind: &mut Option<Behind>) -> WallTime {
        let now = self.clock.wall();
        if now > last {
            *behind = None;
            return now;
        }
        let now_ns = self.clock.monotonic_ns();
        let Behind { time, since_ns } =
            *behind.get_or_insert(Behind { time: last, since_ns: now_ns });
        let passed_ns = now_ns.saturating_sub(since_ns);
        let goes_on = time.as_nanos().saturating_add(passed_ns - passed_ns / SLEW);
        WallTime::from_nanos(goes_on.max(last.as_nanos() + 1))
    }

    /// The time that was recorded so long ago, as [`Store::time_after`] does it: while the clock is
    /// behind, time goes on from `last` also where nothing is recorded.
    pub fn time_ago(&self, last: WallTime, behind: &mut Option<Behind>, span_ns: u64) -> WallTime {
        let now = self.time_after(last, behind);
        let slow_ns = behind.map_or(0, |behind| {
            span_ns.min(self.clock.monotonic_ns().saturating_sub(behind.since_ns))
        });
        WallTime::from_nanos(now.as_nanos().saturating_sub(span_ns - slow_ns / SLEW))
    }
}

impl Epoch {
    fn new(freed: Arc<Mutex<Vec<Retired>>>) -> Epoch {
        Epoch {
            retired: Mutex::new(Vec::new()),
            freed,
            tokens: Mutex::new(Vec::new()),
            next: Mutex::new(None),
        }
    }
}
