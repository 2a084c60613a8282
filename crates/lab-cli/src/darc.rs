//! `hindsight-lab darc`: DARC's figures and tables, measured on real files, beside what the paper
//! says.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::ExitCode;
use lab::experiment::darc::{Configuration, DEPTHS, Exhibit, outcomes};
use lab::report::Preface;
use load::LoadError;
use load::darc::{DarcSettings, measure};
use units::{Size, Span};

use crate::run::{answer, write_outcome};
use crate::served::OwnServer;
use terminal::arguments::{size, span};
use terminal::failure::Failure;
use terminal::session::{Session, say};

const MEASURED: Preface<'static> = Preface {
    title: "DARC's figures and tables, measured",
    words: "Fountoulakis et al., DARC: Design and Evaluation of an I/O Controller for Data \
            Protection, SYSTOR 2010. Requests were kept in flight against the engine on real \
            files, in real time; beside what was measured stands what the paper says in words and \
            tables. Its pictures are not known here. Its disks, controller and host are not these, \
            so times are shown and not judged, and ratios within one round say more than either; \
            judged is what must be the same anywhere: the operations of a recovery. What each ran \
            on is in its first lines.",
    found: "Measured",
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Figures and tables: fig5 to fig10, table3, table4 [default: all].
    #[arg(value_name = "NAME", value_parser = exhibit)]
    exhibits: Vec<Exhibit>,
    /// The directory to write into; is made, files of the same names are replaced.
    #[arg(long, short, value_name = "DIR", default_value = "hindsight-darc")]
    output: PathBuf,
    /// Where the pools' files are while it runs [default: the output directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the volume; each configuration takes up to 20 times that in files.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size)]
    size: Size,
    /// Members of each stack, an even number; the paper has 8 disks.
    #[arg(long, value_name = "N", default_value_t = 4)]
    members: usize,
    /// Requests in flight; may be given several times [default: 1, 2, 4, 8, 16, 32, 64].
    #[arg(long, value_name = "N")]
    depth: Vec<u32>,
    /// A configuration; may be given several times [default: all there are].
    #[arg(long, value_name = "NAME", value_parser = configuration)]
    configuration: Vec<Configuration>,
    /// How long each point runs before it is measured; the paper has 1min.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = span)]
    warm_up: Span,
    /// How long each point is measured; the paper has 5min.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = span)]
    time: Span,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// The seed of all workloads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn exhibit(text: &str) -> Result<Exhibit, String> {
    let known = || Exhibit::ALL.map(Exhibit::name).join(", ");
    let found = Exhibit::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| format!("there are {}", known()))
}

fn configuration(text: &str) -> Result<Configuration, String> {
    let known = || Configuration::ALL.map(Configuration::name).join(", ");
    let found = Configuration::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| format!("there are {}", known()))
}

/// What was given, or all there is.
fn or_all<T: Copy>(given: &[T], all: &[T]) -> Vec<T> {
    if given.is_empty() { all.to_vec() } else { given.to_vec() }
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let output = &args.output;
    std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let dir = args.dir.as_ref().unwrap_or(output);
    let settings = DarcSettings {
        exhibits: or_all(&args.exhibits, &Exhibit::ALL),
        configurations: or_all(&args.configuration, &Configuration::ALL),
        depths: or_all(&args.depth, &DEPTHS),
        // A server wants its sockets' whole paths.
        dir: dir.canonicalize().with_context(|| dir.display().to_string())?,
        volume_bytes: args.size.bytes(),
        members: args.members,
        warm_up: Duration::from_nanos(args.warm_up.as_nanos()),
        time: Duration::from_nanos(args.time.as_nanos()),
        rounds: args.rounds,
        seed: args.seed,
    };
    let server = OwnServer::find()?;
    let measured =
        measure(&settings, Some(&server), &mut |text| say(text)).map_err(|error| match error {
            LoadError::Setting(text) => anyhow::Error::from(Failure::usage(text)),
            LoadError::Lab(error) => anyhow::Error::from(error),
            LoadError::Engine(error) => anyhow::Error::from(error),
            other => anyhow::Error::from(other),
        })?;
    for (missing, why) in &measured.missing {
        say(&format!("{} is not available: {why}", missing.name()));
    }
    let outcomes = outcomes(&measured, &settings.exhibits);
    outcomes.iter().try_for_each(|one| write_outcome(output, one))?;
    answer(session, output, MEASURED, outcomes, began)
}
