//! Which moments of a timeline can be opened: the window, pins, and branches that others began
//! there.
//!
//! Invariants
//! 1. What is asked of one timeline reads the pins and times of its own volume alone. Of those that
//!    branched off it asks whether anything is open there at all; where damage hides that, it is.
//! 2. It costs nothing for moments before `from`: a map flush is as cheap after a million versions
//!    as after ten.

use std::collections::{BTreeMap, BTreeSet};

use history::{By, Openable};
use units::Seq;

use crate::core::Core;
use crate::types::Granularity;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// The moments of a timeline that can be opened.
#[derive(Debug)]
pub struct Needed {
    /// All of them.
    pub openable: Openable,
    /// Of these: what pins and branches hold, whatever leaves the window; ascending.
    pub held: Vec<Seq>,
}

impl Core {
    /// The moments of a timeline at or after `from` that can be opened.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from the time index of the timeline's own volume.
    pub(crate) fn needed(&self, timeline: u64, from: Seq) -> Result<Needed> {
        let volumes = self.all_volumes();
        let owner = |log: u64| volumes.binary_search_by_key(&log, |v| v.id).map(|i| &volumes[i]);
        // Children before parents: a child has a higher number.
        let mut below: BTreeSet<u64> = BTreeSet::from([timeline]);
        let mut records = Vec::new();
        for (record, _) in self.timelines.read().range(timeline..).map(|(_, found)| found) {
            if record.id == timeline || record.parent.is_some_and(|(of, _)| below.contains(&of)) {
                below.insert(record.id);
                records.push((record.id, record.log, record.parent));
            }
        }
        let mut held: Vec<Seq> = Vec::new();
        let mut open: BTreeSet<u64> = BTreeSet::new();
        for &(id, log, parent) in records.iter().rev().filter(|record| record.0 != timeline) {
            let is_open = || owner(log).map_or(Ok(false), |volume| volume.opens_on(id));
            if open.contains(&id) || is_open()? {
                let (parent, seq) = parent.expect("what is below has a parent");
                assert!(parent < id, "a timeline is younger than its parent");
                open.insert(parent);
                if parent == timeline && seq >= from.0 {
                    held.push(Seq(seq));
                }
            }
        }
        let mut ranges: Vec<(Seq, Seq)> = held.iter().map(|&seq| (seq, seq)).collect();
        if let Some(&(_, log, _)) = records.first()
            && let Ok(volume) = owner(log)
        {
            volume.add_openable(timeline, from, &mut ranges, &mut held)?;
        }
        held.sort_unstable();
        held.dedup();
        Ok(Needed { openable: Openable::new(ranges), held })
    }
}

impl Volume {
    /// Adds what can be opened of this volume on a timeline at or after `from`, and what pins hold.
    fn add_openable(
        &self,
        timeline: u64,
        from: Seq,
        ranges: &mut Vec<(Seq, Seq)>,
        held: &mut Vec<Seq>,
    ) -> Result<()> {
        let pins = self.pins.lock();
        let latest = self.log.stable();
        let boundaries = self.boundaries(from)?;
        let record = self.record.lock().clone();
        let unpinned = record.unpinned(latest, &boundaries);
        for (first, last) in record.stretches(timeline) {
            let first = first.max(from);
            let part = unpinned.within(first, last);
            ranges.extend_from_slice(part.ranges());
            if record.deleted {
                continue;
            }
            for seq in pins.seqs_within(first, last) {
                held.push(seq);
                // Only those that are not open anyway.
                if !part.contains(seq) {
                    ranges.push((seq, seq));
                }
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

    /// Whether anything of this volume on a timeline can be opened, or may be.
    fn opens_on(&self, timeline: u64) -> Result<bool> {
        let pins = self.pins.lock();
        let latest = self.log.stable();
        let record = self.record.lock().clone();
        if record.deleted {
            return Ok(false);
        }
        let any = |boundaries: &[Seq]| {
            let unpinned = record.unpinned(latest, boundaries);
            record.stretches(timeline).any(|(first, last)| {
                pins.seqs_within(first, last).next().is_some()
                    || !unpinned.within(first, last).is_empty()
            })
        };
        if any(&[]) {
            return Ok(true);
        }
        match self.boundaries(Seq::ZERO) {
            // Too much is kept rather than too little.
            Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io) => Ok(true),
            boundaries => boundaries.map(|boundaries| any(&boundaries)),
        }
    }

    /// The last seqs of complete intervals since the horizon, where granularity is an interval;
    /// those before `from` may be left out.
    fn boundaries(&self, from: Seq) -> Result<Vec<Seq>> {
        let record = self.record.lock().clone();
        let is_interval = |g: &(u64, Granularity)| matches!(g.1, Granularity::Interval(_));
        if record.deleted || !record.granularities.iter().any(is_interval) {
            return Ok(Vec::new());
        }
        // What is open depends on nothing before the entry that this begins with.
        let begin = Seq(record.horizon_seq).max(from);
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
        match self.time_entry(By::Seq(begin))? {
            Some(entry) => visit(entry.seq, entry.time.as_nanos()),
            // What it began with is the end of an interval too, if nothing was written in it.
            None => visit(Seq(record.created_seq), record.created_ns),
        }
        let recent = self.log.with_times(<[format::time::TimeEntry]>::to_vec);
        let first_recent = recent.first().map_or(Seq(u64::MAX), |e| e.seq);
        self.times.scan_after(&self.core.store, By::Seq(begin), |entry| {
            if entry.seq < first_recent {
                visit(entry.seq, entry.time.as_nanos());
            }
            true
        })?;
        for entry in recent.iter().filter(|e| e.seq > begin) {
            visit(entry.seq, entry.time.as_nanos());
        }
        // The last window is complete if its time is over: then its end can be opened too.
        if let Some((last, _)) = before {
            ends.push(last);
        }
        Ok(ends)
    }
}
