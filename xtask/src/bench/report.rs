//! What a benchmark found: raw values, medians with their spread, ratios within rounds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Options, machine};
use crate::tree;

/// One measured value.
#[derive(Clone)]
struct Sample {
    case: String,
    server: String,
    round: usize,
    value: f64,
    p99_us: Option<f64>,
}

/// A ratio that a goal is about.
struct Ratio {
    subject: String,
    /// The best of these in each round is what the subject is held against.
    against: Vec<String>,
    text: String,
}

/// The report of one benchmark.
pub struct Report {
    title: String,
    goal: String,
    unit: String,
    more_is_better: bool,
    samples: Vec<Sample>,
    ratios: Vec<Ratio>,
    notes: Vec<String>,
}

impl Report {
    /// An empty report; `unit` is that of every value.
    pub fn new(title: &str, goal: &str, unit: &str) -> Report {
        Report {
            title: title.to_owned(),
            goal: goal.to_owned(),
            unit: unit.to_owned(),
            more_is_better: true,
            samples: Vec::new(),
            ratios: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Says that small values are good.
    pub fn less_is_better(mut self) -> Report {
        self.more_is_better = false;
        self
    }

    /// Asks for the ratio of a server to the best of others. There can be several.
    pub fn with_ratio(mut self, subject: &str, against: &[&str], text: &str) -> Report {
        self.ratios.push(Ratio {
            subject: subject.to_owned(),
            against: against.iter().map(|name| (*name).to_owned()).collect(),
            text: text.to_owned(),
        });
        self
    }

    /// Adds a sentence to the summary.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a value.
    pub fn add(&mut self, case: &str, server: &str, round: usize, value: f64, p99_us: Option<f64>) {
        let (case, server) = (case.to_owned(), server.to_owned());
        self.samples.push(Sample { case, server, round, value, p99_us });
    }

    /// Values by round of one server in one case.
    fn rounds(&self, case: &str, server: &str) -> BTreeMap<usize, f64> {
        let those = self.samples.iter().filter(|s| s.case == case && s.server == server);
        those.map(|s| (s.round, s.value)).collect()
    }

    /// The ratio in each round of a case.
    fn by_round(&self, case: &str, ratio: &Ratio) -> Vec<f64> {
        let against: Vec<_> = ratio.against.iter().map(|name| self.rounds(case, name)).collect();
        let better = |a: f64, b: f64| if self.more_is_better { a.max(b) } else { a.min(b) };
        let subject = self.rounds(case, &ratio.subject);
        let pairs = subject.iter().filter_map(|(round, value)| {
            let others = against.iter().filter_map(|rounds| rounds.get(round).copied());
            Some(value / others.reduce(better)?)
        });
        pairs.collect()
    }

    /// The tables, as Markdown.
    pub fn summary(&self) -> String {
        let mut text = format!("# {}\n\nGoal: {}\n\n", self.title, self.goal);
        let unit = &self.unit;
        let _ = writeln!(text, "| case | server | median ({unit}) | min | max | p99 us | rounds |");
        text.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
        for (case, server) in self.cases() {
            let these = self.samples.iter().filter(|s| s.case == case && s.server == server);
            let values: Vec<f64> = these.clone().map(|s| s.value).collect();
            let late: Vec<f64> = these.filter_map(|s| s.p99_us).collect();
            let late = if late.is_empty() { String::new() } else { shown(median(&late)) };
            let (low, high) = spread(&values);
            let (middle, count) = (shown(median(&values)), values.len());
            let (low, high) = (shown(low), shown(high));
            let _ = writeln!(
                text,
                "| {case} | {server} | {middle} | {low} | {high} | {late} | {count} |"
            );
        }
        for ratio in &self.ratios {
            let _ = writeln!(text, "\nRatio: {}\n", ratio.text);
            text.push_str(
                "| case | median of rounds | min | max |\n| --- | ---: | ---: | ---: |\n",
            );
            let mut cases: Vec<String> = self.cases().into_iter().map(|(case, _)| case).collect();
            cases.dedup();
            for case in cases {
                let ratios = self.by_round(&case, ratio);
                if ratios.is_empty() {
                    continue;
                }
                let (low, high) = spread(&ratios);
                let middle = median(&ratios);
                let _ = writeln!(text, "| {case} | {middle:.2} | {low:.2} | {high:.2} |");
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text
    }

    /// Cases and servers in the order in which they were first measured.
    fn cases(&self) -> Vec<(String, String)> {
        let mut cases: Vec<(String, String)> = Vec::new();
        let mut order: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !order.contains(&sample.case.as_str()) {
                order.push(&sample.case);
            }
            let pair = (sample.case.clone(), sample.server.clone());
            if !cases.contains(&pair) {
                cases.push(pair);
            }
        }
        cases.sort_by_key(|(case, _)| order.iter().position(|known| known == case));
        cases
    }

    /// Writes raw values and summary; returns their folder.
    pub fn write(&self, name: &str, options: &Options, load_before: &str) -> Result<PathBuf> {
        let folder = tree::top().join("bench/runs").join(format!("{}-{name}", machine::date()));
        std::fs::create_dir_all(&folder).context("bench/runs")?;
        let mut raw = format!("case,server,round,{},p99_us\n", self.unit.replace(',', " "));
        for s in &self.samples {
            let late = s.p99_us.map_or(String::new(), |p99| format!("{p99:.1}"));
            let _ = writeln!(raw, "{},{},{},{:.3},{late}", s.case, s.server, s.round, s.value);
        }
        std::fs::write(folder.join("raw.csv"), raw).context("raw.csv")?;
        let mut text = self.summary();
        let _ = writeln!(
            text,
            "\n## Machine and run\n\n- command: `cargo x bench {name} --rounds {} --seconds {} \
             --size {}M --writes {} --history {}M`",
            options.rounds,
            options.seconds,
            options.size_bytes >> 20,
            options.writes,
            options.history_bytes >> 20
        );
        for note in machine::notes(&options.directory) {
            let _ = writeln!(text, "- {note}");
        }
        let _ = writeln!(text, "- load of the last minute, before: {load_before}");
        let _ = writeln!(text, "- load of the last minute, after: {}", machine::load());
        std::fs::write(folder.join("summary.md"), text).context("summary.md")?;
        Ok(folder)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn spread(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

fn shown(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::{Report, median};

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[5.0, 1.0, 3.0]) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_is_made_within_a_round_against_the_better() {
        let mut report = Report::new("t", "g", "IOPS").with_ratio("a", &["b", "c"], "a to b or c");
        for (round, (a, b, c)) in [(10.0, 5.0, 4.0), (30.0, 5.0, 20.0)].into_iter().enumerate() {
            report.add("x", "a", round, a, None);
            report.add("x", "b", round, b, None);
            report.add("x", "c", round, c, None);
        }
        assert!(report.summary().contains("| x | 1.75 | 1.50 | 2.00 |"), "{}", report.summary());
    }
}
