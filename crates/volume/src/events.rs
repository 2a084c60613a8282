//! Events of a volume besides writes: marks, reverts, resizes, settings (and `versions`).
//!
//! Invariants
//! 1. Each is one catalogue commit, made while the log's gate is closed where it names "now";
//!    memory changes only after the commit.
//! 2. A revert and a resize take a seq of their own. Nothing that was before is removed by them.
//! 3. The record is copied only under the books: a copy made before would take back what others
//!    commit meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::RankedGuard;
use format::superblock::FEATURE_BEYOND;
use history::{Branch, Gate, Timeline};
use units::{Moment, Seq, WallTime};

use crate::caches;
use crate::catalogue::{Commit, EventRecord, MarkRecord, Numbers, TimelineRecord, VolumeRecord};
use crate::copy_unit;
use crate::current_store::CurrentStore;
use crate::encoding;
use crate::grace::Told;
use crate::hooked::checked_hook;
use crate::names::check_name;
use crate::opening::Opening;
use crate::pins::Pins;
use crate::pool::check_size;
use crate::types::{Architecture, Granularity, Mark, Resolved, RevertReport, Stamp, VolumeChange};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

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
    record: VolumeRecord,
    timeline: TimelineRecord,
    branch: Branch,
    size_bytes: u64,
}

impl Volume {
    /// Names a moment; pins it if asked to.
    ///
    /// # Errors
    /// `Invalid` name, `Exists`, and those of resolving.
    pub fn create_mark(&self, name: &str, at: &Moment, pin: bool) -> Result<Mark> {
        self.check_open()?;
        check_name("mark", name)?;
        if pin {
            self.destage_all()?;
            self.core.store.flush()?;
        }
        let mut still = self.stand_still()?;
        let pins = &mut still.pins;
        if pins.mark(name).is_some() {
            let text = format!("{} has a mark {name} already", self.name);
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let resolved = self.resolve_with(at, pins)?;
        let record = MarkRecord {
            seq: resolved.seq.0,
            time_ns: resolved.time.as_nanos(),
            pinned: pin,
            created_ns: self.now().as_nanos(),
        };
        let (numbers, commit) = self.begin()?;
        self.check_served()?;
        commit.put_mark(self.id, name, &record)?;
        self.core.finish(&numbers, commit)?;
        let mark = mark_of(name, &record);
        pins.add_mark(name.to_owned(), record);
        Ok(mark)
    }

    /// Whether it has a mark of this name.
    #[must_use]
    pub fn has_mark(&self, name: &str) -> bool {
        self.pins.lock().mark(name).is_some()
    }

    /// All marks, by name.
    ///
    /// # Errors
    /// `NotFound` once the volume is deleted.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.check_open()?;
        Ok(self.pins.lock().marks().map(|(name, record)| mark_of(name, record)).collect())
    }

    /// Deletes a mark.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete_mark(&self, name: &str) -> Result<()> {
        self.check_open()?;
        let mut pins = self.pins.lock();
        let Some(mark) = pins.mark(name) else {
            let text = format!("{} has no mark {name}", self.name);
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let (mut numbers, commit) = self.begin()?;
        commit.remove_mark(self.id, name)?;
        let detail = format!("mark {name} (seq {}, pinned: {})", mark.seq, mark.pinned);
        self.core.audit(&mut numbers, &commit, "mark-delete", &self.name, detail)?;
        self.core.finish(&numbers, commit)?;
        pins.remove_mark(name);
        self.reclaim_wanted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a past moment the present. Everything before stays: `revert` to the report's `from`
    /// undoes it, also where that moment would not be retained otherwise, and where it is the
    /// present that is made the present.
    ///
    /// # Errors
    /// Those of resolving; `Refused` or `Io`.
    pub fn revert(&self, to: &Moment, dry_run: bool) -> Result<RevertReport> {
        self.check_open()?;
        let reverted = self.revert_open(to, dry_run);
        self.unless_gone(reverted)
    }

    fn revert_open(&self, to: &Moment, dry_run: bool) -> Result<RevertReport> {
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
            self.log.with_gate(|gate| self.revert_in_gate(gate, target, &still.pins))?;
        Ok(report(from, seq))
    }

    fn revert_in_gate(
        &self,
        gate: &mut Gate<'_>,
        target: Resolved,
        _pins: &Pins,
    ) -> Result<(Stamp, Seq)> {
        let place = Place::of(gate);
        let (mut numbers, commit) = self.begin()?;
        let coming = self.prepare_revert(&place, target, &mut numbers, &commit)?;
        self.core.finish(&numbers, commit)?;
        gate.take_event(place.event.0, place.event.1);
        self.take_revert(coming, &numbers);
        // Only now: whoever commits next about this volume begins with its record.
        drop(numbers);
        Ok((place.from, place.event.0))
    }

    /// Puts a revert into a commit; the gate is closed, and stands there.
    pub(crate) fn prepare_revert(
        &self,
        &Place { from, event: (seq, time) }: &Place,
        target: Resolved,
        numbers: &mut Numbers,
        commit: &Commit,
    ) -> Result<Coming> {
        let mut record = self.record.lock().clone();
        let parent = record.timeline_at(target.seq);
        let parent_map = self.core.timeline(parent).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("timeline {parent} is not there"))
        })?;
        let size_bytes = record.size_at(target.seq);
        numbers.timeline += 1;
        let timeline = TimelineRecord {
            id: numbers.timeline,
            log: self.id,
            parent: Some((parent, target.seq.0)),
            source: None,
        };
        record.line.push((seq.0, timeline.id));
        record.sizes.push((seq.0, size_bytes));
        record.events.push(EventRecord {
            seq: seq.0,
            time_ns: time.as_nanos(),
            kind: "revert".to_owned(),
            detail: format!("from seq {} to seq {} ({})", from.seq, target.seq, target.time),
        });
        commit.put_timeline(&timeline)?;
        commit.put_volume(&record)?;
        let detail =
            format!("from seq {} to seq {}; the revert is seq {seq}", from.seq, target.seq);
        self.core.audit(numbers, commit, "revert", &self.name, detail)?;
        let branch = Branch { timeline: parent_map, seq: target.seq };
        Ok(Coming { record, timeline, branch, size_bytes })
    }

    /// Takes up a revert that was committed, and whose event the log has taken.
    pub(crate) fn take_revert(&self, coming: Coming, books: &RankedGuard<'_, Numbers>) {
        let Coming { record, timeline, branch, size_bytes } = coming;
        let owner = (self.id, record.extent);
        let map = Arc::new(Timeline::new(timeline.id, owner, Some(branch), Vec::new()));
        self.core.timelines.write().insert(timeline.id, (timeline, Arc::clone(&map)));
        self.record.set(record, books);
        let before = self.present();
        if let Some(current) = &before.current {
            current.close_places();
        }
        self.cache.forget_while(|| self.set_present(map, size_bytes, before.current.clone()));
        self.distrust_after_revert(&before);
        self.convert_after_revert();
        self.restore_homes();
    }

    pub(crate) fn set_present(
        &self,
        timeline: Arc<Timeline>,
        size_bytes: u64,
        current: Option<Arc<CurrentStore>>,
    ) {
        let store = Arc::clone(&self.core.store);
        let at = Seq(u64::MAX);
        let volume = (self.id, self.name.clone());
        let opening = Opening::new(store, volume, timeline, at, size_bytes);
        let opening = Arc::new(opening.with_current(current));
        self.core.register(&opening);
        *self.present.write() = opening;
    }

    /// Changes the size. The part that is cut off reads as zeros should the volume grow again;
    /// views of earlier moments keep the size and content of then.
    ///
    /// # Errors
    /// `Invalid` size; `Full`, `Refused` or `Io`.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        self.change(&VolumeChange { size_bytes: Some(size_bytes), ..VolumeChange::default() })
    }

    /// Changes the size, and settings in the same commit.
    fn resize_and(&self, size_bytes: u64, change: &VolumeChange) -> Result<()> {
        let before = self.present().size_bytes;
        self.resize_to(size_bytes, change)?;
        if size_bytes < before {
            // It has its size. The bytes beyond are cut off at the next opening if not now.
            let _ = self.cut_off();
        }
        Ok(())
    }

    fn resize_to(&self, size_bytes: u64, change: &VolumeChange) -> Result<()> {
        let _resizing = self.resizing.lock();
        loop {
            let live = self.present();
            if change.never_smaller && size_bytes < live.size_bytes {
                let text = format!("volume \"{}\" was made larger meanwhile", self.name);
                return Err(Error::new(ErrorKind::Busy, text).with_hint("ask for the size again"));
            }
            match size_bytes == live.size_bytes {
                true if change.is_of_size_only() => return Ok(()),
                true => return self.change_settings(change),
                false => {}
            }
            // Before anything is cut off: what is refused leaves everything as it is.
            let mut record = self.record.lock().clone();
            self.settle_settings(&mut record, change, self.log.stable())?;
            let grows = size_bytes > live.size_bytes;
            if !grows {
                self.core.announce(FEATURE_BEYOND)?;
            }
            let _cut = Cut::at(self, size_bytes);
            if grows
                && record.may_have_beyond(live.size_bytes)
                && !self.write_zeros_beyond(&live, size_bytes)?
            {
                continue;
            }
            let hold = self.hold_writes()?;
            self.core.store.flush()?;
            // A revert may have come between, with another size and other content: then again.
            let to = (size_bytes, change);
            let resized = self.log.with_gate(|gate| self.resize_in_gate(gate, &live, to))?;
            if let Some(shares) = resized {
                drop(hold);
                if shares {
                    self.core.share_memory();
                }
                return Ok(());
            }
        }
    }

    /// `None` when another present has come; else whether memory is to be shared out anew.
    fn resize_in_gate(
        &self,
        gate: &mut Gate<'_>,
        live: &Arc<Opening>,
        (size_bytes, change): (u64, &VolumeChange),
    ) -> Result<Option<bool>> {
        if !Arc::ptr_eq(live, &self.present()) {
            return Ok(None);
        }
        let old = live.size_bytes;
        let (seq, time) = gate.peek_event();
        let (mut numbers, commit) = self.begin()?;
        let before = self.record.lock().clone();
        let mut record = before.clone();
        let graced = self.settle_settings(&mut record, change, seq)?;
        record.sizes.push((seq.0, size_bytes));
        record.uncut = record.uncut.max(old);
        if record.uncut <= size_bytes {
            record.uncut = 0;
        }
        record.events.push(EventRecord {
            seq: seq.0,
            time_ns: time.as_nanos(),
            kind: "resize".to_owned(),
            detail: format!("from {old} to {size_bytes} bytes"),
        });
        commit.put_volume(&record)?;
        let detail = format!("from {old} to {size_bytes} bytes; seq {seq}");
        self.core.audit(&mut numbers, &commit, "resize", &self.name, detail)?;
        if !change.is_of_size_only() {
            let detail = change.to_string();
            self.core.audit(&mut numbers, &commit, "volume-set", &self.name, detail)?;
        }
        if let Some((action, detail)) = graced {
            self.core.audit(&mut numbers, &commit, action, &self.name, detail)?;
        }
        self.core.finish(&numbers, commit)?;
        gate.take_event(seq, time);
        self.record.set(record, &numbers);
        let (timeline, current) = (Arc::clone(&live.timeline), live.current.clone());
        self.cache.forget_while(|| self.set_present(timeline, size_bytes, current));
        Ok(Some(self.settings_changed(&before)))
    }

    /// Changes settings. A finer granularity holds from now on; what was thinned out stays so.
    ///
    /// # Errors
    /// `Invalid` values; `Refused` or `Io`. A refused change changes nothing.
    pub fn change(&self, change: &VolumeChange) -> Result<()> {
        self.check_open()?;
        if let Some(Granularity::Interval(0)) = change.granularity {
            return Err(Error::new(ErrorKind::Invalid, "an interval is longer than nothing"));
        }
        copy_unit::of(&self.record.lock(), change)?;
        let Some(size_bytes) = change.size_bytes else { return self.change_settings(change) };
        check_size(size_bytes)?;
        if change.architecture.is_some_and(|to| to != self.architecture()) {
            let text = "size and architecture are changed one after the other";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.prepare_encoding(change.encoding)?;
        self.prepare_dedup(change.dedup)?;
        self.resize_and(size_bytes, change)
    }

    fn change_settings(&self, change: &VolumeChange) -> Result<()> {
        if let Some(to) = change.architecture {
            self.prepare_switch(to)?;
        }
        self.prepare_encoding(change.encoding)?;
        self.prepare_dedup(change.dedup)?;
        let still = self.stand_still()?;
        let (switched, shares) = self.log.with_gate(|gate| -> Result<_> {
            let (mut numbers, commit) = self.begin()?;
            let before = self.record.lock().clone();
            let mut record = before.clone();
            let from = Seq(gate.last_seq().0 + 1);
            let graced = self.settle_settings(&mut record, change, from)?;
            let to = change.architecture.unwrap_or(record.architecture);
            let switched = self.switch_in_gate(&mut record, to, &mut numbers, &commit)?;
            commit.put_volume(&record)?;
            let detail = change.to_string();
            self.core.audit(&mut numbers, &commit, "volume-set", &self.name, detail)?;
            if let Some((action, detail)) = graced {
                self.core.audit(&mut numbers, &commit, action, &self.name, detail)?;
            }
            self.core.finish(&numbers, commit)?;
            if let Some(switched) = &switched {
                self.switched(switched, &record);
            }
            self.record.set(record, &numbers);
            Ok((switched, self.settings_changed(&before)))
        })?;
        drop(still);
        if let Some(switched) = &switched {
            self.end_switch(switched);
        }
        if shares {
            self.core.share_memory();
        }
        Ok(())
    }

    /// Enters settings in a record that is about to be committed, but for architecture and size; a
    /// granularity from a seq on. Says what is to be told of a grace period.
    fn settle_settings(
        &self,
        record: &mut VolumeRecord,
        change: &VolumeChange,
        from: Seq,
    ) -> Result<Option<Told>> {
        if let Some(granularity) = change.granularity {
            record.granularities.retain(|&(first, _)| first < from.0);
            if record.granularities.is_empty() || record.granularity_at(from) != granularity {
                record.granularities.push((from.0, granularity));
            }
        }
        let times = (self.core.time(), self.core.machine.clock.wall());
        let graced = record.set_retention(change, times);
        let before = record.cache;
        let to = change.architecture.unwrap_or(record.architecture);
        record.cache = caches::setting(to, before, change.cache)?;
        if record.cache != before {
            self.core.check_cache(record.cache, Some(self.id))?;
        }
        record.encoding = encoding::setting(record.encoding, change.encoding)?;
        record.dedup = change.dedup.unwrap_or(record.dedup);
        record.copy_unit = copy_unit::of(record, change)?;
        if let Some(hook) = &change.hook {
            record.hook = checked_hook(hook.as_deref())?;
        }
        Ok(graced)
    }

    /// Goes by settings that were committed; says whether memory is to be shared out anew.
    fn settings_changed(&self, before: &VolumeRecord) -> bool {
        let (cache, encoding) = {
            let record = self.record.lock();
            self.unit_blocks.store(record.copy_unit.blocks() as u64, Ordering::Relaxed);
            (record.cache, record.encoding)
        };
        if encoding != before.encoding {
            self.encode_anew();
        }
        if cache.is_none() {
            self.cache.set(None);
        }
        self.cache.set_granularity(self.granularity_now());
        self.cache.remember_rewrites(self.architecture() == Architecture::Hybrid);
        cache != before.cache
    }
}

/// Keeps writes below a size while it lives.
struct Cut<'v>(&'v Volume);

impl Cut<'_> {
    fn at(volume: &Volume, size_bytes: u64) -> Cut<'_> {
        volume.cut_at.store(size_bytes, Ordering::Release);
        Cut(volume)
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.cut_at.store(u64::MAX, Ordering::Release);
    }
}

fn mark_of(name: &str, record: &MarkRecord) -> Mark {
    Mark {
        name: name.to_owned(),
        stamp: Stamp { seq: Seq(record.seq), time: WallTime::from_nanos(record.time_ns) },
        pinned: record.pinned,
        created: WallTime::from_nanos(record.created_ns),
    }
}

#[cfg(test)]
mod tests {
    use units::Moment;

    use crate::caches::tests::cached_volume;
    use crate::types::WriteOp;

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
        let reverted =
            volume.log.with_gate(|gate| volume.revert_in_gate(gate, target, &still.pins));
        reverted.expect("reverted");
        // As whoever merges a part of the block reads it, before the revert has returned.
        let mut found = [0; 4096];
        volume.read(0, &mut found).expect("read");
        assert_eq!(found[0], 1, "of the moment gone back to");
    }
}
