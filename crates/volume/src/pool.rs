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
pub mod opened_names;
pub mod rebuild;
pub mod recovery;
pub mod registry;
pub mod run_figures;
pub mod samples;
pub mod space;
pub mod targets;
pub mod token_book;
pub mod tokens;
pub mod volumes;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::BlockDevice;
use env::{Rank, RankedGuard, RankedMutex};

use crate::catalogue::{ScrubRecord, ScrubScheduleRecord, tables};
use crate::jobs::meter::Limits;
use crate::jobs::parts::Parts;
use crate::jobs::scheduler::{Failures, NAP_NS, Scheduler};
use crate::jobs::scrub_plan::progress::Scrubs;
use crate::retention::groups::Groups;
use crate::types::{AuditRecord, Budget, PoolStatus};
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// An open pool: its volumes, what they share, and the background work over all of them.
///
/// Invariant: background work (flushing maps, merging, reclaiming) is done by one thread at a time,
/// under `work`.
pub struct Engine {
    parts: Arc<Parts>,
    /// The background work, and the right to do some.
    pub(crate) work: RankedMutex<Scheduler>,
    /// Its failures.
    failures: Failures,
    /// Scrubs of everything.
    pub(crate) scrubs: Arc<Scrubs>,
    /// How fast scrubs and rebuilds may be.
    pub(crate) limits: Limits,
}

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Engine {
    /// Over groups and volumes, with what the catalogue says of scrubs; background work begins with
    /// the next step.
    pub fn new(
        groups: Groups,
        scrubs: (Option<ScrubRecord>, Option<ScrubScheduleRecord>),
    ) -> Engine {
        let (parts, limits) = (Arc::new(Parts::new(groups)), Limits::default());
        let failures = Arc::new(RankedMutex::new(Rank::Noted, Vec::new()));
        let scrubs = Arc::new(Scrubs::load(&parts, scrubs));
        let scheduler = Scheduler::new(&parts, &scrubs, &limits, &failures);
        Engine { parts, work: RankedMutex::new(Rank::Work, scheduler), failures, scrubs, limits }
    }

    /// Does some background work, as much as it is told, and rests for no client; true when there
    /// is more to do now. A thread for it calls [`Pool::turn`].
    ///
    /// # Errors
    /// `Refused`, `Corrupt`, `Io`; `Full` when there is no room even for reclaiming.
    pub fn step(&self, budget: Budget) -> Result<bool> {
        self.step_jobs(budget, None)
    }

    /// Does some of one kind of background work alone; true when there is more to do now.
    ///
    /// # Errors
    /// Those of the work.
    pub fn step_job(&self, job: &str, budget: Budget) -> Result<bool> {
        self.step_jobs(budget, Some(job))
    }

    fn step_jobs(&self, budget: Budget, only: Option<&str>) -> Result<bool> {
        let Some(mut work) = self.try_work() else { return Ok(false) };
        Ok(work.round(Some(budget.bytes), only)?.is_more())
    }

    /// Does some background work if it is time for that, and says how long its thread is to rest
    /// before the next turn. Failures are told by [`Pool::failures`].
    pub fn turn(&self) -> Duration {
        let rest_ns = self.try_work().map_or(NAP_NS, |mut work| work.turn());
        Duration::from_nanos(rest_ns)
    }

    /// The kinds of background work that failed lately, and why.
    #[must_use]
    pub fn failures(&self) -> Vec<(&'static str, ErrorKind, String)> {
        let told = self.failures.lock();
        told.iter().map(|f| (f.job, f.kind.clone(), f.text.clone())).collect()
    }

    /// The scrubs of the pool.
    #[must_use]
    pub fn scrubs(&self) -> &Scrubs {
        &self.scrubs
    }

    /// The right to do background work, if there may be some and nobody has it. Before,
    /// not within, all is done that is due by the clock: a capture may make room, which is
    /// background work itself.
    fn try_work(&self) -> Option<RankedGuard<'_, Scheduler>> {
        self.run_due();
        let is_over = self.core.is_closed() || self.core.store.has_failed();
        self.work.try_lock().filter(|_| !is_over)
    }

    /// Does what is due by the clock.
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
        self.work.lock().give_up();
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
        work.finish()?;
        for volume in self.registry.all() {
            // Without room for runs what is pending stays in the log, from which it is recovered.
            volume.flush_map_if_room()?;
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
        let Some(array) = self.members.array() else { return Ok(()) };
        // Waiting cells are placed by that, and may meet rows that have to be looked at.
        array.flush()?;
        self.scrubs.settle_noticed(array)?;
        Ok(array.close()?)
    }

    /// Audit records with a number above `after`, oldest first. Events of members are among them as
    /// soon as [`Engine::members`] shows it, unless it cannot be written down by now.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        self.note_members_now();
        let records = self.core.catalogue.rows(tables::AUDIT, after.saturating_add(1).., limit)?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// The same from the newest on, or from before a number; newest first.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn audit_newest(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>> {
        self.note_members_now();
        self.core.catalogue.last_rows(tables::AUDIT, ..before.unwrap_or(u64::MAX), limit)
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
            pending_entries: self.core.pending_entries() as u64,
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
