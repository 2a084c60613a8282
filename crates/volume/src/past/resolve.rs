//! From a moment expression to a seq.
//!
//! A time resolves to the last write at or before it. Where the granularity did not retain that
//! moment, to the last retained one before it. Outside the window: an error that states the valid
//! range.

use std::sync::Arc;

use format::time::TimeEntry;
use history::By;
use units::{Moment, Seq, WallTime};

use crate::catalogue::VolumeRecord;
use crate::read::snapshot::Opening;
use crate::retention::moments::Moments;
use crate::retention::pins::Pins;
use crate::types::{Granularity, Resolved, Stamp};
use crate::volume::stream::Stream;
use crate::{Error, ErrorKind, Result};

impl Moments {
    /// Resolves a moment.
    ///
    /// # Errors
    /// `NotFound` for a version or mark that is not there; `OutsideWindow`.
    pub fn resolve(&self, moment: &Moment) -> Result<Resolved> {
        self.check_open()?;
        let still = self.stand_still_for(moment)?;
        self.resolve_with(moment, &still.pins)
    }
}

impl Stream {
    /// The same for those who have made the volume stand still.
    pub(crate) fn resolve_with(&self, moment: &Moment, pins: &Pins) -> Result<Resolved> {
        let latest = self.latest()?;
        let record = self.record.lock().clone();
        let exact = |stamp: Stamp| Resolved { seq: stamp.seq, time: stamp.time, exact: true };
        match moment {
            Moment::Latest => {
                self.check_logged(WallTime::from_nanos(u64::MAX)).map(|()| exact(latest))
            }
            Moment::Version(number) => {
                let pinned = pins.version(*number).ok_or_else(|| self.no_version(*number))?;
                Ok(exact(self.stamp(pinned.seq)?))
            }
            Moment::Mark(name) => {
                let mark = pins
                    .mark(name)
                    .ok_or_else(|| Error::not_found(format!("{} has no mark {name}", self.name)))?;
                if mark.pinned {
                    return Ok(exact(self.stamp(Seq(mark.seq))?));
                }
                self.retained(Seq(mark.seq), &record, latest, pins)
            }
            Moment::Seq(seq) => {
                if *seq > latest.seq {
                    let text = format!("seq {seq} is not written yet");
                    return Err(self.outside(&record, latest, pins, text));
                }
                let end = self.batch_before(*seq, &record, pins)?;
                let found = self.retained(end, &record, latest, pins)?;
                Ok(Resolved { exact: found.seq == *seq, ..found })
            }
            Moment::At(time) => self.resolve_time(*time, &record, latest, pins),
            Moment::Ago(span) => self.resolve_time(self.time_ago(*span), &record, latest, pins),
        }
    }

    /// Fails where something waits in the cache that was accepted at or before `time`, and cannot
    /// come into the log: on a pool that refuses writes.
    fn check_logged(&self, time: WallTime) -> Result<()> {
        match self.cache().first_waiting() {
            Some(first) if first <= time => Err(Error::from(history::Error::refused())),
            _ => Ok(()),
        }
    }

    fn resolve_time(
        &self,
        time: WallTime,
        record: &VolumeRecord,
        latest: Stamp,
        pins: &Pins,
    ) -> Result<Resolved> {
        self.check_logged(time)?;
        if time > self.now() {
            return Err(self.outside(record, latest, pins, format!("{time} is in the future")));
        }
        let entry = self.time_entry(By::Time(time))?;
        let seq = entry.map_or(Seq(record.created_seq), |e| e.seq.min(latest.seq));
        let is_unborn = entry.is_none() && time.as_nanos() < record.created_ns;
        // The oldest state that can be opened answers for all times since it was written, also
        // those before the window's start: a clock that was set back may say that it is such a time
        // now.
        let has_left = time.as_nanos() < record.horizon_ns && seq.0 < record.horizon_seq;
        if is_unborn {
            return Err(self.unborn(record, latest, pins, &time.to_string()));
        }
        if has_left && !entry.is_some_and(|e| pins.holds(e.seq)) {
            return Err(self.outside(record, latest, pins, format!("{time} has left the window")));
        }
        self.retained(seq, record, latest, pins)
    }

    /// The last end of a batch at or before `seq`, of a strict volume: within a batch there is no
    /// moment. Of others it is `seq`.
    fn batch_before(&self, seq: Seq, record: &VolumeRecord, pins: &Pins) -> Result<Seq> {
        if !record.strict || pins.holds(seq) {
            return Ok(seq);
        }
        let entry = self.time_entry(By::Seq(seq))?;
        Ok(entry.map_or(Seq(record.created_seq).min(seq), |entry| entry.seq))
    }

    /// The end of the batch that `seq` is in, of a strict volume. Of others it is `seq`.
    pub(crate) fn batch_of(&self, seq: Seq) -> Result<Seq> {
        if !self.record.lock().strict {
            return Ok(seq);
        }
        let before = Seq(seq.0.saturating_sub(1));
        Ok(self.time_entry_after(By::Seq(before))?.map_or(seq, |entry| entry.seq))
    }

    /// The last retained moment at or before `seq`.
    fn retained(
        &self,
        seq: Seq,
        record: &VolumeRecord,
        latest: Stamp,
        pins: &Pins,
    ) -> Result<Resolved> {
        let boundary = match record.granularity_at(seq) {
            Granularity::Interval(nanos) => self.boundary(seq, nanos)?,
            Granularity::EveryWrite | Granularity::OnDemand => None,
        };
        let unpinned = record.unpinned(latest.seq, boundary.as_slice());
        let pinned = pins.last_at_or_before(seq);
        let found = unpinned.last_at_or_before(seq).max(pinned);
        let found = found.filter(|found| found.0 >= record.horizon_seq || *found == seq);
        let Some(found) = found else {
            if seq.0 < record.created_seq {
                return Err(self.unborn(record, latest, pins, &format!("seq {seq}")));
            }
            return Err(self.outside(record, latest, pins, format!("seq {seq} cannot be opened")));
        };
        assert!(found <= seq, "{found} is retained at or before {seq}");
        let stamp = self.stamp(found)?;
        Ok(Resolved { seq: stamp.seq, time: stamp.time, exact: found == seq })
    }

    /// The end of the last complete interval at or before `seq`.
    fn boundary(&self, seq: Seq, nanos: u64) -> Result<Option<Seq>> {
        let window = |time: WallTime| time.as_nanos() / nanos.max(1);
        let stamp = self.stamp(seq)?;
        let next = self.time_entry_after(By::Seq(seq))?;
        let is_last = match next {
            Some(next) => window(next.time) > window(stamp.time),
            None => window(self.now()) > window(stamp.time),
        };
        if is_last {
            return Ok(Some(seq));
        }
        let start = window(stamp.time) * nanos;
        let before = WallTime::from_nanos(start.saturating_sub(1));
        let end = self.time_entry(By::Time(before))?.map(|e| e.seq);
        // A write under another granularity did not end an interval.
        let record = self.record.lock();
        let is_interval =
            |seq: &Seq| matches!(record.granularity_at(*seq), Granularity::Interval(_));
        Ok(end.filter(is_interval))
    }

    /// The oldest moment of the window that can be opened.
    pub(crate) fn oldest(
        &self,
        record: &VolumeRecord,
        latest: Stamp,
        pins: &Pins,
    ) -> Result<Stamp> {
        let horizon = Stamp::of(record.horizon_seq, record.horizon_ns);
        let ended = self.first_boundary(record, horizon.seq)?;
        let unpinned = record.unpinned(latest.seq, ended.as_slice()).first();
        let pinned = pins.first_from(horizon.seq);
        match unpinned.into_iter().chain(pinned).min() {
            Some(seq) if seq > horizon.seq => self.stamp(seq),
            // A clock that was set back shows the window's start as a time that is still to come.
            _ if horizon.time > latest.time => self.stamp(horizon.seq),
            _ => Ok(horizon),
        }
    }

    /// The end of the first complete interval from `from` on, where intervals thin the history out.
    fn first_boundary(&self, record: &VolumeRecord, from: Seq) -> Result<Option<Seq>> {
        let stretches = record.granularities.iter().enumerate();
        for (i, &(first, granularity)) in stretches {
            let last = record.granularities.get(i + 1).map_or(u64::MAX, |next| next.0 - 1);
            let (first, Granularity::Interval(nanos)) = (Seq(first).max(from), granularity) else {
                continue;
            };
            if first.0 > last {
                continue;
            }
            let window = self.stamp(first)?.time.as_nanos() / nanos.max(1);
            let end = WallTime::from_nanos((window + 1).saturating_mul(nanos) - 1);
            let end = self.time_entry(By::Time(end))?.map_or(first, |entry| entry.seq.max(first));
            if let Some(seq) = self.boundary(end.min(Seq(last)), nanos)?.filter(|&seq| seq >= first)
            {
                return Ok(Some(seq));
            }
        }
        Ok(None)
    }

    /// The error for a moment before the volume was there.
    fn unborn(&self, record: &VolumeRecord, latest: Stamp, pins: &Pins, moment: &str) -> Error {
        let (time, seq) = (WallTime::from_nanos(record.created_ns), record.created_seq);
        let text = format!("{} was created at {time} (seq {seq}), after {moment}", self.name);
        let error = self.outside(record, latest, pins, text);
        match &record.cloned_from {
            Some((origin, at)) => error.with_hint(format!(
                "it was cloned from {origin} at seq {at}: what was before is {origin}@MOMENT"
            )),
            None => error.with_hint("there is no moment before that"),
        }
    }

    fn outside(&self, record: &VolumeRecord, latest: Stamp, pins: &Pins, what: String) -> Error {
        let oldest = match self.oldest(record, latest, pins) {
            Ok(stamp) => (stamp.seq, stamp.time),
            Err(error) => return error,
        };
        let newest = (latest.seq, latest.time);
        let text = format!(
            "{what}: {} can be opened from {} (seq {}) to {} (seq {})",
            self.name, oldest.1, oldest.0, newest.1, newest.0
        );
        Error::new(ErrorKind::OutsideWindow { oldest, latest: newest }, text)
            .with_hint("versions and pinned marks can be opened at any age: v:N, mark:NAME")
    }

    /// A seq with its time.
    pub(crate) fn stamp(&self, seq: Seq) -> Result<Stamp> {
        let record = self.record.lock();
        if seq.0 == record.created_seq {
            return Ok(Stamp { seq, time: WallTime::from_nanos(record.created_ns) });
        }
        drop(record);
        let entry = match self.time_entry(By::Seq(seq))? {
            Some(entry) if entry.seq == seq => entry,
            // A seq within a batch has the batch's time, which stands at the batch's last seq.
            found => self.time_entry_after(By::Seq(seq))?.or(found).unwrap_or_default(),
        };
        Ok(Stamp { seq, time: entry.time })
    }

    /// The last entry of the time index at or before `by`.
    pub(crate) fn time_entry(&self, by: By) -> Result<Option<TimeEntry>> {
        let recent = self.log().with_times(|times| {
            let after = times.partition_point(|e| by.reached(e));
            after.checked_sub(1).map(|i| times[i])
        });
        match recent {
            Some(entry) => Ok(Some(entry)),
            None => Ok(self.times().at_or_before(&self.core.store, by)?),
        }
    }

    /// The first entry of the time index after `by`.
    pub(crate) fn time_entry_after(&self, by: By) -> Result<Option<TimeEntry>> {
        // Memory first: what leaves it meanwhile is in the index already.
        let recent = self
            .log()
            .with_times(|times| times.get(times.partition_point(|e| by.reached(e))).copied());
        let stored = self.times().first_after(&self.core.store, by)?;
        Ok(match (recent, stored) {
            (Some(recent), Some(stored)) if stored.seq < recent.seq => Some(stored),
            (Some(recent), _) => Some(recent),
            (None, stored) => stored,
        })
    }

    /// Visits the entries of the time index after `by` in order, until `visit` says false.
    pub(crate) fn each_time_after(
        &self,
        by: By,
        mut visit: impl FnMut(&TimeEntry) -> bool,
    ) -> Result<()> {
        // Memory first: what leaves it meanwhile is in the index already.
        let recent = self.log().with_times(<[TimeEntry]>::to_vec);
        let first_recent = recent.first().map_or(Seq(u64::MAX), |e| e.seq);
        let mut goes_on = true;
        self.times().scan_after(&self.core.store, by, |entry| {
            let is_recent = entry.seq >= first_recent;
            goes_on = is_recent || visit(entry);
            goes_on && !is_recent
        })?;
        let _ = goes_on && recent.iter().filter(|entry| !by.reached(entry)).all(visit);
        Ok(())
    }

    /// An opening of the volume as of a seq that is kept from expiring by the caller.
    pub(crate) fn open_at(&self, seq: Seq) -> Result<Arc<Opening>> {
        let record = self.record.lock();
        let (timeline, size_bytes) = (record.timeline_at(seq), record.size_at(seq));
        drop(record);
        let timeline = self.core.timeline(timeline).ok_or_else(|| {
            Error::corrupt(format!("timeline {timeline} of {} is not there", self.name))
        });
        // It goes with the volume.
        let timeline = self.unless_gone(timeline)?;
        Ok(self.core.open((self.id, self.name.clone()), timeline, seq, (size_bytes, None)))
    }
}

#[cfg(test)]
mod tests {
    use units::Seq;

    use crate::ErrorKind;
    use crate::types::Deletion;
    use crate::write::cache_sizes::tests::cached_volume;

    #[test]
    fn an_opening_that_loses_its_volume_to_a_deletion_says_so() {
        let (pool, volume) = cached_volume();
        let asked = Deletion { grace_ns: Some(0), force: true, dry_run: false };
        pool.remove(&volume, asked).expect("deleted");
        let error = volume.open_at(Seq(0)).map(drop).expect_err("it is gone");
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
}
