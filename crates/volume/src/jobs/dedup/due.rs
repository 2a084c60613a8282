//! When a search is due, and of which timelines.

use std::collections::BTreeMap;
use std::sync::Arc;

use history::{NO_LOG, Timeline};
use units::BLOCK_BYTES;

use super::moves::is_stale;
use super::search::Member;
use crate::jobs::parts::Parts;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// Whether there is room to write blocks anew before others go.
pub fn may_share(parts: &Parts) -> bool {
    let (_, free, reserve) = parts.core.store.zone_counts();
    free > reserve + (parts.core.store.zone_count() / 16).max(2)
}

/// The logs that others were cloned from.
fn origins(parts: &Parts) -> BTreeMap<u64, u64> {
    let timelines = parts.core.timelines.read();
    let log_of = |timeline: u64| timelines.get(&timeline).map(|(record, _)| record.log);
    let origins = timelines.values().filter_map(|(record, _)| {
        // A full clone shares nothing in the end.
        let parent = record.parent.filter(|_| record.source.is_none());
        let origin = log_of(parent?.0)?;
        (origin != record.log).then_some((record.log, origin))
    });
    origins.collect()
}

/// Volumes whose blocks are to be stored once, by family: the log that all come from.
fn families(parts: &Parts) -> BTreeMap<u64, Vec<Arc<Volume>>> {
    let mut volumes = parts.registry.all();
    volumes.retain(|v| v.record.lock().dedup && !v.reclamation().is_ailing());
    let mut families: BTreeMap<u64, Vec<Arc<Volume>>> = BTreeMap::new();
    if volumes.is_empty() {
        return families;
    }
    let origins = origins(parts);
    for volume in volumes {
        let mut root = volume.id;
        while let Some(&origin) = origins.get(&root) {
            assert!(origin < root, "a clone is younger than its origin");
            root = origin;
        }
        families.entry(root).or_default().push(volume);
    }
    families
}

/// Begins the search of a family, if one is due.
pub fn begin_search(parts: &Parts) -> Result<bool> {
    let now = parts.core.machine.clock.wall().as_nanos();
    let looks = parts.dedup.lock().look(now);
    if !looks || !may_share(parts) {
        return Ok(false);
    }
    for (family, volumes) in families(parts) {
        if is_due(parts, family, &volumes, now) {
            return begin_search_of(parts, family, &volumes, now).map(|()| true);
        }
    }
    Ok(false)
}

fn is_due(parts: &Parts, family: u64, volumes: &[Arc<Volume>], now: u64) -> bool {
    let before = parts.dedup.lock().searched(family);
    let spaces = volumes.iter().map(|volume| parts.core.store.space(volume.id).count());
    let entries = spaces.map(|space| space.entries).sum();
    before.is_due(now, written(volumes), entries).unwrap_or_else(|| {
        let stale = stale(parts, volumes);
        parts.dedup.lock().note_stale(family, now, stale);
        stale > before.stale
    })
}

fn begin_search_of(parts: &Parts, family: u64, volumes: &[Arc<Volume>], now: u64) -> Result<()> {
    for volume in volumes {
        match volume.flush_map() {
            // A later search finds the entries that wait in memory.
            Err(e) if e.kind == ErrorKind::Refused || parts.core.store.has_failed() => {
                return Err(e);
            }
            _ => {}
        }
    }
    let members = volumes.iter().flat_map(members).collect();
    let (stale, written) = (stale(parts, volumes), written(volumes));
    parts.dedup.lock().begin(family, members, now, written, stale);
    Ok(())
}

/// Stale segments that these volumes have, or share with others.
fn stale(parts: &Parts, volumes: &[Arc<Volume>]) -> usize {
    let has_common = volumes.iter().any(|volume| volume.record.lock().common > 0);
    let is_theirs = |log: u64| match log {
        NO_LOG => has_common,
        log => volumes.iter().any(|volume| volume.id == log),
    };
    parts.core.store.segments().iter().filter(|s| is_theirs(s.log) && is_stale(s)).count()
}

fn members(volume: &Arc<Volume>) -> Vec<Member> {
    let timelines = volume.own_timelines().into_iter();
    let member = |timeline: Arc<Timeline>| {
        let left = volume.left_by_packing(timeline.id);
        Member { log: volume.id, left, timeline }
    };
    timelines.map(member).collect()
}

/// The size of the logs of volumes so far: blocks that are in runs, and seqs.
fn written(volumes: &[Arc<Volume>]) -> (u64, u64) {
    let bytes = |volume: &Arc<Volume>| volume.record.lock().flushed_bytes_total;
    let blocks = volumes.iter().map(bytes).sum::<u64>() / BLOCK_BYTES;
    (blocks, volumes.iter().map(|volume| volume.log().stable().0).sum())
}
