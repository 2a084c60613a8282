//! Which moments of a timeline can be opened: the window, pins, and branches that others began
//! there.
//!
//! Invariants
//! 1. A question about one timeline reads the pins and times of its own volume alone. Of those that
//!    branched off it asks whether anything is open there at all; where damage hides that, it is.
//! 2. It costs nothing for moments before `from`: a map flush is as cheap after a million versions
//!    as after ten.
//! 3. A timeline whose volume is only being made has every moment open: nothing of it is dropped.
//! 4. A moment at which others branched off sees of a timeline only what those have not written
//!    over before their own first open moment (`Branch::sees`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use history::{By, Openable, Timeline};
use units::Seq;

use crate::pool::volumes::Volumes;
use crate::retention::moments::Moments;
use crate::retention::needed::{Branch, Needed};
use crate::types::Granularity;
use crate::{ErrorKind, Result};

/// A timeline with its log, and its parent and where it left that.
type Kin = (u64, Option<(u64, u64)>, Arc<Timeline>);

fn is_interval(granularity: &(u64, Granularity)) -> bool {
    matches!(granularity.1, Granularity::Interval(_))
}

impl Volumes {
    /// The moments of a timeline at or after `from` that can be opened.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from the time index of the timeline's own volume.
    pub(crate) fn needed(&self, timeline: u64, from: Seq) -> Result<Needed> {
        loop {
            let family = self.family(timeline);
            let members: Vec<u64> = family.iter().map(|record| record.2.id).collect();
            let needed = self.needed_by(timeline, from, family)?;
            // A moment may have lost its pin to a timeline that branched off there meanwhile.
            if self.family(timeline).iter().map(|record| record.2.id).eq(members) {
                return Ok(needed);
            }
        }
    }

    /// A timeline and those that branched off it, with their logs and parents; children after
    /// parents, for a child has a higher number.
    fn family(&self, timeline: u64) -> Vec<Kin> {
        let mut ids: BTreeSet<u64> = BTreeSet::from([timeline]);
        let mut family = Vec::new();
        for (record, line) in self.core.timelines.read().range(timeline..).map(|(_, found)| found) {
            if record.id == timeline || record.parent.is_some_and(|(of, _)| ids.contains(&of)) {
                ids.insert(record.id);
                family.push((record.log, record.parent, Arc::clone(line)));
            }
        }
        family
    }

    fn needed_by(&self, timeline: u64, from: Seq, family: Vec<Kin>) -> Result<Needed> {
        let volumes = self.registry.all();
        let owner = |log: u64| volumes.binary_search_by_key(&log, |v| v.id).map(|i| &volumes[i]);
        let log = family.first().map(|record| record.0);
        let mut by_parent: BTreeMap<u64, Vec<Branch>> = BTreeMap::new();
        for (log, parent, timeline) in family.into_iter().skip(1).rev() {
            let of_newborn = |_| Ok(Some(Seq::ZERO));
            let first =
                owner(log).map_or_else(of_newborn, |volume| volume.first_open_on(timeline.id))?;
            let branches = by_parent.remove(&timeline.id).unwrap_or_default();
            if first.is_none() && branches.is_empty() {
                continue;
            }
            let (parent, at) = parent.expect("what is below has a parent");
            assert!(parent < timeline.id, "a timeline is younger than its parent");
            let nodes = OnceLock::new();
            let branch = Branch { at: Seq(at), timeline, first, nodes, branches };
            by_parent.entry(parent).or_default().push(branch);
        }
        let branches = by_parent.remove(&timeline).unwrap_or_default();
        let mut held: Vec<Seq> = Vec::new();
        let mut ranges = Vec::new();
        match log.map(owner) {
            Some(Ok(volume)) => volume.add_openable(timeline, from, &mut ranges, &mut held)?,
            Some(Err(_)) => ranges.push((from, Seq(u64::MAX))),
            None => {}
        }
        let own = Openable::new(ranges.clone());
        let seqs: Vec<Seq> = branches.iter().map(|b| b.at).filter(|&at| at >= from).collect();
        ranges.extend(seqs.iter().map(|&seq| (seq, seq)));
        held.extend(seqs);
        held.sort_unstable();
        held.dedup();
        Ok(Needed { openable: Openable::new(ranges), held, own, branches })
    }
}

impl Moments {
    /// Adds what can be opened of this volume on a timeline at or after `from`, and what pins hold.
    fn add_openable(
        &self,
        timeline: u64,
        from: Seq,
        ranges: &mut Vec<(Seq, Seq)>,
        held: &mut Vec<Seq>,
    ) -> Result<()> {
        let pins = self.pins().lock();
        let latest = self.log().stable();
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
        let pins = self.pins().lock();
        let record = self.record.lock();
        if record.deleted {
            return;
        }
        for seq in pins.seqs() {
            held.entry(record.timeline_at(seq)).or_default().push(seq);
        }
    }

    /// The first moment of this volume on a timeline that can be opened, or an earlier one; none
    /// when there is none.
    fn first_open_on(&self, timeline: u64) -> Result<Option<Seq>> {
        let pins = self.pins().lock();
        let latest = self.log().stable();
        let record = self.record.lock().clone();
        if record.deleted {
            return Ok(None);
        }
        let first = |boundaries: &[Seq]| {
            let unpinned = record.unpinned(latest, boundaries);
            let of = |(first, last)| {
                let open = unpinned.within(first, last).ranges().first().map(|range| range.0);
                pins.seqs_within(first, last).next().into_iter().chain(open).min()
            };
            record.stretches(timeline).filter_map(of).min()
        };
        if !record.granularities.iter().any(is_interval) {
            return Ok(first(&[]));
        }
        if let Some(found) = first(&[]) {
            // Ends of intervals may lie before it: they are not looked for.
            let begin = record.stretches(timeline).map(|(first, _)| first).min();
            return Ok(begin.map(|begin| begin.max(Seq(record.horizon_seq)).min(found)));
        }
        match self.boundaries(Seq::ZERO) {
            // Too much is kept rather than too little.
            Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io) => Ok(Some(Seq::ZERO)),
            boundaries => Ok(first(&boundaries?)),
        }
    }

    /// The last seqs of complete intervals since the horizon, where granularity is an interval;
    /// those before `from` may be left out.
    fn boundaries(&self, from: Seq) -> Result<Vec<Seq>> {
        let record = self.record.lock().clone();
        if record.deleted || !record.granularities.iter().any(is_interval) {
            return Ok(Vec::new());
        }
        // The open moments depend on nothing before the entry that this begins with.
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
            // Its beginning is the end of an interval too, if nothing was written in it.
            None => visit(Seq(record.created_seq), record.created_ns),
        }
        self.each_time_after(By::Seq(begin), |entry| {
            visit(entry.seq, entry.time.as_nanos());
            true
        })?;
        // The last window is complete if its time is over: then its end can be opened too.
        if let Some((last, _)) = before {
            ends.push(last);
        }
        Ok(ends)
    }
}
