//! `hindsight model`: what each architecture would cost for a workload, and which to take.
//!
//! For a trace no server is needed; for a volume the server answers what it measured. Both answers
//! are those of the API.

use std::path::Path;

use anyhow::Context;
use api::{
    Advice, AdviceQuery, ArchitectureIos, EngineIos, ExitCode, Forecast, Model, ModelQuery, Plan,
};
use clap::{Subcommand, ValueEnum};
use model::{
    Architecture, Constraints, DIRTY_SHARE_DEFAULT, ENTRIES_MAX_DEFAULT, EngineSettings,
    LastWrites, MEMORY_BYTES_DEFAULT, MeterSettings, Profile, advise, ladder, rounded,
};
use serde::Serialize;
use terminal::arguments::{granularity, size, span};
use terminal::traces::{Progress, ReadArgs, reported, seconds};
use trace::read::ReadReport;
use trace::summary::summarise;
use units::{Granularity, Size, Span};

use crate::failure::Failure;
use crate::output::{Table, human, pairs};
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the model of a trace or volume: shares and device I/Os by granularity, and crossovers.
    Show {
        #[command(flatten)]
        measure: MeasureArgs,
        /// A granularity to show; may be given several times [default: a ladder].
        #[arg(long, value_parser = granularity)]
        granularity: Vec<Granularity>,
        /// The cache.
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
        cache: Size,
    },
    /// Name architecture, granularity, window and cache for a trace or volume, and say why.
    Advise {
        #[command(flatten)]
        measure: MeasureArgs,
        /// Size of the volume, for a trace [default: how far it reaches].
        #[arg(long, value_name = "SIZE", value_parser = size)]
        size: Option<Size>,
        /// The granularity, if it is decided.
        #[arg(long, value_parser = granularity)]
        granularity: Option<Granularity>,
        /// How far back to keep every retained moment [default: 24h, or what fits].
        #[arg(long, value_name = "SPAN", value_parser = span)]
        window: Option<Span>,
        /// What history may take [default: as much as the volume].
        #[arg(long, value_name = "SIZE", value_parser = size)]
        history_limit: Option<Size>,
        /// The cache, if it is decided; 0 is none.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        cache: Option<Size>,
    },
}

/// What is measured, and how.
#[derive(Debug, clap::Args)]
pub struct MeasureArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// It is the name of a volume, even if there is a file of that name.
    #[arg(long)]
    live: bool,
    /// Extent of the volume.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size)]
    extent: Size,
    /// Percent of the cache that may be dirty.
    #[arg(long, value_name = "PERCENT", default_value_t = DIRTY_SHARE_DEFAULT * 100.0)]
    dirty: f64,
    /// Extents that are remembered; with more, a sample of them is.
    #[arg(long, value_name = "N", default_value_t = ENTRIES_MAX_DEFAULT)]
    entries: usize,
    /// Memory of the server that will have the volume: its caches have half of it.
    #[arg(long, value_name = "SIZE", default_value = "384MiB", value_parser = size)]
    memory: Size,
    /// What is made of the last write to each extent.
    #[arg(long, default_value = "censored")]
    last_writes: LastWritesName,
}

/// What is made of the last write to each extent.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LastWritesName {
    /// Left out, as in Laden's paper.
    Ignored,
    /// Never overwritten.
    Kept,
    /// Not overwritten until the trace ends.
    Censored,
}

impl MeasureArgs {
    /// The volume to ask about; `None` for traces. What is no file, and can be a volume's name, is
    /// one.
    fn volume(&self) -> anyhow::Result<Option<&str>> {
        let Some(name) = self.read.only_name() else {
            let wrong = Failure::usage("--live goes with the name of one volume");
            return if self.live { Err(wrong.into()) } else { Ok(None) };
        };
        let is_file = name == "-" || name.contains('/') || Path::new(name).exists();
        let is_settled = self.extent.bytes() != 4096
            || self.entries != ENTRIES_MAX_DEFAULT
            || self.memory.bytes() != MEMORY_BYTES_DEFAULT
            || !matches!(self.last_writes, LastWritesName::Censored);
        match (self.live || !is_file, is_settled) {
            (false, _) => Ok(None),
            (true, false) => Ok(Some(name)),
            (true, true) => {
                let text = "--extent, --entries, --memory and --last-writes are for traces";
                Err(Failure::usage(text)
                    .with_hint("the server measures volumes by blocks of 4KiB")
                    .into())
            }
        }
    }

    fn measure(&self) -> anyhow::Result<(Profile, ReadReport)> {
        let settings =
            MeterSettings { extent_bytes: self.extent.bytes(), entries_max: self.entries };
        let mut reader = Progress::new(self.read.open()?);
        let (_, mut profile) = summarise(&mut reader, settings)?;
        profile.read_last_writes_as(match self.last_writes {
            LastWritesName::Ignored => LastWrites::Ignored,
            LastWritesName::Kept => LastWrites::Kept,
            LastWritesName::Censored => LastWrites::Censored,
        });
        Ok((profile, reader.into_inner().report().clone()))
    }

    fn dirty_share(&self) -> f64 {
        self.dirty / 100.0
    }
}

/// The answer of `show` for a trace.
#[derive(Debug, Serialize)]
struct OfTrace {
    #[serde(flatten)]
    model: Model,
    read: ReadReport,
}

/// What the lab says in the types of the API.
fn as_answered<T: serde::de::DeserializeOwned>(of_lab: &impl Serialize) -> anyhow::Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(of_lab)?)?)
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Show { measure, granularity, cache } => {
            if let Some(name) = measure.volume()? {
                let list = granularity.iter().map(ToString::to_string).collect::<Vec<_>>();
                let query = ModelQuery {
                    granularity: (!list.is_empty()).then(|| list.join(",")),
                    cache: Some(cache.bytes().to_string()),
                    dirty: Some(measure.dirty),
                };
                let model = session.client()?.model(name, &query).with_context(|| about(name))?;
                session.answer(&model, show)?;
                return Ok(ExitCode::Done);
            }
            let (profile, read) = measure.measure()?;
            let asked = if granularity.is_empty() { ladder() } else { granularity };
            let settings =
                EngineSettings::of(measure.memory.bytes(), cache.bytes(), measure.dirty_share());
            let model = as_answered(&profile.model(&asked, settings))?;
            let answer = OfTrace { model, read };
            session.answer(&answer, |answer| show(&answer.model))?;
            Ok(reported(&answer.read))
        }
        Verb::Advise { measure, size, granularity, window, history_limit, cache } => {
            if let Some(name) = measure.volume()? {
                if size.is_some() {
                    return Err(Failure::usage("--size is for traces: a volume has one").into());
                }
                let query = AdviceQuery {
                    granularity: granularity.map(|one| one.to_string()),
                    window: window.map(|one| one.to_string()),
                    history_limit: history_limit.map(|one| one.bytes().to_string()),
                    cache: cache.map(|one| one.bytes().to_string()),
                    dirty: Some(measure.dirty),
                };
                let advice = session.client()?.advice(name, &query).with_context(|| about(name))?;
                let command = format!("hindsight volume set {name}");
                session.answer(&advice, |advice| show_advice(advice, &command))?;
                return Ok(ExitCode::Done);
            }
            let (profile, read) = measure.measure()?;
            let constraints = Constraints {
                architectures: &Architecture::ALL,
                volume_bytes: size.map(Size::bytes),
                granularity,
                window,
                history_limit_bytes: history_limit.map(Size::bytes),
                cache_bytes: cache.map(Size::bytes),
                dirty_share: measure.dirty_share(),
                memory_bytes: measure.memory.bytes(),
            };
            let advice = as_answered(&advise(&profile, &constraints)?)?;
            let reaches = profile.span_bytes().next_multiple_of(1 << 20);
            let size = size.unwrap_or(Size(reaches));
            let command = format!("hindsight volume create NAME --size {size}");
            session.answer(&advice, |advice| show_advice(advice, &command))?;
            Ok(reported(&read))
        }
    }
}

fn about(name: &str) -> String {
    let file = if Path::new(name).exists() { "" } else { ", as there is no file of that name" };
    format!("cannot ask about the volume {name}{file}")
}

/// What is decided of a volume for which `choose` chooses the architecture.
pub struct Wanted {
    pub size: Size,
    pub granularity: Granularity,
    pub window: Option<Span>,
    pub history_limit: Option<Size>,
    pub cache: Size,
    pub cache_dirty: Option<u8>,
}

/// The architecture for a volume that will be asked what a trace asks.
pub fn choose(trace: &Path, wanted: &Wanted) -> anyhow::Result<String> {
    let read = ReadArgs::of(trace);
    let mut reader = Progress::new(read.open()?);
    let (_, profile) = summarise(&mut reader, MeterSettings::default())?;
    let constraints = Constraints {
        architectures: &Architecture::ALL,
        volume_bytes: Some(wanted.size.bytes()),
        granularity: Some(wanted.granularity),
        window: wanted.window,
        history_limit_bytes: wanted.history_limit.map(Size::bytes),
        cache_bytes: Some(wanted.cache.bytes()),
        dirty_share: wanted
            .cache_dirty
            .map_or(DIRTY_SHARE_DEFAULT, |percent| f64::from(percent) / 100.0),
        // The server refuses a cache that it has no memory for.
        memory_bytes: MEMORY_BYTES_DEFAULT.max(2 * wanted.cache.bytes()),
    };
    let advice = advise(&profile, &constraints)?;
    let name = advice.plan.architecture.name();
    say(&format!("architecture {name}: {}", advice.reasons.join("; ")));
    Ok(name.to_owned())
}

fn show(model: &Model) -> String {
    let sampled = if model.is_sampled { " (sampled)" } else { "" };
    let wait = model.wait_ns.map_or("for ever".to_owned(), |ns| seconds(ns as u64));
    let cross = |window: Option<u64>| match window {
        Some(nanos) => format!("{} and coarser", rounded(Span(nanos))),
        None => "at none up to the length of the trace".to_owned(),
    };
    let mut text = pairs(&[
        ("writes", format!("{} of {}", model.writes, human(model.extent_bytes))),
        ("writes per second", format!("{:.1}", model.writes_per_second)),
        ("duration", seconds(model.duration_ns)),
        ("different extents", format!("{:.0}{sampled}", model.extents)),
        ("a write waits in the cache", wait),
        ("checkpointing <= split-downstream", cross(model.crossovers.split_downstream_ns)),
        ("checkpointing <= split-stream", cross(model.crossovers.split_stream_ns)),
    ]);
    let far = |one: &Forecast| if one.is_beyond_trace { " *" } else { "" };
    let mut paper = Table::of(&model.forecasts)
        .left("GRANULARITY", |one| format!("{}{}", one.granularity, far(one)))
        .right("r", |one| format!("{:.4}", one.shares.retained))
        .right("c", |one| format!("{:.4}", one.shares.evicted))
        .right("d", |one| format!("{:.4}", one.shares.incurred));
    let mut own =
        Table::of(&model.forecasts).left("GRANULARITY", |one| one.granularity.to_string());
    for (at, name) in Architecture::ALL.map(Architecture::name).into_iter().enumerate() {
        let ios = |one: &Forecast, told: fn(&ArchitectureIos) -> String| {
            one.ios.get(at).map(told).unwrap_or_default()
        };
        paper = paper.right(name, |one| ios(one, |ios| format!("{:.3}", ios.reads + ios.writes)));
        own = own.right(name, |one| ios(one, |ios| price(ios.engine)));
    }
    paper = paper.right("no history", |one| format!("{:.3}", one.ios_without_history.total()));
    text += &format!("\nDevice I/Os a write by the paper's formulas:\n{}", paper.text());
    text += "\nThe same in this engine, with flushes, headers, journal and map:\n";
    text += &own.text();
    if model.forecasts.iter().any(|forecast| forecast.is_beyond_trace) {
        text += "* longer than the trace\n";
    }
    text
}

/// A price of this engine, if there is one.
fn price(engine: Option<EngineIos>) -> String {
    engine.map_or("-".to_owned(), |engine| format!("{:.3}", engine.total()))
}

/// The command that sets the plan up, of which the beginning is given.
fn command(begin: &str, plan: &Plan) -> String {
    let Plan { architecture, granularity, cache_bytes, .. } = plan;
    let window = plan.window.0;
    let cache = match cache_bytes {
        0 => "none".to_owned(),
        bytes => Size(*bytes).to_string(),
    };
    format!(
        "{begin} --architecture {architecture} --granularity {granularity} --window {window} \
         --cache {cache}"
    )
}

fn show_advice(advice: &Advice, begin: &str) -> String {
    let plan = &advice.plan;
    let cache = match plan.cache_bytes {
        0 => "none".to_owned(),
        bytes => human(bytes),
    };
    let mut text = pairs(&[
        ("architecture", plan.architecture.clone()),
        ("granularity", plan.granularity.to_string()),
        ("window", plan.window.0.to_string()),
        ("cache", cache),
        ("device I/Os per write", price(plan.engine_ios_per_write)),
        ("by the paper's formula", format!("{:.3}", plan.ios_per_write.total())),
        ("without history", format!("{:.3}", advice.ios_without_history)),
        ("device I/Os per day", format!("{:.0}", plan.ios_per_day)),
        ("history per day", human(plan.history_bytes_per_day as u64)),
        ("history in the window", human(plan.history_bytes as u64)),
    ]);
    text += "\nBecause:\n";
    for reason in &advice.reasons {
        text += &format!("  - {reason}\n");
    }
    if !advice.cautions.is_empty() {
        text += "But:\n";
    }
    for caution in &advice.cautions {
        text += &format!("  - {caution}\n");
    }
    let plans = Table::of(std::iter::once(plan).chain(&advice.others))
        .left("ARCHITECTURE", |plan| plan.architecture.clone())
        .right("I/OS PER WRITE", |plan| price(plan.engine_ios_per_write))
        .right("PAPER", |plan| format!("{:.3}", plan.ios_per_write.total()))
        .right("I/OS PER SECOND", |plan| format!("{:.1}", plan.ios_per_second))
        .right("CURRENT", |plan| human(plan.current_bytes as u64))
        .right("HISTORY", |plan| human(plan.history_bytes as u64))
        .text();
    text += &format!("\n{plans}\nTo set it up:\n  {}\n", command(begin, plan));
    text
}
