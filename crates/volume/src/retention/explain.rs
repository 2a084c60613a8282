//! Why versions and captures stay or go: what the keep rules of their schedule say, for people.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use units::{Period, Span, Timing, WallTime};

use crate::retention::keep_rules::{Candidate, KeepRules, Rule, Verdict};

/// The maker of a version, as far as it matters to keep rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeBy {
    /// Somebody.
    People,
    /// The schedule that there is.
    Schedule,
    /// The schedule of a group that the volume is in.
    GroupSchedule,
    /// A schedule that was removed.
    RemovedSchedule,
}

/// Why a version stays or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Its number.
    pub number: u64,
    /// Its time: for a schedule's, what the clock said.
    pub time: WallTime,
    /// The maker.
    pub made_by: MadeBy,
    /// The rules that keep it, such as `hourly 3/48`.
    pub rules: Vec<String>,
    /// Whether it stays for now.
    pub stays: bool,
    /// When it will go, as far as that is known: if the schedule goes on as it is.
    pub goes: Option<WallTime>,
}

impl Explained {
    /// Why a version or capture of a time stays, or when it goes, by the judgement of the schedule
    /// that there is; `made` is the schedule that made it, if one did.
    pub fn of(
        (number, time_ns): (u64, u64),
        made: Option<u64>,
        judged: Option<&Judged>,
        now: WallTime,
    ) -> Explained {
        let mut explained = Explained {
            number,
            time: WallTime::from_nanos(time_ns),
            made_by: MadeBy::People,
            rules: Vec::new(),
            stays: true,
            goes: None,
        };
        let Some(made) = made else { return explained };
        explained.made_by = MadeBy::RemovedSchedule;
        if let Some(judged) = judged.filter(|judged| judged.schedule == made) {
            explained.made_by = MadeBy::Schedule;
            judged.explain(number, now, &mut explained);
        }
        explained
    }
}

/// A schedule's judgement on some of its captures.
#[derive(Debug)]
pub struct Judged {
    /// The id of the schedule.
    pub schedule: u64,
    keep: KeepRules,
    timing: Timing,
    newest: Option<WallTime>,
    verdicts: BTreeMap<u64, Verdict>,
}

impl Judged {
    /// The judgement of a schedule's rules on its captures with these numbers.
    pub fn of(
        schedule: u64,
        keep: KeepRules,
        timing: Timing,
        newest_first: impl Iterator<Item = Candidate>,
        numbers: RangeInclusive<u64>,
    ) -> Judged {
        let mut newest = None;
        let mut verdicts = BTreeMap::new();
        for verdict in keep.judge(newest_first) {
            newest.get_or_insert(verdict.of.made);
            if numbers.contains(&verdict.of.number) {
                verdicts.insert(verdict.of.number, verdict);
            }
        }
        Judged { schedule, keep, timing, newest, verdicts }
    }

    /// Fills in why a capture stays, or when it goes: right away is now.
    pub fn explain(&self, number: u64, now: WallTime, explained: &mut Explained) {
        let (Some(verdict), Some(newest)) = (self.verdicts.get(&number), self.newest) else {
            return;
        };
        let rules = verdict.kept_by.iter();
        explained.rules = rules.map(|&(rule, place)| self.keep.reason(rule, place)).collect();
        explained.stays = !verdict.kept_by.is_empty();
        explained.goes = match explained.stays {
            true => self.keep.goes_at(verdict, newest, &self.timing),
            false => Some(now),
        };
    }
}

/// The judgement of a group's schedule on the versions of one of its volumes.
#[derive(Debug)]
pub struct JudgedGroup {
    /// The judgement on its captures.
    pub judged: Judged,
    group: String,
    /// The captures that versions of the volume belong to.
    captures: BTreeMap<u64, u64>,
}

impl JudgedGroup {
    /// The judgement on these captures (by the versions of the volume that belong to them) of a
    /// group of this name.
    pub fn of(judged: Judged, group: String, captures: BTreeMap<u64, u64>) -> JudgedGroup {
        JudgedGroup { judged, group, captures }
    }

    /// Fills in why a version stays, or when it goes.
    pub fn explain(&self, version: u64, now: WallTime, explained: &mut Explained) {
        let Some(&capture) = self.captures.get(&version) else { return };
        self.judged.explain(capture, now, explained);
        explained.rules.iter_mut().for_each(|rule| *rule = format!("group {}: {rule}", self.group));
    }
}

/// Versions or captures that no rule keeps, oldest first.
pub fn doomed(
    newest_first: impl Iterator<Item = (u64, u64)>,
    keep: &KeepRules,
    limit: usize,
) -> Vec<u64> {
    if !keep.has_any() {
        return Vec::new();
    }
    let goes = |verdict: Verdict| verdict.kept_by.is_empty().then_some(verdict.of.number);
    let mut doomed: Vec<u64> = keep.judge(newest_first.map(candidate)).filter_map(goes).collect();
    doomed.reverse();
    doomed.truncate(limit);
    doomed
}

/// The same, to be told.
pub fn explain_doomed(
    newest_first: impl Iterator<Item = (u64, u64)>,
    keep: &KeepRules,
    now: WallTime,
) -> Vec<Explained> {
    let times: BTreeMap<u64, u64> = newest_first.collect();
    // Numbers rise with time but where the clock went back: judged in the order of numbers.
    let newest_first = times.iter().rev().map(|(&number, &made_ns)| (number, made_ns));
    let told = |number: u64| Explained {
        number,
        time: WallTime::from_nanos(times[&number]),
        made_by: MadeBy::Schedule,
        rules: Vec::new(),
        stays: false,
        goes: Some(now),
    };
    doomed(newest_first, keep, usize::MAX).into_iter().map(told).collect()
}

pub fn candidate((number, made_ns): (u64, u64)) -> Candidate {
    Candidate { number, made: WallTime::from_nanos(made_ns) }
}

impl KeepRules {
    /// The rule that keeps a version, with its place, such as `hourly 3/48`.
    fn reason(&self, rule: Rule, place: u32) -> String {
        let count = match rule {
            Rule::Everything => return "there are no rules".to_owned(),
            Rule::Within => return format!("within {}", Span(self.within_ns)),
            Rule::Last => self.last,
            Rule::Of(Period::Hour) => self.hourly,
            Rule::Of(Period::Day) => self.daily,
            Rule::Of(Period::Week) => self.weekly,
            Rule::Of(Period::Month) => self.monthly,
            Rule::Of(Period::Year) => self.yearly,
        };
        format!("{} {}/{count}", rule.name(), place + 1)
    }
}
