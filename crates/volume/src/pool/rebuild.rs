//! Throwing the map away and building it again from the log (offline).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{BlockDevice, InTurn, Together};
use env::NoFiles;
use format::batch::DescriptorKind;
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, cover};
use history::{
    Content, IoKind, NO_LOG, Openable, RunBuilder, Segment, StoredRun, block_location, read_header,
    scan_segment,
};
use units::{BLOCK_BYTES, BlockCount, Lba, Seq};

use crate::catalogue::{Told, tables};
use crate::core::Core;
use crate::jobs::map_flush::{commit_segment, record_of_run};
use crate::pool::Engine;
use crate::pool::handle::Pool;
use crate::pool::recovery::{Map, open_pool};
use crate::retention::filter::{Nodes, sift};
use crate::{Machine, PoolOptions, RebuildReport, Result};

impl Pool {
    /// Throws the map away and builds it again from the log; the pool must not be open. Blocks
    /// whose checksum does not hold are entered all the same: reading them is an error, not older
    /// bytes.
    ///
    /// # Errors
    /// `Unusable`, `Corrupt` (the catalogue must be sound), `Full`, `Io`.
    pub fn rebuild(device: Arc<dyn BlockDevice>, machine: Machine) -> Result<RebuildReport> {
        let options = PoolOptions::default();
        let told: &mut Told<'_> = &mut |_, _| ();
        let how = (Map::Ignored, &InTurn as &dyn Together, told);
        let pool = open_pool(device, machine, options, how, Arc::new(NoFiles))?;
        let mut report = RebuildReport::default();
        let mut entries: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for segment in pool.core.store.segments() {
            report.segments += 1;
            let gaps = collect(&pool, segment.number, segment.zone, &mut entries, &mut report)?;
            // Homes of a base that nothing came to are no gaps.
            report.damaged_bytes += if segment.slab.is_some() { 0 } else { gaps };
        }
        report.damaged_bytes += pool.replace_map(entries)?;
        for volume in pool.registry.all() {
            // The present may be another one now, should the log have lost something.
            if let Some(current) = &volume.present().current {
                current.distrust_after_revert(None);
            }
        }
        pool.close()?;
        Ok(report)
    }
}

/// An entry found in the log.
#[derive(Clone, Copy)]
struct Found {
    entry: Entry,
    /// Its block holds what it should.
    sound: bool,
}

/// Seqs that recovery discarded of a log.
fn voids_of(pool: &Engine, log: u64) -> Vec<(Seq, Seq)> {
    let volumes = pool.registry.all();
    let own = volumes.iter().filter(|volume| volume.id == log);
    own.flat_map(|volume| volume.record.lock().voids.clone())
        .map(|(a, b)| (Seq(a), Seq(b)))
        .collect()
}

/// Collects the entries of one segment by timeline.
fn collect(
    pool: &Engine,
    number: u64,
    zone: u32,
    entries: &mut BTreeMap<u64, Vec<Found>>,
    report: &mut RebuildReport,
) -> Result<u64> {
    let core = &*pool.core;
    let store = &core.store;
    let Some(header) = read_header(store, zone, number)? else {
        return Ok(store.zone_bytes);
    };
    let voids = voids_of(pool, header.log);
    if let Some(segment) = store.segment(number).filter(|s| s.content() == Content::Pack) {
        return collect_packs(core, &segment, &voids, entries, report);
    }
    let base = store.zone_offset(zone);
    // Behind its end is what merges left that came to nothing.
    let until = store.segment(number).map_or(0, |s| s.end.load(Ordering::Acquire));
    // Homes may have been under way when the power went, and come to one copy only.
    let is_base = store.segment(number).is_some_and(|segment| segment.slab.is_some());
    let end = scan_segment(store, &header, until, |batch| {
        for op in batch.descriptors() {
            let target = entries.entry(op.timeline).or_default();
            // The voids of a name in a segment of no log were seen to when it got there.
            if voids.iter().any(|&(a, b)| a <= op.seq && op.seq <= b) {
                continue;
            }
            report.writes += 1;
            match op.kind {
                DescriptorKind::Data => {
                    let first = Location::new(number, batch.header.offset + op.payload_offset);
                    for (i, crc) in op.crcs().enumerate() {
                        let location = block_location(first, i);
                        let mut block = vec![0; BLOCK_BYTES as usize];
                        let at = base + u64::from(location.offset_bytes());
                        store.device.read_at(at, &mut block)?;
                        store.io(header.log).count(IoKind::Other, BLOCK_BYTES);
                        let right = |bytes: &[u8]| block_crc(bytes) == crc;
                        let sound = match is_base {
                            true => store.agree(at, &mut block, &right),
                            false => right(&block) || store.heal_if_known(at, &mut block, &right),
                        };
                        let lba = Lba(op.block.0 + i as u64);
                        let entry = Entry::data(lba, op.seq, location, crc);
                        target.push(Found { entry, sound });
                    }
                }
                DescriptorKind::Zero => {
                    let location = Location::hole_in(number);
                    let keys = cover(op.block, BlockCount(u64::from(op.blocks)));
                    let hole = |key| Entry { key, seq: op.seq, location, crc: 0 };
                    target.extend(keys.map(|key| Found { entry: hole(key), sound: true }));
                }
            }
        }
        Ok(())
    })?;
    Ok(end.gap_bytes)
}

/// Collects the versions in the packs of a segment.
fn collect_packs(
    core: &Core,
    segment: &Segment,
    voids: &[(Seq, Seq)],
    entries: &mut BTreeMap<u64, Vec<Found>>,
    report: &mut RebuildReport,
) -> Result<u64> {
    let place = (segment.number, segment.zone, segment.nonce);
    let gap_bytes = core.store.scan_packs(place, |place, pack| {
        let target = entries.entry(place.timeline).or_default();
        let location = Location::new(place.segment, place.offset);
        for (version, block) in pack.iter() {
            if voids.iter().any(|&(a, b)| a <= version.seq && version.seq <= b) {
                continue;
            }
            report.writes += 1;
            let sound = block_crc(block) == version.crc;
            let entry = Entry::data(Lba(version.block), version.seq, location, version.crc);
            target.push(Found { entry, sound });
        }
        Ok(())
    })?;
    Ok(gap_bytes)
}

/// Drops entries without their blocks that no openable moment sees: of homes that were half written
/// over.
fn drop_damaged(entries: &mut Vec<Found>, openable: &Openable) -> Result<()> {
    if entries.iter().all(|found| found.sound) {
        return Ok(());
    }
    let nodes = Nodes::new(entries.iter().map(|found| found.entry));
    let mut unneeded = BTreeSet::new();
    for group in entries.chunk_by(|a, b| a.entry.key == b.entry.key) {
        if group.iter().all(|found| found.sound) {
            continue;
        }
        let versions: Vec<Entry> = group.iter().map(|found| found.entry).collect();
        sift(&versions, &nodes, openable, |entry, keep, _| {
            unneeded.extend((!keep).then_some((entry.key, entry.seq)));
            Ok(())
        })?;
    }
    entries.retain(|f| f.sound || !unneeded.contains(&(f.entry.key, f.entry.seq)));
    Ok(())
}

impl Engine {
    /// Replaces every run by new ones, and counts segments anew. Says how many bytes of blocks that
    /// are needed do not hold what they should.
    fn replace_map(&self, entries: BTreeMap<u64, Vec<Found>>) -> Result<u64> {
        let mut damaged_bytes = 0;
        let mut runs: Vec<(u64, StoredRun)> = Vec::new();
        let mut live: BTreeMap<u64, i64> = BTreeMap::new();
        let mut common: BTreeMap<u64, u64> = BTreeMap::new();
        let segments = self.core.store.segments();
        let shared = segments.iter().filter(|s| s.log == NO_LOG).map(|s| s.number);
        let shared: BTreeSet<u64> = shared.collect();
        let logs: BTreeMap<u64, u64> = self
            .core
            .timelines
            .read()
            .values()
            .map(|(record, _)| (record.id, record.log))
            .collect();
        for (timeline, mut entries) in entries {
            let Some(line) = self.core.timeline(timeline) else { continue };
            entries.sort_unstable_by_key(|found| found.entry.order());
            // A moved block may still lie in its old segment as well: a sound copy counts, of sound
            // ones the newer. (A home may have been half written over when the power went.)
            entries.dedup_by(|a, b| {
                let same = a.entry.order() == b.entry.order();
                if same && (a.sound, a.entry.location) > (b.sound, b.entry.location) {
                    *b = *a;
                }
                same
            });
            let id = self.core.next_run();
            let mut builder = RunBuilder::new(&self.core.store, id, id, &line);
            drop_damaged(&mut entries, &self.needed(timeline, Seq::ZERO)?.openable)?;
            for Found { entry, sound } in &entries {
                damaged_bytes += if *sound { 0 } else { BLOCK_BYTES };
                builder.push(*entry)?;
                *live.entry(entry.location.segment()).or_default() += 1;
                if shared.contains(&entry.location.segment()) {
                    *common.entry(logs[&timeline]).or_default() += 1;
                }
            }
            runs.extend(builder.finish(&self.core.store)?.map(|run| (timeline, run)));
        }
        let mut tx = self.core.begin()?;
        for run in self.core.catalogue.load()?.map_runs {
            tx.remove_map_run(run.id)?;
        }
        for (timeline, run) in &runs {
            tx.put(tables::MAP_RUNS, run.id, &record_of_run(run, *timeline))?;
        }
        for segment in self.core.store.segments() {
            let count = live.get(&segment.number).copied().unwrap_or(0);
            let end = segment.end.load(Ordering::Acquire);
            commit_segment(&tx, &segment, count, end, true)?;
        }
        for volume in self.registry.all() {
            tx.change(&volume.record).common = common.get(&volume.id).copied().unwrap_or(0);
        }
        tx.audit("pool-rebuild", "", format!("{} runs", runs.len()))?;
        drop(tx.commit()?);
        Ok(damaged_bytes)
    }
}
