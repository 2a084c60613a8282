//! `hindsight trace generate`.

use api::ExitCode;
use clap::ValueEnum;
use terminal::arguments::{size, span};
use terminal::traces::Progress;
use trace::generate::{Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload};
use trace::write::write_all;
use units::{Size, Span};

use super::write::WriteArgs;
use crate::failure::Failure;
use crate::session::Session;

/// Bytes of a device unless told otherwise.
const CAPACITY_DEFAULT: u64 = 10 << 30;
/// What Laden's store has.
const SPC1_CAPACITY_DEFAULT: u64 = 100_000_000_000;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadName {
    /// Like SPC-1: an OLTP store.
    Spc1,
    /// A file server with Laden's crossovers.
    Cello,
    /// Sequential writes of 64 KiB.
    IometerWs,
    /// Sequential reads of 64 KiB.
    IometerRs,
    /// Random 4 KiB, a third writes.
    IometerOltp,
    /// Random, many sizes, a fifth writes.
    IometerFs,
    /// Random reads of many sizes.
    IometerWeb,
    /// Random places, all alike.
    Uniform,
    /// Random places, few of them often.
    Zipf,
    /// A mail store's database and log: a stand-in for JetStress.
    Mail,
    /// Passes over a database: a stand-in for TPC-H's queries.
    Queries,
}

/// How SPC-1's random walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WalkName {
    Classic,
    Fixed,
    V2,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to generate.
    workload: WorkloadName,
    #[command(flatten)]
    write: WriteArgs,
    /// The same seed makes the same trace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long the trace is [default: 1h, unless --requests is given].
    #[arg(long, value_name = "SPAN", value_parser = span)]
    duration: Option<Span>,
    /// How many requests it has.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Bytes of the device [default: 10GiB; spc1: 100 GB]; mail: of both, an eighth is the log.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    capacity: Option<Size>,
    /// spc1: business scaling units, 50 requests a second each [default: 100].
    #[arg(long, value_name = "N")]
    bsu: Option<u32>,
    /// spc1: without the log, ASU 3, as Laden has it.
    #[arg(long)]
    without_log: bool,
    /// spc1: how the random walk goes [default: classic].
    #[arg(long)]
    walk: Option<WalkName>,
    /// iometer, uniform, zipf, mail, queries: requests a second [default: 1000].
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// uniform, zipf: how many percent are writes [default: 50].
    #[arg(long, value_name = "PERCENT")]
    writes: Option<u8>,
    /// uniform, zipf: bytes of a request [default: 4KiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<Size>,
    /// zipf: the exponent [default: 1].
    #[arg(long, value_name = "N")]
    exponent: Option<f64>,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let duration = match (args.duration, args.requests) {
        (None, None) => Span::from_seconds(3600),
        (duration, _) => duration,
    };
    let extent = Extent {
        seed: args.seed,
        duration_ns: duration.map(Span::as_nanos),
        requests_max: args.requests,
    };
    let mut generator = Progress::new(Generator::new(workload(args), extent)?);
    let written = args.write.write(|format, out| write_all(&mut generator, format, out))?;
    generator.into_inner();
    args.write.answer(session, &written, &written)?;
    Ok(ExitCode::Done)
}

fn pattern(name: WorkloadName) -> Option<Pattern> {
    match name {
        WorkloadName::IometerWs => Some(Pattern::SequentialWrite),
        WorkloadName::IometerRs => Some(Pattern::SequentialRead),
        WorkloadName::IometerOltp => Some(Pattern::Oltp),
        WorkloadName::IometerFs => Some(Pattern::FileServer),
        WorkloadName::IometerWeb => Some(Pattern::WebServer),
        _ => None,
    }
}

/// Refuses options that the workload does not have.
fn check(args: &Args) -> anyhow::Result<()> {
    let name = args.workload;
    let is_spc1 = name == WorkloadName::Spc1;
    let is_spread = matches!(name, WorkloadName::Uniform | WorkloadName::Zipf);
    let is_server = matches!(name, WorkloadName::Mail | WorkloadName::Queries);
    let has_rate = is_spread || is_server || pattern(name).is_some();
    for (option, is_given, fits) in [
        ("--bsu", args.bsu.is_some(), is_spc1),
        ("--without-log", args.without_log, is_spc1),
        ("--walk", args.walk.is_some(), is_spc1),
        ("--rate", args.rate.is_some(), has_rate),
        ("--writes", args.writes.is_some(), is_spread),
        ("--size", args.size.is_some(), is_spread),
        ("--exponent", args.exponent.is_some(), name == WorkloadName::Zipf),
        ("--capacity", args.capacity.is_some(), name != WorkloadName::Cello),
    ] {
        if is_given && !fits {
            return Err(Failure::usage(format!("this workload has no {option}")).into());
        }
    }
    Ok(())
}

fn workload(args: &Args) -> Workload {
    let capacity = |default: u64| args.capacity.map_or(default, Size::bytes);
    let rate = args.rate.unwrap_or(1000.0);
    if let Some(pattern) = pattern(args.workload) {
        return Workload::Iometer { pattern, rate, capacity_bytes: capacity(CAPACITY_DEFAULT) };
    }
    let spread = match args.workload {
        WorkloadName::Spc1 => {
            return Workload::Spc1 {
                bsu: args.bsu.unwrap_or(100),
                capacity_bytes: capacity(SPC1_CAPACITY_DEFAULT),
                has_log: !args.without_log,
                walk: match args.walk {
                    None | Some(WalkName::Classic) => Walk::Classic,
                    Some(WalkName::Fixed) => Walk::Fixed,
                    Some(WalkName::V2) => Walk::V2,
                },
            };
        }
        WorkloadName::Cello => return Workload::Cello,
        WorkloadName::Mail => {
            let log_bytes = capacity(CAPACITY_DEFAULT) / 8;
            let data_bytes = capacity(CAPACITY_DEFAULT) - log_bytes;
            return Workload::Mail { rate, data_bytes, log_bytes };
        }
        WorkloadName::Queries => {
            return Workload::Queries { rate, capacity_bytes: capacity(CAPACITY_DEFAULT) };
        }
        WorkloadName::Zipf => Spread::Zipf { exponent: args.exponent.unwrap_or(1.0) },
        _ => Spread::Uniform,
    };
    Workload::Spread(SpreadSettings {
        spread,
        rate,
        write_percent: args.writes.unwrap_or(50),
        length_bytes: args.size.map_or(4096, Size::bytes),
        capacity_bytes: capacity(CAPACITY_DEFAULT),
    })
}
