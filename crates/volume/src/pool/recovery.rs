//! Opening a pool: catalogue, segments, runs, and the logs' tails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use block::{BlockDevice, InTurn, Together, Zones, make_steps};
use env::{Files, NoFiles};
use format::segment::SegmentHeader;
use format::superblock::{FEATURES_INCOMPATIBLE_KNOWN, Superblock};
use history::{
    Branch, KnownLog, Log, LogStart, PageExtent, PageExtents, RecoveredLog, Segment, Spare, Store,
    StoreParts, StoredRun, TimeIndex, header_from_batch, read_header, recover_log,
};
use units::{MapExtent, Seq, WallTime};

use crate::catalogue::{
    Catalogue, CatalogueMedia, Contents, RunRecord, Told, VolumeRecord, all_of, tables,
};
use crate::core::Core;
use crate::jobs::compactions::Compactions;
use crate::placement::Placement;
use crate::placement::base::Base;
use crate::placement::current_store::CurrentStore;
use crate::pool::Engine;
use crate::pool::handle::Pool;
use crate::pool::layout::{read_superblock, reserve_of};
use crate::pool::volumes::Volumes;
use crate::retention::Retention;
use crate::retention::groups::Groups;
use crate::retention::moments::Moments;
use crate::retention::pins::Pins;
use crate::retention::schedule::Schedule;
use crate::retention::versions::counting::Counting;
use crate::volume::Volume;
use crate::volume::identity::Identity;
use crate::volume::stream::Stream;
use crate::write::Writer;
use crate::{Error, ErrorKind, Machine, PoolOptions, Result};
use format::time::TimeEntry;

/// Logs that are recovered at a time.
const LOGS_AT_ONCE: usize = 4;

/// Whether the runs that the catalogue names are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// They are.
    Used,
    /// They are damaged: left alone, to be replaced.
    Ignored,
}

impl Pool {
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
        Pool::open_told(device, machine, options, files, (&InTurn, &mut |_, _| ()))
    }

    /// The same, with logs that are recovered together; `told` hears how often the catalogue was
    /// tried in vain, and how often it may be.
    pub(crate) fn open_told(
        device: Arc<dyn BlockDevice>,
        machine: Machine,
        options: PoolOptions,
        files: Arc<dyn Files>,
        (together, told): (&dyn Together, &mut Told<'_>),
    ) -> Result<Arc<Pool>> {
        let how = (Map::Used, together, told);
        let pool = open_pool(device, machine, options, how, files)?;
        // Where it cannot be now, it can when the pool is opened again.
        pool.volumes().iter().for_each(|volume| _ = volume.cut_off());
        Ok(pool)
    }
}

/// Opens everything. `told` hears how often the catalogue was tried in vain, and how often it may
/// be.
///
/// # Errors
/// `Unusable`, `Corrupt`, `Io`.
pub fn open_pool(
    device: Arc<dyn BlockDevice>,
    machine: Machine,
    options: PoolOptions,
    (map, together, told): (Map, &dyn Together, &mut Told<'_>),
    files: Arc<dyn Files>,
) -> Result<Arc<Pool>> {
    let superblock = superblock_of(&*device)?;
    let closed = Box::new(|| Err(std::io::Error::other("the pool is not open yet")));
    let media = CatalogueMedia::new(Arc::clone(&device), superblock.clone(), closed);
    media.write_again()?;
    let catalogue = Catalogue::open(media.clone(), told)?;
    let contents = catalogue.load()?;
    let catalogue_scrubs = catalogue.scrubs()?;
    let zones = zones_of(&superblock, &contents)?;
    let memory = options.memory_bytes;
    let store = Arc::new(Store::new(parts(device, &machine, &superblock, zones, memory)));
    let weak = Arc::downgrade(&store);
    media.set_take_zone(Box::new(move || {
        let store = weak.upgrade().ok_or_else(|| std::io::Error::other("the pool is closed"))?;
        store.allocate_zone(block::Purpose::Reclaim).map_err(std::io::Error::other)
    }));
    let places = (catalogue, media);
    let core = Arc::new(Core::new(store, (machine, files), places, contents.numbers, memory)?);
    name_second_source(&core);
    core.store.back_reserve();
    let groups = Groups::new(Volumes::new(core, memory));
    let pool = Arc::new(Engine::new(groups, catalogue_scrubs));
    pool.core.set_host(Arc::downgrade(&pool) as _);
    pool.load_groups()?;
    fill(&pool, contents, map, together)?;
    // Last: a pool that cannot be opened stays as older programs know it.
    if superblock.features_incompatible != FEATURES_INCOMPATIBLE_KNOWN {
        pool.core.catalogue.make_tables()?;
        let features = FEATURES_INCOMPATIBLE_KNOWN;
        pool.core.media.change(|superblock| superblock.features_incompatible |= features)?;
    }
    Ok(Pool::of(pool))
}

/// The superblock of a pool that this program can write.
fn superblock_of(device: &dyn BlockDevice) -> Result<Superblock> {
    let superblock = read_superblock(device)?;
    if superblock.is_read_only_here() {
        let text = format!("{} has features that this program cannot write", device.describe());
        return Err(Error::unusable(text));
    }
    Ok(superblock)
}

/// Has the store ask the map for other versions of what no copy has.
fn name_second_source(core: &Arc<Core>) {
    let weak = Arc::downgrade(core);
    core.store.set_second_source(Box::new(move |like| {
        weak.upgrade().map_or_else(Vec::new, |core| core.alike_now(like))
    }));
}

/// The parts of a pool's store.
fn parts(
    device: Arc<dyn BlockDevice>,
    machine: &Machine,
    superblock: &Superblock,
    zones: Zones,
    memory_bytes: u64,
) -> StoreParts {
    let share = |part: u64| usize::try_from(memory_bytes / 8 * part).unwrap_or(usize::MAX);
    StoreParts {
        device,
        clock: Arc::clone(&machine.clock),
        entropy: Arc::clone(&machine.entropy),
        zone_bytes: superblock.zone_bytes,
        pool_id: superblock.pool_id,
        secret: superblock.secret,
        zones,
        leaf_cache_bytes: share(1),
        page_cache_bytes: share(5),
    }
}

/// The zones of a pool, with those taken that something is in.
fn zones_of(superblock: &Superblock, contents: &Contents) -> Result<Zones> {
    let total = u32::try_from(superblock.device_bytes / superblock.zone_bytes)
        .map_err(|_| Error::corrupt("the superblock names too many zones"))?;
    let mut zones = Zones::new(total, reserve_of(total, superblock.zone_bytes));
    for zone in occupied(superblock, contents) {
        if !zones.occupy(zone) {
            return Err(Error::corrupt(format!("zone {zone} is used twice, or beyond the device")));
        }
    }
    Ok(zones)
}

/// Every zone that something is in.
fn occupied(superblock: &Superblock, contents: &Contents) -> Vec<u32> {
    let mut occupied = [&[0][..], superblock.catalogue_zones.as_slice()].concat();
    occupied.extend(contents.segments.iter().map(|(_, s)| s.zone));
    occupied.extend(contents.spares.iter().map(|&(_, zone)| zone));
    occupied.extend(map_zones(contents));
    occupied.extend(contents.slabs.iter().map(|&(_, _, zone)| zone));
    occupied
}

fn extents_of(record: &RunRecord) -> PageExtents {
    let extent = |&(zone, first, count): &(u32, u32, u32)| PageExtent { zone, first, count };
    PageExtents::new(record.extents.iter().map(extent).collect())
}

/// Zones that hold runs, each once.
fn map_zones(contents: &Contents) -> Vec<u32> {
    let runs = contents.map_runs.iter().chain(&contents.time_runs);
    let mut zones: Vec<u32> = runs.flat_map(|r| r.extents.iter().map(|e| e.0)).collect();
    zones.sort_unstable();
    zones.dedup();
    zones
}

fn fill(pool: &Engine, mut contents: Contents, map: Map, together: &dyn Together) -> Result<()> {
    let core = &pool.core;
    for run in contents.map_runs.iter().chain(&contents.time_runs) {
        let extents = extents_of(run);
        let pages_per_zone = core.store.zone_bytes / 4096;
        let fits = |e: &PageExtent| u64::from(e.first) + u64::from(e.count) <= pages_per_zone;
        if extents.list.is_empty() || !extents.list.iter().all(fits) {
            return Err(Error::corrupt(format!("run {} has impossible extents", run.id)));
        }
        core.store.adopt_extents(&extents);
    }
    if map == Map::Ignored {
        contents.map_runs.clear();
    }
    if map == Map::Used {
        let runs: BTreeSet<u64> = contents.map_runs.iter().map(|run| run.id).collect();
        core.figures.load(core.catalogue.readable(tables::FIGURES)?, |run| runs.contains(&run));
    }
    add_timelines(core, &contents)?;
    let tails = add_segments(core, &contents)?;
    let logs = recover_logs(core, &contents.volumes, &tails, together)?;
    for (mut record, log) in std::mem::take(&mut contents.volumes).into_iter().zip(logs) {
        core.begin_time_by(record.horizon_ns);
        let slabs = contents.slabs.iter().filter(|slab| slab.0 == record.id);
        let slabs = slabs.map(|&(_, slab, zone)| (slab, zone)).collect();
        let base = base_of(core, &record, &contents.bases)?;
        let places = Places { slabs, placed: take_placed(core, &mut record)?, base };
        pool.registry.add(add_volume(core, record, log, &contents.time_runs, places)?);
    }
    pool.share_memory();
    if map == Map::Ignored {
        for volume in pool.registry.all() {
            volume.flush_map_if_room()?;
        }
        // Without their runs nobody knows what they name elsewhere: it waits for the next opening.
        return Ok(());
    }
    pool.work.lock().purge()
}

fn add_timelines(core: &Core, contents: &Contents) -> Result<()> {
    let mut timelines = core.timelines.write();
    for record in &contents.timelines {
        let parent = match record.parent {
            None => None,
            Some((parent, seq)) => {
                let (_, timeline) = timelines.get(&parent).ok_or_else(|| {
                    Error::corrupt(format!("timeline {} has no parent {parent}", record.id))
                })?;
                Some(Branch { timeline: Arc::clone(timeline), seq: Seq(seq) })
            }
        };
        let mut runs: Vec<&RunRecord> =
            contents.map_runs.iter().filter(|r| r.owner == record.id).collect();
        runs.sort_by_key(|r| std::cmp::Reverse(r.order));
        let mut open = Vec::with_capacity(runs.len());
        for run in runs {
            let extents = extents_of(run);
            open.push(Arc::new(StoredRun::open(
                &core.store,
                run.id,
                run.order,
                (record.id, record.log),
                extents,
            )?));
        }
        // How what is written from now on is kept; what is there says so itself.
        let volume = contents.volumes.iter().find(|volume| volume.id == record.log);
        let extent = volume.map_or(MapExtent::BLOCK, |volume| volume.extent);
        let timeline = core.timeline_of(record, extent, parent, open);
        timelines.insert(record.id, (record.clone(), timeline));
    }
    Ok(())
}

/// Adds recorded segments and spares that a log had begun; returns the latter and unsealed ones by
/// log.
fn add_segments(core: &Core, contents: &Contents) -> Result<BTreeMap<u64, Vec<SegmentHeader>>> {
    let store = &core.store;
    let slabs = contents.bases.iter().map(|&(volume, slab, number)| ((volume, number), slab));
    let slabs: BTreeMap<(u64, u64), u64> = slabs.collect();
    let mut tails: BTreeMap<u64, Vec<SegmentHeader>> = BTreeMap::new();
    for &(number, record) in &contents.segments {
        let segment = Segment {
            last_seq: AtomicU64::new(record.last_seq),
            end: AtomicU32::new(record.end),
            live_entries: AtomicI64::new(record.live_entries),
            committed_entries: AtomicI64::new(record.live_entries),
            slab: slabs.get(&(record.log, number)).copied(),
            packed: AtomicU32::new(record.packed),
            shared: record.shared,
            ..Segment::new((number, record.zone), (record.log, record.nonce))
        };
        store.add_segment(Arc::new(segment));
        if !record.sealed {
            let header = header_of(store, contents, (record.zone, number), Some(record.nonce))?
                .ok_or_else(|| Error::corrupt(format!("segment {number} has lost its header")))?;
            tails.entry(record.log).or_default().push(header);
        }
    }
    let logs: Vec<u64> = contents.volumes.iter().map(|v| v.id).collect();
    for &(number, zone) in &contents.spares {
        match header_of(store, contents, (zone, number), None)? {
            Some(header) if logs.contains(&header.log) => {
                let last_seq = header.first_seq.0.saturating_sub(1);
                store.add_segment(Arc::new(Segment {
                    last_seq: AtomicU64::new(last_seq),
                    end: AtomicU32::new(0),
                    ..Segment::new((number, zone), (header.log, header.nonce))
                }));
                tails.entry(header.log).or_default().push(header);
            }
            _ => store.add_spare(Spare { number, zone }),
        }
    }
    tails.values_mut().for_each(|headers| headers.sort_by_key(|h| h.segment));
    Ok(tails)
}

/// The header of a segment that a log has begun. One that is damaged is made of what the first
/// batch and the catalogue say, and written again: were the zone taken for a spare, what was
/// flushed there would be gone.
fn header_of(
    store: &Store,
    contents: &Contents,
    (zone, number): (u32, u64),
    nonce: Option<u64>,
) -> Result<Option<SegmentHeader>> {
    if let Some(header) = read_header(store, zone, number)? {
        return Ok(Some(header));
    }
    let Some((told, timeline)) = header_from_batch(store, (zone, number), nonce)? else {
        return Ok(None);
    };
    let Some(of) = contents.timelines.iter().find(|record| record.id == timeline) else {
        return Ok(None);
    };
    let header = SegmentHeader { log: of.log, ..told };
    store.write_known(store.zone_offset(zone), &header.encode())?;
    Ok(Some(header))
}

/// Up to where the catalogue names moments of a log: each commit that names one follows a flush.
/// Names that iSCSI initiators opened are left out: one that says too much opens nothing.
fn named_moments(core: &Core, record: &VolumeRecord) -> Result<Seq> {
    let mut last = record.events.last().map_or(0, |event| event.seq);
    core.catalogue.each(tables::VERSIONS, all_of(record.id), |_, version| {
        last = last.max(version?.seq);
        Ok(true)
    })?;
    for (_, mark) in core.catalogue.marks(record.id)? {
        last = last.max(mark.seq);
    }
    let timelines = core.timelines.read();
    let of_log = |timeline: &u64| timelines.get(timeline).is_some_and(|t| t.0.log == record.id);
    let branches = timelines.values().filter_map(|(branch, _)| branch.parent);
    let branched = branches.filter(|(parent, _)| of_log(parent)).map(|(_, seq)| seq).max();
    Ok(Seq(last.max(branched.unwrap_or(0))))
}

/// Recovers the logs of volumes, several at a time: one core cannot read as fast as a device.
fn recover_logs(
    core: &Core,
    volumes: &[VolumeRecord],
    tails: &BTreeMap<u64, Vec<SegmentHeader>>,
    together: &dyn Together,
) -> Result<Vec<RecoveredLog>> {
    let recovered: Vec<OnceLock<RecoveredLog>> = volumes.iter().map(|_| OnceLock::new()).collect();
    let recover = |number: usize| -> Result<()> {
        let record = &volumes[number];
        let known = KnownLog {
            log: record.id,
            flushed_seq: Seq(record.flushed_seq),
            last: flushed_entry(record),
            durable: named_moments(core, record)?,
            events: events_after(record),
            voids: record.voids.iter().map(|&(a, b)| (Seq(a), Seq(b))).collect(),
            is_strict: record.strict,
        };
        let tail = tails.get(&record.id).map_or(&[][..], |headers| headers);
        let log = recover_log(&core.store, &known, tail);
        let log = log.map_err(|error| of_volume(&record.name, error))?;
        assert!(recovered[number].set(log).is_ok(), "each log is recovered once");
        Ok(())
    };
    make_steps(together, LOGS_AT_ONCE, volumes.len(), &|| true, recover)?;
    let log = |one: OnceLock<RecoveredLog>| one.into_inner().expect("all were recovered");
    Ok(recovered.into_iter().map(log).collect())
}

fn add_volume(
    core: &Arc<Core>,
    mut record: VolumeRecord,
    recovered: RecoveredLog,
    time_runs: &[RunRecord],
    places: Places,
) -> Result<Arc<Volume>> {
    if !recovered.voids.is_empty() {
        record.voids.extend(recovered.voids.iter().map(|&(first, last)| (first.0, last.0)));
        let mut tx = core.begin()?;
        tx.put(tables::VOLUMES, record.id, &record)?;
        let detail = match recovered.lost {
            Some((first, last)) => {
                format!("unflushed writes lost in a power cut: seqs {first} to {last}")
            }
            None => {
                let count: u64 = recovered.voids.iter().map(|(a, b)| b.0 - a.0 + 1).sum();
                let (first, last) =
                    (recovered.voids[0].0, recovered.voids[recovered.voids.len() - 1].1);
                format!("{count} writes that were in flight are void, of seqs {first} to {last}")
            }
        };
        tx.audit("recovery", &record.name, detail)?;
        let _books = tx.commit()?;
    }
    for segment in &recovered.segments {
        let found = core.store.segment(segment.number).expect("tail segments were added");
        found.last_seq.fetch_max(segment.last_seq.0, Ordering::AcqRel);
        found.end.store(segment.end, Ordering::Release);
        found.add_entries(segment.live_entries);
    }
    for (timeline, entries) in &recovered.entries {
        let map = core.timeline(*timeline).ok_or_else(|| {
            Error::corrupt(format!("log {}: a batch of unknown timeline {timeline}", record.id))
        })?;
        map.insert(entries);
    }
    let times = times_of(core, &record, time_runs);
    Volume::build(Arc::clone(core), record, recovered, times, places).map(Arc::new)
}

/// Why a volume's log cannot be recovered, for who knows the volume by its name.
fn of_volume(name: &str, error: history::Error) -> Error {
    let error = Error::from(error);
    let error = Error { message: format!("volume {name}: {}", error.message), ..error };
    match error.kind {
        ErrorKind::Corrupt => error.with_hint(
            "bring back a member or a copy of the pool in which it is right; without it the volume \
             would be an older one, so the pool is not opened",
        ),
        _ => error,
    }
}

/// Reverts and resizes after what is in runs: no batch holds their seqs.
fn events_after(record: &VolumeRecord) -> Vec<(Seq, WallTime)> {
    let events = record.events.iter().filter(|e| e.seq > record.flushed_seq);
    events.map(|e| (Seq(e.seq), WallTime::from_nanos(e.time_ns))).collect()
}

fn times_of(core: &Core, record: &VolumeRecord, time_runs: &[RunRecord]) -> TimeIndex {
    let log = record.id;
    let mut runs: Vec<&RunRecord> = time_runs.iter().filter(|r| r.owner == log).collect();
    runs.sort_by_key(|r| r.order);
    let stored = |run: &RunRecord| (run.id, extents_of(run), run.entries);
    let end = flushed_entry(record);
    TimeIndex::open(&core.store, log, runs.into_iter().map(stored).collect(), end)
}

fn current_store(
    core: &Core,
    record: &VolumeRecord,
    slabs: &BTreeMap<u64, u32>,
    placed: &[(u64, u64)],
) -> Option<Arc<CurrentStore>> {
    let here = record.architecture.has_current_store() && !record.deleted;
    let is_placed = |slab: u64| placed.iter().any(|&(a, b)| a <= slab && slab < b);
    here.then(|| Arc::new(CurrentStore::new(Arc::clone(&core.store), slabs, is_placed)))
}

/// The catalogue's records of a volume's current store and base.
struct Places {
    /// Zones by slab.
    slabs: BTreeMap<u64, u32>,
    /// Ranges of slabs in which everything is in place.
    placed: Vec<(u64, u64)>,
    /// The base, with its slabs.
    base: Base,
}

/// A volume's base with the slabs that the catalogue names.
fn base_of(core: &Core, record: &VolumeRecord, slabs: &[(u64, u64, u64)]) -> Result<Base> {
    let base = Base::new(core.store.zone_bytes);
    for &(_, slab, number) in slabs.iter().filter(|slab| slab.0 == record.id) {
        let segment = core.store.segment(number).filter(|s| s.slab == Some(slab));
        let segment = segment.ok_or_else(|| {
            Error::corrupt(format!("slab {slab} of {} is not segment {number}", record.name))
        })?;
        base.add(segment);
    }
    Ok(base)
}

/// Takes what a clean close said about places; from now on the catalogue says it no more.
fn take_placed(core: &Core, record: &mut VolumeRecord) -> Result<Vec<(u64, u64)>> {
    if record.placed.is_empty() {
        return Ok(Vec::new());
    }
    let placed = std::mem::take(&mut record.placed);
    let tx = core.begin()?;
    tx.put(tables::VOLUMES, record.id, record)?;
    drop(tx.commit()?);
    Ok(placed)
}

impl Volume {
    /// A volume that was just made.
    pub(crate) fn start(core: Arc<Core>, record: VolumeRecord) -> Result<Volume> {
        let start = LogStart {
            last_seq: Seq(record.created_seq),
            durable: Seq(record.created_seq),
            last_time: WallTime::from_nanos(record.created_ns),
            ..LogStart::default()
        };
        let recovered = RecoveredLog { start, ..RecoveredLog::default() };
        let base = Base::new(core.store.zone_bytes);
        let places = Places { slabs: BTreeMap::new(), placed: Vec::new(), base };
        Volume::build(core, record, recovered, TimeIndex::default(), places)
    }

    fn build(
        core: Arc<Core>,
        record: VolumeRecord,
        recovered: RecoveredLog,
        times: TimeIndex,
        places: Places,
    ) -> Result<Volume> {
        let timeline = core.timeline(record.timeline_now()).ok_or_else(|| {
            Error::corrupt(format!("volume {} has lost its timeline", record.name))
        })?;
        let size_bytes = record.size_at(Seq(u64::MAX));
        let mut log = Log::new(record.id, Arc::clone(&core.store), recovered.start);
        log.set_journal(record.architecture.destages());
        log.set_strict(record.strict);
        let has_recovered = !recovered.times.is_empty();
        log.restore_times(recovered.times);
        let (pins, counting) = pins_of(&core, record.id)?;
        let schedule =
            core.catalogue.get(tables::SCHEDULES, record.id)?.map(Schedule::of).transpose()?;
        let compactions = Compactions::of(core.catalogue.rows_of(
            tables::COMPACTIONS,
            record.id,
            0,
            usize::MAX,
        )?);
        let identity = Identity::new(Arc::clone(&core), record.clone());
        let volume = (identity.id, Arc::clone(&identity.name));
        let current = current_store(&core, &record, &places.slabs, &places.placed);
        let opening = core.open(volume, timeline, Seq(u64::MAX), (size_bytes, current));
        let stream = Stream::new(identity, (log, times), opening, has_recovered);
        let placement = Placement::new(stream, places.base, &record);
        let writer = Writer::new(placement, pins.captured(), &record);
        let moments = Moments::new(writer, pins);
        Ok(Volume::new(Retention::new(moments, counting, schedule, compactions)))
    }
}

/// Totals at the end of the flushed part.
fn flushed_entry(record: &VolumeRecord) -> TimeEntry {
    TimeEntry {
        time: WallTime::from_nanos(record.flushed_ns),
        seq: Seq(record.flushed_seq),
        bytes_total: record.flushed_bytes_total,
        flushes_total: record.flushed_flushes_total,
    }
}

/// The pins of a volume as they stand in the catalogue, and which versions are still to be counted.
fn pins_of(core: &Core, volume: u64) -> Result<(Pins, Counting)> {
    let mut versions = Vec::new();
    let mut counting = Counting::default();
    core.catalogue.each(tables::VERSIONS, all_of(volume), |(_, number), version| {
        let version = version?;
        let scheduled = version.scheduled.map(|s| (s.schedule, s.made_ns));
        versions.push((number, Seq(version.seq), scheduled));
        if version.bytes_changed.is_none() {
            counting.want(number);
        }
        Ok(true)
    })?;
    let mut pins = Pins::of_versions(&versions);
    for (name, mark) in core.catalogue.marks(volume)? {
        pins.add_mark(name, mark);
    }
    Ok((pins, counting))
}
