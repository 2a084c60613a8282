//! The engine of a pool: its volumes, and the background work over all of them. Its owner holds it
//! by a handle (`handle`).
//!
//! Invariants
//! 1. A pool that cannot be read is refused with what was found; it is never taken for an empty
//!    one.
//! 2. After `open` returns, everything recovered from the logs' tails is in committed runs.

pub mod arrays;
pub mod faults;
pub mod growth;
pub mod handle;
mod host;
pub mod layout;
pub mod members;
pub mod rebuild;
pub mod recovery;
pub mod registry;
pub mod run_figures;
pub mod samples;
pub mod space;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::BlockDevice;
use env::RankedMutex;

use crate::catalogue::GroupRecord;
use crate::catalogue::tables;
use crate::core::Core;
use crate::jobs::dedup::progress::Dedup;
use crate::jobs::merges::Merges;
use crate::jobs::meter::Meter;
use crate::jobs::room::Standing;
use crate::jobs::scrub_plan::progress::Scrubbing;
use crate::past::copy_job::CopyJob;
use crate::pool::arrays::Members;
use crate::pool::registry::Registry;
use crate::retention::group_schedule::GroupSchedule;
use crate::types::{AuditRecord, Budget, PoolStatus};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// An open pool: its volumes, what they share, and the background work over all of them.
///
/// Invariant: background work (flushing maps, merging, reclaiming) is done by one thread at a time,
/// under `work`.
pub struct Engine {
    /// The right to do background work, and the merges under way.
    pub(crate) work: RankedMutex<Merges>,
    /// Searches for equal blocks; they change under `work`.
    pub(crate) dedup: RankedMutex<Dedup>,
    /// Copies under way from outside, by timeline; they change under `work`.
    pub(crate) copies: RankedMutex<BTreeMap<u64, CopyJob>>,
    /// The volumes.
    pub(crate) registry: Registry,
    /// The core that they share.
    pub(crate) core: Arc<Core>,
    /// The work of the last step can wait for clients, and so can the next.
    pub(crate) can_wait: AtomicBool,
    /// How things stood when no room could be made last.
    pub(crate) refused: RankedMutex<Option<Standing>>,
    /// The members, if it is on a stack of them.
    pub(crate) members: Members,
    /// When what was healed was written down last, on the monotonic clock.
    pub(crate) healed_noted_ns: AtomicU64,
    /// Bytes of memory for maps and caches.
    pub(crate) memory_bytes: u64,
    /// The right to share it out.
    pub(crate) sharing: RankedMutex<()>,
    /// Groups by name; they change under the books.
    pub(crate) groups: RankedMutex<BTreeMap<String, GroupRecord>>,
    /// Schedules of groups with what they made, by the group's id; they change under the books.
    pub(crate) group_schedules: RankedMutex<BTreeMap<u64, GroupSchedule>>,
    /// Scrubs of everything.
    pub(crate) scrubbing: Scrubbing,
    /// Keeps them to their limit.
    pub(crate) scrub_rate: Meter,
    /// The right to run schedules.
    pub(crate) scheduling: RankedMutex<()>,
}

impl Engine {
    /// The volume with this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>> {
        self.registry.named(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no volume {name}"))
                .with_hint("`hindsight volume list` names them")
        })
    }

    /// Memory that it may use: caches have half of it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// All volumes by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.registry.served()
    }

    /// Refuses writes from now on, as after a failed write: what runs here is found to be broken.
    /// Reads go on; whoever waits to write is told.
    pub fn refuse_writes(&self) {
        self.core.store.fail();
        for volume in self.registry.all() {
            volume.log().wake();
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core.is_closed() {
            return Err(Error::new(ErrorKind::Refused, "the pool is closed"));
        }
        Ok(())
    }

    /// Does some background work; true when there is more to do now.
    ///
    /// # Errors
    /// `Refused`, `Corrupt`, `Io`; `Full` when there is no room even for reclaiming.
    pub fn step(&self, budget: Budget) -> Result<bool> {
        if self.core.is_closed() || self.core.store.has_failed() {
            return Ok(false);
        }
        // Before, not within: a capture may make room, which is background work itself.
        self.run_due();
        self.step_work(budget)
    }

    /// Does what is due by the clock: for whoever rests between steps.
    pub fn run_due(&self) {
        if !self.core.is_closed() && !self.core.store.has_failed() {
            self.measure_history();
            self.run_schedules();
        }
    }

    /// Ends all background work and refuses what comes, as a kill would; returns once nobody is at
    /// work.
    pub(crate) fn let_go(&self) {
        self.core.close();
        self.drop_background(&mut self.work.lock());
    }

    /// Makes everything durable. The pool refuses writes afterwards.
    ///
    /// # Errors
    /// `Full`, `Refused` or `Io` where what waits in a cache cannot be destaged: then the pool
    /// stays as it is, and what waits is lost with it. `Refused` or `Io` later; nothing
    /// acknowledged is lost by that.
    pub fn close(&self) -> Result<()> {
        let mut volumes = self.registry.all();
        volumes.retain(|volume| !volume.is_gone());
        if !self.core.is_closed() && !self.core.store.has_failed() {
            volumes.iter().try_for_each(|volume| volume.store_counts(&volume.pins().lock()))?;
        }
        let mut holds = Vec::new();
        for volume in &volumes {
            match volume.hold_writes() {
                // Waiting writes are lost with the process: that is not passed over.
                Err(e) if volume.cache().first_waiting().is_some() => return Err(e),
                Err(_) if self.core.store.has_failed() => {}
                hold => holds.push(hold?),
            }
        }
        if self.core.close() || self.core.store.has_failed() {
            return Ok(());
        }
        let mut work = self.work.lock();
        work.clear();
        match self.commit_copies() {
            Err(e) if e.kind == ErrorKind::Full => {}
            other => other?,
        }
        for volume in self.registry.all() {
            match volume.flush_map() {
                // No room for runs: what is pending stays in the log, from which it is recovered.
                Err(e) if e.kind == ErrorKind::Full => {}
                other => other?,
            }
        }
        let stores = self.registry.all().into_iter();
        let sealed = stores.filter_map(|volume| {
            let placed = volume.present().current.as_ref()?.seal();
            Some((volume, placed))
        });
        let sealed: Vec<_> = sealed.collect();
        self.core.store.flush()?;
        sealed.into_iter().try_for_each(|(volume, placed)| volume.record_places(placed))?;
        self.core.store.give_back_spared();
        self.keep_scrub()?;
        let Some(array) = self.members.array() else { return Ok(()) };
        // Waiting cells are placed by that, and may meet rows that have to be looked at.
        array.flush()?;
        self.settle_noticed(array)?;
        Ok(array.close()?)
    }

    /// Audit records with a number above `after`, oldest first. Events of members are among them as
    /// soon as [`Pool::members`] shows it, unless it cannot be written down by now.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        self.note_members_now();
        let records = self.core.catalogue.rows(tables::AUDIT, after.saturating_add(1).., limit)?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Bytes of zones in use, of free ones, and of those that new data can still take; cheap.
    #[must_use]
    pub fn room(&self) -> (u64, u64, u64) {
        let (used, free, reserve) = self.core.store.zone_counts();
        let bytes = |zones: u32| u64::from(zones) * self.core.store.zone_bytes;
        (bytes(used), bytes(free), bytes(free.saturating_sub(reserve)))
    }

    /// The level of the last warning that the pool gets full, in percent; 0 is none.
    #[must_use]
    pub fn warning_level(&self) -> u64 {
        self.core.books.lock().warning
    }

    /// Takes note of a level that was reached or left, in the audit log too.
    ///
    /// # Errors
    /// `Refused`.
    pub fn note_warning(&self, level: u64, detail: String) -> Result<()> {
        let mut tx = self.core.begin()?;
        let action = if level > tx.numbers.warning { "pool-warning" } else { "pool-warning-over" };
        tx.numbers.warning = level;
        tx.audit(action, "", detail)?;
        tx.commit().map(drop)
    }

    /// The pool as it stands.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let store = &self.core.store;
        let superblock = self.core.media.superblock();
        let zone_bytes = superblock.zone_bytes;
        let (used_bytes, free_bytes, available_bytes) = self.room();
        let map_bytes = store.map_zone_count() as u64 * zone_bytes;
        let catalogue_bytes = (superblock.catalogue_zones.len() as u64 + 1) * zone_bytes;
        let stores = self.registry.all();
        let count = |volume: &Arc<Volume>| {
            volume.present().current.as_ref().map_or(0, |current| current.slab_count())
                + volume.base().slab_count()
        };
        let slabs: usize = stores.iter().map(count).sum();
        let current_bytes = slabs as u64 * zone_bytes;
        let reclaimable_bytes = store.space_of_all().dead_bytes;
        let pending: usize = self
            .core
            .timelines
            .read()
            .values()
            .map(|(_, timeline)| timeline.pending_counts().0)
            .sum();
        PoolStatus {
            id: format!("{:016x}", (superblock.pool_id >> 64) as u64),
            layers: store.device.describe(),
            format_version: superblock.format_version,
            size_bytes: u64::from(store.zone_count()) * zone_bytes,
            used_bytes,
            free_bytes,
            available_bytes,
            page_loads: store.page_loads.load(Ordering::Relaxed),
            reclaimable_bytes,
            log_bytes: used_bytes.saturating_sub(current_bytes + map_bytes + catalogue_bytes),
            current_bytes,
            map_bytes,
            catalogue_bytes,
            pending_entries: pending as u64,
            state: match store.has_failed() {
                true => "refusing-writes",
                false if self.is_degraded() => "degraded",
                false => "online",
            },
            checksum_errors: store.checksum_errors.load(Ordering::Relaxed),
            healed: store.healed(),
        }
    }
}
