//! How much space a volume takes, and for what: put together from sums that are kept (`history`'s
//! tallies of segments, `run_figures`). Nothing here walks what is large.

pub mod counted;

use std::collections::BTreeMap;
use std::sync::Arc;

use format::map::Entry;
use history::{By, Openable, Timeline};
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::Result;
use crate::catalogue::VolumeRecord;
use crate::pool::run_figures::{FigureCounter, Figures, SpanFigures};
use crate::pool::space::counted::{Counted, Space};
use crate::retention::filter::{Nodes, sift};
use crate::retention::moments::Moments;
use crate::types::{AgeBytes, Holder, VolumeSpace};
use crate::volume::stream::Stream;

/// Maps with no more entries than this are walked to count; of larger ones the figures of runs
/// tell.
const WALKED_ENTRIES_MAX: u64 = 20_000;
/// Holders told of a volume, at most: more pins are told in groups of neighbours.
const HOLDERS_MAX: usize = 128;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Ages by which history is told, in nanoseconds.
const AGES_NS: [u64; 4] = [HOUR_NS, 24 * HOUR_NS, 7 * 24 * HOUR_NS, 30 * 24 * HOUR_NS];
/// Ages at which spans of figures end when a run is written, in hours; so are shares of an hour.
const MARKS_HOURS: [u64; 12] = [1, 2, 6, 12, 24, 48, 72, 168, 336, 720, 2160, 8760];

impl Moments {
    /// Tells what the volume's space is for. A clone's live bytes include what it shares with its
    /// origin, its history only its own log.
    pub(crate) fn space(&self) -> Result<Space> {
        let counted = self.counted()?;
        let (live_bytes, live_exact) = self.live_bytes_and_whether()?;
        let history_bytes = self.history_of(self.own_live_bytes(live_bytes, &counted));
        let pinned: u64 = counted.spans().map(|(_, span)| span.pinned).sum();
        let pinned_bytes = Share::of(history_bytes, &counted).bytes(pinned);
        Ok(Space { live_bytes, live_exact, history_bytes, pinned_bytes })
    }

    /// Bytes kept only for the past, at least.
    pub(crate) fn history_bytes(&self) -> Result<u64> {
        let live_bytes = self.live_bytes()?;
        Ok(self.history_of(self.own_live_bytes(live_bytes, &*self.counted()?)))
    }

    /// The first seq that frees so many bytes once it is the oldest that can be opened, as far as
    /// figures tell; `None` if none does.
    pub(crate) fn seq_that_frees(&self, bytes: u64) -> Result<Option<Seq>> {
        let counted = self.counted()?;
        let latest = self.log().stable();
        let freed = |seq: u64| -> u64 {
            let unpinned = |s: &SpanFigures| s.blocks.saturating_sub(s.pinned);
            let of = |s: &SpanFigures| unpinned(s).saturating_sub(after(s, Seq(seq), latest));
            counted.spans().map(|(_, span)| of(span)).sum()
        };
        let wanted = bytes.div_ceil(BLOCK_BYTES);
        let (mut low, mut high) = (self.record.lock().horizon_seq, latest.0);
        if freed(high) < wanted {
            return Ok(None);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if freed(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        Ok(Some(Seq(low)))
    }

    /// Whether more than so many bytes may be kept only for the past beside those that are told,
    /// and a full merge is worth it to know.
    pub(crate) fn is_history_doubtful(&self, more_bytes: u64) -> Result<bool> {
        let counted = self.counted()?;
        let live_bytes = self.own_live_bytes(self.live_bytes()?, &counted);
        Ok(counted.doubt(live_bytes / BLOCK_BYTES) * BLOCK_BYTES > more_bytes)
    }

    /// Of the present, what this volume wrote itself: what a clone shares lies in its origin's log.
    fn own_live_bytes(&self, live_bytes: u64, counted: &Counted) -> u64 {
        if self.record.lock().cloned_from.is_none() {
            return live_bytes;
        }
        let present = self.present();
        // As of a branch any version may be seen.
        let ancestors = present.timeline.line().skip(1).take_while(|line| line.log == self.id);
        let inherited: u64 = ancestors.map(|line| counted.blocks_of(line.id)).sum();
        let blocks = counted.newest_of(present.timeline.id) + inherited;
        live_bytes.min(blocks * BLOCK_BYTES)
    }

    fn history_of(&self, own_live_bytes: u64) -> u64 {
        let count = self.core.store.space(self.id).count();
        // As if each version had a block of its own; what is stored is told by as much less.
        let shared_bytes = count.shared_bytes.min(count.live_bytes);
        let named_bytes = (count.shared_entries * BLOCK_BYTES).max(shared_bytes);
        // Blocks shared with other volumes are in no log of its own, but are its present or past.
        let common_bytes = self.record.lock().common * BLOCK_BYTES;
        let logged_bytes = count.live_bytes - shared_bytes + named_bytes + common_bytes;
        let history = logged_bytes.saturating_sub(own_live_bytes);
        let stored = u128::from(history) * u128::from(count.live_bytes);
        let stored = stored.checked_div(u128::from(logged_bytes)).unwrap_or(0);
        u64::try_from(stored).expect("a part of what is stored")
    }

    /// Bytes of the present that are stored, at most.
    pub(crate) fn live_bytes(&self) -> Result<u64> {
        self.live_bytes_and_whether().map(|(bytes, _)| bytes)
    }

    fn live_bytes_and_whether(&self) -> Result<(u64, bool)> {
        let seq = self.log().stable();
        let last = *self.last_count().live.lock();
        if let Some((at, bytes)) = last
            && at == seq
        {
            return Ok((bytes, true));
        }
        let present = self.present();
        if entries_of(&present.timeline) <= WALKED_ENTRIES_MAX {
            let bytes = present.stored_bytes()?;
            *self.last_count().live.lock() = Some((seq, bytes));
            return Ok((bytes, true));
        }
        let counted = self.counted()?;
        let own = counted.newest_of(present.timeline.id) * BLOCK_BYTES;
        let Some(parent) = &present.timeline.parent else {
            return Ok((own.min(present.size_bytes), counted.is_whole));
        };
        // The figures of ancestors know of their ends only, not of the part that is seen.
        let inherited = entries_of(&parent.timeline) * BLOCK_BYTES;
        Ok((own.saturating_add(inherited).min(present.size_bytes), false))
    }

    /// Bytes of blocks in this volume's log that the map points to.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.core.store.space(self.id).count().live_bytes
    }

    /// Bytes of the runs of map entries of this volume's writes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let runs = self.own_timelines().into_iter().flat_map(|timeline| timeline.runs());
        runs.map(|run| u64::from(run.footer().pages()) * format::PAGE_BYTES as u64).sum()
    }

    /// The figures as they stand: of a small map counted now, otherwise those of its runs.
    fn counted(&self) -> Result<Arc<Counted>> {
        let timelines = self.own_timelines();
        let entries: u64 = timelines.iter().map(|line| line.entries_after(Seq::ZERO)).sum();
        if entries > WALKED_ENTRIES_MAX {
            return Ok(Arc::new(self.counted_by_runs(&timelines)));
        }
        // One lock after the other: whoever holds the pins may want the record.
        let horizon = Seq(self.record.lock().horizon_seq);
        let pins = self.pins().lock().seq_count();
        let held = pins + self.core.timelines.read().len();
        let key = (self.log().stable(), horizon, held, entries);
        if let Some((walked, counted)) = &*self.last_count().walked.lock()
            && *walked == key
        {
            return Ok(Arc::clone(counted));
        }
        let counted = Arc::new(self.count_all()?);
        *self.last_count().walked.lock() = Some((key, Arc::clone(&counted)));
        Ok(counted)
    }

    /// The sum of the figures of the runs; of a run without figures only the size is known.
    pub(crate) fn counted_by_runs(&self, timelines: &[Arc<Timeline>]) -> Counted {
        let known = self.core.figures.known();
        let mut counted = Counted { is_whole: true, ..Counted::default() };
        for timeline in timelines {
            let mut sum = Figures::default();
            // Pending ones first: what is written out meanwhile counts twice rather than never.
            let is_pending = timeline.pending_counts().0 > 0;
            let pending = timeline.pending_newest();
            sum.newest += pending;
            let mut most = pending;
            let runs = timeline.runs();
            counted.is_whole &= runs.len() + usize::from(is_pending) <= 1;
            for run in runs {
                let before = sum.newest;
                match known.get(&run.id) {
                    Some(figures) => {
                        sum.newest += figures.newest;
                        sum.spans.extend_from_slice(&figures.spans);
                    }
                    None => {
                        counted.is_whole = false;
                        sum.newest += run.footer().entries;
                    }
                }
                most = most.max(sum.newest - before);
            }
            counted.doubtful += sum.newest - most;
            counted.timelines.push((timeline.id, sum));
        }
        counted
    }

    /// Counts every entry there is: what a merge of everything would say if it dropped nothing.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(crate) fn count_all(&self) -> Result<Counted> {
        let _epoch = self.core.store.enter();
        let mut held: BTreeMap<u64, Vec<Seq>> = BTreeMap::new();
        self.add_held(&mut held);
        self.add_branches(|timeline, seq, _| held.entry(timeline).or_default().push(seq));
        let marks = self.age_marks();
        let mut counted = Counted { is_whole: true, ..Counted::default() };
        for timeline in self.own_timelines() {
            let mut entries = self.entries_of_all(&timeline)?;
            entries.sort_unstable_by_key(Entry::order);
            entries.dedup_by_key(|entry| entry.order());
            let nodes = Nodes::new(entries.iter().copied());
            let mut pins = held.remove(&timeline.id).unwrap_or_default();
            pins.sort_unstable();
            pins.dedup();
            let mut counter = FigureCounter::new(pins, &marks);
            for key in entries.chunk_by(|a, b| a.key == b.key) {
                sift(key, &nodes, &Openable::none(), |entry, _, superseded| {
                    counter.count(entry, superseded);
                    Ok(())
                })?;
            }
            counted.timelines.push((timeline.id, counter.finish()));
        }
        Ok(counted)
    }

    fn entries_of_all(&self, timeline: &Timeline) -> Result<Vec<Entry>> {
        // Pending ones first: what is written out meanwhile is then in both, and counted once.
        let mut entries = timeline.pending_entries();
        for run in timeline.runs() {
            run.scan(&self.core.store, |entry| -> Result<()> {
                entries.push(entry);
                Ok(())
            })?;
        }
        Ok(entries)
    }

    /// Moments of this volume's timelines at which others branch off: timeline, seq, who.
    fn add_branches(&self, mut add: impl FnMut(u64, Seq, String)) {
        let volumes = self.core.served();
        let timelines = self.core.timelines.read();
        let own = |id: u64| timelines.get(&id).is_some_and(|(record, _)| record.log == self.id);
        for (record, _) in timelines.values() {
            let Some((parent, seq)) = record.parent.filter(|&(parent, _)| own(parent)) else {
                continue;
            };
            let who = match volumes.iter().find(|volume| volume.id == record.log) {
                Some(volume) if volume.id == self.id => "revert".to_owned(),
                Some(volume) => format!("clone {}", volume.name),
                None => "a clone that was deleted, for clones of it".to_owned(),
            };
            add(parent, Seq(seq), who);
        }
    }

    /// The uses of the volume's space, in full.
    ///
    /// # Errors
    /// `NotFound` once it is deleted; `Corrupt` or `Io`.
    pub fn space_told(&self) -> Result<VolumeSpace> {
        self.check_open()?;
        let record = self.record.lock().clone();
        let space = self.space()?;
        let counted = self.counted()?;
        let share = Share::of(space.history_bytes, &counted);
        let (ages, unsorted_bytes) = self.ages(space.history_bytes, &counted);
        let latest = self.log().stable();
        let horizon = Seq(record.horizon_seq);
        let gone = |s: &SpanFigures| s.blocks - after(s, horizon, latest).min(s.blocks);
        let left: u64 = counted.spans().map(|(_, s)| gone(s)).sum();
        let beyond: u64 = counted.spans().map(|(_, s)| gone(s).min(s.pinned)).sum();
        let dead_bytes = self.core.store.space(self.id).count().dead_bytes;
        Ok(VolumeSpace {
            live_bytes: space.live_bytes,
            live_exact: space.live_exact,
            history_bytes: space.history_bytes,
            ages,
            unsorted_bytes,
            pinned_bytes: space.pinned_bytes,
            beyond_bytes: share.bytes(beyond),
            reclaimable_bytes: dead_bytes + share.bytes(left - beyond),
            holders: self.holders(&record, &counted, share),
        })
    }

    /// History by when it was written over, and what is not sorted by that yet. Cheap.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn history_ages(&self) -> Result<(Vec<AgeBytes>, u64)> {
        let history_bytes = self.history_bytes()?;
        Ok(self.ages(history_bytes, &*self.counted()?))
    }

    fn ages(&self, history_bytes: u64, counted: &Counted) -> (Vec<AgeBytes>, u64) {
        let share = Share::of(history_bytes, counted);
        let now = self.now();
        let latest = self.log().stable();
        let mut ages = Vec::new();
        let mut told = 0;
        for age_ns in AGES_NS {
            let seq = self.seq_at_age(now, age_ns).unwrap_or(Seq::ZERO);
            let younger: u64 = counted.spans().map(|(_, s)| after(s, seq, latest)).sum();
            let bytes = share.bytes(younger);
            ages.push(AgeBytes { below_ns: Some(age_ns), bytes: bytes.saturating_sub(told) });
            told = bytes.max(told);
        }
        let sorted_bytes = share.bytes(counted.superseded());
        ages.push(AgeBytes { below_ns: None, bytes: sorted_bytes.saturating_sub(told) });
        (ages, history_bytes - sorted_bytes)
    }

    /// The holders, the oldest first.
    fn holders(&self, record: &VolumeRecord, counted: &Counted, share: Share) -> Vec<Holder> {
        let mut pins: BTreeMap<(u64, Seq), Vec<String>> = BTreeMap::new();
        for (seq, name) in self.pins().lock().named() {
            pins.entry((record.timeline_at(seq), seq)).or_default().push(name);
        }
        self.add_branches(|timeline, seq, who| {
            pins.entry((timeline, seq)).or_default().push(who);
        });
        let pins: Vec<((u64, Seq), Vec<String>)> = pins.into_iter().collect();
        let step = pins.len().div_ceil(HOLDERS_MAX).max(1);
        let mut blocks = vec![(0, 0); pins.len().div_ceil(step)];
        for (timeline, span) in counted.spans() {
            let end = pins.partition_point(|(place, _)| *place < (timeline, Seq(span.until)));
            let last = end.checked_sub(1).filter(|&last| pins[last].0.0 == timeline);
            if let Some(last) = last {
                blocks[last / step].0 += span.pinned;
                blocks[last / step].1 += span.own;
            }
        }
        let groups = pins.chunks(step).zip(blocks).map(|(group, (held, own))| {
            let (first, last) = (&group[0], &group[group.len() - 1]);
            let mut names = first.1.clone();
            if group.len() > 1 {
                names.extend(last.1.iter().cloned());
            }
            Holder {
                first: first.0.1,
                last: last.0.1,
                moments: group.len() as u64,
                names,
                held_bytes: share.bytes(held),
                own_bytes: share.bytes(own),
            }
        });
        groups.collect()
    }
}

impl Stream {
    /// The counter of a run of a timeline, of which these moments are held, while it is written.
    pub(crate) fn figure_counter(&self, held: Vec<Seq>) -> FigureCounter {
        FigureCounter::new(held, &self.age_marks())
    }

    /// Seqs of certain ages, and the horizon's; ascending.
    fn age_marks(&self) -> Vec<Seq> {
        let now = self.now();
        let mut marks = vec![Seq(self.record.lock().horizon_seq)];
        marks.extend(MARKS_HOURS.iter().filter_map(|hours| self.seq_at_age(now, hours * HOUR_NS)));
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    /// The last seq that is so old. Damage in the time index costs accuracy, nothing else.
    fn seq_at_age(&self, now: WallTime, age_ns: u64) -> Option<Seq> {
        let then = WallTime::from_nanos(now.as_nanos().saturating_sub(age_ns));
        self.time_entry(By::Time(then)).ok().flatten().map(|entry| entry.seq)
    }
}

/// From blocks of history to bytes of it: packed versions take less than a block.
#[derive(Clone, Copy, Debug)]
struct Share {
    bytes: u64,
    blocks: u64,
}

impl Share {
    /// Of so many bytes of history, of which figures know so many blocks.
    fn of(history_bytes: u64, counted: &Counted) -> Share {
        let blocks = counted.superseded();
        Share { bytes: history_bytes.min(blocks.saturating_mul(BLOCK_BYTES)), blocks }
    }

    fn bytes(self, blocks: u64) -> u64 {
        let share = u128::from(self.bytes) * u128::from(blocks.min(self.blocks));
        let share = share.checked_div(u128::from(self.blocks)).unwrap_or(0);
        u64::try_from(share).expect("a part of what fits")
    }
}

/// Blocks of a span that were superseded after a seq; within the span they are taken to lie evenly.
fn after(span: &SpanFigures, seq: Seq, latest: Seq) -> u64 {
    let until = span.until.min(latest.0.max(span.after + 1));
    if seq.0 <= span.after {
        return span.blocks;
    }
    let (part, whole) = (until.saturating_sub(seq.0), until - span.after);
    let blocks = u128::from(span.blocks) * u128::from(part) / u128::from(whole);
    u64::try_from(blocks).expect("a part of what fits")
}

/// Map entries that an opening of a timeline may have to look at.
fn entries_of(timeline: &Timeline) -> u64 {
    timeline.line().map(|line| line.entries_after(Seq::ZERO)).sum()
}
