//! A pool: making one, opening one, and the volumes in it.
//!
//! Invariants
//! 1. A pool that cannot be read is refused with what was found; it is never taken for an empty
//!    one.
//! 2. After `open` returns, everything recovered from the logs' tails is in committed runs.

pub mod faults;
pub mod growth;
pub mod members;
pub mod rebuild;
pub mod recovery;
pub mod run_figures;
pub mod space;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{BlockDevice, Purpose, Zones};
use env::{Files, NoFiles};
use format::FORMAT_VERSION;
use format::superblock::{
    COPY_OFFSETS, FEATURE_BASE, FEATURE_CURRENT_STORE, FEATURE_EXTENTS, FEATURE_IMPORT,
    FEATURE_PACKS, FEATURE_SHARED, Superblock,
};
use history::{Branch, OUTSIDE_SEQ};
use parking_lot::Mutex;
use units::{MapExtent, Moment, Seq};

use crate::catalogue::{
    Catalogue, CatalogueMedia, SourceRecord, Told, VolumeRecord, write_superblock,
};
use crate::core::Core;
use crate::jobs::encoding;
use crate::names::check_name;
use crate::pool::recovery::{Map, open_core};
use crate::types::{Architecture, AuditRecord, Budget, Granularity, PoolStatus, VolumeSpec};
use crate::volume::Volume;
use crate::write::cache_sizes;
use crate::write::copy_unit;
use crate::{Error, ErrorKind, Machine, PoolFormat, PoolOptions, Result};

/// Zones of the smallest pool.
const ZONES_MIN: u64 = 48;
/// Room kept for the catalogue to grow, in bytes.
const CATALOGUE_GROWTH_BYTES: u64 = 8 << 20;
/// Largest volume: 2^40 blocks.
const SIZE_BYTES_MAX: u64 = 1 << 52;

/// An open pool.
pub struct Pool {
    pub(crate) core: Arc<Core>,
}

/// The beginning of a new volume.
pub(crate) enum Origin<'a> {
    /// Zeros.
    Nothing,
    /// A moment of another, of which all is copied if that is so described.
    Moment(&'a Volume, Branch, Option<SourceRecord>),
    /// A file.
    File(SourceRecord),
}

/// Fails unless a volume can have this size.
///
/// # Errors
/// `Invalid`.
pub fn check_size(size_bytes: u64) -> Result<()> {
    if (4096..=SIZE_BYTES_MAX).contains(&size_bytes) && size_bytes.is_multiple_of(512) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("a volume cannot have {size_bytes} bytes"))
        .with_hint("a multiple of 512 from 4096 bytes to 4 PiB"))
}

/// The map of a pool that is full of blocks has less than one part in so many of it (22 bytes for
/// each), and a merge writes it beside the one that is there.
const MAP_SHARE: u32 = 150;

/// How many zones of `total` are kept for reclamation: 2 % for merges, of a large pool as much as a
/// map of all of it takes, and room for the catalogue, which grows by its own size at a time.
pub fn reserve_of(total: u32, zone_bytes: u64) -> u32 {
    let catalogue = u32::try_from(CATALOGUE_GROWTH_BYTES / zone_bytes).expect("few zones");
    (total / 50).clamp(6, 64.max(total / MAP_SHARE)) + catalogue.min(total / 4)
}

/// How many zones a pool on so many bytes can have.
pub fn zones_within(device_bytes: u64, zone_bytes: u64) -> u32 {
    u32::try_from(device_bytes / zone_bytes).unwrap_or(u32::MAX)
}

/// Reads the superblock: the newest sound copy.
///
/// # Errors
/// `Unusable` with what was found at each copy.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut best: Option<Superblock> = None;
    let mut found = Vec::new();
    for (copy, &offset) in COPY_OFFSETS.iter().enumerate() {
        let mut bytes = vec![0; format::PAGE_BYTES];
        if offset + bytes.len() as u64 > device.len_bytes() {
            found.push(format!("copy {copy}: beyond the end of the device"));
            continue;
        }
        // A device that lost a write has an older one, which is as sound: all of them are asked.
        for way in 0..device.copies(offset, bytes.len() as u64) {
            if let Err(e) = device.read_copy(way, offset, &mut bytes) {
                found.push(format!("copy {copy}: {e}"));
                continue;
            }
            match Superblock::decode(&bytes, copy) {
                Ok(superblock) => {
                    if best.as_ref().is_none_or(|b| b.generation < superblock.generation) {
                        best = Some(superblock);
                    }
                }
                Err(e) => found.push(format!("copy {copy}: {e}")),
            }
        }
    }
    let Some(superblock) = best else {
        let text = format!("{} holds no pool: {}", device.describe(), found.join("; "));
        return Err(Error::new(ErrorKind::Unusable, text));
    };
    if superblock.device_bytes > device.len_bytes() {
        let text = format!(
            "{} has {} bytes, but its pool was made on {}",
            device.describe(),
            device.len_bytes(),
            superblock.device_bytes
        );
        return Err(Error::new(ErrorKind::Unusable, text));
    }
    Ok(superblock)
}

impl Pool {
    /// Lets the pool on a device that became longer, and that nobody has open, use what is new.
    /// Returns the bytes that it used before, and after.
    ///
    /// # Errors
    /// `Unusable` when there is no pool, or one that this program may only read; the device's.
    pub fn grow(device: &Arc<dyn BlockDevice>) -> Result<(u64, u64)> {
        let mut superblock = read_superblock(&**device)?;
        if superblock.is_read_only_here() {
            let text = "the pool has features that this program does not know";
            return Err(Error::new(ErrorKind::Unusable, text));
        }
        let before = superblock.device_bytes;
        let count = zones_within(device.len_bytes(), superblock.zone_bytes);
        superblock.device_bytes = u64::from(count) * superblock.zone_bytes;
        if superblock.device_bytes > before {
            // Both pairs of copies: none is left that says less.
            for _ in 0..2 {
                superblock.generation += 1;
                write_superblock(&**device, &superblock)?;
            }
        }
        Ok((before, superblock.device_bytes))
    }

    /// Lays out an empty pool on `device`.
    ///
    /// # Errors
    /// `Exists` when there is a pool already; `Invalid` sizes; the device's.
    pub fn create(
        device: &Arc<dyn BlockDevice>,
        machine: &Machine,
        format: &PoolFormat,
    ) -> Result<()> {
        let zone_bytes = format.zone_bytes;
        if !zone_bytes.is_power_of_two() || !((256 << 10)..=(32 << 20)).contains(&zone_bytes) {
            let text = format!("a zone cannot have {zone_bytes} bytes");
            return Err(Error::new(ErrorKind::Invalid, text)
                .with_hint("a power of two from 256 KiB to 32 MiB"));
        }
        let count = device.len_bytes() / zone_bytes;
        if count < ZONES_MIN {
            let text = format!("{} is too small for a pool", device.describe());
            let least = format!("at least {} bytes", ZONES_MIN * zone_bytes);
            return Err(Error::new(ErrorKind::Invalid, text).with_hint(least));
        }
        if read_superblock(&**device).is_ok() {
            let text = format!("{} holds a pool already", device.describe());
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let count = u32::try_from(count).map_err(|_| {
            Error::new(ErrorKind::Invalid, "the device has too many zones; use larger ones")
        })?;
        let mut zones = Zones::new(count, 0);
        zones.occupy(0);
        let halves = [machine.entropy.next_u64(), machine.entropy.next_u64()];
        let superblock = Superblock {
            format_version: FORMAT_VERSION,
            features_compatible: 0,
            features_read_only: 0,
            features_incompatible: 0,
            pool_id: u128::from(halves[0]) << 64 | u128::from(halves[1]),
            generation: 1,
            zone_bytes,
            device_bytes: u64::from(count) * zone_bytes,
            created: machine.clock.wall(),
            secret: machine.entropy.next_u64(),
            catalogue_bytes: 0,
            catalogue_zones: Vec::new(),
        };
        device.allocate(0, zone_bytes)?;
        write_superblock(&**device, &superblock)?;
        let zones = Mutex::new(zones);
        let target = Arc::clone(device);
        let take_zone = Box::new(move || {
            let zone = zones
                .lock()
                .take_unbacked(Purpose::Reclaim)
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::StorageFull))?;
            target
                .allocate(u64::from(zone) * zone_bytes, zone_bytes)
                .map_err(std::io::Error::other)?;
            Ok(zone)
        });
        let media = CatalogueMedia::new(Arc::clone(device), superblock, take_zone);
        Catalogue::create(media).map(drop)
    }

    /// Opens a pool and recovers what the log's tail holds.
    ///
    /// # Errors
    /// `Unusable`, `Corrupt`, `Io`.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        machine: Machine,
        options: PoolOptions,
    ) -> Result<Arc<Pool>> {
        Pool::open_with(device, machine, options, Arc::new(NoFiles))
    }

    /// The same, with files from which volumes can be imported and those go on that are.
    ///
    /// # Errors
    /// `Unusable`, `Corrupt`, `Io`. A file that is gone, or is not what it was, is none: what was
    /// not copied of it cannot be read.
    pub fn open_with(
        device: Arc<dyn BlockDevice>,
        machine: Machine,
        options: PoolOptions,
        files: Arc<dyn Files>,
    ) -> Result<Arc<Pool>> {
        Pool::open_told(device, machine, options, files, &mut |_, _| ())
    }

    /// The same; `told` hears how often the catalogue was tried in vain, and how often it may be.
    pub(crate) fn open_told(
        device: Arc<dyn BlockDevice>,
        machine: Machine,
        options: PoolOptions,
        files: Arc<dyn Files>,
        told: &mut Told<'_>,
    ) -> Result<Arc<Pool>> {
        let core = open_core(device, machine, options, (Map::Used, told), files)?;
        let pool = Pool { core };
        // Where it cannot be now, it can when the pool is opened again.
        pool.volumes().iter().for_each(|volume| _ = volume.cut_off());
        Ok(Arc::new(pool))
    }

    /// The volume with this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>> {
        self.core.volumes.read().get(name).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no volume {name}"))
                .with_hint("`hindsight volume list` names them")
        })
    }

    /// Memory that it may use: caches have half of it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.core.memory_bytes
    }

    /// All volumes by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.core.volumes.read().values().cloned().collect()
    }

    /// Makes a volume; it reads as zeros and takes no space.
    ///
    /// # Errors
    /// `Invalid`, `Exists`, `Full`, `Refused`.
    pub fn create_volume(&self, spec: &VolumeSpec) -> Result<Arc<Volume>> {
        let record = self.new_record(spec, Seq::ZERO)?;
        let detail = match spec.architecture {
            Architecture::Logging => format!("{} bytes, {:?}", spec.size_bytes, spec.granularity),
            other => format!("{} bytes, {:?}, {}", spec.size_bytes, spec.granularity, other.name()),
        };
        self.add_volume(record, Origin::Nothing, "volume-create", detail)
    }

    /// The record of a volume that begins at a seq.
    pub(crate) fn new_record(&self, spec: &VolumeSpec, begin: Seq) -> Result<VolumeRecord> {
        self.check_open()?;
        check_name("volume", &spec.name)?;
        check_size(spec.size_bytes)?;
        if spec.granularity == Granularity::Interval(0) {
            return Err(Error::new(ErrorKind::Invalid, "an interval is longer than nothing"));
        }
        let now = self.core.machine.clock.wall().as_nanos();
        let seq = begin.0;
        Ok(VolumeRecord {
            id: 0,
            name: spec.name.clone(),
            deleted: false,
            created_ns: now,
            created_seq: seq,
            cloned_from: None,
            window_ns: spec.window_ns,
            history_limit_bytes: spec.history_limit_bytes,
            granularities: vec![(seq, spec.granularity)],
            sizes: vec![(seq, spec.size_bytes)],
            line: Vec::new(),
            events: Vec::new(),
            horizon_seq: seq,
            horizon_ns: now,
            reclaimed_to: seq,
            flushed_seq: seq,
            flushed_ns: now,
            flushed_bytes_total: 0,
            flushed_flushes_total: 0,
            voids: Vec::new(),
            next_version: 0,
            architecture: spec.architecture,
            placed: Vec::new(),
            cache: cache_sizes::setting(spec.architecture, None, spec.cache)?,
            conversion: None,
            extent: spec.extent,
            copy_unit: copy_unit::checked(spec.copy_unit, spec.architecture, spec.granularity)?,
            encoding: encoding::setting(None, spec.encoding)?,
            dedup: spec.dedup,
            common: 0,
            uncut: 0,
            grace: None,
            hook: None,
            trash: None,
        })
    }

    pub(crate) fn add_volume(
        &self,
        record: VolumeRecord,
        origin: Origin<'_>,
        action: &str,
        detail: String,
    ) -> Result<Arc<Volume>> {
        let core = &self.core;
        for feature in features_of(&record) {
            core.announce(feature)?;
        }
        let mut tx = core.begin()?;
        let coming = core.prepare_volume(record, origin, &mut tx, (action, detail))?;
        let books = tx.commit()?;
        let volume = core.take_volume(coming)?;
        drop(books);
        if volume.record.lock().cache.is_some() {
            core.share_memory();
        }
        Ok(volume)
    }

    /// Makes a writable volume that starts at a moment of another. Copies nothing.
    ///
    /// # Errors
    /// Those of resolving; `Invalid`, `Exists`, `Refused`, `Io`.
    pub fn clone_volume(&self, source: &str, at: &Moment, name: &str) -> Result<Arc<Volume>> {
        self.clone_with_extent(source, at, name, None)
    }

    /// The same, with map extents of another size than its origin has. Inherited entries stay as
    /// they are.
    ///
    /// # Errors
    /// Those of resolving; `Invalid`, `Exists`, `Refused`, `Io`.
    pub fn clone_with_extent(
        &self,
        source: &str,
        at: &Moment,
        name: &str,
        extent: Option<MapExtent>,
    ) -> Result<Arc<Volume>> {
        self.clone_as(source, at, name, (extent, false))
    }

    /// The same, of which the background copies all: in the end it shares nothing with its origin.
    /// It is there at once; `Volume::import_info` tells how far it is.
    ///
    /// # Errors
    /// Those of resolving; `Invalid`, `Exists`, `Refused`, `Io`.
    pub fn clone_in_full(
        &self,
        source: &str,
        at: &Moment,
        name: &str,
        extent: Option<MapExtent>,
    ) -> Result<Arc<Volume>> {
        self.core.announce(FEATURE_IMPORT)?;
        self.clone_as(source, at, name, (extent, true))
    }

    fn clone_as(
        &self,
        source: &str,
        at: &Moment,
        name: &str,
        how: (Option<MapExtent>, bool),
    ) -> Result<Arc<Volume>> {
        self.check_open()?;
        check_name("volume", name)?;
        let origin = self.volume(source)?;
        let cloned = self.clone_of(&origin, at, name, how);
        origin.unless_gone(cloned)
    }

    fn clone_of(
        &self,
        origin: &Volume,
        at: &Moment,
        name: &str,
        (extent, in_full): (Option<MapExtent>, bool),
    ) -> Result<Arc<Volume>> {
        origin.destage_all()?;
        self.core.store.flush()?;
        let still = origin.stand_still()?;
        let resolved = origin.resolve_with(at, &still.pins)?;
        let Seq(at) = resolved.seq;
        // The copy is the state before all of its own writes.
        let begin = if in_full { OUTSIDE_SEQ } else { resolved.seq };
        let (mut clone, branch, mut detail) =
            self.core.clone_record(origin, (resolved.seq, begin), name)?;
        clone.extent = extent.unwrap_or(clone.extent);
        let copied = in_full.then(|| {
            clone.cloned_from = None;
            detail.push_str(", in full");
            SourceRecord::of_moment(&origin.name, at, clone.size_at(begin))
        });
        let begins = Origin::Moment(origin, branch, copied);
        let volume = self.add_volume(clone, begins, "clone", detail);
        drop(still);
        volume
    }

    /// Refuses writes from now on, as after a failed write: what runs here is found to be broken.
    /// Reads go on; whoever waits to write is told.
    pub fn refuse_writes(&self) {
        self.core.store.fail();
        for volume in self.core.all_volumes() {
            volume.log.wake();
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Refused, "the pool is closed"));
        }
        Ok(())
    }

    /// Does some background work; true when there is more to do now.
    ///
    /// # Errors
    /// `Refused`, `Corrupt`, `Io`; `Full` when there is no room even for reclaiming.
    pub fn step(&self, budget: Budget) -> Result<bool> {
        if self.core.closed.load(Ordering::Acquire) || self.core.store.has_failed() {
            return Ok(false);
        }
        // Before, not within: a capture may make room, which is background work itself.
        self.run_due();
        self.core.step(budget)
    }

    /// Does what is due by the clock: for whoever rests between steps.
    pub fn run_due(&self) {
        if !self.core.closed.load(Ordering::Acquire) && !self.core.store.has_failed() {
            self.core.measure_history();
            self.core.run_schedules();
        }
    }

    /// Makes everything durable. The pool refuses writes afterwards.
    ///
    /// # Errors
    /// `Full`, `Refused` or `Io` where what waits in a cache cannot be destaged: then the pool
    /// stays as it is, and what waits is lost with it. `Refused` or `Io` later; nothing
    /// acknowledged is lost by that.
    pub fn close(&self) -> Result<()> {
        let mut volumes = self.core.all_volumes();
        volumes.retain(|volume| !volume.is_gone());
        if !self.core.closed.load(Ordering::Acquire) && !self.core.store.has_failed() {
            volumes.iter().try_for_each(|volume| volume.store_counts(&volume.pins.lock()))?;
        }
        let mut holds = Vec::new();
        for volume in &volumes {
            match volume.hold_writes() {
                // Waiting writes are lost with the process: that is not passed over.
                Err(e) if volume.cache.first_waiting().is_some() => return Err(e),
                Err(_) if self.core.store.has_failed() => {}
                hold => holds.push(hold?),
            }
        }
        if self.core.closed.swap(true, Ordering::AcqRel) || self.core.store.has_failed() {
            return Ok(());
        }
        let mut work = self.core.work.lock();
        work.clear();
        match self.core.commit_copies() {
            Err(e) if e.kind == ErrorKind::Full => {}
            other => other?,
        }
        for volume in self.core.all_volumes() {
            match volume.flush_map() {
                // No room for runs: what is pending stays in the log, from which it is recovered.
                Err(e) if e.kind == ErrorKind::Full => {}
                other => other?,
            }
        }
        let stores = self.core.all_volumes().into_iter();
        let sealed = stores.filter_map(|volume| {
            let placed = volume.present().current.as_ref()?.seal();
            Some((volume, placed))
        });
        let sealed: Vec<_> = sealed.collect();
        self.core.store.flush()?;
        sealed.into_iter().try_for_each(|(volume, placed)| volume.record_places(placed))?;
        self.core.store.give_back_spared();
        self.core.keep_scrub()?;
        let Some(array) = self.core.array.get() else { return Ok(()) };
        // Waiting cells are placed by that, and may meet rows that have to be looked at.
        array.flush()?;
        self.core.settle_noticed(array)?;
        Ok(array.close()?)
    }

    /// Audit records with a number above `after`, oldest first. Events of members are among them as
    /// soon as [`Pool::members`] shows it, unless it cannot be written down by now.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        self.core.note_members_now();
        self.core.catalogue.audit(after, limit)
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
        let stores = self.core.all_volumes();
        let count = |volume: &Arc<Volume>| {
            volume.present().current.as_ref().map_or(0, |current| current.slab_count())
                + volume.base.slab_count()
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
                false if self.core.is_degraded() => "degraded",
                false => "online",
            },
            checksum_errors: store.checksum_errors.load(Ordering::Relaxed),
            healed: store.healed(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.part();
    }
}

/// The features that a pool must know to have a volume.
pub(crate) fn features_of(record: &VolumeRecord) -> impl Iterator<Item = u64> {
    let features = [
        (record.architecture.has_current_store(), FEATURE_CURRENT_STORE),
        (record.architecture.has_base(), FEATURE_BASE),
        (!record.extent.is_block(), FEATURE_EXTENTS),
        (record.encoding.is_some(), FEATURE_PACKS),
        (record.dedup, FEATURE_SHARED),
    ];
    features.into_iter().filter_map(|(has, feature)| has.then_some(feature))
}

#[cfg(test)]
mod tests {
    use super::reserve_of;

    #[test]
    fn a_reserve_has_room_for_the_map_of_a_pool_that_is_full() {
        for zones in [50, 320, 9_600, 32_768, 1 << 20] {
            let reserve = u64::from(reserve_of(zones, 32 << 20));
            assert!(reserve * 4096 >= u64::from(zones) * 22, "{reserve} of {zones}");
        }
    }
}
