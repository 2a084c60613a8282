//! The state that the volumes of an open pool share: store, catalogue, timelines, numbers. It knows
//! neither volumes nor the pool above them, which it asks as its `Host`.
//!
//! Invariants
//! 1. The catalogue changes by transactions, one at a time, under `books`; memory follows after the
//!    commit.
//! 2. Locks are taken in the order of `env::Rank`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use block::Purpose;
use env::{Files, Rank, RankedMutex, RankedRwLock};
use history::{Branch, NO_LOG, Segment, SegmentSource, Spare, Store, StoredRun, Timeline};
use units::{MapExtent, Seq, WallTime};

use crate::catalogue::{
    Catalogue, CatalogueMedia, Commit, Numbers, SourceRecord, TimelineRecord, tables,
};
use crate::host::{Host, Served};
use crate::names::VolumeName;
use crate::past::backing_file::Source;
use crate::placement::current_store::CurrentStore;
use crate::pool::run_figures::RunFigures;
use crate::pool::samples::SampleBook;
use crate::read::snapshot::Opening;
use crate::retention::clock::PoolTime;
use crate::{Error, ErrorKind, Machine, Result};

/// Segments made ready ahead of need.
pub const SPARES_WANTED: usize = 6;

/// Timelines by id, with their records.
pub type Timelines = BTreeMap<u64, (TimelineRecord, Arc<Timeline>)>;

/// A file that is being imported, at its timeline.
pub type Hung = (Arc<Timeline>, Arc<Source>);

/// The shared middle of a pool.
pub struct Core {
    /// Device, zones, segments.
    pub store: Arc<Store>,
    /// Clock and randomness.
    pub machine: Machine,
    /// Where files that are being imported are opened.
    pub files: Arc<dyn Files>,
    /// Files that are being imported, by the timeline that they hang at.
    sources: RankedMutex<BTreeMap<u64, Hung>>,
    /// The catalogue.
    pub catalogue: Catalogue,
    /// Where the catalogue is.
    pub media: CatalogueMedia,
    /// Numbers given out, and the right to commit.
    pub books: RankedMutex<Numbers>,
    /// Timelines by id, with their records.
    pub timelines: RankedRwLock<Timelines>,
    /// Every opening that may hold map pages.
    openings: RankedMutex<Vec<Weak<Opening>>>,
    /// Segments that were made for writers since the pool was opened.
    segments_made: AtomicU64,
    /// Entries that may wait in memory, of all volumes, before some are written as a run.
    pub pending_max: usize,
    /// Set when the pool is closed.
    closed: AtomicBool,
    /// The space in use at times, as the catalogue has it.
    pub growth: SampleBook,
    /// The uses of map runs.
    pub figures: RunFigures,
    /// The time by which things expire.
    pool_time: RankedMutex<PoolTime>,
    /// The pool, once it is there.
    host: OnceLock<Weak<dyn Host>>,
}

/// Bytes of memory that one pending entry takes, with its indexes.
const PENDING_ENTRY_BYTES: u64 = 96;
/// Entries that may wait, however much memory there is: the blocks that they name, half a GiB, are
/// read when the pool is opened after a kill.
const PENDING_MAX: u64 = 1 << 17;

impl Core {
    /// With nothing in it but what the catalogue says about numbers and samples.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub fn new(
        store: Arc<Store>,
        (machine, files): (Machine, Arc<dyn Files>),
        (catalogue, media): (Catalogue, CatalogueMedia),
        numbers: Numbers,
        memory_bytes: u64,
    ) -> Result<Core> {
        let pending_max = (memory_bytes / 8 / PENDING_ENTRY_BYTES).clamp(256, PENDING_MAX);
        Ok(Core {
            store,
            pool_time: RankedMutex::new(Rank::Noted, PoolTime::new(&*machine.clock)),
            machine,
            files,
            sources: RankedMutex::new(Rank::Sources, BTreeMap::new()),
            growth: SampleBook::new(catalogue.readable(tables::SAMPLES)?.into_iter().collect()),
            catalogue,
            media,
            books: RankedMutex::new(Rank::Books, numbers),
            timelines: RankedRwLock::new(Rank::Timelines, BTreeMap::new()),
            openings: RankedMutex::new(Rank::Openings, Vec::new()),
            segments_made: AtomicU64::new(0),
            pending_max: usize::try_from(pending_max).expect("clamped"),
            figures: RunFigures::default(),
            closed: AtomicBool::new(false),
            host: OnceLock::new(),
        })
    }

    /// The pool is there.
    pub fn set_host(&self, host: Weak<dyn Host>) {
        assert!(self.host.set(host).is_ok(), "a pool is opened once");
    }

    /// Whether the pool is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The pool is closed from now on; true if it was.
    pub fn close(&self) -> bool {
        self.closed.swap(true, Ordering::AcqRel)
    }

    /// Segments that were made for writers since the pool was opened.
    #[must_use]
    pub fn segments_made(&self) -> u64 {
        self.segments_made.load(Ordering::Relaxed)
    }

    /// Makes spare segments until there are `wanted`.
    ///
    /// # Errors
    /// `Full` when there is no zone for even one and none is left; those of the catalogue.
    pub fn make_spares(&self, wanted: usize, purpose: Purpose) -> Result<()> {
        let missing = || wanted.saturating_sub(self.store.spares().len());
        if missing() == 0 {
            return Ok(());
        }
        let mut tx = self.begin()?;
        // Under the books: of many who lack one the first makes them.
        if missing() == 0 {
            return Ok(());
        }
        let mut spares = Vec::new();
        for _ in 0..missing() {
            match self.store.allocate_zone(purpose) {
                Ok(zone) => {
                    tx.numbers.segment += 1;
                    spares.push(Spare { number: tx.numbers.segment, zone });
                    self.segments_made.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) if spares.is_empty() && self.store.spares().is_empty() => {
                    return Err(e.into());
                }
                Err(_) => break,
            }
        }
        if spares.is_empty() {
            return Ok(());
        }
        let put = |spare: &Spare| tx.put(tables::SPARES, spare.number, &spare.zone);
        let made = spares.iter().try_for_each(put).and_then(|()| tx.commit());
        match &made {
            Ok(_) => spares.into_iter().for_each(|spare| self.store.add_spare(spare)),
            Err(_) => {
                self.segments_made.fetch_sub(spares.len() as u64, Ordering::Relaxed);
                spares.iter().for_each(|spare| self.store.free_zone(spare.zone));
            }
        }
        made.map(drop)
    }

    /// Opens a timeline at a seq, for a volume of such a size that may have blocks in place.
    /// Reclamation can tell the opening that blocks have moved.
    pub fn open(
        &self,
        volume: (u64, Arc<VolumeName>),
        timeline: Arc<Timeline>,
        at: Seq,
        (size_bytes, current): (u64, Option<Arc<CurrentStore>>),
    ) -> Arc<Opening> {
        let store = Arc::clone(&self.store);
        let opening = Opening::new(store, volume, timeline, at, (size_bytes, current));
        let opening = Arc::new(opening);
        let mut openings = self.openings.lock();
        openings.retain(|o| o.strong_count() > 0);
        openings.push(Arc::downgrade(&opening));
        opening
    }

    /// Drops the cached map pages of what reads such a timeline: blocks of it have moved.
    pub fn forget_pages(&self, moved: impl Fn(&Timeline) -> bool) {
        for opening in self.openings.lock().iter().filter_map(Weak::upgrade) {
            if opening.timeline.line().any(&moved) {
                opening.pages.drop_pages(|_| true);
            }
        }
    }

    /// The same of some pages of what reads the present of a root.
    pub fn forget_pages_of(&self, root: u64, pages: &BTreeSet<u64>) {
        for opening in self.openings.lock().iter().filter_map(Weak::upgrade) {
            if opening.root.id == root {
                opening.pages.drop_pages(|page| pages.contains(&page));
            }
        }
    }

    /// Files and moments that are copied from, at their timelines.
    #[must_use]
    pub fn hung(&self) -> Vec<Hung> {
        self.sources.lock().values().cloned().collect()
    }

    /// The file or moment that is copied from at a timeline.
    #[must_use]
    pub fn source_at(&self, timeline: u64) -> Option<Arc<Source>> {
        self.sources.lock().get(&timeline).map(|(_, source)| Arc::clone(source))
    }

    /// Nothing is copied any more of what hangs at a timeline; false if nothing hung there.
    pub fn forget_source(&self, timeline: u64) -> bool {
        self.sources.lock().remove(&timeline).is_some()
    }

    /// The timeline with this id.
    #[must_use]
    pub fn timeline(&self, id: u64) -> Option<Arc<Timeline>> {
        self.timelines.read().get(&id).map(|(_, timeline)| Arc::clone(timeline))
    }

    /// A timeline as its record says, with these runs, below this branch. The file or the moment
    /// that it names hangs at it.
    pub fn timeline_of(
        &self,
        record: &TimelineRecord,
        extent: MapExtent,
        branch: Option<Branch>,
        runs: Vec<Arc<StoredRun>>,
    ) -> Arc<Timeline> {
        let is_moment = record.source.as_ref().is_some_and(|source| source.moment);
        let (parent, moment) = if is_moment { (None, branch) } else { (branch, None) };
        let timeline = Timeline::new(record.id, (record.log, extent), parent, runs);
        let timeline = Arc::new(timeline);
        if let Some(source) = &record.source {
            self.hang(&timeline, source, moment);
        }
        timeline
    }

    /// Hangs a file at a timeline, or the moment of another timeline.
    fn hang(&self, timeline: &Arc<Timeline>, record: &SourceRecord, moment: Option<Branch>) {
        let source = match moment {
            None => Source::open(record.clone(), Arc::clone(&self.files)),
            Some(Branch { timeline: other, seq }) => {
                let name = VolumeName::new(record.file.clone());
                let reader = (timeline.log, Arc::new(name));
                let opening = self.open(reader, other, seq, (record.length_bytes, None));
                Source::of_moment(record.clone(), opening)
            }
        };
        let source = Arc::new(source);
        timeline.set_outside(Some(Arc::clone(&source) as _));
        self.sources.lock().insert(timeline.id, (Arc::clone(timeline), source));
    }

    /// The pool.
    ///
    /// # Errors
    /// `Refused` when it is gone.
    pub fn host(&self) -> Result<Arc<dyn Host>> {
        let host = self.host.get().and_then(Weak::upgrade);
        host.ok_or_else(|| Error::refused("the pool is closed"))
    }

    /// The volumes that are served.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        self.host().map_or_else(|_| Vec::new(), |host| host.served())
    }

    /// The time by which things expire, and whether the clock has gone evenly for so long that
    /// versions may be pruned by it.
    #[must_use]
    pub fn time_and_whether_steady(&self) -> (WallTime, bool) {
        self.pool_time.lock().look(&*self.machine.clock)
    }

    /// The time by which things expire.
    #[must_use]
    pub fn time(&self) -> WallTime {
        self.time_and_whether_steady().0
    }

    /// A volume's history can be opened from then on.
    pub fn begin_time_by(&self, horizon_ns: u64) {
        self.pool_time.lock().begin_by(horizon_ns);
    }

    /// The next run's number; made durable by the commit that names the run.
    pub fn next_run(&self) -> u64 {
        let mut numbers = self.books.lock();
        numbers.run += 1;
        numbers.run
    }

    /// Adds a sample to a commit if one is due.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub fn sample(&self, commit: &Commit) -> Result<()> {
        let now_ns = self.machine.clock.wall().as_nanos();
        self.growth.add(commit, now_ns, || {
            let (used, ..) = self.store.zone_counts();
            let logged = |id: u64| (id, self.store.space(id).count().live_bytes);
            let volumes = self.host().ok()?.served_ids()?.into_iter().map(logged).collect();
            Some((u64::from(used) * self.store.zone_bytes, volumes))
        })
    }

    /// Entries of all volumes that wait in memory.
    #[must_use]
    pub fn pending_entries(&self) -> usize {
        self.timelines.read().values().map(|(_, timeline)| timeline.pending_counts().0).sum()
    }

    /// Frees those segments that nothing is in, of these. The caller holds `work`.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub fn free_empty(&self, is_asked: impl Fn(&Segment) -> bool) -> Result<()> {
        let is_empty = |s: &Arc<Segment>| {
            is_asked(s)
                && s.slab.is_none()
                && s.sealed.load(Ordering::Acquire)
                && !s.held.load(Ordering::Acquire)
                && s.live_entries.load(Ordering::Acquire) == 0
                && s.committed_entries.load(Ordering::Acquire) == 0
        };
        let mut empty = self.store.segments();
        empty.retain(is_empty);
        if empty.is_empty() {
            return Ok(());
        }
        let tx = self.begin()?;
        for segment in &empty {
            tx.remove(tables::SEGMENTS, segment.number)?;
            tx.remove(tables::SPARES, segment.number)?;
        }
        drop(tx.commit()?);
        self.forget_pages(|t| empty.iter().any(|s| s.log == t.log || s.log == NO_LOG));
        self.store.retire_segments(&empty);
        Ok(())
    }
}

impl SegmentSource for Core {
    fn take_ready(&self, may_wait: bool) -> Option<Spare> {
        self.store.take_spare(may_wait)
    }

    fn make_ready(&self) -> history::Result<()> {
        self.make_spares(SPARES_WANTED, Purpose::Data).map_err(below)
    }
}

/// An error in the words of who asked.
fn below(error: Error) -> history::Error {
    let kind = match error.kind {
        ErrorKind::Full => history::ErrorKind::Full,
        _ => history::ErrorKind::Refused,
    };
    history::Error::new(kind, error.message)
}

/// Segments for what was acknowledged and waits in a cache, and for trims: from the reserve when
/// there are no others, which is then said in the flag. Half of the reserve is left: what makes
/// room needs room, and a pool without any could never be emptied again.
pub struct FromReserve<'a>(pub &'a Core, pub &'a AtomicBool);

impl SegmentSource for FromReserve<'_> {
    fn take_ready(&self, may_wait: bool) -> Option<Spare> {
        self.0.take_ready(may_wait)
    }

    fn make_ready(&self) -> history::Result<()> {
        // Waiters are told that others have got room.
        match self.0.make_ready() {
            Err(e) if e.kind == history::ErrorKind::Full => {
                self.1.store(true, Ordering::Release);
                if self.0.store.has_half_of_reserve() {
                    self.0.make_spares(1, Purpose::Reclaim).map_err(below)
                } else {
                    Err(e)
                }
            }
            other => other,
        }
    }
}
