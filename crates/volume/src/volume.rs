//! A volume: its log, its present, its pins, and what can be done with them.
//!
//! Invariants
//! 1. `present` changes only while the log's gate is closed.
//! 2. `record` equals the catalogue's; both change by transactions.
//! 3. A moment is resolved and pinned under `pins`, and the horizon moves under it, so that no view
//!    opens on a moment that is just leaving the window.

pub mod change_words;
pub mod creation;
pub mod rename;
pub mod resize;
pub mod settings;
pub mod sizing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{RankedMutex, RankedRwLock};
use format::time::TimeEntry;
use history::{Log, TimeIndex};
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::catalogue::VolumeRecord;
use crate::catalogue::transaction::{Record, Transaction};
use crate::core::Core;
use crate::jobs::compactions::Compactions;
use crate::jobs::encoding::progress::EncodingState;
use crate::jobs::passes::{Pending, Reclamation};
use crate::names::VolumeName;
use crate::placement::base::Base;
use crate::placement::conversion::progress::Conversion;
use crate::placement::deferred::waiting::Deferred;
use crate::placement::destage::progress::Destage;
use crate::pool::space::counted::LastCount;
use crate::read::snapshot::{Opening, Patience};
use crate::retention::expiry::told::Expired;
use crate::retention::pins::Pins;
use crate::retention::schedule::Schedule;
use crate::retention::versions::counting::Counting;
use crate::types::{Extent, Stamp, VolumeCounters, VolumeInfo};
use crate::volume::sizing::Sizing;
use crate::write::cache::Cache;
use crate::{Error, ErrorKind, Result};

/// Counters since the pool was opened.
#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) checksum_errors: AtomicU64,
}

/// An open volume.
pub struct Volume {
    pub(crate) id: u64,
    pub(crate) name: Arc<VolumeName>,
    pub(crate) core: Arc<Core>,
    pub(crate) log: Log,
    pub(crate) times: TimeIndex,
    pub(crate) present: RankedRwLock<Arc<Opening>>,
    /// Blocks that wait to be written and blocks that were read, if it has a cache.
    pub(crate) cache: Cache,
    /// Where settled blocks have their homes: empty where no architecture with a base ever was.
    pub(crate) base: Base,
    pub(crate) record: Record,
    pub(crate) pins: RankedMutex<Pins>,
    /// The seq of the newest version or pinned mark; 0 without one.
    pub(crate) captured: Arc<AtomicU64>,
    /// Blocks of its copy unit.
    pub(crate) unit_blocks: AtomicU64,
    /// Knowledge of the bytes that versions changed; taken after `pins`.
    pub(crate) counting: RankedMutex<Counting>,
    /// When versions are captured and which stay; changes under the pool's `books`.
    pub(crate) schedule: RankedMutex<Option<Schedule>>,
    pub(crate) tally: Tally,
    pub(crate) gone: AtomicBool,
    /// It is gone, and nothing is left of it.
    pub(crate) is_buried: AtomicBool,
    /// It was deleted, and can be had back; changes with its record.
    pub(crate) in_trash: AtomicBool,
    pub(crate) sizing: Sizing,
    pub(crate) reclamation: Reclamation,
    pub(crate) pending: Pending,
    /// The entries that the opening found in the log are not in runs yet. No mark tells of a flush
    /// of it: a mark stands in the segment that is written to, so a flush writes the map out.
    pub(crate) has_recovered: AtomicBool,
    /// The audit record of what left the window last, since the pool was opened; changes under the
    /// pool's `books`.
    pub(crate) expired: RankedMutex<Option<Expired>>,
    pub(crate) destage: RankedMutex<Destage>,
    /// Places that are not written before their windows are over.
    pub(crate) deferred: RankedMutex<Deferred>,
    pub(crate) conversion: RankedMutex<Conversion>,
    pub(crate) encoding: RankedMutex<EncodingState>,
    /// Versions that were compacted or uncompacted by hand.
    pub(crate) compactions: Compactions,
    pub(crate) last_count: LastCount,
}

impl Volume {
    /// Its number, which it keeps whatever it is called.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the present.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.present().size_bytes
    }

    pub(crate) fn present(&self) -> Arc<Opening> {
        Arc::clone(&self.present.read())
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::NotFound, format!("{} was deleted", self.name)));
        }
        if self.core.is_closed() {
            return Err(Error::new(ErrorKind::Refused, "the pool is closed"));
        }
        Ok(())
    }

    /// A call that fails because the volume was deleted beside it says so, whatever it met.
    pub(crate) fn unless_gone<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.or_else(|error| self.check_open().and(Err(error)))
    }

    /// Begins a transaction about this volume. A deleted volume takes none: its record may be gone,
    /// and a commit would bring half of it back.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        let tx = self.core.begin()?;
        self.check_open()?;
        Ok(tx)
    }

    /// Makes everything acknowledged before this call durable.
    ///
    /// # Errors
    /// `Refused` or `Io`; after that writes are refused until the pool is opened again.
    pub fn flush(&self) -> Result<()> {
        self.flush_while(&|| true)
    }

    /// The same for somebody who does not wait for room any more when `goes_on` says no: what waits
    /// in a cache then goes into the reserve at once.
    ///
    /// # Errors
    /// Those of [`Volume::flush`].
    pub fn flush_while(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.check_open()?;
        self.destage_all_while(goes_on)?;
        self.log.flush()?;
        if self.has_recovered.load(Ordering::Acquire) {
            let flushed = self.core.host()?.at_work(goes_on, &mut || self.flush_map());
            // A full pool has flushed it all the same.
            flushed.or_else(|e| if e.kind == ErrorKind::Full { Ok(()) } else { Err(e) })?;
        }
        self.tally.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Fills `buffer` from `offset` of the present.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(offset, buffer, Patience::Full).map(|_| ())
    }

    /// Reads if nothing has to wait for a device; `Ok(false)` means "would wait".
    ///
    /// # Errors
    /// Those of [`Volume::read`].
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_with(offset, buffer, Patience::None)
    }

    fn read_with(&self, offset: u64, buffer: &mut [u8], patience: Patience) -> Result<bool> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::NotFound, format!("{} was deleted", self.name)));
        }
        let outcome = match self.cache.is_on() {
            true => self.read_cached(offset, buffer, patience),
            false => self.present().read(offset, buffer, patience),
        };
        match &outcome {
            Ok(true) => {
                self.tally.reads.fetch_add(1, Ordering::Relaxed);
                self.tally.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            }
            Err(e) if e.kind == ErrorKind::Corrupt => {
                self.tally.checksum_errors.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        outcome
    }

    /// Data and holes of the present from `offset`, joined, at most `limit` of them.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`.
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        if self.cache.is_on() {
            return self.extents_cached(offset, length_bytes, limit);
        }
        self.present().extents(offset, length_bytes, limit)
    }

    /// The time now, never before the latest write.
    #[must_use]
    pub fn now(&self) -> WallTime {
        let last = self.log.last_time().max(self.cache.last_time());
        self.core.machine.clock.wall().max(last)
    }

    /// By how much the time of the last write is ahead of the clock, in nanoseconds.
    #[must_use]
    pub fn time_ahead_ns(&self) -> u64 {
        let wall = self.core.machine.clock.wall().as_nanos();
        self.now().as_nanos().saturating_sub(wall)
    }

    /// The present's stamp, also of what waits in the cache: it keeps its number.
    pub(crate) fn latest_told(&self) -> Result<Stamp> {
        match self.cache.latest() {
            Some(stamp) => Ok(stamp),
            None => self.latest(),
        }
    }

    /// The stamp of the last write that is in the log: the present's, where a volume stands still.
    pub(crate) fn latest(&self) -> Result<Stamp> {
        let seq = match self.log.settle() {
            Ok(seq) => seq,
            // After a failed write some never end: the present is what all before it left.
            Err(_) => self.log.stable(),
        };
        self.stamp(seq)
    }

    /// Totals at the end of the flushed part.
    pub(crate) fn flushed_entry(record: &VolumeRecord) -> TimeEntry {
        TimeEntry {
            time: WallTime::from_nanos(record.flushed_ns),
            seq: Seq(record.flushed_seq),
            bytes_total: record.flushed_bytes_total,
            flushes_total: record.flushed_flushes_total,
        }
    }

    /// The volume as it stands.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from counting.
    pub fn info(&self) -> Result<VolumeInfo> {
        let latest = self.latest_told()?;
        let record = self.record.lock().clone();
        let now = self.now();
        let space = self.space()?;
        let conversion = self.conversion_info(&record)?;
        let (oldest, versions) = {
            let pins = self.pins.lock();
            (self.oldest(&record, latest, &pins)?, pins.version_count() as u64)
        };
        // The log may not have it yet.
        let oldest = if oldest.seq == latest.seq { latest } else { oldest };
        Ok(VolumeInfo {
            id: self.id,
            name: self.name().to_owned(),
            size_bytes: self.size_bytes(),
            architecture: record.architecture,
            granularity: record.granularity_at(Seq(u64::MAX)),
            extent: record.extent,
            copy_unit: record.copy_unit,
            window_ns: record.window_ns,
            history_limit_bytes: record.history_limit_bytes,
            held_ns: now.as_nanos().saturating_sub(record.horizon_ns),
            is_held: record.is_window_held(now),
            grace: record.grace_info(self.core.time()),
            state: if self.core.store.has_failed() { "refusing-writes" } else { "online" },
            live_bytes: space.live_bytes,
            live_exact: space.live_exact,
            history_bytes: space.history_bytes,
            pinned_bytes: space.pinned_bytes,
            hook: record.hook.clone(),
            oldest,
            latest,
            created: WallTime::from_nanos(record.created_ns),
            cloned_from: record.cloned_from.map(|(name, seq)| (name, Seq(seq))),
            counters: self.counters(),
            unplaced_bytes: self.unplaced_bytes(space.live_bytes),
            deferred_bytes: self.deferred_bytes(),
            time_ahead_ns: self.time_ahead_ns(),
            conversion,
            import: self.import_info(),
            cache: self.cache_info(),
            encoding: self.encoding_info(),
            dedup: self.dedup_info(),
            base_bytes: self.base.blocks_at_home() * BLOCK_BYTES,
            versions,
            device_io: self.device_io(),
        })
    }

    /// Device requests by kind since the pool was opened.
    pub fn device_io(&self) -> Vec<history::IoCount> {
        self.core.store.io(self.id).counts().to_vec()
    }

    fn unplaced_bytes(&self, live_bytes: u64) -> u64 {
        let in_store = self.present().current.as_ref().map_or(0, |c| c.unsettled_blocks());
        let in_base = (self.unplaced_homes() * BLOCK_BYTES).min(live_bytes);
        in_store * BLOCK_BYTES + in_base
    }

    fn counters(&self) -> VolumeCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VolumeCounters {
            reads: get(&self.tally.reads),
            read_bytes: get(&self.tally.read_bytes),
            writes: get(&self.tally.writes),
            written_bytes: get(&self.tally.written_bytes),
            flushes: get(&self.tally.flushes),
            checksum_errors: get(&self.tally.checksum_errors),
            rotten_places: self.present().current.as_ref().map_or(0, |c| c.rotten()),
        }
    }
}
