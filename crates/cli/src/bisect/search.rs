//! Where to look next: moments between one that is good and one that is bad.
//!
//! A moment is told by its seq. What cannot be told is passed over, and what is beside it is tried.

use std::collections::BTreeSet;

use api::{Client, Resolved, TimelineQuery};
use units::{Moment, Span, WallTime};

use crate::session::say;

/// How fine is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// At what clients had flushed.
    Flush,
    /// At times so far from each other.
    Span(Span),
    /// At every write.
    Write,
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        match text {
            "flush" => Ok(Step::Flush),
            "write" => Ok(Step::Write),
            _ => match text.parse::<Span>() {
                Ok(span) if span.0 > 0 => Ok(Step::Span(span)),
                _ => Err("give flush, write or a span such as 1s".to_owned()),
            },
        }
    }
}

/// Moments beside one that cannot be told that are tried, at most.
const BESIDE_MAX: u32 = 15;
/// Columns that are asked for at once: as many as a server gives.
const COLUMNS: usize = 4000;
/// How often a column is looked into closer: with five a century comes to less than a nanosecond.
const CLOSER_MAX: u32 = 5;

/// A volume whose moments are looked at.
pub struct Past<'a> {
    pub client: &'a Client,
    pub volume: &'a str,
    pub step: Step,
}

impl Past<'_> {
    pub fn resolve(&self, moment: &Moment) -> anyhow::Result<Resolved> {
        Ok(self.client.resolve(self.volume, &moment.to_string())?)
    }

    /// Says how a search that was ended goes on.
    pub fn tell_way(&self, good: &Resolved, bad: &Resolved) {
        let way = format!("--good seq:{} --bad seq:{}", good.seq, bad.seq);
        say(&format!("to go on: hindsight bisect {} {way} ...", self.volume));
    }

    fn at(&self, seq: u64) -> anyhow::Result<Resolved> {
        self.resolve(&Moment::Seq(units::Seq(seq)))
    }

    /// So many moments between two, as far from each other as can be: the middle, and then again
    /// and again that of the longest way between neighbours. Fewer where there are no more.
    pub fn spread(
        &self,
        low: &Resolved,
        high: &Resolved,
        count: usize,
        without: &BTreeSet<u64>,
    ) -> anyhow::Result<Vec<Resolved>> {
        let mut found = Vec::new();
        // Ways between neighbours in which there may be one.
        let mut ways = vec![(*low, *high)];
        while found.len() < count && !ways.is_empty() {
            let length = |(low, high): &(Resolved, Resolved)| match self.step {
                Step::Write => high.seq - low.seq,
                Step::Flush | Step::Span(_) => {
                    high.time.0.as_nanos().saturating_sub(low.time.0.as_nanos())
                }
            };
            let longest = (0..ways.len()).max_by_key(|at| length(&ways[*at])).unwrap_or_default();
            let (low, high) = ways.swap_remove(longest);
            if let Some(middle) = self.between(&low, &high, without)? {
                found.push(middle);
                ways.extend([(low, middle), (middle, high)]);
            }
        }
        Ok(found)
    }

    /// A moment between two, as near to their middle as can be, and none of those to be left out;
    /// none if there is none.
    fn between(
        &self,
        low: &Resolved,
        high: &Resolved,
        without: &BTreeSet<u64>,
    ) -> anyhow::Result<Option<Resolved>> {
        let is_new = |seq: u64| low.seq < seq && seq < high.seq && !without.contains(&seq);
        if self.step == Step::Flush {
            let range = (low.time.0.as_nanos(), high.time.0.as_nanos());
            let ends = (low.seq, high.seq);
            return self.flush_in(range, 0, ends, &is_new)?.map(|seq| self.at(seq)).transpose();
        }
        // The middle, and then the quarters, the eighths ...: what is beside what cannot be told.
        for turn in 1..=BESIDE_MAX {
            let level = turn.ilog2() + 1;
            let parts = 1_u64 << level;
            let odd = u64::from(turn) * 2 + 1 - parts;
            let Some(found) = self.part(low, high, (odd, parts))? else { return Ok(None) };
            if is_new(found.seq) {
                return Ok(Some(found));
            }
            if without.is_empty() {
                break;
            }
        }
        Ok(None)
    }

    /// The moment at so many parts of the way; none where it is too short for one.
    fn part(
        &self,
        low: &Resolved,
        high: &Resolved,
        (odd, parts): (u64, u64),
    ) -> anyhow::Result<Option<Resolved>> {
        let part = |from: u64, to: u64| {
            from + (u128::from(to - from) * u128::from(odd) / u128::from(parts)) as u64
        };
        match self.step {
            Step::Span(step) => {
                let (mut from, to) = (low.time.0.as_nanos(), high.time.0.as_nanos());
                // Where nothing was written for long the half without writes goes without a look.
                while to.saturating_sub(from) > step.0 {
                    let middle = WallTime::from_nanos(part(from, to).max(from + 1));
                    let found = self.resolve(&Moment::At(middle))?;
                    if found.seq > low.seq {
                        return Ok(Some(found));
                    }
                    from = middle.as_nanos();
                }
                Ok(None)
            }
            _ if high.seq - low.seq < 2 => Ok(None),
            _ => self.kept(low.seq, part(low.seq, high.seq), high.seq).map(Some),
        }
    }

    /// The moment at a seq; with moments that were not kept the next one that was.
    fn kept(&self, low: u64, seq: u64, high: u64) -> anyhow::Result<Resolved> {
        let found = self.at(seq)?;
        if found.seq > low {
            return Ok(found);
        }
        let (mut under, mut over) = (seq, high);
        while over - under > 1 {
            let middle = under + (over - under) / 2;
            if self.at(middle)?.seq > low {
                over = middle;
            } else {
                under = middle;
            }
        }
        self.at(over)
    }

    /// The seq of a flush in a range of time, from the middle of its flushes outwards, that is new.
    ///
    /// A column of the timeline with writes and a flush is looked into closer, until the flush has
    /// one without writes: its seq is what was flushed.
    fn flush_in(
        &self,
        (from, to): (u64, u64),
        depth: u32,
        ends: (u64, u64),
        is_new: &dyn Fn(u64) -> bool,
    ) -> anyhow::Result<Option<u64>> {
        let time = |nanos: u64| Moment::At(WallTime::from_nanos(nanos));
        if to.saturating_sub(from) < 2 || depth == CLOSER_MAX {
            let seq = self.resolve(&time(to))?.seq;
            return Ok(is_new(seq).then_some(seq));
        }
        let [since, until] = [from, to].map(|nanos| Some(time(nanos).to_string()));
        let query = TimelineQuery { since, until, points: Some(COLUMNS) };
        let line = self.client.timeline(self.volume, &query)?;
        let (from, to) = (line.since.0.as_nanos(), line.until.0.as_nanos());
        let edge = |at: usize| {
            from + (u128::from(to - from) * at as u128 / line.flushes.len() as u128) as u64
        };
        let mut columns: Vec<usize> =
            (0..line.flushes.len()).filter(|at| line.flushes[*at] > 0).collect();
        let middle = columns.get(columns.len() / 2).copied().unwrap_or_default();
        columns.sort_by_key(|at| at.abs_diff(middle));
        for at in columns {
            let [left, right] = [line.seqs[at], line.seqs[at + 1]];
            if left == right {
                if is_new(right) {
                    return Ok(Some(right));
                }
                continue;
            }
            // Whatever is flushed there is between these.
            if left.max(ends.0 + 1) <= right.min(ends.1 - 1) {
                let closer = (edge(at), edge(at + 1));
                let found = self.flush_in(closer, depth + 1, ends, is_new)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn steps_are_read() {
        assert_eq!("flush".parse(), Ok(Step::Flush));
        assert_eq!("write".parse(), Ok(Step::Write));
        assert_eq!("1s".parse(), Ok(Step::Span(units::Span(1_000_000_000))));
        for wrong in ["", "0s", "writes", "1m"] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }
}
