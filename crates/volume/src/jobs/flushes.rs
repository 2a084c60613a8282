//! Map flushes: what is pending in memory is written out as runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use history::Segment;
use units::Seq;

use crate::Result;
use crate::jobs::job::Turn;
use crate::jobs::map_flush::commit_map_flushes;
use crate::jobs::parts::Parts;
use crate::volume::Volume;

/// Maps that are written out together, at most: others wait for the right to work.
const TOGETHER_MAX: usize = 256;
/// Trims of whole pages that may wait in memory: a page look-up walks them.
const PENDING_NODES_MAX: usize = 2048;

/// Writes out maps that are full, and the one that time has asked for longest: one in a round, so
/// that many of them keep nothing else waiting. Then it frees what that emptied, which may be the
/// last there is to be done. True if any was.
///
/// # Errors
/// Those after which the pool refuses writes.
pub fn flush_maps(parts: &Parts, turn: &mut Turn) -> Result<bool> {
    let mut volumes = full_maps(parts);
    let all = parts.registry.all();
    let due = all.into_iter().filter(|volume| volume.has_waited(turn.now_ns));
    let due = due.min_by_key(|volume| volume.pending().since_ns());
    let is_other = |due: &Arc<Volume>| volumes.iter().all(|volume| volume.id != due.id);
    volumes.extend(due.filter(is_other));
    let (mut begun, mut flushes) = (Vec::new(), Vec::new());
    for volume in &volumes {
        let flush = volume.begin_map_flush();
        volume.pending().note_flush(flush.is_err());
        let flush = flush.map(Some);
        if let Some(flush) = turn.spare(volume, flush)? {
            begun.push(volume);
            flushes.extend(flush);
        }
    }
    commit_map_flushes(&parts.core, flushes)?;
    let flushed: BTreeMap<u64, Seq> = begun.iter().map(|v| (v.id, v.flushed_seq())).collect();
    let is_flushed = |of: &Segment| flushed.get(&of.log).is_some_and(|&seq| of.last_seq() <= seq);
    parts.core.free_empty(is_flushed)?;
    Ok(!begun.is_empty())
}

/// The volumes of whose map so much is pending that memory, or the time of the next opening, asks
/// for a flush. Both are the pool's: once all volumes together have too much, those with the most
/// are full, until the others have half of it.
pub fn full_maps(parts: &Parts) -> Vec<Arc<Volume>> {
    let mut counts: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (record, timeline) in parts.core.timelines.read().values() {
        let (entries, nodes) = timeline.pending_counts();
        let count = counts.entry(record.log).or_default();
        *count = (count.0 + entries, count.1 + nodes);
    }
    let volumes = parts.registry.all().into_iter();
    let mut volumes: Vec<_> = volumes
        .map(|volume| (counts.get(&volume.id).copied().unwrap_or_default(), volume))
        .collect();
    volumes.sort_by_key(|&((entries, _), _)| Reverse(entries));
    // One that could not be written out is not counted, for others would be for it: it is tried
    // again when it is full by itself, or time asks for it.
    let shared = |entries: usize, volume: &Volume| match volume.pending().has_failed() {
        true => 0,
        false => entries,
    };
    let mut left: usize = volumes.iter().map(|((entries, _), v)| shared(*entries, v)).sum();
    let pending_max = parts.core.pending_max;
    let are_full = left >= pending_max;
    volumes.retain(|((entries, nodes), volume)| {
        let own = shared(*entries, volume);
        let is_full = are_full && own > 0 && left > pending_max / 2
            || *entries >= pending_max
            || *nodes >= PENDING_NODES_MAX
            || volume.log().with_times(<[_]>::len) >= pending_max;
        left = left.saturating_sub(if is_full { own } else { 0 });
        is_full
    });
    volumes.truncate(TOGETHER_MAX);
    volumes.into_iter().map(|(_, volume)| volume).collect()
}
