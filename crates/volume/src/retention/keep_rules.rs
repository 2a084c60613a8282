//! Keep rules: which versions of a schedule stay, as restic's `forget` means it. All in UTC.
//!
//! Invariants
//! 1. Versions are told newest first, by number. Their times may go anywhere: clocks jump.
//! 2. There is no "now": what stays follows from the versions alone.
//! 3. A period takes one place of its rule, however often the clock comes back to it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use units::{Period, Span, Timing, WallTime};

use crate::types::is_default;

/// Which versions of a schedule stay; a rule of nothing keeps nothing, no rule at all everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepRules {
    /// The newest so many.
    #[serde(skip_serializing_if = "is_default")]
    pub last: u32,
    /// The newest of each of the last so many hours that have one.
    #[serde(skip_serializing_if = "is_default")]
    pub hourly: u32,
    /// The same of days.
    #[serde(skip_serializing_if = "is_default")]
    pub daily: u32,
    /// The same of ISO weeks.
    #[serde(skip_serializing_if = "is_default")]
    pub weekly: u32,
    /// The same of months.
    #[serde(skip_serializing_if = "is_default")]
    pub monthly: u32,
    /// The same of years.
    #[serde(skip_serializing_if = "is_default")]
    pub yearly: u32,
    /// Those not older than this many nanoseconds before the newest; 0 is no such rule.
    #[serde(skip_serializing_if = "is_default")]
    pub within_ns: u64,
}

impl fmt::Display for KeepRules {
    /// Such as `last 24, daily 7, within 2d`; `everything` without a rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let periods = self.periods().map(|(period, count)| (Rule::Of(period), count));
        let counts = [(Rule::Last, self.last)].into_iter().chain(periods);
        let told = counts.filter(|(_, count)| *count > 0);
        let mut told: Vec<String> =
            told.map(|(rule, count)| format!("{} {count}", rule.name())).collect();
        if self.within_ns > 0 {
            told.push(format!("within {}", Span(self.within_ns)));
        }
        f.pad(&if told.is_empty() { "everything".to_owned() } else { told.join(", ") })
    }
}

/// A rule that keeps a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// There is no rule.
    Everything,
    /// One of the newest.
    Last,
    /// The newest of its period.
    Of(Period),
    /// Young enough.
    Within,
}

impl Rule {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::Everything => "everything",
            Rule::Last => "last",
            Rule::Of(Period::Hour) => "hourly",
            Rule::Of(Period::Day) => "daily",
            Rule::Of(Period::Week) => "weekly",
            Rule::Of(Period::Month) => "monthly",
            Rule::Of(Period::Year) => "yearly",
            Rule::Within => "within",
        }
    }
}

/// A version of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub number: u64,
    /// The clock's time when it was captured.
    pub made: WallTime,
}

/// Why a version stays, each rule with its place in it from 0 (the newest); none means it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The version.
    pub of: Candidate,
    /// The rules that keep it.
    pub kept_by: Vec<(Rule, u32)>,
}

impl KeepRules {
    /// Whether there is a rule.
    #[must_use]
    pub fn has_any(&self) -> bool {
        *self != KeepRules::default()
    }

    /// The rules about periods and their numbers.
    fn periods(&self) -> [(Period, u32); 5] {
        [
            (Period::Hour, self.hourly),
            (Period::Day, self.daily),
            (Period::Week, self.weekly),
            (Period::Month, self.monthly),
            (Period::Year, self.yearly),
        ]
    }

    /// Judges the versions of a schedule, newest first.
    pub fn judge(
        &self,
        newest_first: impl IntoIterator<Item = Candidate>,
    ) -> impl Iterator<Item = Verdict> {
        let rules = *self;
        let mut seen: [BTreeSet<u64>; 5] = Default::default();
        let mut newest: Option<WallTime> = None;
        newest_first.into_iter().enumerate().map(move |(place, of)| {
            let newest = *newest.get_or_insert(of.made);
            let mut kept_by = Vec::new();
            if !rules.has_any() {
                kept_by.push((Rule::Everything, 0));
            }
            if place < rules.last as usize {
                kept_by.push((Rule::Last, u32::try_from(place).expect("below a u32")));
            }
            for ((period, count), seen) in rules.periods().into_iter().zip(&mut seen) {
                let number = period.number_of(of.made);
                if seen.len() < count as usize && seen.insert(number) {
                    let place = u32::try_from(seen.len() - 1).expect("below a u32");
                    kept_by.push((Rule::Of(period), place));
                }
            }
            let start = newest.as_nanos().saturating_sub(rules.within_ns);
            if rules.within_ns > 0 && of.made.as_nanos() >= start {
                kept_by.push((Rule::Within, 0));
            }
            Verdict { of, kept_by }
        })
    }

    /// When a version that stays would go, if the schedule goes on as it is and `newest` is its
    /// newest version: `None` if no rule ever lets it go.
    #[must_use]
    pub fn goes_at(
        &self,
        verdict: &Verdict,
        newest: WallTime,
        timing: &Timing,
    ) -> Option<WallTime> {
        let ends = verdict.kept_by.iter().map(|&(rule, place)| match rule {
            Rule::Everything => None,
            Rule::Last => (place..self.last).try_fold(newest, |time, _| timing.next_after(time)),
            Rule::Of(period) => self.leaves_period(verdict.of, period, place, newest, timing),
            Rule::Within => {
                let until = verdict.of.made.as_nanos().saturating_add(self.within_ns);
                timing.next_after(WallTime::from_nanos(until.max(newest.as_nanos())))
            }
        });
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// The capture at which a version is not the newest of its period any more, or its period not
    /// among those that count.
    fn leaves_period(
        &self,
        of: Candidate,
        period: Period,
        place: u32,
        newest: WallTime,
        timing: &Timing,
    ) -> Option<WallTime> {
        let next = timing.next_after(newest)?;
        if period.number_of(next) == period.number_of(of.made) {
            return Some(next);
        }
        let count = self.periods().into_iter().find(|(other, _)| *other == period)?.1;
        let mut time = newest;
        for _ in place..count {
            // The first capture in a later period than the newest's.
            let last = WallTime::from_nanos(period.end_of(time).as_nanos().saturating_sub(1));
            time = timing.next_after(last.max(time))?;
        }
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use units::{Cron, Period, Span, Timing, WallTime};

    use super::{Candidate, KeepRules, Rule, Verdict};

    const MINUTE: u64 = 60_000_000_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    /// 2026-11-21T10:30:00Z, a Saturday.
    const START: u64 = 1_795_257_000_000_000_000;

    fn judge(rules: &KeepRules, times: &[u64]) -> Vec<Verdict> {
        let all = times.iter().enumerate().map(|(number, &nanos)| Candidate {
            number: number as u64,
            made: WallTime::from_nanos(nanos),
        });
        let newest_first: Vec<_> = all.rev().collect();
        rules.judge(newest_first).collect()
    }

    fn kept(rules: &KeepRules, times: &[u64]) -> Vec<u64> {
        let stay = judge(rules, times).into_iter().filter(|v| !v.kept_by.is_empty());
        let mut numbers: Vec<u64> = stay.map(|v| v.of.number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn no_rule_keeps_everything_and_a_rule_what_it_says() {
        let times: Vec<u64> = (0..10).map(|i| START + i * HOUR).collect();
        assert_eq!(kept(&KeepRules::default(), &times).len(), 10);
        assert_eq!(kept(&KeepRules { last: 2, ..KeepRules::default() }, &times), [8, 9]);
        let within = KeepRules { within_ns: 2 * HOUR, ..KeepRules::default() };
        assert_eq!(kept(&within, &times), [7, 8, 9]);
    }

    #[test]
    fn the_newest_of_each_period_that_has_one_is_kept() {
        // Every 20 minutes for three days.
        let times: Vec<u64> = (0..216).map(|i| START + i * 20 * MINUTE).collect();
        let hours = kept(&KeepRules { hourly: 3, ..KeepRules::default() }, &times);
        assert_eq!(hours, [211, 214, 215], "08:50, 09:50 and 10:10");
        let days = kept(&KeepRules { daily: 9, ..KeepRules::default() }, &times);
        assert_eq!(days.len(), 4, "as many as there are");
        // A gap is no period: hours that have none take no place.
        let gap = [START, START + 90 * DAY, START + 91 * DAY];
        assert_eq!(kept(&KeepRules { hourly: 3, ..KeepRules::default() }, &gap), [0, 1, 2]);
        let months = KeepRules { monthly: 2, ..KeepRules::default() };
        assert_eq!(kept(&months, &gap), [0, 2]);
    }

    #[test]
    fn a_clock_that_jumps_costs_no_more_than_the_places_it_takes() {
        let rules = KeepRules { hourly: 3, ..KeepRules::default() };
        // Back by an hour: the two hours come twice, and are two.
        let back = [START - HOUR, START, START + HOUR, START, START + HOUR];
        assert_eq!(kept(&rules, &back), [0, 3, 4]);
        // Ahead by 74 years for one capture, and back again.
        let ahead = [START, START + HOUR, START + 74 * 365 * DAY, START + 2 * HOUR];
        assert_eq!(kept(&rules, &ahead), [1, 2, 3]);
        let within = KeepRules { within_ns: 5 * HOUR, ..KeepRules::default() };
        assert_eq!(kept(&within, &ahead), [0, 1, 2, 3]);
    }

    /// The future if the schedule goes on: the first capture at which it is not kept.
    fn first_gone(
        rules: &KeepRules,
        times: &[u64],
        number: u64,
        timing: &Timing,
    ) -> Result<u64, u64> {
        let mut times = times.to_vec();
        for _ in 0..400 {
            let newest = WallTime::from_nanos(*times.last().expect("some"));
            times.push(timing.next_after(newest).expect("later").as_nanos());
            if !kept(rules, &times).contains(&number) {
                return Ok(*times.last().expect("some"));
            }
        }
        Err(*times.last().expect("some"))
    }

    #[test]
    fn what_is_foretold_is_what_happens() {
        let timings = [
            Timing::Every(Span(20 * MINUTE)),
            Timing::Every(Span(7 * HOUR)),
            Timing::Cron("0 3 * * mon-fri".parse::<Cron>().expect("a line")),
        ];
        let rules = [
            KeepRules { last: 3, ..KeepRules::default() },
            KeepRules { hourly: 4, daily: 2, ..KeepRules::default() },
            KeepRules { within_ns: 2 * DAY, weekly: 1, ..KeepRules::default() },
            KeepRules { last: 1, monthly: 1, ..KeepRules::default() },
        ];
        for timing in &timings {
            for rules in &rules {
                let mut times = vec![START];
                for _ in 0..12 {
                    let newest = WallTime::from_nanos(*times.last().expect("some"));
                    times.push(timing.next_after(newest).expect("later").as_nanos());
                }
                let newest = WallTime::from_nanos(*times.last().expect("some"));
                for verdict in judge(rules, &times) {
                    if verdict.kept_by.is_empty() {
                        continue;
                    }
                    let told = rules.goes_at(&verdict, newest, timing).expect("it goes");
                    match first_gone(rules, &times, verdict.of.number, timing) {
                        Ok(seen) => assert_eq!(told.as_nanos(), seen, "{timing} {rules:?}"),
                        Err(seen) => assert!(told.as_nanos() > seen, "{timing} {rules:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn the_reasons_are_told_with_their_places() {
        let rules = KeepRules { last: 1, hourly: 2, ..KeepRules::default() };
        let verdicts = judge(&rules, &[START, START + HOUR]);
        let newest = [(Rule::Last, 0), (Rule::Of(Period::Hour), 0)];
        assert_eq!(verdicts[0].kept_by, newest);
        assert_eq!(verdicts[1].kept_by, [(Rule::Of(Period::Hour), 1)]);
    }
}
