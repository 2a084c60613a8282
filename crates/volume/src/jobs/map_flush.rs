//! Writing pending map entries out as runs.
//!
//! Invariants
//! 1. The log's gate is closed while pending entries are frozen, so that `flushed_seq` is exact:
//!    every entry up to it is in a run once the commit is done, none above it.
//! 2. The commit flushes the device first (the catalogue is on it), so no run points to bytes less
//!    durable than itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::map::Entry;
use format::time::{TIME_ENTRIES_MAX, TimeEntry};
use history::{Gate, Segment, StoredRun, TimeRun, Timeline, write_time_run};
use units::Seq;

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{Commit, RunRecord, SegmentRecord, tables};
use crate::core::Core;
use crate::pool::run_figures::Figures;
use crate::retention::filter::{Nodes, sift};
use crate::retention::needed::Needed;
use crate::volume::stream::Stream;
use crate::{ErrorKind, Result};

/// Entries of parts of a time index that are still joined with newer ones, at most: 64 pages. A
/// part leaves when all of it has left the window, so parts must not grow with the window.
const TIMES_JOINED_MAX: usize = 64 * TIME_ENTRIES_MAX;

/// The frozen entries, and the state of the log then.
struct Frozen {
    seq: Seq,
    times: Vec<TimeEntry>,
    last: TimeEntry,
    /// Segment, entries that name it, bytes used, whether it is sealed.
    segments: Vec<(Arc<Segment>, i64, u32, bool)>,
    timelines: Vec<Arc<Timeline>>,
}

/// A run written, and how many frozen parts it replaces.
struct Written {
    timeline: Arc<Timeline>,
    parts: usize,
    run: Option<StoredRun>,
    figures: Figures,
}

/// A part of the time index, and the newest parts that it was joined with.
struct WrittenTimes {
    run: TimeRun,
    joined: Vec<Arc<TimeRun>>,
}

/// A map flush of which all is written, and nothing is committed.
pub struct MapFlush<'a> {
    stream: &'a Stream,
    frozen: Frozen,
    runs: Vec<Written>,
    times: Option<WrittenTimes>,
    /// Entries that nothing needs any more, by segment.
    dropped: BTreeMap<u64, i64>,
}

/// Commits map flushes of any volumes together: the device is flushed for all of them at once.
///
/// # Errors
/// `Refused`, `Io`.
pub fn commit_map_flushes(core: &Core, flushes: Vec<MapFlush<'_>>) -> Result<()> {
    if flushes.is_empty() {
        return Ok(());
    }
    // Dirty data goes out now, so that others do not wait for it behind the commit.
    core.store.flush()?;
    let mut tx = core.begin()?;
    flushes.iter().try_for_each(|flush| flush.put(&mut tx))?;
    drop(tx.commit()?);
    flushes.into_iter().for_each(MapFlush::install);
    Ok(())
}

impl Stream {
    /// Writes everything pending out as runs. The caller holds `work`.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub(crate) fn flush_map(&self) -> Result<()> {
        commit_map_flushes(&self.core, self.begin_map_flush()?.into_iter().collect())
    }

    /// The same without the commit. The caller holds `work` until that is done.
    ///
    /// # Errors
    /// Those of [`Stream::flush_map`].
    pub(crate) fn begin_map_flush(&self) -> Result<Option<MapFlush<'_>>> {
        if self.is_buried() {
            return Ok(None);
        }
        // Should there be no room, it is tried again as late.
        self.pending().reset();
        let frozen = self.freeze_pending()?;
        if frozen.times.is_empty() && frozen.timelines.is_empty() {
            return Ok(None);
        }
        let mut dropped = BTreeMap::new();
        let mut runs = Vec::new();
        match self.write_all(&frozen, &mut dropped, &mut runs) {
            Ok(times) => Ok(Some(MapFlush { stream: self, frozen, runs, times, dropped })),
            Err(e) => {
                // No commit names them, and none will.
                for run in runs.iter().filter_map(|part| part.run.as_ref()) {
                    self.core.store.retire_extents(&run.extents);
                }
                Err(e)
            }
        }
    }

    /// The same, if there is room for the runs; false when there is none: what is pending waits on.
    pub(crate) fn flush_map_if_room(&self) -> Result<bool> {
        match self.flush_map() {
            Err(e) if e.kind == ErrorKind::Full => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }

    /// Writes the runs of every timeline, and the times.
    fn write_all(
        &self,
        frozen: &Frozen,
        dropped: &mut BTreeMap<u64, i64>,
        written: &mut Vec<Written>,
    ) -> Result<Option<WrittenTimes>> {
        for timeline in &frozen.timelines {
            written.push(self.write_run(timeline, dropped)?);
        }
        match &frozen.times[..] {
            [] => Ok(None),
            times => self.write_times(times.to_vec()).map(Some),
        }
    }

    /// Freezes what is pending.
    fn freeze_pending(&self) -> Result<Frozen> {
        loop {
            // Listed before the gate is closed: a pool has many segments, and writes would wait.
            let open = self.log().open_segment();
            let mut own = self.core.store.segments();
            // Pending entries name no slab of a base.
            own.retain(|s| s.log == self.id && s.slab.is_none());
            let frozen = self.log().with_gate(|gate| -> Result<_> {
                // Only the log adds segments while we hold `work`: none that was begun meanwhile
                // is left out.
                let is_whole = gate.open_segment() == open;
                Ok(is_whole.then(|| self.freeze_in_gate(gate, own)))
            })?;
            if let Some(frozen) = frozen {
                return Ok(frozen);
            }
        }
    }

    fn freeze_in_gate(&self, gate: &Gate<'_>, own: Vec<Arc<Segment>>) -> Frozen {
        // Copied here and no earlier: a revert may have begun another timeline since, and what is
        // pending there has seqs that this flush covers.
        let line = self.record.lock().line.clone();
        let ids: BTreeSet<u64> = line.into_iter().map(|(_, timeline)| timeline).collect();
        let mut timelines: Vec<_> =
            ids.into_iter().filter_map(|id| self.core.timeline(id)).collect();
        timelines.iter().for_each(|timeline| timeline.freeze());
        timelines.retain(|timeline| !timeline.frozen().is_empty());
        let counted = |s: Arc<Segment>| {
            let live = s.live_entries.load(Ordering::Acquire);
            let end = s.end.load(Ordering::Acquire);
            let sealed = s.sealed.load(Ordering::Acquire);
            (s, live, end, sealed)
        };
        let (bytes_total, flushes_total) = gate.totals();
        let (seq, time) = (gate.last_seq(), gate.last_time());
        Frozen {
            seq,
            times: gate.times().to_vec(),
            last: TimeEntry { time, seq, bytes_total, flushes_total },
            segments: own.into_iter().map(counted).collect(),
            timelines,
        }
    }

    /// Writes the frozen entries of a timeline that are still needed.
    fn write_run(
        &self,
        timeline: &Arc<Timeline>,
        dropped: &mut BTreeMap<u64, i64>,
    ) -> Result<Written> {
        let frozen = timeline.frozen();
        let mut entries: Vec<Entry> = Vec::new();
        for part in &frozen {
            entries.extend(part.sorted());
        }
        entries.sort_by_key(|e| (e.key, std::cmp::Reverse(e.seq)));
        // Entries superseded before the first of them are none of a flush's business.
        let first = entries.iter().map(|e| e.seq).min().unwrap_or(Seq::MAX);
        let Needed { openable, held, .. } = self.core.host()?.needed(timeline.id, first)?;
        let mut counter = self.figure_counter(held);
        let nodes = Nodes::new(frozen.iter().flat_map(|part| part.nodes().iter().copied()));
        let id = self.core.next_run();
        let mut builder = history::RunBuilder::new(&self.core.store, id, id, timeline);
        let mut start = 0;
        while start < entries.len() {
            let key = entries[start].key;
            let count = entries[start..].iter().take_while(|e| e.key == key).count();
            sift(&entries[start..start + count], &nodes, &openable, |entry, keep, seq| {
                if keep {
                    counter.count(entry, seq);
                    return builder.push(*entry).map_err(Into::into);
                }
                *dropped.entry(entry.location.segment()).or_default() += 1;
                Ok(())
            })?;
            start += count;
        }
        let run = builder.finish(&self.core.store)?;
        let (timeline, figures) = (Arc::clone(timeline), counter.finish());
        Ok(Written { timeline, parts: frozen.len(), run, figures })
    }

    /// Writes times out, together with the newest parts of the index that have no more entries than
    /// what they are joined with, or fill a page with it: so there are as many parts as the number
    /// of flushes has digits in base two, and each entry is written as often, at most.
    fn write_times(&self, mut times: Vec<TimeEntry>) -> Result<WrittenTimes> {
        let store = &self.core.store;
        let mut joined = Vec::new();
        for run in self.times().runs().into_iter().rev() {
            let (has, all) = (run.entries as usize, run.entries as usize + times.len());
            let is_worth_it = all <= TIME_ENTRIES_MAX || has <= times.len();
            if !is_worth_it || all > TIMES_JOINED_MAX {
                break;
            }
            // A damaged part stays as it is: who asks for its times is told.
            let Ok(older) = run.all_entries(store) else { break };
            times.splice(..0, older);
            joined.push(run);
        }
        let stays = 2 * times.len() > TIMES_JOINED_MAX;
        let run = write_time_run(store, self.core.next_run(), self.id, &times, stays)?;
        Ok(WrittenTimes { run, joined })
    }
}

impl MapFlush<'_> {
    /// Entries of a segment that stay, of so many.
    fn stay(&self, segment: &Segment, live: i64) -> i64 {
        live - self.dropped.get(&segment.number).copied().unwrap_or(0)
    }

    /// Puts it into a transaction.
    fn put(&self, tx: &mut Transaction<'_>) -> Result<()> {
        for part in &self.runs {
            if let Some(run) = &part.run {
                tx.put(tables::MAP_RUNS, run.id, &record_of_run(run, part.timeline.id))?;
                tx.put(tables::FIGURES, run.id, &part.figures)?;
            }
        }
        if let Some(WrittenTimes { run, joined }) = &self.times {
            joined.iter().try_for_each(|run| tx.remove(tables::TIME_RUNS, run.id))?;
            tx.put(tables::TIME_RUNS, run.id, &record_of_times(run, self.stream.id))?;
        }
        for (segment, live, end, sealed) in &self.frozen.segments {
            commit_segment(tx, segment, self.stay(segment, *live), *end, *sealed)?;
        }
        let last = &self.frozen.last;
        let record = tx.change(&self.stream.record);
        record.flushed_seq = last.seq.0;
        record.flushed_ns = last.time.as_nanos();
        record.flushed_bytes_total = last.bytes_total;
        record.flushed_flushes_total = last.flushes_total;
        Ok(())
    }

    /// Takes it up in memory: it is committed.
    fn install(self) {
        let (stream, core) = (self.stream, &self.stream.core);
        for (segment, live, ..) in &self.frozen.segments {
            let stay = self.stay(segment, *live);
            segment.committed_entries.store(stay, Ordering::Release);
            segment.add_entries(stay - live);
        }
        for part in self.runs {
            core.figures.note(&[], part.run.as_ref().map(|run| (run.id, part.figures)));
            part.timeline.install_flushed(part.parts, part.run.map(Arc::new));
        }
        if let Some(WrittenTimes { run, joined }) = self.times {
            stream.times().replace_newest(joined.len(), Arc::new(run));
            joined.iter().for_each(|run| core.store.retire_extents(&run.pages));
        }
        stream.log().drop_times(self.frozen.seq);
        stream.note_recovered_flushed();
    }
}

/// Records a segment; a spare it was made from is one no longer.
pub fn commit_segment(
    commit: &Commit,
    segment: &Segment,
    live_entries: i64,
    end: u32,
    sealed: bool,
) -> Result<()> {
    let record = SegmentRecord {
        zone: segment.zone,
        end,
        log: segment.log,
        nonce: segment.nonce,
        last_seq: segment.last_seq().0,
        live_entries,
        sealed,
        packed: segment.packed.load(Ordering::Acquire),
        shared: segment.shared,
    };
    commit.remove(tables::SPARES, segment.number)?;
    commit.put(tables::SEGMENTS, segment.number, &record)
}

/// The catalogue's record of a map run.
#[must_use]
pub fn record_of_run(run: &StoredRun, timeline: u64) -> RunRecord {
    RunRecord {
        id: run.id,
        owner: timeline,
        order: run.order,
        extents: run.extents.list.iter().map(|e| (e.zone, e.first, e.count)).collect(),
        entries: run.footer().entries,
    }
}

/// The catalogue's record of a time run.
#[must_use]
pub fn record_of_times(run: &TimeRun, log: u64) -> RunRecord {
    RunRecord {
        id: run.id,
        owner: log,
        order: run.id,
        extents: run.pages.list.iter().map(|e| (e.zone, e.first, e.count)).collect(),
        entries: run.entries,
    }
}

#[cfg(test)]
pub(crate) mod tests;
