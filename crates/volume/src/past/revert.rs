//! Reverts: a past moment becomes the present.
//!
//! Invariants
//! 1. A revert is one commit, made while the log's gate is closed; memory changes only after it.
//! 2. It takes a seq of its own. Nothing that was before is removed by it.

use std::sync::Arc;

use history::{Branch, Gate, Timeline};
use units::{Moment, Seq, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{EventRecord, TimelineRecord, tables};
use crate::core::Core;
use crate::retention::pins::Pins;
use crate::types::{Granularity, Resolved, RevertReport, Stamp};
use crate::volume::Volume;
use crate::{Error, Result};

/// The kinds of events: a revert, and the present made the present, which keeps its moment.
pub(crate) const REVERT: &str = "revert";
pub(crate) const KEPT: &str = "kept";

/// Where a volume stands while its gate is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The present.
    pub from: Stamp,
    /// Seq and time of an event that comes next.
    pub event: (Seq, WallTime),
}

impl Place {
    pub(crate) fn of(gate: &Gate<'_>) -> Place {
        let from = Stamp { seq: gate.last_seq(), time: gate.last_time() };
        Place { from, event: gate.peek_event() }
    }
}

/// A revert that is in a commit, and what it makes of the volume.
pub(crate) struct Coming {
    timeline: TimelineRecord,
    map: Arc<Timeline>,
    size_bytes: u64,
}

impl Coming {
    /// Adds the timeline to those of the pool, once it is committed.
    pub(crate) fn add_timeline(&self, core: &Core) {
        let (timeline, map) = (self.timeline.clone(), Arc::clone(&self.map));
        core.timelines.write().insert(timeline.id, (timeline, map));
    }
}

impl Volume {
    /// Makes a past moment the present. The past before it stays: `revert` to the report's `from`
    /// undoes it, also where that moment would not be retained otherwise, and where it is the
    /// present that is made the present.
    ///
    /// # Errors
    /// Those of resolving; `Refused` or `Io`.
    pub fn revert(&self, to: &Moment, dry_run: bool) -> Result<RevertReport> {
        self.check_open()?;
        let reverted = self.revert_open(to, dry_run, REVERT);
        self.unless_gone(reverted)
    }

    /// Lets the present be opened for as long as the window has it, also where its moment would
    /// not be retained otherwise, before a command changes it; its seq.
    ///
    /// # Errors
    /// As [`Volume::revert`].
    pub fn retain_present(&self) -> Result<Seq> {
        self.check_open()?;
        if self.retains_every_write() {
            return Ok(self.last_seq());
        }
        let latest = self.latest_told()?.seq;
        let is_kept = |event: &EventRecord| event.kind == KEPT && event.seq == latest.0;
        if self.record.lock().events.last().is_some_and(is_kept) {
            return Ok(Seq(latest.0 - 1));
        }
        let kept = self.revert_open(&Moment::Latest, false, KEPT);
        Ok(self.unless_gone(kept)?.from.seq)
    }

    /// Whether the present is retained, and every write from now on.
    pub fn retains_every_write(&self) -> bool {
        let last = self.last_seq();
        let record = self.record.lock();
        [last, Seq(u64::MAX)]
            .iter()
            .all(|seq| record.granularity_at(*seq) == Granularity::EveryWrite)
    }

    fn revert_open(&self, to: &Moment, dry_run: bool, kind: &str) -> Result<RevertReport> {
        if !dry_run {
            self.destage_all()?;
            self.core.store.flush()?;
        }
        let still = self.stand_still()?;
        let target = self.resolve_with(to, &still.pins)?;
        let latest = self.latest()?;
        let to = Stamp { seq: target.seq, time: target.time };
        let (changed_bytes, changed_exact) = self.changed_bytes_bounded(target.seq, latest.seq)?;
        let report =
            |from: Stamp, seq: Seq| RevertReport { from, to, changed_bytes, changed_exact, seq };
        if dry_run {
            return Ok(report(latest, latest.seq));
        }
        let (from, seq) =
            self.log().with_gate(|gate| self.revert_in_gate(gate, (target, kind), &still.pins))?;
        Ok(report(from, seq))
    }

    fn revert_in_gate(
        &self,
        gate: &mut Gate<'_>,
        (target, kind): (Resolved, &str),
        _pins: &Pins,
    ) -> Result<(Stamp, Seq)> {
        let place = Place::of(gate);
        let mut tx = self.begin()?;
        let coming = self.prepare_revert(&place, (target, kind), &mut tx)?;
        let _books = tx.commit_then(|| coming.add_timeline(&self.core))?;
        gate.take_event(place.event.0, place.event.1);
        self.take_revert(coming);
        Ok((place.from, place.event.0))
    }

    /// Puts a revert into a commit; the gate is closed, and stands there.
    pub(crate) fn prepare_revert(
        &self,
        &Place { from, event: (seq, time) }: &Place,
        (target, kind): (Resolved, &str),
        tx: &mut Transaction<'_>,
    ) -> Result<Coming> {
        assert!(target.seq <= from.seq && from.seq < seq, "{target:?} is past, {seq} is to come");
        tx.numbers.timeline += 1;
        let id = tx.numbers.timeline;
        let record = tx.change(&self.record);
        record.assert_before(seq);
        let parent = record.timeline_at(target.seq);
        let parent_map = self
            .core
            .timeline(parent)
            .ok_or_else(|| Error::corrupt(format!("timeline {parent} is not there")))?;
        let size_bytes = record.size_at(target.seq);
        let timeline =
            TimelineRecord { id, log: self.id, parent: Some((parent, target.seq.0)), source: None };
        record.line.push((seq.0, id));
        record.sizes.push((seq.0, size_bytes));
        record.events.push(EventRecord {
            seq: seq.0,
            time_ns: time.as_nanos(),
            kind: kind.to_owned(),
            detail: match kind {
                KEPT => "the moment before a command".to_owned(),
                _ => format!("from seq {} to seq {} ({})", from.seq, target.seq, target.time),
            },
        });
        if let Some(share) = record.share.as_mut().filter(|_| target.seq < from.seq) {
            // Records of reads go with the log, and their readers stay.
            let share = Arc::make_mut(share);
            share.reads_since_ns = share.reads_since_ns.map(|since| since.max(time.as_nanos()));
        }
        let branch = Branch { timeline: parent_map, seq: target.seq };
        let map = Timeline::new(id, (self.id, record.extent), Some(branch), Vec::new());
        tx.put(tables::TIMELINES, timeline.id, &timeline)?;
        let detail =
            format!("from seq {} to seq {}; the revert is seq {seq}", from.seq, target.seq);
        tx.audit(if kind == KEPT { "moment-kept" } else { kind }, &self.name, detail)?;
        Ok(Coming { timeline, map: Arc::new(map), size_bytes })
    }

    /// Takes up a revert that was committed, and whose event the log has taken.
    pub(crate) fn take_revert(&self, Coming { map, size_bytes, .. }: Coming) {
        let before = self.present();
        if let Some(current) = &before.current {
            current.close_places();
        }
        self.cache().forget_while(|| self.set_present(map, size_bytes, before.current.clone()));
        self.distrust_after_revert(&before);
        self.convert_after_revert();
        self.restore_homes();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use units::{Moment, Seq};

    use super::REVERT;
    use crate::jobs::map_flush::tests::waits;
    use crate::types::{Granularity, VolumeChange, WriteOp};
    use crate::write::cache_sizes::tests::cached_volume;

    #[test]
    fn who_finds_another_present_finds_nothing_in_the_cache_of_the_one_before() {
        let (_pool, volume) = cached_volume();
        let put = |byte: u8| {
            let op = WriteOp::Data { offset: 0, bytes: &[byte; 4096] };
            volume.write_batch(&[op]).expect("written")
        };
        let past = put(1);
        put(2);
        volume.flush().expect("flushed");
        let still = volume.stand_still().expect("still");
        let target = volume.resolve_with(&Moment::Seq(past), &still.pins).expect("retained");
        let reverted = volume
            .log()
            .with_gate(|gate| volume.revert_in_gate(gate, (target, REVERT), &still.pins));
        reverted.expect("reverted");
        // As whoever merges a part of the block reads it, before the revert has returned.
        let mut found = [0; 4096];
        volume.read(0, &mut found).expect("read");
        assert_eq!(found[0], 1, "of the moment gone back to");
    }

    #[test]
    fn a_merge_that_begins_beside_a_revert_keeps_what_the_revert_went_back_to() {
        let (pool, volume) = cached_volume();
        let granularity = Some(Granularity::OnDemand);
        volume.change(&VolumeChange { granularity, ..VolumeChange::default() }).expect("changed");
        let put = |byte: u8| {
            let op = WriteOp::Data { offset: 0, bytes: &[byte; 4096] };
            volume.write_batch(&[op]).expect("written")
        };
        put(1);
        let number = volume.create_version("").expect("captured").number;
        put(2);
        volume.flush().expect("flushed");
        let mut still = volume.stand_still().expect("still");
        let at = Moment::Version(number);
        let target = volume.resolve_with(&at, &still.pins).expect("retained");
        let (timeline, found) = (volume.present().timeline.id, OnceLock::new());
        std::thread::scope(|scope| {
            let asks = waits(scope, || {
                let needed = pool.needed(timeline, Seq::ZERO).expect("asked");
                found.set(needed.openable.contains(target.seq)).expect("once");
            });
            let reverted = volume
                .log()
                .with_gate(|gate| volume.revert_in_gate(gate, (target, REVERT), &still.pins));
            reverted.expect("reverted");
            let gone = [(number, target.seq)];
            volume.remove_versions(&mut still.pins, &gone, "version-delete", &[]).expect("gone");
            drop(still);
            asks.join().expect("no panic");
        });
        assert_eq!(found.get(), Some(&true), "the present begins there");
    }
}
