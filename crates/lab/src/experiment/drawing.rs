//! How the figures of experiments are drawn and their numbers written.

use model::Architecture;

use super::bench::{Point, Sweep};
use crate::plot::{Chart, Look, Scale, Series};

/// Where every write stands on an axis of seconds.
const EVERY_WRITE_AT: f64 = 0.3;

pub(super) fn granularity_ticks() -> Vec<(f64, String)> {
    let ticks = [
        (EVERY_WRITE_AT, "EW"),
        (1.0, "1 s"),
        (10.0, "10 s"),
        (60.0, "1 min"),
        (300.0, "5 min"),
        (1200.0, "20 min"),
        (3600.0, "1 h"),
    ];
    ticks.map(|(at, label)| (at, label.to_owned())).to_vec()
}

pub(super) fn at(point: &Point) -> f64 {
    if point.granularity_s == 0 { EVERY_WRITE_AT } else { point.granularity_s as f64 }
}

pub(super) fn series(
    name: impl Into<String>,
    colour: usize,
    look: Look,
    points: Vec<(f64, f64)>,
) -> Series {
    // Every write is no point of an axis of seconds: no line joins it to them.
    let every_write = points.iter().position(|(x, _)| *x == EVERY_WRITE_AT);
    let mut points = points;
    if let Some(index) = every_write {
        points.insert(index + 1, (EVERY_WRITE_AT, f64::NAN));
    }
    Series { name: name.into(), colour, look, points }
}

/// An architecture has one colour in all pictures, and what keeps no history another.
pub(super) fn colour(architecture: Architecture) -> usize {
    match architecture {
        Architecture::Logging => 0,
        Architecture::SplitDownstream => 1,
        Architecture::Checkpointing => 2,
        Architecture::SplitStream => 3,
        Architecture::Hybrid => 5,
        Architecture::Redirect => 7,
    }
}

/// The y axis of most pictures.
pub(super) const PER_EXTENT: &str = "device I/Os for one extent written";
/// The colour of a volume without history.
pub(super) const NO_HISTORY: usize = 4;

/// A line over the granularities of a sweep.
pub(super) fn line(
    sweep: &Sweep,
    name: &str,
    colour: usize,
    look: Look,
    y: impl Fn(&Point) -> f64,
) -> Series {
    series(name, colour, look, sweep.points.iter().map(|point| (at(point), y(point))).collect())
}

pub(super) fn chart(title: &str, y_label: &str, series: Vec<Series>) -> Chart {
    Chart {
        title: title.to_owned(),
        x_label: "granularity (EW: every write)".to_owned(),
        y_label: y_label.to_owned(),
        x_scale: Scale::Logarithmic,
        x_ticks: granularity_ticks(),
        series,
    }
}

pub(super) fn off(predicted: f64, measured: f64) -> f64 {
    if predicted == measured { 0.0 } else { predicted / measured - 1.0 }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:+.2} %", share * 100.0)
}

pub(super) fn three(value: f64) -> String {
    format!("{value:.3}")
}

pub(super) fn minutes(value: Option<f64>) -> String {
    value.map_or_else(|| "none up to 60 min".to_owned(), |value| format!("{value:.1} min"))
}
