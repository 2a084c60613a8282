//! The paper's two tables, and how well the model predicts what is counted.

use super::bench::{Bench, GRANULARITIES, HOUR_NS, Load, SECOND_NS, Sweep};
use super::drawing::{PER_EXTENT, at, chart, colour, line, off, percent, series, three};
use super::laden::{BUSY, CALM, CELLO, LARGE_CACHE, SMALL_CACHE, TOLERANCE};
use super::outcome::{Claim, Found, Table};
use crate::plot::Look;
use crate::simulate::{Simulation, SimulationSettings, Touch};
use model::Result;
use model::{Architecture, LastWrites, Meter, MeterSettings};
use trace::{Request, RequestKind};

const SHOWN: [Architecture; 4] = [
    Architecture::Logging,
    Architecture::Checkpointing,
    Architecture::SplitStream,
    Architecture::SplitDownstream,
];
/// More pages than any workload here writes.
const ENDLESS: u64 = 1 << 40;

/// A row of the table: what is counted against the formula with the counted r and c.
fn fig5_row(
    table: &mut Table,
    cache: &str,
    sweep: &Sweep,
    granularity_s: u64,
    formulas: [fn(f64, f64, f64) -> f64; 4],
) -> f64 {
    let point = sweep.at(granularity_s);
    let (r, c, d) = (point.measured.retained, point.measured.evicted, point.measured.incurred);
    let mut row = vec![cache.to_owned(), granularity_s.to_string()];
    row.extend([r, c, d].map(three));
    let mut worst = 0.0_f64;
    for (one, formula) in SHOWN.into_iter().zip(formulas) {
        let (measured, expected) = (point.measured_ios(one), formula(r, c, d));
        worst = worst.max(off(expected, measured).abs());
        row.extend([measured, expected].map(three));
    }
    table.row(row);
    worst
}

pub(super) fn fig5(bench: &mut Bench) -> Result<Found> {
    let prepared = bench.prepared(CELLO)?;
    let mut columns = vec!["cache", "granularity_s", "r", "c", "d"];
    for name in [
        ["logging", "logging_formula"],
        ["checkpointing", "checkpointing_formula"],
        ["split-stream", "split-stream_formula"],
        ["split-downstream", "split-downstream_formula"],
    ] {
        columns.extend(name);
    }
    let mut table = Table::new(&columns);
    let none = prepared.sweep(0, &GRANULARITIES);
    let some = bench.sweep(CELLO, SMALL_CACHE, &GRANULARITIES)?;
    let endless = prepared.sweep(ENDLESS, &GRANULARITIES);
    let mut worst = [0.0_f64; 3];
    for s in GRANULARITIES {
        let without = [|_, _, _| 1.0, |r, _, _| 2.0 * r + 1.0, |_, _, _| 2.0, |_, _, _| 2.0];
        let with: [fn(f64, f64, f64) -> f64; 4] =
            [|_, _, d| d, |r, _, d| d + 2.0 * r, |_, c, d| d + c, |_, _, d| 2.0 * d];
        let all: [fn(f64, f64, f64) -> f64; 4] =
            [|r, _, _| r, |r, _, _| 3.0 * r, |r, _, _| r, |r, _, _| 2.0 * r];
        worst[0] = worst[0].max(fig5_row(&mut table, "none", &none, s, without));
        worst[1] = worst[1].max(fig5_row(&mut table, "64 MiB", &some, s, with));
        worst[2] = worst[2].max(fig5_row(&mut table, "endless", &endless, s, all));
    }
    let mut claims: Vec<Claim> = ["no cache", "a cache", "an endless cache"]
        .into_iter()
        .zip(["1, 2r + 1, 2, 2", "d, d + 2r, d + c, 2d", "r, 3r, r, 2r"])
        .zip(worst)
        .map(|((cache, paper), worst)| {
            let what = format!("I/Os with {cache}: logging, checkpointing, the two splits");
            let measured = format!("at most {} apart", percent(worst));
            Claim::new(&what, paper, String::new(), measured, worst < TOLERANCE)
                .fails("a count 2 % off the formula of the counted r, c and d")
                .with_note("Both sides add I/Os up alike.")
        })
        .collect();
    let most = none.points.iter().map(|point| point.counted.most);
    let most = most.fold([0; 3], |a, b| [0, 1, 2].map(|i| a[i].max(b[i])));
    claims.push(
        Claim::new(
            "the most I/Os that one write ever came to",
            "logging 1, split-downstream 2, checkpointing 3",
            String::new(),
            format!("{}, {}, {}", most[0], most[1], most[2]),
            most == [1, 2, 3],
        )
        .fails("others; but that is how the architectures are defined")
        .not_judged(),
    );
    claims.extend(flat()?);
    let lines = SHOWN
        .into_iter()
        .map(|one| line(&none, one.name(), colour(one), Look::Measured, |p| p.measured_ios(one)));
    let chart = chart("Like cello99, without a cache: counted", PER_EXTENT, lines.collect());
    let setting = bench.describe(CELLO, SMALL_CACHE)
        + " The same without a cache, and with one that holds all.";
    Ok(Found { setting, chart, table, claims })
}

/// The paper's example: every extent written twice a second, kept once a second, no cache.
fn flat() -> Result<Vec<Claim>> {
    const STEP_NS: u64 = SECOND_NS / 2;
    let mut meter = Meter::new(MeterSettings::default())?;
    let settings =
        SimulationSettings { window_ns: SECOND_NS, dirty_pages: 0, end_ns: 1000 * SECOND_NS };
    let mut simulation = Simulation::new(settings);
    for number in 0..2000_u64 {
        let time_ns = number * STEP_NS;
        simulation.write(Touch { time_ns, extent: 0 });
        meter.add(&Request {
            time_ns,
            device: 0,
            kind: RequestKind::Write,
            is_fua: false,
            offset_bytes: 0,
            length_bytes: 4096,
        })?;
    }
    let mut profile = meter.finish();
    profile.read_last_writes_as(LastWrites::Ignored);
    let predicted = profile.shares(SECOND_NS as f64, 0.0);
    let counted = simulation.finish();
    let measured = counted.shares(1.0);
    let two = |ios: f64| (ios / 2.0 - 1.0).abs() < 0.005;
    let (split, copy) = (Architecture::SplitDownstream, Architecture::Checkpointing);
    let measured_ios = [copy, split].map(|one| counted.ios(one, 1.0).total());
    let predicted_ios = [copy, split].map(|one| predicted.ios(one).total());
    let told = |r: f64, [copy, split]: [f64; 2]| {
        format!("r {}, {} and {}", three(r), three(copy), three(split))
    };
    Ok(vec![
        Claim::new(
            "writes 0.5 s apart, kept once a second, no cache",
            "r 0.5; checkpointing 2, the splits 2",
            told(predicted.retained, predicted_ios),
            told(measured.retained, measured_ios),
            measured_ios.into_iter().chain(predicted_ios).all(two),
        )
        .fails("one of the four half a percent off 2"),
    ])
}

pub(super) fn fig6(bench: &mut Bench) -> Result<Found> {
    let sweep = bench.sweep(BUSY, LARGE_CACHE, &GRANULARITIES)?;
    let prepared = bench.prepared(BUSY)?;
    let mut table = Table::new(&[
        "granularity_s",
        "logging_gib",
        "logging_predicted_gib",
        "checkpointing_gib",
        "checkpointing_predicted_gib",
    ]);
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let (mut lines, mut worst) = (vec![Vec::new(); 4], 0.0_f64);
    // Only windows that fill the hour: what is kept after it is compared.
    let whole = sweep.points.iter().filter(|p| p.granularity_s == 0 || 3600 % p.granularity_s == 0);
    for point in whole {
        let counted = &point.counted;
        // What first writes copied was written before the hour.
        let kept = counted.retained as f64 * 4096.0;
        let copied = (counted.checkpointing.reads - counted.copies_of_before) as f64 * 4096.0;
        let granularity = match units::Span::from_seconds(point.granularity_s) {
            Some(span) if point.granularity_s > 0 => units::Granularity::Interval(span),
            _ => units::Granularity::EveryWrite,
        };
        let space = |one| prepared.profile.space(one, granularity, HOUR_NS, u64::MAX).history_bytes;
        let predicted = [space(Architecture::Logging), space(Architecture::Checkpointing)];
        // Of the whole, since what checkpointing saves may leave next to nothing.
        let apart = (predicted[0] - kept).abs().max((predicted[1] - copied).abs()) / kept;
        worst = worst.max(apart);
        let values = [kept, predicted[0], copied, predicted[1]].map(gib);
        for (line, value) in lines.iter_mut().zip(values) {
            line.push((at(point), value));
        }
        let mut row = vec![point.granularity_s.to_string()];
        row.extend(values.map(three));
        table.row(row);
    }
    let (all, copy) = (colour(Architecture::Logging), colour(Architecture::Checkpointing));
    let pens = [
        ("logging, splits", all, Look::Dots),
        ("  predicted", all, Look::Predicted),
        ("checkpointing", copy, Look::Dots),
        ("  predicted", copy, Look::Predicted),
    ];
    let lines = pens.into_iter().zip(lines);
    let lines = lines.map(|((name, colour, look), points)| series(name, colour, look, points));
    let claims = vec![
        Claim::new(
            "history after an hour: logging and the splits, checkpointing",
            "rw; rw - f",
            "R(g) w, and the extents written".to_owned(),
            format!("at most {} of the whole apart", percent(worst)),
            worst < TOLERANCE,
        )
        .fails("a prediction 2 % of the whole off what was counted"),
    ];
    let chart = chart("Like SPC-1, 100 BSU: history of an hour", "GiB of history", lines.collect());
    Ok(Found { setting: bench.describe(BUSY, LARGE_CACHE), chart, table, claims })
}

pub(super) fn generators(bench: &mut Bench) -> Result<Found> {
    const MEDIUM_CACHE: u64 = 512 << 20;
    let loads = [
        (BUSY, LARGE_CACHE),
        (CALM, LARGE_CACHE),
        (CELLO, SMALL_CACHE),
        (Load::Uniform, MEDIUM_CACHE),
        (Load::Zipf, MEDIUM_CACHE),
        (Load::Oltp, MEDIUM_CACHE),
        (Load::FileServer, MEDIUM_CACHE),
        (Load::SequentialWrite, MEDIUM_CACHE),
    ];
    let mut table = Table::new(&[
        "workload",
        "granularity_s",
        "r_off",
        "c_off",
        "d_off",
        "logging_off",
        "split-stream_off",
        "split-downstream_off",
        "checkpointing_off",
    ]);
    let (mut claims, mut lines, mut settings) = (Vec::new(), Vec::new(), String::new());
    for (colour, (load, cache)) in loads.into_iter().enumerate() {
        let sweep = bench.sweep(load, cache, &GRANULARITIES)?;
        let mut worst = 0.0_f64;
        let mut points = Vec::new();
        for point in &sweep.points {
            let (found, model) = (point.measured, point.predicted);
            let shares = [
                off(model.retained, found.retained),
                off(model.evicted, found.evicted),
                off(model.incurred, found.incurred),
            ];
            let ios = [
                Architecture::Logging,
                Architecture::SplitStream,
                Architecture::SplitDownstream,
                Architecture::Checkpointing,
            ];
            let ios = ios.map(|one| off(point.predicted_ios(one), point.measured_ios(one)));
            let all: Vec<f64> = shares.into_iter().chain(ios).collect();
            let here = all.iter().map(|off| off.abs()).fold(0.0, f64::max);
            worst = worst.max(here);
            points.push((at(point), here * 100.0));
            let mut row = vec![load.name(), point.granularity_s.to_string()];
            row.extend(all.into_iter().map(percent));
            table.row(row);
        }
        let what = format!("r, c, d and I/Os of {}", load.name());
        let measured = format!("at most {} apart", percent(worst));
        let predicted = "within 2 %".to_owned();
        let claim = Claim::new(&what, "", predicted, measured, worst < TOLERANCE);
        claims.push(claim.fails("any of them 2 % off at any granularity"));
        lines.push(series(load.name(), colour, Look::Measured, points));
        settings += &(bench.describe(load, cache) + " ");
    }
    let chart =
        chart("Prediction against count", "largest difference of r, c, d or I/Os, percent", lines);
    Ok(Found { setting: settings.trim_end().to_owned(), chart, table, claims })
}
