//! The writes by time: totals per interval, and events.

use format::time::TimeEntry;
use history::By;
use units::{Moment, Seq, WallTime};

use crate::catalogue::tables;
use crate::past::revert::{KEPT, REVERT};
use crate::retention::moments::Moments;
use crate::types::{Bucket, Event, HistoryPage, Stamp};
use crate::{Error, Result};

/// Both ends of a query.
pub(super) struct Range {
    pub(super) from: Stamp,
    pub(super) to: Stamp,
}

impl Moments {
    /// Totals per `step_ns` between two moments (the window's start and the present, if not given),
    /// at most `limit` buckets.
    ///
    /// # Errors
    /// `Invalid` step; those of resolving.
    pub fn history(
        &self,
        since: Option<&Moment>,
        until: Option<&Moment>,
        step_ns: u64,
        limit: usize,
    ) -> Result<HistoryPage> {
        self.check_open()?;
        if step_ns == 0 || limit == 0 {
            return Err(Error::invalid("step and limit are more than nothing"));
        }
        self.destage_all()?;
        let Range { from, to } = self.range(since, until)?;
        let events = self.events_between(from, until, to)?;
        let mut page = HistoryPage { events, ..HistoryPage::default() };
        let mut before = self.time_entry(By::Time(from.time))?.unwrap_or_default();
        before.seq = before.seq.max(from.seq);
        self.each_time_after(By::Time(from.time), |entry| {
            let goes_on = entry.time <= to.time && add(&mut page, &before, entry, step_ns, limit);
            before = *entry;
            goes_on
        })?;
        Ok(page)
    }

    /// Both ends of a query: the window's start and the present, if not given.
    pub(super) fn range(&self, since: Option<&Moment>, until: Option<&Moment>) -> Result<Range> {
        let from = self.edge(since)?;
        let to = match until {
            Some(moment) => self.edge(Some(moment))?,
            None => self.latest()?,
        };
        let times = (since.and_then(|m| self.time_of(m)), until.and_then(|m| self.time_of(m)));
        let is_backwards = match times {
            (Some(since), Some(until)) => since > until,
            _ => until.is_some() && from.seq > to.seq,
        };
        if is_backwards {
            return Err(Error::invalid("since is later than until")
                .with_hint("since is where it begins, until where it ends"));
        }
        Ok(Range { from, to })
    }

    /// The events of a range that ends with `until`, which is `to`.
    pub(super) fn events_between(
        &self,
        from: Stamp,
        until: Option<&Moment>,
        to: Stamp,
    ) -> Result<Vec<Event>> {
        let mut events = self.events_since(from)?;
        match (until, until.and_then(|moment| self.time_of(moment))) {
            // As it was given: before the window nothing happened, not what it begins with.
            (_, Some(time)) => events.retain(|e| e.stamp.time <= time),
            (Some(_), None) => events.retain(|e| e.stamp.seq <= to.seq),
            (None, _) => {}
        }
        Ok(events)
    }

    /// The time that a moment names, if it names one.
    fn time_of(&self, moment: &Moment) -> Option<WallTime> {
        match moment {
            Moment::At(time) => Some(*time),
            Moment::Ago(span) => Some(self.time_ago(*span)),
            Moment::Latest | Moment::Seq(_) | Moment::Version(_) | Moment::Mark(_) => None,
        }
    }

    /// A moment as an edge of the query; a time need not have been retained.
    pub(super) fn edge(&self, moment: Option<&Moment>) -> Result<Stamp> {
        let record = self.record.lock().clone();
        let horizon = Stamp::of(record.horizon_seq, record.horizon_ns);
        let Some(moment) = moment else { return Ok(horizon) };
        let Some(time) = self.time_of(moment) else {
            let resolved = self.resolve(moment)?;
            return Ok(Stamp { seq: resolved.seq, time: resolved.time });
        };
        if time <= horizon.time {
            return Ok(horizon);
        }
        let seq = self.time_entry(By::Time(time))?.map_or(horizon.seq, |e| e.seq);
        Ok(Stamp { seq, time })
    }

    fn events_since(&self, from: Stamp) -> Result<Vec<Event>> {
        let record = self.record.lock().clone();
        let mut events = Vec::new();
        let created = Stamp::of(record.created_seq, record.created_ns);
        let (kind, detail) = match &record.cloned_from {
            Some((name, seq)) => ("cloned", format!("from {name} at seq {seq}")),
            None => ("created", String::new()),
        };
        events.push(Event { stamp: created, kind, detail });
        for event in &record.events {
            let stamp = Stamp::of(event.seq, event.time_ns);
            let kind = match &event.kind[..] {
                REVERT => REVERT,
                KEPT => KEPT,
                _ => "resize",
            };
            events.push(Event { stamp, kind, detail: event.detail.clone() });
        }
        // A capture before a write that is older than the range is older as well.
        let before = WallTime::from_nanos(from.time.as_nanos().saturating_sub(1));
        let before = self.time_entry(By::Time(before))?.map_or(Seq::ZERO, |entry| entry.seq);
        let first = self.pins().lock().first_version_at(before);
        for (number, version) in
            self.core.catalogue.rows_of(tables::VERSIONS, self.id, first, usize::MAX)?
        {
            let stamp = Stamp::of(version.seq, version.time_ns);
            let detail = format!("{number} {}", version.label).trim_end().to_owned();
            events.push(Event { stamp, kind: "version", detail });
        }
        for (name, mark) in self.pins().lock().marks() {
            let stamp = Stamp::of(mark.seq, mark.time_ns);
            events.push(Event { stamp, kind: "mark", detail: name.clone() });
        }
        for proof in &record.proofs {
            let stamp = Stamp::of(proof.seq, proof.time_ns);
            let detail = format!("{}: {}", proof.hook, proof.verdict.name());
            events.push(Event { stamp, kind: "proof", detail });
        }
        events.retain(|e| from.time <= e.stamp.time);
        events.sort_by_key(|e| (e.stamp.time, e.stamp.seq));
        Ok(events)
    }
}

/// Adds what lies between two entries to the bucket of the later; false when there is no room.
fn add(
    page: &mut HistoryPage,
    before: &TimeEntry,
    entry: &TimeEntry,
    step_ns: u64,
    limit: usize,
) -> bool {
    let time = WallTime::from_nanos(entry.time.as_nanos() / step_ns * step_ns);
    let writes = entry.seq.0.saturating_sub(before.seq.0);
    let bytes = entry.bytes_total.saturating_sub(before.bytes_total);
    let flushes = entry.flushes_total.saturating_sub(before.flushes_total);
    let full = page.buckets.len() >= limit;
    match page.buckets.last_mut() {
        Some(open) if open.time == time => {
            open.writes += writes;
            open.bytes += bytes;
            open.flushes += flushes;
        }
        _ if full => {
            page.next = Some(time);
            return false;
        }
        _ => page.buckets.push(Bucket { time, writes, bytes, flushes }),
    }
    true
}
