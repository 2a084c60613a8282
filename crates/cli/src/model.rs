//! `hindsight model`: what each architecture would cost for a workload, and which to take. No
//! server is needed.

use api::ExitCode;
use clap::{Subcommand, ValueEnum};
use lab::model::{
    Advice, Architecture, Constraints, Crossovers, DIRTY_SHARE_DEFAULT, ENTRIES_MAX_DEFAULT,
    Forecast, LastWrites, MeterSettings, Plan, Profile, advise, dirty_pages, rounded,
};
use lab::read::ReadReport;
use lab::summary::summarise;
use serde::Serialize;
use units::{Granularity, Size, Span};

use crate::output::{Align, human, pairs, table};
use crate::session::Session;
use crate::trace::files::{Progress, ReadArgs};
use crate::trace::{reported, seconds};
use crate::volume::{size, span};

/// Granularities that are shown unless told otherwise.
const GRANULARITIES: [&str; 9] =
    ["every-write", "1s", "10s", "1min", "5min", "10min", "30min", "1h", "on-demand"];

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the model of a trace: shares and device I/Os by granularity, and crossovers.
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
    /// Name architecture, granularity, window and cache for a trace, and say why.
    Advise {
        #[command(flatten)]
        measure: MeasureArgs,
        /// Size of the volume [default: how far the trace reaches].
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
    /// Extent of the volume.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size)]
    extent: Size,
    /// Percent of the cache that may be dirty.
    #[arg(long, value_name = "PERCENT", default_value_t = DIRTY_SHARE_DEFAULT * 100.0)]
    dirty: f64,
    /// Extents that are remembered; with more, a sample of them is.
    #[arg(long, value_name = "N", default_value_t = ENTRIES_MAX_DEFAULT)]
    entries: usize,
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

/// A granularity on the command line.
pub fn granularity(text: &str) -> Result<Granularity, String> {
    text.parse().map_err(|e: units::GranularityError| match e.hint {
        Some(hint) => format!("{} ({hint})", e.message),
        None => e.message,
    })
}

impl MeasureArgs {
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

/// The answer of `show`.
#[derive(Debug, Serialize)]
struct Model {
    requests: u64,
    writes: u64,
    writes_per_second: f64,
    duration_ns: u64,
    extents: f64,
    extent_bytes: u64,
    is_sampled: bool,
    dirty_pages: u64,
    /// How long a write waits in the cache; `null` when it never has to leave.
    wait_ns: Option<f64>,
    forecasts: Vec<Forecast>,
    crossovers: Crossovers,
    read: ReadReport,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Show { measure, granularity, cache } => {
            let (profile, read) = measure.measure()?;
            let asked = if granularity.is_empty() {
                GRANULARITIES.iter().filter_map(|text| text.parse().ok()).collect()
            } else {
                granularity
            };
            let pages = dirty_pages(cache.bytes(), measure.dirty_share(), measure.extent.bytes());
            let wait_ns = profile.wait_ns(pages);
            let model = Model {
                requests: profile.requests(),
                writes: profile.writes(),
                writes_per_second: profile.writes_per_second(),
                duration_ns: profile.duration_ns(),
                extents: profile.distinct(),
                extent_bytes: profile.extent_bytes(),
                is_sampled: profile.is_sampled(),
                dirty_pages: pages,
                wait_ns: wait_ns.is_finite().then_some(wait_ns),
                forecasts: asked.iter().map(|one| profile.forecast(*one, pages)).collect(),
                crossovers: profile.crossovers(pages),
                read,
            };
            session.answer(&model, show)?;
            Ok(reported(&model.read))
        }
        Verb::Advise { measure, size, granularity, window, history_limit, cache } => {
            let (profile, read) = measure.measure()?;
            let constraints = Constraints {
                volume_bytes: size.map(Size::bytes),
                granularity,
                window,
                history_limit_bytes: history_limit.map(Size::bytes),
                cache_bytes: cache.map(Size::bytes),
                dirty_share: measure.dirty_share(),
            };
            session.answer(&advise(&profile, &constraints)?, show_advice)?;
            Ok(reported(&read))
        }
    }
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
    let mut heading = vec![
        ("GRANULARITY", Align::Left),
        ("r", Align::Right),
        ("c", Align::Right),
        ("d", Align::Right),
    ];
    heading.extend(Architecture::ALL.map(|one| (one.name(), Align::Right)));
    heading.push(("no history", Align::Right));
    let row = |forecast: &Forecast| {
        let shares = forecast.shares;
        let far = if forecast.is_beyond_trace { " *" } else { "" };
        let mut row = vec![format!("{}{far}", forecast.granularity)];
        let numbers = [shares.retained, shares.evicted, shares.incurred];
        row.extend(numbers.map(|share| format!("{share:.4}")));
        row.extend(forecast.ios.iter().map(|one| format!("{:.3}", one.ios.total())));
        row.push(format!("{:.3}", forecast.ios_without_history.total()));
        row
    };
    let rows: Vec<Vec<String>> = model.forecasts.iter().map(row).collect();
    text += &format!("\n{}", table(&heading, &rows));
    if model.forecasts.iter().any(|forecast| forecast.is_beyond_trace) {
        text += "* longer than the trace\n";
    }
    text
}

fn show_advice(advice: &Advice) -> String {
    let plan = &advice.plan;
    let cache = match plan.cache_bytes {
        0 => "none".to_owned(),
        bytes => human(bytes),
    };
    let mut text = pairs(&[
        ("architecture", plan.architecture.name().to_owned()),
        ("granularity", plan.granularity.to_string()),
        ("window", plan.window.to_string()),
        ("cache", cache),
        ("device I/Os per write", format!("{:.3}", plan.ios_per_write.total())),
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
    let heading = [
        ("ARCHITECTURE", Align::Left),
        ("I/OS PER WRITE", Align::Right),
        ("I/OS PER SECOND", Align::Right),
        ("CURRENT", Align::Right),
        ("HISTORY", Align::Right),
    ];
    let row = |plan: &Plan| {
        vec![
            plan.architecture.name().to_owned(),
            format!("{:.3}", plan.ios_per_write.total()),
            format!("{:.1}", plan.ios_per_second),
            human(plan.current_bytes as u64),
            human(plan.history_bytes as u64),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(plan).chain(&advice.others).map(row).collect();
    text += &format!("\n{}", table(&heading, &rows));
    text
}
