//! `hindsight trace`: traces converted, cut, scaled, summarised and generated, which needs no
//! server, and recorded from a live volume.

use api::ExitCode;
use clap::{Subcommand, ValueEnum};
use model::MeterSettings;
use serde::Serialize;
use terminal::arguments::{size, span};
use terminal::traces::{Progress, ReadArgs, reported, seconds};
use trace::change::{Cut, CutSource, Scale, ScaledSource};
use trace::read::{ReadReport, Reader};
use trace::summary::{Summary, summarise};
use trace::write::{Written, write_all};
use trace::{RequestKind, Source};
use units::{Size, Span, WallTime};

use crate::failure::Failure;
use crate::output::{Table, human, pairs};
use crate::session::{Session, say};

mod generate;
mod record;
mod write;

use write::WriteArgs;

/// Devices in a summary; the others are counted.
const DEVICES_SHOWN: usize = 20;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Read traces of any known format, several merged by time, and write one.
    Convert {
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        write: WriteArgs,
    },
    /// Keep a part of a trace.
    Cut(Box<CutArgs>),
    /// Stretch or shrink a trace, in time or in space.
    Scale {
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        write: WriteArgs,
        /// Multiply times: 0.5 is twice as fast.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
        time: f64,
        /// Multiply addresses, in whole blocks; lengths stay.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
        space: f64,
    },
    /// Show what is in a trace.
    Summarise {
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Record the requests of the clients of a volume.
    Record(record::Args),
    /// Make a trace of a workload from a seed.
    Generate(Box<generate::Args>),
}

#[derive(Debug, clap::Args)]
pub struct CutArgs {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// From this time after the start on.
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = span)]
    since: Span,
    /// Up to this time after the start.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    until: Option<Span>,
    /// Only this device; may be given several times.
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Only requests of this kind; may be given several times.
    #[arg(long, value_name = "KIND")]
    kind: Vec<KindName>,
    /// Only addresses from here on.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    offset_from: Option<Size>,
    /// Only addresses up to here.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    offset_to: Option<Size>,
    /// At most so many requests.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    Read,
    Write,
    Zero,
    Trim,
    Flush,
}

impl KindName {
    fn kind(self) -> RequestKind {
        match self {
            KindName::Read => RequestKind::Read,
            KindName::Write => RequestKind::Write,
            KindName::Zero => RequestKind::Zero,
            KindName::Trim => RequestKind::Trim,
            KindName::Flush => RequestKind::Flush,
        }
    }
}

/// The answer of what reads traces and writes one.
#[derive(Debug, Serialize)]
struct Converted<'a> {
    written: Written,
    read: &'a ReadReport,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Convert { read, write } => {
            let mut reader = Progress::new(read.open()?);
            let written = write.write(|format, out| write_all(&mut reader, format, out))?;
            converted(session, &write, written, &reader.into_inner())
        }
        Verb::Cut(args) => cut(session, *args),
        Verb::Scale { read, write, time, space } => {
            let reader = Progress::new(read.open()?);
            let mut source = ScaledSource::new(reader, Scale { time, space })?;
            let written = write.write(|format, out| write_all(&mut source, format, out))?;
            converted(session, &write, written, &source.into_inner().into_inner())
        }
        Verb::Summarise { read } => {
            let mut reader = Progress::new(read.open()?);
            let (summary, _) = summarise(&mut reader, MeterSettings::default())?;
            let reader = reader.into_inner();
            let answer = Summarised { summary, read: reader.report() };
            session.answer(&answer, |answer| show(&answer.summary))?;
            Ok(reported(reader.report()))
        }
        Verb::Record(args) => record::run(session, &args),
        Verb::Generate(args) => generate::run(session, &args),
    }
}

#[derive(Debug, Serialize)]
struct Summarised<'a> {
    #[serde(flatten)]
    summary: Summary,
    read: &'a ReadReport,
}

fn cut(session: &Session, args: CutArgs) -> anyhow::Result<ExitCode> {
    let range_bytes = match (args.offset_from, args.offset_to) {
        (None, None) => None,
        (from, to) => Some((from.map_or(0, Size::bytes), to.map_or(i64::MAX as u64, Size::bytes))),
    };
    if range_bytes.is_some_and(|(from, to)| from >= to) {
        return Err(Failure::usage("--offset-from is not below --offset-to").into());
    }
    let cut = Cut {
        since_ns: args.since.as_nanos(),
        until_ns: args.until.map(Span::as_nanos),
        devices: args.device.clone(),
        kinds: args.kind.into_iter().map(KindName::kind).collect(),
        range_bytes,
        requests_max: args.requests,
    };
    let mut source = CutSource::new(Progress::new(args.read.open()?), cut);
    let written = args.write.write(|format, out| write_all(&mut source, format, out))?;
    let reader = source.into_inner().into_inner();
    for name in &args.device {
        if reader.devices().find(name).is_none() {
            say(&format!("the trace has no device {name}"));
        }
    }
    converted(session, &args.write, written, &reader)
}

fn converted(
    session: &Session,
    write: &WriteArgs,
    written: Written,
    reader: &Reader,
) -> anyhow::Result<ExitCode> {
    let answer = Converted { written, read: reader.report() };
    write.answer(session, &answer, &written)?;
    Ok(reported(reader.report()))
}

fn show(summary: &Summary) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let start = match summary.start {
        0 => "not known".to_owned(),
        nanos => WallTime::from_nanos(nanos).to_string(),
    };
    let rate = summary.requests as f64 / (summary.duration_ns as f64 / 1e9).max(1e-9);
    let estimated = if summary.is_sampled { " (estimated)" } else { "" };
    let mut text = pairs(&[
        ("requests", summary.requests.to_string()),
        ("start", start),
        ("duration", seconds(summary.duration_ns)),
        ("requests per second", format!("{rate:.1}")),
        ("peak second", summary.peak_per_second.to_string()),
        ("unaligned", summary.unaligned.to_string()),
        ("blocks written", format!("{:.0}{estimated}", summary.written_blocks)),
        ("sequential reads", percent(summary.sequential_read_share)),
        ("sequential writes", percent(summary.sequential_write_share)),
    ]);
    let kinds = summary.kinds.iter().filter(|kind| kind.requests > 0);
    let kinds = Table::of(kinds)
        .left("KIND", |kind| kind.kind.to_owned())
        .right("REQUESTS", |kind| kind.requests.to_string())
        .right("BYTES", |kind| human(kind.bytes))
        .text();
    let sizes = Table::of(&summary.sizes)
        .right("UP TO", |size| human(size.up_to_bytes))
        .right("REQUESTS", |size| size.requests.to_string())
        .text();
    text += &format!("\n{kinds}\n{sizes}\n{}", devices(summary));
    text
}

fn devices(summary: &Summary) -> String {
    let mut text = Table::of(summary.devices.iter().take(DEVICES_SHOWN))
        .left("DEVICE", |device| device.name.clone())
        .right("REQUESTS", |device| device.requests.to_string())
        .right("READ", |device| human(device.read_bytes))
        .right("WRITTEN", |device| human(device.written_bytes))
        .right("SPAN", |device| human(device.span_bytes))
        .text();
    if summary.devices.len() > DEVICES_SHOWN {
        text += &format!("and {} more\n", summary.devices.len() - DEVICES_SHOWN);
    }
    text
}
