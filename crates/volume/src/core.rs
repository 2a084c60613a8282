//! The state that the volumes of an open pool share: store, catalogue, timelines, numbers.
//!
//! Invariants
//! 1. The catalogue changes by transactions, one at a time, under `books`; memory follows after the
//!    commit.
//! 2. Background work (flushing maps, merging, reclaiming) is done by one thread at a time, under
//!    `work`.
//! 3. Locks are taken in the order of `env::Rank`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use block::{Array, Purpose};
use env::{Files, RankedGuard, RankedMutex, RankedRwLock};
use history::{Branch, SegmentSource, Spare, Store, StoredRun, Timeline};
use units::MapExtent;

use crate::catalogue::{
    Catalogue, CatalogueMedia, GroupRecord, Numbers, SourceRecord, TimelineRecord,
};
use crate::jobs::dedup::Dedup;
use crate::jobs::merges::Merges;
use crate::jobs::rates::Meter;
use crate::jobs::resync_pace::Beside;
use crate::jobs::scrub_plan::Scrubbing;
use crate::names::VolumeName;
use crate::past::backing_file::Source;
use crate::pool::growth::{Measured, Samples};
use crate::pool::run_figures::Figures;
use crate::read::snapshot::Opening;
use crate::retention::clock::PoolTime;
use crate::retention::group_schedule::GroupSchedule;
use crate::types::Settling;
use crate::volume::Volume;
use crate::{Error, Machine, Result};

/// Segments made ready ahead of need.
pub const SPARES_WANTED: usize = 6;

/// How often who waits for the right to do background work looks whether it still wants it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Timelines by id, with their records.
pub type Timelines = BTreeMap<u64, (TimelineRecord, Arc<Timeline>)>;

/// A file that is being imported, at its timeline.
pub type Hung = (Arc<Timeline>, Arc<Source>);

/// Tells whether room can be made that could not be made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Free zones.
    pub free_zones: u32,
    /// Segments that were made for writers since the pool was opened.
    pub made: u64,
    /// Map entries of all segments.
    pub entries: u64,
    /// The last audit record: whatever was deleted or expired is in one.
    pub audit: u64,
    /// Moments that views hold.
    pub views: usize,
}

/// The shared middle of a pool.
pub struct Core {
    /// Device, zones, segments.
    pub store: Arc<Store>,
    /// Clock and randomness.
    pub machine: Machine,
    /// Where files that are being imported are opened.
    pub files: Arc<dyn Files>,
    /// Files that are being imported, by the timeline that they hang at.
    pub sources: RankedMutex<BTreeMap<u64, Hung>>,
    /// The catalogue.
    pub catalogue: Catalogue,
    /// Where the catalogue is.
    pub media: CatalogueMedia,
    /// Numbers given out, and the right to commit.
    pub books: RankedMutex<Numbers>,
    /// Volumes by name.
    pub volumes: RankedRwLock<BTreeMap<String, Arc<Volume>>>,
    /// Deleted volumes: those in the trash, and those whose past a clone still needs, by id.
    pub ghosts: RankedRwLock<BTreeMap<u64, Arc<Volume>>>,
    /// Timelines by id, with their records.
    pub timelines: RankedRwLock<Timelines>,
    /// Every opening that may hold map pages.
    pub openings: RankedMutex<Vec<Weak<Opening>>>,
    /// The right to do background work, and the merges under way.
    pub work: RankedMutex<Merges>,
    /// The work of the last step can wait for clients, and so can the next.
    pub can_wait: AtomicBool,
    /// How things stood when no room could be made last.
    pub refused: RankedMutex<Option<Standing>>,
    /// The work of opening it, on members.
    pub settled: OnceLock<Settling>,
    /// Keep scrubs and rebuilds to their limits.
    pub scrub_rate: Meter,
    pub rebuild_rate: Meter,
    pub rebuild_pace: RankedMutex<Beside>,
    /// Held while what happened to members is written down; taken before `books`.
    pub members_noted: RankedMutex<()>,
    /// Segments that were made for writers since the pool was opened.
    pub segments_made: AtomicU64,
    /// When what was healed was written down last, on the monotonic clock.
    pub healed_noted_ns: AtomicU64,
    /// The members under the store's device, if it is a stack of them.
    pub array: OnceLock<Arc<Array>>,
    /// Entries that may wait in memory per volume before they are written as a run.
    pub pending_max: usize,
    /// Set when the pool is closed.
    pub closed: AtomicBool,
    /// Bytes of memory for maps and caches.
    pub memory_bytes: u64,
    /// The right to share it out.
    pub sharing: RankedMutex<()>,
    /// Groups by name; they change under `books`.
    pub groups: RankedMutex<BTreeMap<String, GroupRecord>>,
    /// Schedules of groups with what they made, by the group's id; they change under `books`.
    pub group_schedules: RankedMutex<BTreeMap<u64, GroupSchedule>>,
    /// The space in use at times, as the catalogue has it.
    pub samples: RankedMutex<Samples>,
    /// The history of volumes when it was measured last.
    pub measured: RankedMutex<Measured>,
    /// The uses of map runs, by run, as far as known.
    pub figures: RankedMutex<BTreeMap<u64, Arc<Figures>>>,
    /// Searches for equal blocks; they change under `work`.
    pub dedup: RankedMutex<Dedup>,
    /// Scrubs of everything.
    pub scrubbing: Scrubbing,
    /// Ranges in which writes met what does not agree, and that could not be looked at yet; how
    /// often that was tried.
    pub noticed: RankedMutex<Vec<(Range<u64>, u32)>>,
    /// The right to run schedules.
    pub scheduling: RankedMutex<()>,
    /// The time by which things expire.
    pub pool_time: RankedMutex<PoolTime>,
}

impl Core {
    /// Says durably that this pool uses a feature, before anything of it is there.
    ///
    /// # Errors
    /// `Refused` or `Io`; a failure is final for the pool.
    pub fn announce(&self, feature: u64) -> Result<()> {
        if self.store.has_failed() {
            return Err(Error::from(history::Error::refused()));
        }
        self.media.add_feature(feature).map_err(|e| {
            self.store.fail();
            e.into()
        })
    }

    /// The right to do background work; none when `goes_on` says no before it is had.
    pub fn lock_work(&self, goes_on: &dyn Fn() -> bool) -> Option<RankedGuard<'_, Merges>> {
        self.work.will_wait();
        loop {
            if !goes_on() {
                return None;
            }
            if let Some(work) = self.work.try_lock_for(LOOK_EVERY) {
                return Some(work);
            }
        }
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
        let put = |spare: &Spare| tx.put_spare(spare.number, spare.zone);
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

    /// Registers an opening, so that reclamation can tell it that blocks have moved.
    pub fn register(&self, opening: &Arc<Opening>) {
        let mut openings = self.openings.lock();
        openings.retain(|o| o.strong_count() > 0);
        openings.push(Arc::downgrade(opening));
    }

    /// Drops the cached map pages of what reads such a timeline: blocks of it have moved.
    pub fn forget_pages(&self, moved: impl Fn(&Timeline) -> bool) {
        for opening in self.openings.lock().iter().filter_map(Weak::upgrade) {
            if opening.timelines().any(&moved) {
                opening.pages.drop_pages(|_| true);
            }
        }
    }

    /// The timeline with this id.
    #[must_use]
    pub fn timeline(&self, id: u64) -> Option<Arc<Timeline>> {
        self.timelines.read().get(&id).map(|(_, timeline)| Arc::clone(timeline))
    }

    /// Every volume, deleted ones that are still there included. None is missing while it goes from
    /// one map into the other.
    #[must_use]
    pub fn all_volumes(&self) -> Vec<Arc<Volume>> {
        let volumes = self.volumes.read();
        let mut all: Vec<_> = volumes.values().cloned().collect();
        all.extend(self.ghosts.read().values().cloned());
        drop(volumes);
        all.sort_by_key(|v| v.id);
        all
    }

    /// Takes a volume from those that are served to those that are not.
    pub fn withdraw(&self, volume: &Arc<Volume>) {
        let mut volumes = self.volumes.write();
        self.ghosts.write().insert(volume.id, Arc::clone(volume));
        volumes.remove(volume.name());
    }

    /// Takes a volume, under the name that it has now, to those that are served.
    pub fn serve_again(&self, volume: &Arc<Volume>) {
        let mut volumes = self.volumes.write();
        volumes.insert(volume.name().to_owned(), Arc::clone(volume));
        self.ghosts.write().remove(&volume.id);
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
                let store = Arc::clone(&self.store);
                let opening = Opening::new(store, reader, other, seq, record.length_bytes);
                let opening = Arc::new(opening);
                self.register(&opening);
                Source::of_moment(record.clone(), opening)
            }
        };
        let source = Arc::new(source);
        timeline.set_outside(Some(Arc::clone(&source) as _));
        self.sources.lock().insert(timeline.id, (Arc::clone(timeline), source));
    }

    /// Copies no more from the files at timelines that are no more. They stay where they hang: a
    /// read that has begun must not take what it does not find for zeros.
    pub fn unhang(&self, timelines: &[Arc<Timeline>]) {
        for timeline in timelines {
            let hung = self.sources.lock().remove(&timeline.id);
            if let Some((_, source)) = hung {
                *source.job.lock() = None;
            }
        }
    }

    /// Volumes hold the core and the core holds volumes: parts them, so that the device is let go.
    pub fn part(&self) {
        self.work.lock().clear();
        self.drop_search();
        self.drop_copies();
        self.sources.lock().clear();
        self.volumes.write().clear();
        self.ghosts.write().clear();
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
        crate::ErrorKind::Full => history::ErrorKind::Full,
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
