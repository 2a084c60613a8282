//! `hindsight-lab run`: experiments, with what is predicted, counted and said by the papers side by
//! side.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use api::ExitCode;
use lab::experiment::{
    Bench, BenchSettings, Claim, Compacted, CompactionAsked, Outcome, Verdict, chosen,
};
use lab::plot::{png, svg};
use lab::report::{COUNTED, Preface, report};
use serde::Serialize;

use terminal::output::{Align, count, table};
use terminal::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names, the beginning of some (laden, xiao), or all.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The directory to write into; is made, files of the same names are replaced.
    #[arg(long, short, value_name = "DIR", default_value = "hindsight-lab")]
    output: PathBuf,
    /// The seed of all workloads.
    #[arg(long, value_name = "N", default_value_t = BenchSettings::default().seed)]
    seed: u64,
    /// Divide requests, space and cache of the workloads like SPC-1 by this: 1, 2 or 4.
    #[arg(long, value_name = "N", default_value_t = BenchSettings::default().scale)]
    scale: u32,
    /// Leave out the engine's own count, which takes most of the time.
    #[arg(long)]
    no_engine: bool,
}

/// The answer of `run`.
#[derive(Debug, Serialize)]
struct Ran {
    report: PathBuf,
    seconds: f64,
    experiments: Vec<RanOne>,
}

#[derive(Debug, Serialize)]
struct RanOne {
    name: &'static str,
    title: &'static str,
    setting: String,
    claims: Vec<Claim>,
}

pub fn run(session: &Session, args: Args) -> anyhow::Result<ExitCode> {
    let Args { names, output, seed, scale, no_engine } = args;
    let mut bench = Bench::new(BenchSettings { seed, scale })?;
    if !no_engine {
        let dir = output.clone();
        bench = bench
            .with_engine(Box::new(crate::replay::count))
            .with_compaction(Box::new(move |asked| compact(&dir, asked)));
    }
    run_all(session, &names, &output, bench)
}

/// Versions that are compacted and read, in a file among the results.
fn compact(dir: &Path, asked: CompactionAsked) -> model::Result<Compacted> {
    load::compaction::compact(dir, asked).map_err(|error| model::Error::setting(error.to_string()))
}

fn run_all(
    session: &Session,
    names: &[String],
    output: &Path,
    mut bench: Bench,
) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let experiments = chosen(names)?;
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let mut outcomes = Vec::new();
    for one in experiments {
        let began = Instant::now();
        let outcome = one.run(&mut bench)?;
        write_outcome(output, &outcome)?;
        say(&format!("{} in {:.1} s", one.name, began.elapsed().as_secs_f64()));
        outcomes.push(outcome);
    }
    answer(session, output, COUNTED, outcomes, began)
}

/// Numbers and picture of an outcome.
pub fn write_outcome(output: &Path, outcome: &Outcome) -> anyhow::Result<()> {
    let name = outcome.name;
    write(output, &format!("{name}.csv"), outcome.table.csv().as_bytes())?;
    write(output, &format!("{name}.svg"), svg(&outcome.chart).as_bytes())?;
    write(output, &format!("{name}.png"), &png(&outcome.chart))
}

/// Writes the report and says what is in it.
pub fn answer(
    session: &Session,
    output: &Path,
    preface: Preface<'_>,
    outcomes: Vec<Outcome>,
    began: Instant,
) -> anyhow::Result<ExitCode> {
    write(output, "report.html", report(preface, &outcomes).as_bytes())?;
    let differ = outcomes.iter().flat_map(|one| &one.claims);
    let differ = differ.filter(|claim| claim.verdict == Verdict::Differs).count();
    let ran = Ran {
        report: output.join("report.html"),
        seconds: began.elapsed().as_secs_f64(),
        experiments: outcomes.into_iter().map(ran_one).collect(),
    };
    session.answer(&ran, |ran| show(preface, ran))?;
    Ok(if differ == 0 { ExitCode::Done } else { ExitCode::Partly })
}

fn ran_one(outcome: Outcome) -> RanOne {
    let Outcome { name, title, setting, claims, .. } = outcome;
    RanOne { name, title, setting, claims }
}

/// A file is there whole or not at all.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let (path, part) = (directory.join(name), directory.join(format!("{name}.part")));
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn show(preface: Preface<'_>, ran: &Ran) -> String {
    let found = preface.found.to_uppercase();
    let heading = [
        ("EXPERIMENT", Align::Left),
        ("", Align::Left),
        ("WHAT", Align::Left),
        ("PAPER", Align::Left),
        ("PREDICTED", Align::Left),
        (&*found, Align::Left),
    ];
    let mut rows = Vec::new();
    for one in &ran.experiments {
        for claim in &one.claims {
            let verdict = match claim.verdict {
                Verdict::Holds => "holds",
                Verdict::Fit => "fit",
                Verdict::Differs => "DIFFERS",
                Verdict::NotJudged => "-",
            };
            let claim = claim.clone();
            let cells = [claim.what, claim.paper, claim.predicted, claim.measured];
            let mut row = vec![one.name.to_owned(), verdict.to_owned()];
            row.extend(cells);
            rows.push(row);
        }
    }
    let experiments = count(ran.experiments.len() as u64, "experiment");
    let report = ran.report.display();
    format!("{}\n{experiments} in {:.1} s: {report}\n", table(&heading, &rows), ran.seconds)
}
