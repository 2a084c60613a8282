//! What the volumes of an open pool share: store, catalogue, timelines, numbers.
//!
//! Invariants
//! 1. Catalogue commits are made one at a time, under `books`; what is in memory changes only after
//!    the commit that says so succeeded.
//! 2. Background work (flushing maps, merging, reclaiming) is done by one thread at a time, under
//!    `work`.
//! 3. Lock order: `work`, then a log's gate, then `books`, then anything inside `history`.
//!    `sources` is held for no longer than to look.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use block::{Array, Purpose};
use env::Files;
use history::{SegmentSource, Spare, Store, Timeline};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::beside::Beside;
use crate::catalogue::{
    Catalogue, CatalogueMedia, Commit, GroupRecord, Numbers, SourceRecord, TimelineRecord,
};
use crate::dedup::Dedup;
use crate::figures::Figures;
use crate::group_schedule::GroupSchedule;
use crate::growth::{Measured, Samples};
use crate::merge::MergeJob;
use crate::opening::Opening;
use crate::rates::Meter;
use crate::schedule::Pace;
use crate::scrubbing::Scrubbing;
use crate::source::Source;
use crate::types::{AuditRecord, Settling};
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

/// What tells whether room can be made that could not be made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Free zones.
    pub free_zones: u32,
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
    pub sources: Mutex<BTreeMap<u64, Hung>>,
    /// The catalogue.
    pub catalogue: Catalogue,
    /// Where the catalogue is.
    pub media: CatalogueMedia,
    /// Numbers given out, and the right to commit.
    pub books: Mutex<Numbers>,
    /// Volumes by name.
    pub volumes: RwLock<BTreeMap<String, Arc<Volume>>>,
    /// Deleted volumes whose past a clone still needs, by id.
    pub ghosts: RwLock<BTreeMap<u64, Arc<Volume>>>,
    /// Timelines by id, with their records.
    pub timelines: RwLock<Timelines>,
    /// Every opening that may hold map pages.
    pub openings: Mutex<Vec<Weak<Opening>>>,
    /// The right to do background work, and the merge under way.
    pub work: Mutex<Option<MergeJob>>,
    /// What the last step did can wait for clients, and so can what follows.
    pub can_wait: AtomicBool,
    /// How things stood when no room could be made last.
    pub refused: Mutex<Option<Standing>>,
    /// What opening it took, on members.
    pub settled: OnceLock<Settling>,
    /// What keeps scrubs and rebuilds to their limits.
    pub scrub_rate: Meter,
    pub rebuild_rate: Meter,
    pub rebuild_pace: Mutex<Beside>,
    /// Held while what happened to members is written down; taken before `books`.
    pub members_noted: Mutex<()>,
    /// Segments that writers took since the pool was opened.
    pub segments_taken: AtomicU64,
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
    pub sharing: Mutex<()>,
    /// Groups by name; they change under `books`.
    pub groups: Mutex<BTreeMap<String, GroupRecord>>,
    /// Schedules of groups with what they made, by the group's id; they change under `books`.
    pub group_schedules: Mutex<BTreeMap<u64, GroupSchedule>>,
    /// What was in use at times, as the catalogue has it.
    pub samples: Mutex<Samples>,
    /// What volumes had of history when it was measured last.
    pub measured: Mutex<Measured>,
    /// What map runs are kept for, by run, as far as that is known.
    pub figures: Mutex<BTreeMap<u64, Arc<Figures>>>,
    /// Searches for equal blocks; they change under `work`.
    pub dedup: Mutex<Dedup>,
    /// Scrubs of everything.
    pub scrubbing: Scrubbing,
    /// Ranges in which writes met what does not agree, and that could not be looked at yet; how
    /// often that was tried.
    pub noticed: Mutex<Vec<(Range<u64>, u32)>>,
    /// The right to run schedules, and whether the clock goes evenly.
    pub pace: Mutex<Pace>,
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

    /// Begins a commit; nobody else commits until the guard is dropped.
    ///
    /// # Errors
    /// `Refused` after an earlier failure.
    pub fn begin(&self) -> Result<(MutexGuard<'_, Numbers>, Commit)> {
        let numbers = self.books.lock();
        if self.store.has_failed() {
            return Err(Error::from(history::Error::refused()));
        }
        let commit = self.catalogue.begin()?;
        Ok((numbers, commit))
    }

    /// Finishes a commit; a failure is final for the pool.
    ///
    /// # Errors
    /// `Refused`.
    pub fn finish(&self, numbers: &MutexGuard<'_, Numbers>, commit: Commit) -> Result<()> {
        let outcome = self
            .sample(&commit)
            .and_then(|()| commit.put_numbers(numbers))
            .and_then(|()| commit.commit());
        if outcome.is_err() {
            self.store.fail();
        }
        outcome
    }

    /// Adds a line to the audit log as part of a commit.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub fn audit(
        &self,
        numbers: &mut Numbers,
        commit: &Commit,
        action: &str,
        volume: &str,
        detail: String,
    ) -> Result<()> {
        numbers.audit += 1;
        commit.put_audit(&AuditRecord {
            number: numbers.audit,
            time_ns: self.machine.clock.wall().as_nanos(),
            action: action.to_owned(),
            volume: volume.to_owned(),
            detail,
        })
    }

    /// The right to do background work; none when `goes_on` says no before it is had.
    pub fn lock_work(
        &self,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<MutexGuard<'_, Option<MergeJob>>> {
        loop {
            if !goes_on() {
                return None;
            }
            if let Some(work) = self.work.try_lock_for(LOOK_EVERY) {
                return Some(work);
            }
        }
    }

    /// Makes spare segments until there are `wanted`; says how many were made.
    ///
    /// # Errors
    /// `Full` when there is no zone for even one and none is left; those of the catalogue.
    pub fn make_spares(&self, wanted: usize) -> Result<usize> {
        let missing = wanted.saturating_sub(self.store.spares().len());
        if missing == 0 {
            return Ok(0);
        }
        self.add_spares(missing, Purpose::Data)
    }

    fn add_spares(&self, missing: usize, purpose: Purpose) -> Result<usize> {
        let mut zones = Vec::new();
        for _ in 0..missing {
            match self.store.allocate_zone(purpose) {
                Ok(zone) => zones.push(zone),
                Err(e) if zones.is_empty() => return Err(e.into()),
                Err(_) => break,
            }
        }
        let made = self.record_spares(&zones);
        if made.is_err() {
            zones.iter().for_each(|&zone| self.store.free_zone(zone));
        }
        for spare in made? {
            self.store.add_spare(spare);
        }
        Ok(zones.len())
    }

    fn record_spares(&self, zones: &[u32]) -> Result<Vec<Spare>> {
        let (mut numbers, commit) = self.begin()?;
        let mut spares = Vec::new();
        for &zone in zones {
            numbers.segment += 1;
            commit.put_spare(numbers.segment, zone)?;
            spares.push(Spare { number: numbers.segment, zone });
        }
        self.finish(&numbers, commit)?;
        Ok(spares)
    }

    /// Registers an opening, so that reclamation can tell it that blocks have moved.
    pub fn register(&self, opening: &Arc<Opening>) {
        let mut openings = self.openings.lock();
        openings.retain(|o| o.strong_count() > 0);
        openings.push(Arc::downgrade(opening));
    }

    /// Drops every cached map page: blocks have moved.
    pub fn forget_pages(&self) {
        for opening in self.openings.lock().iter().filter_map(Weak::upgrade) {
            opening.pages.drop_pages(|_| true);
        }
    }

    /// The timeline with this id.
    #[must_use]
    pub fn timeline(&self, id: u64) -> Option<Arc<Timeline>> {
        self.timelines.read().get(&id).map(|(_, timeline)| Arc::clone(timeline))
    }

    /// Every volume, deleted ones that clones need included.
    #[must_use]
    pub fn all_volumes(&self) -> Vec<Arc<Volume>> {
        let mut all: Vec<_> = self.volumes.read().values().cloned().collect();
        all.extend(self.ghosts.read().values().cloned());
        all.sort_by_key(|v| v.id);
        all
    }

    /// Hangs the file that a record names at its timeline, if it names one.
    pub fn hang(&self, timeline: &Arc<Timeline>, source: Option<&SourceRecord>) {
        let Some(record) = source else { return };
        let source = Arc::new(Source::open(record.clone(), Arc::clone(&self.files)));
        timeline.set_outside(Some(Arc::clone(&source) as _));
        self.sources.lock().insert(timeline.id, (Arc::clone(timeline), source));
    }

    /// Copies no more from the files at timelines that are no more. They stay where they hang: a
    /// read that has begun must not take what it does not find for zeros.
    pub fn unhang(&self, timelines: &[Arc<Timeline>]) {
        for timeline in timelines {
            if let Some((_, source)) = self.sources.lock().remove(&timeline.id) {
                *source.job.lock() = None;
            }
        }
    }

    /// Volumes hold the core and the core holds volumes: parts them, so that the device is let go.
    pub fn part(&self) {
        *self.work.lock() = None;
        self.drop_search();
        self.drop_copies();
        self.sources.lock().clear();
        self.volumes.write().clear();
        self.ghosts.write().clear();
    }
}

impl SegmentSource for Core {
    fn next_spare(&self) -> history::Result<Spare> {
        let spare = self.spare_for(Purpose::Data)?;
        self.segments_taken.fetch_add(1, Ordering::Relaxed);
        Ok(spare)
    }
}

impl Core {
    fn spare_for(&self, purpose: Purpose) -> history::Result<Spare> {
        if let Some(spare) = self.store.take_spare() {
            return Ok(spare);
        }
        if let Err(e) = self.add_spares(1, purpose) {
            let kind = match e.kind {
                crate::ErrorKind::Full => history::ErrorKind::Full,
                _ => history::ErrorKind::Refused,
            };
            return Err(history::Error::new(kind, e.message));
        }
        self.store.take_spare().ok_or_else(|| {
            history::Error::new(history::ErrorKind::Full, "the pool has no free zone")
        })
    }
}

/// Segments for what was acknowledged and waits in a cache, and for trims: from the reserve when
/// there are no others, which is then said in the flag. Half of the reserve is left: what makes
/// room needs room, and a pool without any could never be emptied again.
pub struct FromReserve<'a>(pub &'a Core, pub &'a AtomicBool);

impl SegmentSource for FromReserve<'_> {
    fn next_spare(&self) -> history::Result<Spare> {
        // Who waits for room is told that others have got it.
        match self.0.next_spare() {
            Err(e) if e.kind == history::ErrorKind::Full => {
                self.1.store(true, Ordering::Release);
                if self.0.store.has_half_of_reserve() {
                    self.0.spare_for(Purpose::Reclaim)
                } else {
                    Err(e)
                }
            }
            other => other,
        }
    }
}
