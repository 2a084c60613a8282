//! `hindsight-lab replay`: a trace through the engine in virtual time, beside the model; or to a
//! live volume.

use std::time::Instant;

use api::ExitCode;
use lab::experiment::EngineAsked;
use model::EngineIos;
use replay::{Architecture, ReplayError, ReplaySettings, Replayed, replay};
use serde::Serialize;
use trace::Source;
use units::{Granularity, Size, Span};

use crate::live::{DEPTH_MAX, KindTimes, Live, LiveSettings, live};
use terminal::arguments::{granularity, size, span};
use terminal::failure::Failure;
use terminal::nbd::Address;
use terminal::output::{Align, human, pairs, table};
use terminal::session::{Session, say};
use terminal::traces::{Progress, ReadArgs, reported};

/// Granularities that are replayed unless told otherwise.
const GRANULARITIES: [&str; 4] = ["every-write", "1s", "1min", "10min"];

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    read: ReadArgs,
    /// An architecture; may be given several times [default: all there are].
    #[arg(long, value_name = "NAME", value_parser = architecture, conflicts_with = "uri")]
    architecture: Vec<Architecture>,
    /// A granularity; may be given several times [default: every-write, 1s, 1min, 10min].
    #[arg(long, value_parser = granularity, conflicts_with = "uri")]
    granularity: Vec<Granularity>,
    /// The window.
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = span)]
    window: Span,
    /// Size of the volume for each device of the trace.
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size)]
    size: Size,
    /// Make the trace's reads, too.
    #[arg(long)]
    reads: bool,
    /// A write-back cache [default: 64MiB for split-downstream and hybrid, none for the others].
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "uri")]
    cache: Option<Size>,
    /// Memory of the engine, as a server's --memory: with less, the map is written out sooner, and
    /// checkpointing destages more often.
    #[arg(long, value_name = "SIZE", default_value = "384MiB", value_parser = size)]
    memory: Size,
    /// Send it to a live volume instead, in real time: nbd+unix:///VOLUME?socket=PATH or
    /// nbd://HOST:PORT/VOLUME.
    #[arg(long)]
    uri: Option<Address>,
    /// With --uri: times as fast as the trace.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "uri")]
    speed: f64,
    /// With --uri: as fast as it goes.
    #[arg(long, requires = "uri", conflicts_with = "speed")]
    fast: bool,
    /// With --uri: requests under way at once.
    #[arg(long, value_name = "N", default_value_t = 32, requires = "uri")]
    depth: usize,
    /// With --uri: leave out all but reads.
    #[arg(long, requires = "uri")]
    reads_only: bool,
    /// With --uri: the volume's present may be overwritten with zeros.
    #[arg(long, requires = "uri")]
    overwrite: bool,
}

fn architecture(text: &str) -> Result<Architecture, String> {
    let known = || Architecture::ALL.map(Architecture::name).join(", ");
    let found = Architecture::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| format!("the engine has {}", known()))
}

#[derive(Debug, Serialize)]
struct Ran {
    seconds: f64,
    #[serde(flatten)]
    replayed: Replayed,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(address) = &args.uri {
        return run_live(session, args, address);
    }
    let architectures = match args.architecture.as_slice() {
        [] => Architecture::ALL.to_vec(),
        some => some.to_vec(),
    };
    let granularities: Vec<Granularity> = match args.granularity.as_slice() {
        [] => GRANULARITIES.iter().filter_map(|text| text.parse().ok()).collect(),
        some => some.to_vec(),
    };
    if architectures.len() * granularities.len() > 1 && args.read.is_stdin() {
        return Err(Failure::usage("standard input can be read only once")
            .with_hint("give one --architecture and one --granularity, or a file")
            .into());
    }
    let (mut all, mut code) = (Vec::new(), ExitCode::Done);
    for architecture in architectures {
        for granularity in &granularities {
            let settings = ReplaySettings {
                architecture,
                granularity: *granularity,
                window_ns: args.window.as_nanos(),
                volume_bytes: args.size.bytes(),
                has_reads: args.reads,
                cache_bytes: args.cache.map(Size::bytes),
                memory_bytes: args.memory.bytes(),
            };
            let (ran, said) = one(args, settings, all.is_empty())?;
            all.push(ran);
            code = said.unwrap_or(code);
        }
    }
    session.answer(&all, |all| show(all))?;
    Ok(code)
}

fn run_live(session: &Session, args: &Args, address: &Address) -> anyhow::Result<ExitCode> {
    let has_depth = (1..=DEPTH_MAX).contains(&args.depth);
    let has_speed = args.speed > 0.0 && args.speed.is_finite();
    if !(has_depth && has_speed) {
        let message = format!("--depth is 1 to {DEPTH_MAX}, --speed above 0");
        return Err(Failure::usage(message).into());
    }
    let settings = LiveSettings {
        address: address.clone(),
        depth: args.depth,
        speed: (!args.fast).then_some(args.speed),
        reads_only: args.reads_only,
        may_overwrite: args.overwrite,
    };
    let mut source = Progress::new(args.read.open()?);
    let live = live(&mut source, &settings)?;
    session.answer(&live, show_live)?;
    let said = reported(source.into_inner().report());
    Ok(if live.failed > 0 { ExitCode::Partly } else { said })
}

fn show_live(live: &Live) -> String {
    let mut text = pairs(&[
        ("requests", live.requests.to_string()),
        ("failed", live.failed.to_string()),
        ("left out", live.beyond.to_string()),
        ("seconds", format!("{:.3}", live.seconds)),
        ("requests per second", format!("{:.1}", live.requests_per_second)),
        ("bytes per second", human(live.bytes_per_second as u64)),
        ("sent late by at most", format!("{:.0} us", live.latest_us)),
    ]);
    let heading = [
        ("KIND", Align::Left),
        ("REQUESTS", Align::Right),
        ("FAILED", Align::Right),
        ("P50 us", Align::Right),
        ("P90 us", Align::Right),
        ("P99 us", Align::Right),
        ("P99.9 us", Align::Right),
        ("MAX us", Align::Right),
    ];
    let row = |kind: &KindTimes| {
        let mut row = vec![kind.kind.to_owned(), kind.requests.to_string()];
        row.push(kind.failed.to_string());
        let times = [kind.p50_us, kind.p90_us, kind.p99_us, kind.p999_us, kind.max_us];
        row.extend(times.map(|micros| format!("{micros:.0}")));
        row
    };
    text += &format!("\n{}", table(&heading, &live.kinds.iter().map(row).collect::<Vec<_>>()));
    text
}

/// What the engine asks of its device for a workload of the experiments.
pub fn count(source: &mut dyn Source, asked: EngineAsked) -> model::Result<EngineIos> {
    let named = |one: &Architecture| one.name() == asked.architecture.name();
    let architecture = Architecture::ALL.into_iter().find(named);
    let settings = ReplaySettings {
        architecture: architecture.ok_or_else(|| model::Error::setting("not in this engine"))?,
        granularity: asked.granularity,
        window_ns: Span::from_seconds(24 * 3600).unwrap_or_default().as_nanos(),
        volume_bytes: 1 << 40,
        has_reads: false,
        cache_bytes: (asked.cache_bytes > 0).then_some(asked.cache_bytes),
        memory_bytes: asked.memory_bytes,
    };
    let replayed = replay(source, settings).map_err(|error| match error {
        ReplayError::Trace(error) => error,
        ReplayError::Engine(error) => model::Error::setting(error.to_string()),
    })?;
    Ok(replayed.counted)
}

/// One replay; what the first reading of the trace had to say is said once.
fn one(
    args: &Args,
    settings: ReplaySettings,
    is_first: bool,
) -> anyhow::Result<(Ran, Option<ExitCode>)> {
    let mut source = Progress::new(args.read.open()?);
    let began = Instant::now();
    let replayed =
        replay(&mut source as &mut dyn Source, settings).map_err(|error| match error {
            ReplayError::Trace(error) => anyhow::Error::from(error),
            ReplayError::Engine(error) => anyhow::Error::from(error),
        })?;
    let seconds = began.elapsed().as_secs_f64();
    if is_first && replayed.beyond > 0 {
        say(&format!("{} requests beyond the volume, left out (--size)", replayed.beyond));
    }
    let said = is_first.then(|| reported(source.into_inner().report()));
    Ok((Ran { seconds, replayed }, said))
}

fn show(all: &[Ran]) -> String {
    let heading = [
        ("ARCHITECTURE", Align::Left),
        ("GRANULARITY", Align::Left),
        ("EXTENTS", Align::Right),
        ("PAPER", Align::Right),
        ("MEASURED", Align::Right),
        ("OFF", Align::Right),
        ("PRICE", Align::Right),
        ("COUNTED", Align::Right),
        ("OFF", Align::Right),
        ("SECONDS", Align::Right),
    ];
    let row = |ran: &Ran| {
        let one = &ran.replayed;
        vec![
            one.architecture.to_owned(),
            one.granularity.to_string(),
            one.extents_written.to_string(),
            format!("{:.4}", one.predicted.total()),
            format!("{:.4}", one.measured.total()),
            format!("{:+.2} %", one.off * 100.0),
            one.engine.map_or("-".to_owned(), |engine| format!("{:.4}", engine.total())),
            format!("{:.4}", one.counted.total()),
            one.engine_off.map_or("-".to_owned(), |off| format!("{:+.2} %", off * 100.0)),
            format!("{:.1}", ran.seconds),
        ]
    };
    let mut text = table(&heading, &all.iter().map(row).collect::<Vec<_>>());
    text += "\nDevice requests by kind, for one extent written:\n";
    let kinds = all.first().map(|ran| ran.replayed.kinds.as_slice()).unwrap_or_default();
    let mut heading = vec![("ARCHITECTURE", Align::Left), ("GRANULARITY", Align::Left)];
    heading.extend(kinds.iter().map(|kind| (kind.kind, Align::Right)));
    let row = |ran: &Ran| {
        let one = &ran.replayed;
        let mut row = vec![one.architecture.to_owned(), one.granularity.to_string()];
        let writes = (one.extents_written as f64).max(1.0);
        row.extend(one.kinds.iter().map(|kind| format!("{:.4}", kind.requests as f64 / writes)));
        row
    };
    text + &table(&heading, &all.iter().map(row).collect::<Vec<_>>())
}
