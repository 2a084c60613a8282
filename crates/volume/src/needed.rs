//! Which moments of a timeline can be opened: the window, pins, and branches that others began
//! there.

use std::collections::BTreeMap;

use history::{By, Openable};
use units::Seq;

use crate::Result;
use crate::core::Core;
use crate::types::Granularity;
use crate::volume::Volume;

/// The openable moments of every timeline of a pool, worked out at one time.
#[derive(Debug, Default)]
pub struct Needed {
    by_timeline: BTreeMap<u64, Openable>,
    /// Of these: what pins and branches hold, whatever leaves the window.
    held: BTreeMap<u64, Vec<Seq>>,
}

impl Needed {
    /// The openable moments of a timeline.
    #[must_use]
    pub fn of(&self, timeline: u64) -> Openable {
        self.by_timeline.get(&timeline).cloned().unwrap_or_default()
    }

    /// Moments of a timeline that pins and branches hold, ascending.
    #[must_use]
    pub fn held(&self, timeline: u64) -> Vec<Seq> {
        self.held.get(&timeline).cloned().unwrap_or_default()
    }

    /// Works it out for all timelines, children before parents (a child has a higher number).
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from time indexes.
    pub fn work_out(core: &Core) -> Result<Needed> {
        let mut ranges: BTreeMap<u64, Vec<(Seq, Seq)>> = BTreeMap::new();
        for volume in core.all_volumes() {
            volume.add_openable(&mut ranges)?;
        }
        let parents: Vec<(u64, Option<(u64, u64)>)> =
            core.timelines.read().values().map(|(record, _)| (record.id, record.parent)).collect();
        let mut needed = Needed::default();
        for volume in core.all_volumes() {
            volume.add_held(&mut needed.held);
        }
        for &(id, parent) in parents.iter().rev() {
            let openable = Openable::new(ranges.remove(&id).unwrap_or_default());
            if let (false, Some((parent, seq))) = (openable.is_empty(), parent) {
                assert!(parent < id, "a timeline is younger than its parent");
                ranges.entry(parent).or_default().push((Seq(seq), Seq(seq)));
                needed.held.entry(parent).or_default().push(Seq(seq));
            }
            needed.by_timeline.insert(id, openable);
        }
        for held in needed.held.values_mut() {
            held.sort_unstable();
            held.dedup();
        }
        Ok(needed)
    }
}

impl Volume {
    /// Adds what can be opened of this volume, by timeline.
    fn add_openable(&self, ranges: &mut BTreeMap<u64, Vec<(Seq, Seq)>>) -> Result<()> {
        let pins = self.pins.lock();
        let latest = self.log.stable();
        let boundaries = self.boundaries()?;
        let record = self.record.lock().clone();
        let unpinned = record.unpinned(latest, &boundaries);
        for &(_, timeline) in &record.line {
            for (first, last) in record.stretches(timeline) {
                let part = unpinned.within(first, last);
                ranges.entry(timeline).or_default().extend_from_slice(part.ranges());
            }
        }
        if !record.deleted {
            // Only those that are not open anyway: between the ranges.
            let mut first = Seq::ZERO;
            let closing = (Seq::MAX, Seq::MAX);
            for &(start, end) in unpinned.ranges().iter().chain([&closing]) {
                for seq in pins.seqs_within(first, Seq(start.0.saturating_sub(1))) {
                    ranges.entry(record.timeline_at(seq)).or_default().push((seq, seq));
                }
                first = Seq(end.0.saturating_add(1));
            }
        }
        Ok(())
    }

    /// Adds what is pinned of this volume, by timeline.
    pub(crate) fn add_held(&self, held: &mut BTreeMap<u64, Vec<Seq>>) {
        let pins = self.pins.lock();
        let record = self.record.lock();
        if record.deleted {
            return;
        }
        for seq in pins.seqs() {
            held.entry(record.timeline_at(seq)).or_default().push(seq);
        }
    }

    /// The last seqs of complete intervals since the horizon, where granularity is an interval.
    fn boundaries(&self) -> Result<Vec<Seq>> {
        let record = self.record.lock().clone();
        let is_interval = |g: &(u64, Granularity)| matches!(g.1, Granularity::Interval(_));
        if record.deleted || !record.granularities.iter().any(is_interval) {
            return Ok(Vec::new());
        }
        let horizon = Seq(record.horizon_seq);
        let mut ends: Vec<Seq> = Vec::new();
        let mut before: Option<(Seq, u64)> = None;
        let mut visit = |seq: Seq, time_ns: u64| {
            let Granularity::Interval(nanos) = record.granularity_at(seq) else {
                // The interval ended with the granularity: its end can be opened once its time is
                // over.
                ends.extend(before.take().map(|(last, _)| last));
                return;
            };
            let window = time_ns / nanos.max(1);
            if let Some((last, open)) = before
                && open != window
            {
                ends.push(last);
            }
            before = Some((seq, window));
        };
        match self.time_entry(By::Seq(horizon))? {
            Some(entry) => visit(entry.seq, entry.time.as_nanos()),
            // What it began with is the end of an interval too, if nothing was written in it.
            None => visit(Seq(record.created_seq), record.created_ns),
        }
        let recent = self.log.with_times(<[format::time::TimeEntry]>::to_vec);
        let first_recent = recent.first().map_or(Seq(u64::MAX), |e| e.seq);
        self.times.scan_after(&self.core.store, By::Seq(horizon), |entry| {
            if entry.seq < first_recent {
                visit(entry.seq, entry.time.as_nanos());
            }
            true
        })?;
        for entry in recent.iter().filter(|e| e.seq > horizon) {
            visit(entry.seq, entry.time.as_nanos());
        }
        // The last window is complete if its time is over: then its end can be opened too.
        if let Some((last, _)) = before {
            ends.push(last);
        }
        Ok(ends)
    }
}
