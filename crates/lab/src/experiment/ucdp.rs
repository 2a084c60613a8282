//! UCDP's evaluation (Zhu and Chiueh, DSN 2007): an NFS server alone, and its forms O, A, I and
//! K, as they were measured here, beside what the paper says in words.
//!
//! 1. Nothing is measured here: a program that has servers and a clock hands in what it measured.
//! 2. The paper's pictures are not known, only its text.
//! 3. Lines are compared within one round; the median of the rounds is shown with its spread.

use super::outcome::{Claim, Outcome, Table, median};
use crate::plot::{Chart, Look, Scale, Series};

/// A line of the paper's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// The server alone, not protected.
    Alone,
    /// O: a relay before it, and a share that copies what it overwrites.
    Overwrite,
    /// A: a relay before it, and a share that appends.
    Append,
    /// I: a relay before a share.
    Inline,
    /// K: a share served by the process that has it.
    Embedded,
}

impl Line {
    /// Every one there is.
    pub const ALL: [Line; 5] =
        [Line::Alone, Line::Overwrite, Line::Append, Line::Inline, Line::Embedded];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Line::Alone => "alone",
            Line::Overwrite => "O",
            Line::Append => "A",
            Line::Inline => "I",
            Line::Embedded => "K",
        }
    }
}

/// What came of a load on a line.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The line.
    pub line: Line,
    /// Updates, per cent of the operations.
    pub update_percent: u32,
    /// Operations a second that were asked for; none: as many as were answered.
    pub rate: Option<u32>,
    /// The round.
    pub round: u32,
    /// Operations a second.
    pub operations_per_second: f64,
    /// The mean latency.
    pub mean_us: f64,
    /// The latency that one in a hundred exceeded.
    pub p99_us: f64,
    /// Processor time of the servers for an operation.
    pub processor_us: f64,
    /// Operations of these that change something.
    pub updates: u64,
    /// Bytes that they wrote to files, as the load counted them.
    pub written_bytes: u64,
    /// Bytes that the share took for them, as its server counts them; none without a share.
    pub kept_bytes: Option<u64>,
    /// Operations that the share of a relay had not done when the load ended.
    pub waiting: u64,
    /// Operations that failed.
    pub failed: u64,
}

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// On what.
    pub setting: String,
    /// The points.
    pub points: Vec<Point>,
}

/// What a figure shows of a point.
type Shown = fn(&Point) -> f64;

const NO_FAILURE: &str = "any operation that fails, a ratio beyond the goal";

/// The figures.
#[must_use]
pub fn outcomes(measured: &Measured) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    if measured.points.iter().any(|point| point.rate.is_none()) {
        outcomes.push(peak(measured));
        outcomes.push(processor(measured));
        outcomes.push(space(measured));
    }
    if measured.points.iter().any(|point| point.rate.is_some()) {
        outcomes.push(latency(measured));
    }
    outcomes
}

fn peak(measured: &Measured) -> Outcome {
    let points = of_rate(measured, |rate| rate.is_none());
    let ratio = |line, of: Shown| ratio(&points, line, Line::Alone, of);
    let throughput: Shown = |point| point.operations_per_second;
    let mut claims = vec![
        goal(
            "throughput of A against the server alone, least of all shares of updates",
            "as the server alone (figure 5)",
            ratio(Line::Append, throughput),
            (0.85, true),
        ),
        goal(
            "throughput of K against the server alone, least of all shares of updates",
            "some 7 % more with many updates (figure 5)",
            ratio(Line::Embedded, throughput),
            (1.0, true),
        ),
        failures(&points),
    ];
    claims.push(behind(&points));
    outcome(
        measured,
        ("ucdp-fig5", "Operations a second as fast as they are answered, by share of updates"),
        chart(&points, "operations a second", throughput),
        (table(&points), claims),
    )
}

fn processor(measured: &Measured) -> Outcome {
    let points = of_rate(measured, |rate| rate.is_none());
    let processor: Shown = |point| point.processor_us;
    let claims = vec![
        goal(
            "processor time of K against the server alone, most of all shares of updates",
            "+85 % at 500 operations a second (figure 7)",
            ratio(&points, Line::Embedded, Line::Alone, processor),
            (0.5, false),
        ),
        goal(
            "processor time of K against I, most of all shares of updates",
            "1.85 to 2.7 of the server alone (figure 7)",
            ratio(&points, Line::Embedded, Line::Inline, processor),
            (0.8, false),
        ),
    ];
    outcome(
        measured,
        ("ucdp-fig7", "Processor time of the servers for an operation, by share of updates"),
        chart(&points, "microseconds", processor),
        (table(&points), claims),
    )
}

fn latency(measured: &Measured) -> Outcome {
    let points = of_rate(measured, |rate| rate.is_some());
    let mean: Shown = |point| point.mean_us;
    let claims = vec![
        goal(
            "mean latency of A against the server alone, most of all points",
            "as the server alone",
            ratio(&points, Line::Append, Line::Alone, mean),
            (1.2, false),
        ),
        goal(
            "mean latency of K against the server alone, most of all points",
            "comparable up to 36 % of updates; 3 to 7 ms more beyond (figure 6, conclusion)",
            ratio(&points, Line::Embedded, Line::Alone, mean),
            (1.1, false),
        ),
        failures(&points),
    ];
    outcome(
        measured,
        ("ucdp-fig6", "Mean latency at a given load, by share of updates"),
        chart(&points, "microseconds", mean),
        (table(&points), claims),
    )
}

/// What the history of an update takes beyond its data, with the goal of the design.
fn space(measured: &Measured) -> Outcome {
    let points = of_rate(measured, |rate| rate.is_none());
    let kept: Vec<Point> = points.into_iter().filter(|one| one.kept_bytes.is_some()).collect();
    let claim = |line: Line| {
        let of_line = kept.iter().filter(|one| one.line == line && one.updates > 0);
        let by_load: Vec<(String, f64)> =
            of_line.map(|one| (format!("{} %", one.update_percent), beyond_bytes(one))).collect();
        let what = format!("{}: bytes for an update beyond what it wrote, at most", line.name());
        goal(&what, "no figure in its text", by_load, (BEYOND_BYTES_MAX, false))
    };
    let lines = Line::ALL.into_iter().filter(|line| kept.iter().any(|one| one.line == *line));
    let mut claims: Vec<Claim> = lines.map(claim).collect();
    claims.extend(kept.iter().max_by_key(|one| one.update_percent).map(a_day));
    outcome(
        measured,
        ("ucdp-space", "Bytes that the history of an update takes beyond its data"),
        chart(&kept, "bytes", beyond_bytes),
        (table(&kept), claims),
    )
}

/// Beyond its data, bytes: its log record, its inode, its node of the tree, each a block of 4 KiB.
const BEYOND_BYTES_MAX: f64 = 12_288.0;

fn beyond_bytes(point: &Point) -> f64 {
    let kept = point.kept_bytes.unwrap_or(0) as f64;
    (kept - point.written_bytes as f64) / point.updates.max(1) as f64
}

/// What a load takes in a day, and how long a window a terabyte holds: it is shown.
fn a_day(point: &Point) -> Claim {
    let of_an_operation = point.kept_bytes.unwrap_or(0) as f64
        / (point.updates.max(1) as f64 * 100.0 / f64::from(point.update_percent.max(1)));
    let a_day = of_an_operation * A_DAY_OPERATIONS;
    let measured = format!("{:.0} GB; {:.1} days", a_day / 1e9, 1e12 / a_day.max(1.0));
    let what = format!(
        "what 200 operations a second with {} % updates take in a day on {}; the window that 1 TB \
         holds",
        point.update_percent,
        point.line.name()
    );
    Claim::new(&what, "", String::new(), measured, true).not_judged()
}

/// 200 a second.
const A_DAY_OPERATIONS: f64 = 200.0 * 86_400.0;

fn outcome(
    measured: &Measured,
    (name, title): (&'static str, &'static str),
    chart: Chart,
    (table, claims): (Table, Vec<Claim>),
) -> Outcome {
    let chart = Chart { title: title.to_owned(), ..chart };
    Outcome { name, title, setting: measured.setting.clone(), chart, table, claims }
}

fn of_rate(measured: &Measured, is_shown: fn(Option<u32>) -> bool) -> Vec<Point> {
    measured.points.iter().filter(|point| is_shown(point.rate)).copied().collect()
}

/// The loads of some points: rate and share of updates.
fn loads(points: &[Point]) -> Vec<(Option<u32>, u32)> {
    let mut loads: Vec<_> = points.iter().map(|one| (one.rate, one.update_percent)).collect();
    loads.sort_unstable();
    loads.dedup();
    loads
}

/// The ratio of two lines by load: made within a round, the median of the rounds.
fn ratio(points: &[Point], line: Line, other: Line, of: Shown) -> Vec<(String, f64)> {
    let by_load = |(rate, update_percent): (Option<u32>, u32)| {
        let at = |line, round| {
            let is_it = |point: &&Point| {
                (point.line, point.rate, point.update_percent) == (line, rate, update_percent)
                    && point.round == round
            };
            points.iter().find(is_it).map(of)
        };
        let rounds = points.iter().map(|point| point.round).max()?;
        let ratios = (0..=rounds).filter_map(|round| Some(at(line, round)? / at(other, round)?));
        let load = rate.map_or(String::new(), |rate| format!(" at {rate}/s"));
        Some((format!("{update_percent} %{load}"), median(ratios.collect())?))
    };
    loads(points).into_iter().filter_map(by_load).collect()
}

/// A claim that the worst ratio is within a goal: at least, or at most that.
fn goal(
    what: &str,
    paper: &str,
    ratios: Vec<(String, f64)>,
    (goal, is_least): (f64, bool),
) -> Claim {
    let better = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
    let worst = match is_least {
        true => ratios.iter().min_by(better),
        false => ratios.iter().max_by(better),
    };
    let words = if is_least { "at least" } else { "at most" };
    let predicted = format!("{words} {goal:.2} (the design's goal)");
    let Some((at, worst)) = worst else {
        let measured = "a line is lacking".to_owned();
        return Claim::new(what, paper, predicted, measured, true).not_judged();
    };
    let all: Vec<String> = ratios.iter().map(|(at, ratio)| format!("{ratio:.2} at {at}")).collect();
    let holds = if is_least { *worst >= goal } else { *worst <= goal };
    Claim::new(what, paper, predicted, format!("{worst:.2} at {at}"), holds)
        .with_note(&all.join("; "))
        .fails(NO_FAILURE)
}

fn failures(points: &[Point]) -> Claim {
    let failed: u64 = points.iter().map(|point| point.failed).sum();
    let (what, paper) = ("operations that failed", "");
    Claim::new(what, paper, "0".to_owned(), failed.to_string(), failed == 0).fails("one of them")
}

/// The share of updates at which a follower falls behind: it is shown.
fn behind(points: &[Point]) -> Claim {
    let of = |line: Line| {
        let on = |point: &&Point| point.line == line;
        let mut all: Vec<_> = points.iter().filter(on).collect();
        all.sort_by_key(|point| (point.update_percent, point.round));
        let told = all.iter().map(|p| format!("{} at {} %", p.waiting, p.update_percent));
        format!("{}: {}", line.name(), told.collect::<Vec<_>>().join(", "))
    };
    let measured = format!("{}; {}", of(Line::Overwrite), of(Line::Append));
    let (what, paper) = (
        "operations that the share had not done when the load ended",
        "O is limited by its logging server (figure 5)",
    );
    Claim::new(what, paper, String::new(), measured, true).not_judged()
}

fn chart(points: &[Point], y_label: &str, of: Shown) -> Chart {
    let loads = loads(points);
    let line = |(colour, line): (usize, &Line), rate: Option<u32>| {
        let at = |update_percent: u32| {
            let is_it = |point: &&Point| {
                (point.line, point.rate, point.update_percent) == (*line, rate, update_percent)
            };
            let found = points.iter().filter(is_it).map(of).collect();
            median(found).map(|value| (f64::from(update_percent), value))
        };
        let points: Vec<_> =
            loads.iter().filter(|load| load.0 == rate).filter_map(|load| at(load.1)).collect();
        let name = match rate {
            Some(rate) => format!("{}, {rate}/s", line.name()),
            None => line.name().to_owned(),
        };
        (!points.is_empty()).then_some(Series { name, colour, look: Look::Measured, points })
    };
    let mut rates: Vec<Option<u32>> = loads.iter().map(|load| load.0).collect();
    rates.dedup();
    let lines = Line::ALL.iter().enumerate();
    let series = lines.flat_map(|one| rates.iter().filter_map(move |rate| line(one, *rate)));
    let mut shares: Vec<u32> = loads.iter().map(|load| load.1).collect();
    shares.sort_unstable();
    shares.dedup();
    Chart {
        title: String::new(),
        x_label: "updates, per cent".to_owned(),
        y_label: y_label.to_owned(),
        x_scale: Scale::Linear,
        x_ticks: shares.iter().map(|share| (f64::from(*share), share.to_string())).collect(),
        series: series.collect(),
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "line",
        "updates_percent",
        "asked_per_second",
        "round",
        "operations_per_second",
        "mean_us",
        "p99_us",
        "processor_us",
        "updates",
        "written_bytes",
        "kept_bytes",
        "waiting",
        "failed",
    ]);
    for point in points {
        table.row(vec![
            point.line.name().to_owned(),
            point.update_percent.to_string(),
            point.rate.map_or(String::new(), |rate| rate.to_string()),
            point.round.to_string(),
            format!("{:.0}", point.operations_per_second),
            format!("{:.0}", point.mean_us),
            format!("{:.0}", point.p99_us),
            format!("{:.1}", point.processor_us),
            point.updates.to_string(),
            point.written_bytes.to_string(),
            point.kept_bytes.map_or(String::new(), |bytes| bytes.to_string()),
            point.waiting.to_string(),
            point.failed.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Line, Measured, Point, outcomes};
    use crate::experiment::Verdict;

    fn point(line: Line, rate: Option<u32>, round: u32, value: f64) -> Point {
        Point {
            line,
            update_percent: 12,
            rate,
            round,
            operations_per_second: value,
            mean_us: value,
            p99_us: value,
            processor_us: value,
            updates: 10,
            written_bytes: 40_000,
            kept_bytes: (line != Line::Alone).then_some(40_000 + 100 * value as u64),
            waiting: 0,
            failed: 0,
        }
    }

    #[test]
    fn claims_are_judged_by_ratios_within_a_round() {
        // The machine was twice as fast in the second round.
        let points = vec![
            point(Line::Alone, None, 0, 100.0),
            point(Line::Append, None, 0, 90.0),
            point(Line::Alone, None, 1, 200.0),
            point(Line::Append, None, 1, 180.0),
            point(Line::Alone, Some(200), 0, 100.0),
            point(Line::Append, Some(200), 0, 150.0),
        ];
        let found = outcomes(&Measured { setting: String::new(), points });
        let names: Vec<_> = found.iter().map(|one| one.name).collect();
        assert_eq!(names, ["ucdp-fig5", "ucdp-fig7", "ucdp-space", "ucdp-fig6"]);
        let space = &found[2].claims;
        assert_eq!(space.len(), 2, "only one line has a share");
        // 10 bytes for each unit of the value: 900 and 1,800 of an update.
        assert_eq!((space[0].verdict, &*space[0].measured), (Verdict::Holds, "1800.00 at 12 %"));
        // 5,800 of an update, 12 % of 200 operations a second.
        assert!(space[1].measured.starts_with("12 GB; 83"), "{}", space[1].measured);
        let append = &found[0].claims[0];
        assert_eq!((append.verdict, &*append.measured), (Verdict::Holds, "0.90 at 12 %"));
        assert_eq!(found[0].claims[1].verdict, Verdict::NotJudged, "there is no K");
        let late = &found[3].claims[0];
        assert_eq!((late.verdict, &*late.measured), (Verdict::Differs, "1.50 at 12 % at 200/s"));
    }
}
