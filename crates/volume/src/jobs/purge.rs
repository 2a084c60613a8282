//! Purging: deleted volumes of which nothing is needed any more are removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::{NO_LOG, Timeline};

use crate::Result;
use crate::catalogue::{Commit, all_of, tables};
use crate::jobs::map_flush::commit_segment;
use crate::jobs::parts::Parts;
use crate::volume::Volume;

/// A deleted volume that no clone needs any more; those with damage come last.
pub fn unneeded_ghost(parts: &Parts) -> Option<Arc<Volume>> {
    let mut ghosts = parts.registry.ghosts();
    ghosts.retain(|ghost| ghost.is_gone() && !is_needed(parts, ghost));
    ghosts.into_iter().min_by_key(|ghost| ghost.reclamation().is_ailing())
}

/// Whether a timeline of another volume branched off this one.
fn is_needed(parts: &Parts, ghost: &Volume) -> bool {
    let timelines = parts.core.timelines.read();
    let own = |id: u64| timelines.get(&id).is_some_and(|(r, _)| r.log == ghost.id);
    timelines
        .values()
        .any(|(r, _)| r.log != ghost.id && r.parent.is_some_and(|(parent, _)| own(parent)))
}

/// Removes deleted volumes that no clone needs any more, unless a merge is under way: it may be of
/// them. Whether there was any.
///
/// # Errors
/// `Refused` or `Io`.
pub fn purge(parts: &Parts) -> Result<bool> {
    let mut any = false;
    while !parts.merging().is_any()
        && let Some(ghost) = unneeded_ghost(parts)
    {
        bury(parts, &ghost).inspect_err(|_| {
            ghost.reclamation().set_ailing(true);
            parts.note_failed_purge();
        })?;
        any = true;
    }
    Ok(any)
}

fn bury(parts: &Parts, ghost: &Volume) -> Result<()> {
    let timelines = ghost.own_timelines();
    let segments: Vec<_> =
        parts.core.store.segments().into_iter().filter(|s| s.log == ghost.id).collect();
    let unnamed = match ghost.record.lock().common {
        0 => BTreeMap::new(),
        _ => names_elsewhere(parts, &timelines),
    };
    let tx = parts.core.begin()?;
    for timeline in &timelines {
        tx.remove(tables::TIMELINES, timeline.id)?;
        for run in timeline.runs() {
            tx.remove_map_run(run.id)?;
        }
    }
    for run in ghost.times().runs() {
        tx.remove(tables::TIME_RUNS, run.id)?;
    }
    for segment in &segments {
        tx.remove(tables::SEGMENTS, segment.number)?;
        tx.remove(tables::SPARES, segment.number)?;
    }
    commit_unnamed(parts, &tx, &unnamed)?;
    if segments.iter().any(|segment| segment.slab.is_some()) {
        tx.remove_all(tables::BASES, all_of(ghost.id))?;
    }
    tx.remove_pins(ghost.id)?;
    tx.remove(tables::VOLUMES, ghost.id)?;
    drop(tx.commit()?);
    parts.registry.bury(ghost);
    parts.core.store.forget_space(ghost.id);
    let mut all = parts.core.timelines.write();
    timelines.iter().for_each(|t| drop(all.remove(&t.id)));
    drop(all);
    timelines.iter().for_each(|t| _ = parts.core.forget_source(t.id));
    parts.core.forget_pages(|timeline| timeline.log == ghost.id);
    parts.core.store.retire_segments(&segments);
    note_unnamed(parts, &unnamed);
    for run in timelines.iter().flat_map(|t| t.runs()) {
        parts.core.store.retire_extents(&run.extents);
    }
    for run in ghost.times().runs() {
        parts.core.store.retire_extents(&run.pages);
    }
    parts.core.store.collect_freed();
    Ok(())
}

/// Entries of timelines that are about to go, by segment of no log. Of a run that cannot be
/// read none are told: what they name is kept rather than freed too early.
fn names_elsewhere(parts: &Parts, timelines: &[Arc<Timeline>]) -> BTreeMap<u64, i64> {
    let mut elsewhere: BTreeMap<u64, i64> = parts
        .core
        .store
        .segments()
        .iter()
        .filter(|segment| segment.log == NO_LOG)
        .map(|segment| (segment.number, 0))
        .collect();
    if elsewhere.is_empty() {
        return elsewhere;
    }
    for run in timelines.iter().flat_map(|timeline| timeline.runs()) {
        let mut counts: BTreeMap<u64, i64> = BTreeMap::new();
        let counted = run.scan(&parts.core.store, |entry| -> history::Result<()> {
            let segment = entry.location.segment();
            if elsewhere.contains_key(&segment) {
                *counts.entry(segment).or_default() += 1;
            }
            Ok(())
        });
        if counted.is_ok() {
            for (segment, count) in counts {
                *elsewhere.entry(segment).or_default() += count;
            }
        }
    }
    elsewhere.retain(|_, count| *count > 0);
    elsewhere
}

/// Commits that segments are named by so many entries less.
fn commit_unnamed(parts: &Parts, commit: &Commit, unnamed: &BTreeMap<u64, i64>) -> Result<()> {
    for (&number, &count) in unnamed {
        let Some(segment) = parts.core.store.segment(number) else { continue };
        let left = segment.committed_entries.load(Ordering::Acquire) - count;
        assert!(left >= 0, "segment {number} loses {count} entries, {left} left");
        commit_segment(commit, &segment, left, segment.end.load(Ordering::Acquire), true)?;
    }
    Ok(())
}

/// After that commit: those that nothing names go when they are next looked for.
fn note_unnamed(parts: &Parts, unnamed: &BTreeMap<u64, i64>) {
    for (&number, &count) in unnamed {
        let Some(segment) = parts.core.store.segment(number) else { continue };
        segment.add_entries(-count);
        segment.committed_entries.fetch_sub(count, Ordering::AcqRel);
        parts.dedup.lock().is_swept = false;
    }
}
