//! A schedule: when versions are captured, which of them stay, and how it went.

use std::ops::RangeInclusive;

use env::Clock;
use units::{Cron, Span, Timing, WallTime};

use crate::catalogue::ScheduleRecord;
use crate::names::{check_label, check_name};
use crate::retention::explain::Judged;
use crate::retention::keep_rules::{Candidate, KeepRules};
use crate::{Error, Result};

/// A capture that failed is tried again after this long, in nanoseconds.
const RETRY_NS: u64 = 30_000_000_000;
/// A capture that lies further ahead than this was made by a wrong clock, in nanoseconds.
const AHEAD_NS: u64 = 60_000_000_000;
/// The shortest time between captures, in nanoseconds.
const EVERY_MIN_NS: u64 = 1_000_000_000;

/// The request for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// When versions are captured.
    pub timing: Timing,
    /// Which of them stay.
    pub keep: KeepRules,
    /// The label of each.
    pub label: String,
    /// The hook around each capture, which somebody beside `Pool::step` then has to make: that of
    /// the volume or group if none is named, and none at all for `none`.
    pub hook: Option<String>,
    /// The hook whose check is to look at its versions; somebody else runs it.
    pub prove: Option<String>,
}

/// A schedule as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleInfo {
    /// The request.
    pub spec: ScheduleSpec,
    /// When it was set.
    pub set: WallTime,
    /// The next capture.
    pub next: Option<WallTime>,
    /// Its newest version: number, and the clock's time at the capture.
    pub newest: Option<(u64, WallTime)>,
    /// Captures since the pool was opened.
    pub captures: u64,
    /// Captures and prunings that failed since then.
    pub failures: u64,
    /// Versions pruned since then.
    pub pruned: u64,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
}

/// A schedule in memory.
#[derive(Debug)]
pub struct Schedule {
    /// As the catalogue has it.
    pub(crate) record: ScheduleRecord,
    timing: Timing,
    next: Option<WallTime>,
    /// Not before this, in monotonic nanoseconds.
    retry_ns: u64,
    wants_pruning: bool,
    captures: u64,
    failures: u64,
    pruned: u64,
    error: Option<String>,
}

impl Schedule {
    /// From the catalogue.
    ///
    /// # Errors
    /// `Corrupt` when it says no time, or one that is none.
    pub fn of(record: ScheduleRecord) -> Result<Schedule> {
        let timing = match (record.every_ns, &record.cron) {
            (Some(nanos), None) if nanos > 0 => Some(Timing::Every(Span(nanos))),
            (None, Some(line)) => line.parse::<Cron>().ok().map(Timing::Cron),
            _ => None,
        };
        let Some(timing) = timing else {
            return Err(Error::corrupt(format!("catalogue: schedule {} says no time", record.id)));
        };
        let next = timing.next_after(WallTime::from_nanos(record.done_ns));
        Ok(Schedule {
            record,
            timing,
            next,
            retry_ns: 0,
            wants_pruning: true,
            captures: 0,
            failures: 0,
            pruned: 0,
            error: None,
        })
    }

    /// The record of the capture that is due, if one is.
    pub(crate) fn due(&mut self, clock: &dyn Clock) -> Option<ScheduleRecord> {
        let wall = clock.wall();
        if self.record.done_ns > wall.as_nanos().saturating_add(AHEAD_NS) {
            // The clock was ahead. Waiting for that time to come again could take years.
            self.record.done_ns = wall.as_nanos();
            self.next = self.timing.next_after(wall);
        }
        let is_due = self.next.is_some_and(|next| next <= wall);
        let is_due = is_due && clock.monotonic_ns() >= self.retry_ns;
        is_due.then(|| ScheduleRecord { done_ns: wall.as_nanos(), ..self.record.clone() })
    }

    /// The capture of a record was made, or failed.
    pub(crate) fn captured(
        &mut self,
        record: ScheduleRecord,
        outcome: Result<()>,
        clock: &dyn Clock,
    ) {
        match outcome {
            Ok(()) => {
                self.next = self.timing.next_after(WallTime::from_nanos(record.done_ns));
                self.record = record;
                self.captures += 1;
                self.error = None;
                self.wants_pruning = true;
            }
            Err(error) => self.failed(&error, clock),
        }
    }

    /// Whether something may have to be pruned.
    pub(crate) fn wants_pruning(&self, clock: &dyn Clock) -> bool {
        self.wants_pruning && clock.monotonic_ns() >= self.retry_ns
    }

    /// So many were pruned, and there may be more; or it failed.
    pub(crate) fn pruned(&mut self, outcome: Result<(u64, bool)>, clock: &dyn Clock) {
        match outcome {
            Ok((count, more)) => {
                self.pruned += count;
                self.wants_pruning = more;
            }
            Err(error) => self.failed(&error, clock),
        }
    }

    /// So many were pruned by hand: a capture meanwhile may want more of it.
    pub(crate) fn pruned_by_hand(&mut self, count: u64) {
        self.pruned += count;
    }

    fn failed(&mut self, error: &Error, clock: &dyn Clock) {
        self.failures += 1;
        self.error = Some(error.to_string());
        self.retry_ns = clock.monotonic_ns().saturating_add(RETRY_NS);
    }

    /// As it stands; `newest` is the number of its newest version, and the clock's time then.
    pub(crate) fn info(&self, newest: Option<(u64, u64)>) -> ScheduleInfo {
        ScheduleInfo {
            spec: ScheduleSpec {
                timing: self.timing.clone(),
                keep: self.record.keep,
                label: self.record.label.clone(),
                hook: self.record.hook.clone(),
                prove: self.record.prove.clone(),
            },
            set: WallTime::from_nanos(self.record.set_ns),
            next: self.next,
            newest: newest.map(|(number, made_ns)| (number, WallTime::from_nanos(made_ns))),
            captures: self.captures,
            failures: self.failures,
            pruned: self.pruned,
            error: self.error.clone(),
        }
    }

    /// Whether it is still the one that this record was made of.
    pub(crate) fn is(&self, record: &ScheduleRecord) -> bool {
        let ScheduleRecord { id, set_ns, .. } = self.record;
        (id, set_ns) == (record.id, record.set_ns)
    }

    /// Its judgement on its captures with these numbers.
    pub(crate) fn judged(
        &self,
        newest_first: impl Iterator<Item = Candidate>,
        numbers: RangeInclusive<u64>,
    ) -> Judged {
        let ScheduleRecord { id, keep, .. } = self.record;
        Judged::of(id, keep, self.timing.clone(), newest_first, numbers)
    }
}

impl ScheduleSpec {
    /// Fails unless it can be a schedule.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self, now: WallTime) -> Result<()> {
        check_label(&self.label)?;
        for hook in self.hook.iter().chain(&self.prove) {
            check_name("hook", hook)?;
        }
        if matches!(self.timing, Timing::Every(span) if span.0 < EVERY_MIN_NS)
            || self.timing.next_after(now).is_none()
        {
            let text = format!("`{}` cannot be a schedule", self.timing);
            return Err(Error::invalid(text).with_hint("at least every 1s"));
        }
        Ok(())
    }

    /// The record of the schedule with this id.
    pub(crate) fn record(&self, id: u64, now: WallTime) -> ScheduleRecord {
        let (every_ns, cron) = match &self.timing {
            Timing::Every(span) => (Some(span.0), None),
            Timing::Cron(cron) => (None, Some(cron.to_string())),
        };
        ScheduleRecord {
            id,
            every_ns,
            cron,
            keep: self.keep,
            label: self.label.clone(),
            hook: self.hook.clone(),
            prove: self.prove.clone(),
            set_ns: now.as_nanos(),
            done_ns: now.as_nanos(),
        }
    }
}
