//! Reclaiming: when a volume's timelines are merged as a whole, and what begins with that.

use std::sync::Arc;

use history::TimeRun;
use units::Seq;

use crate::catalogue::tables;
use crate::jobs::job::spare_others;
use crate::jobs::merge::MergeJob;
use crate::jobs::parts::Parts;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// A full merge is due when this share of the retained seqs has left the window: 1 in 8.
const EXPIRED_SHARE: u64 = 8;

/// The next full merge of a volume, if one is wanted or a reclamation is under way.
pub fn next_reclaim(parts: &Parts, volume: &Arc<Volume>) -> Result<Option<MergeJob>> {
    if !volume.reclamation().is_under_way() {
        volume.end_compactions()?;
    }
    if volume.wants_reclaim(has_moves(parts, volume))? {
        begin_reclaim(parts, volume)?;
    }
    next_full_merge(parts, volume, false)
}

/// Whether something found for one of a volume's timelines waits to be entered.
fn has_moves(parts: &Parts, volume: &Volume) -> bool {
    let dedup = parts.dedup.lock();
    let timelines = parts.core.timelines.read();
    let mut found = dedup.moves.keys();
    found.any(|id| timelines.get(id).is_some_and(|(record, _)| record.log == volume.id))
}

/// The next full merge of a reclamation under way; `urgent` when a write waits for room.
fn next_full_merge(parts: &Parts, volume: &Arc<Volume>, urgent: bool) -> Result<Option<MergeJob>> {
    loop {
        let Some(id) = volume.reclamation().next() else { return Ok(None) };
        let Some(timeline) = parts.core.timeline(id) else { continue };
        let sparse = volume.sparse_segments(&timeline, urgent);
        // They are for this merge or for none: should there be nothing to merge, nothing waits.
        let moves = parts.dedup.lock().moves.remove(&id);
        let job = volume.full_merge(timeline, sparse, moves, urgent)?;
        if job.is_some() {
            return Ok(job);
        }
    }
}

fn begin_reclaim(parts: &Parts, volume: &Volume) -> Result<()> {
    // Pending entries neither supersede anything in runs nor come home.
    volume.flush_map_if_room()?;
    volume.begin_pass()?;
    volume.reclamation().begin(parts.core.machine.clock.monotonic_ns());
    volume.begin_encoding()?;
    volume.free_empty_segments()?;
    free_empty_homes(parts, volume)?;
    volume.begin_migration_pass();
    let horizon = volume.record.lock().reclaimable_to();
    volume.reclamation().set_out(|| volume.own_timelines().iter().map(|t| t.id).collect());
    reclaim_to(parts, volume, Seq(horizon))
}

/// Frees slabs of a base that is being left. The caller holds `work`; nothing is coming home.
fn free_empty_homes(parts: &Parts, volume: &Volume) -> Result<()> {
    let empty = volume.empty_homes();
    if empty.is_empty() {
        return Ok(());
    }
    let tx = parts.core.begin()?;
    for segment in &empty {
        tx.remove(tables::SEGMENTS, segment.number)?;
        tx.remove(tables::BASES, (volume.id, segment.slab.expect("a slab of a base")))?;
    }
    drop(tx.commit()?);
    parts.core.forget_pages(|timeline| timeline.log == volume.id);
    empty.iter().filter_map(|segment| segment.slab).for_each(|slab| volume.base().remove(slab));
    parts.core.store.retire_segments(&empty);
    Ok(())
}

/// Notes how far a reclamation that begins will have reclaimed, and removes parts of the time
/// index that no openable moment needs.
fn reclaim_to(parts: &Parts, volume: &Volume, horizon: Seq) -> Result<()> {
    let runs = volume.times().runs();
    let pins = volume.pins().lock();
    let mut gone: Vec<Arc<TimeRun>> = Vec::new();
    for part in 0..runs.len() {
        // The last part before the horizon stays: it answers "the last write at or before". So
        // do those that pins lie in, and those behind them: a time after a pin is none of it.
        let begin = part.checked_sub(1).map_or(Seq::ZERO, |before| runs[before].first.seq);
        let is_gone = runs.get(part + 1).is_some_and(|next| {
            let last = Seq(next.first.seq.0.saturating_sub(1));
            next.last.seq < horizon && pins.seqs_within(begin, last).next().is_none()
        });
        gone.extend(is_gone.then(|| Arc::clone(&runs[part])));
    }
    drop(pins);
    if gone.is_empty() && volume.record.lock().reclaimed_to == horizon.0 {
        return Ok(());
    }
    let mut tx = parts.core.begin()?;
    for run in &gone {
        tx.remove(tables::TIME_RUNS, run.id)?;
    }
    tx.change(&volume.record).reclaimed_to = horizon.0;
    drop(tx.commit()?);
    volume.times().drop_parts(|run| gone.iter().any(|part| part.id == run.id));
    gone.iter().for_each(|run| parts.core.store.retire_extents(&run.pages));
    Ok(())
}

/// Drops and moves together all that can be, once, as long as `goes_on`. None is
/// under way.
pub fn reclaim_all(parts: &Parts, goes_on: &dyn Fn() -> bool) -> Result<()> {
    for volume in parts.registry.all() {
        if !goes_on() {
            return Ok(());
        }
        match reclaim(parts, &volume, goes_on) {
            // There may be room for what others need to give some up.
            Err(e) if e.kind == ErrorKind::Full => {}
            outcome => spare_others(&volume, outcome, &mut None)?,
        }
    }
    Ok(())
}

fn reclaim(parts: &Parts, volume: &Arc<Volume>, goes_on: &dyn Fn() -> bool) -> Result<()> {
    volume.flush_map()?;
    volume.expire(false)?;
    begin_reclaim(parts, volume)?;
    while let Some(mut merge) = next_full_merge(parts, volume, true)? {
        while !merge.step(1 << 16)? {
            if !goes_on() {
                // Left to the background, like what else is to be merged.
                merge.volume.compaction_queue().fail();
                return Ok(());
            }
        }
    }
    volume.reclamation().set_ailing(false);
    Ok(())
}

impl Volume {
    /// Whether something has been pending for so long that a map flush is due.
    pub(crate) fn has_waited(&self, now_ns: u64) -> bool {
        if self.log().with_times(<[_]>::is_empty) {
            self.pending().reset();
            return false;
        }
        self.pending().is_due(now_ns)
    }

    fn wants_reclaim(&self, has_moves: bool) -> Result<bool> {
        if self.reclamation().is_under_way() {
            return Ok(false);
        }
        let now_ns = self.core.machine.clock.monotonic_ns();
        let wants_moves = self.wants_destage(now_ns) || self.wants_conversion() || has_moves;
        if wants_moves || self.wants_encoding()? {
            return Ok(true);
        }
        // Before the record is locked: whoever holds the gate locks it last.
        let stable = self.log().stable().0;
        let record = self.record.lock();
        let expired = record.reclaimable_to().saturating_sub(record.reclaimed_to);
        let retained = stable.saturating_sub(record.reclaimed_to);
        let is_due = expired > 0 && expired >= retained / EXPIRED_SHARE;
        Ok(self.reclamation().is_wanted() || is_due)
    }
}
