//! The writes of a range in as many columns as a screen has: a column is the difference of two
//! running totals, so the cost does not grow with what was written.
//!
//! 1. Column `i` is what was written after edge `i`, up to and at edge `i + 1`; edge `i` of `n`
//!    columns is `since + (until - since) * i / n`.
//! 2. The sums are those that `history` tells of the same ranges.
//!
//! Writes that wait in a write-back cache are in no log and in no column: looking on leaves them.

use format::time::TimeEntry;
use units::{Moment, WallTime};

use super::history::Range;
use crate::retention::moments::Moments;
use crate::types::TimelineColumns;
use crate::{Error, Result};

impl Moments {
    /// The writes between two moments (the window's start and the present, if not given) in so many
    /// columns, and the events.
    ///
    /// # Errors
    /// `Invalid` for no columns; those of resolving; `Corrupt` or `Io`.
    pub fn timeline(
        &self,
        since: Option<&Moment>,
        until: Option<&Moment>,
        columns: usize,
    ) -> Result<TimelineColumns> {
        self.check_open()?;
        if columns == 0 {
            return Err(Error::invalid("a timeline has one column at least"));
        }
        let Range { from, to } = self.range(since, until)?;
        let events = self.events_between(from, until, to)?;
        let edges = edges(from.time, to.time.max(from.time), columns);
        let totals = self.totals_at(&edges)?;
        let column = |of: fn(&TimeEntry) -> u64| {
            totals.windows(2).map(|edge| of(&edge[1]).saturating_sub(of(&edge[0]))).collect()
        };
        Ok(TimelineColumns {
            since: from.time,
            until: to.time.max(from.time),
            seqs: totals.iter().map(|total| total.seq.max(from.seq)).collect(),
            bytes: column(|total| total.bytes_total),
            flushes: column(|total| total.flushes_total),
            events,
            oldest: self.edge(None)?,
            latest: self.latest()?,
        })
    }

    /// The running totals at times, which ascend.
    fn totals_at(&self, times: &[WallTime]) -> Result<Vec<TimeEntry>> {
        // Memory first: what leaves it meanwhile is in the index already.
        let recent: Vec<Option<TimeEntry>> = self.log().with_times(|entries| {
            let last = |&time| entries.partition_point(|e: &TimeEntry| e.time <= time);
            times.iter().map(|time| last(time).checked_sub(1).map(|i| entries[i])).collect()
        });
        let older = recent.iter().take_while(|entry| entry.is_none()).count();
        let stored = self.times().at_or_before_each(&self.core.store, &times[..older])?;
        let totals = stored.into_iter().chain(recent.into_iter().skip(older));
        Ok(totals.map(Option::unwrap_or_default).collect())
    }
}

/// The edges of so many columns of equal length.
fn edges(since: WallTime, until: WallTime, columns: usize) -> Vec<WallTime> {
    let (begin, length) = (since.as_nanos(), u128::from(until.as_nanos() - since.as_nanos()));
    let edge = |i: usize| {
        let ahead = length * i as u128 / columns as u128;
        begin + u64::try_from(ahead).expect("not more than the length")
    };
    (0..=columns).map(|i| WallTime::from_nanos(edge(i))).collect()
}

impl TimelineColumns {
    /// The column that a time of the range lies in.
    #[must_use]
    pub fn column_of(&self, time: WallTime) -> usize {
        let columns = self.bytes.len();
        let edges = edges(self.since, self.until, columns);
        edges.partition_point(|edge| *edge < time).saturating_sub(1).min(columns - 1)
    }
}

#[cfg(test)]
mod tests;
