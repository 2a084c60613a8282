//! The engine's own count beside what the lab counts: the same workload through the engine, with
//! its journal and its map. Nobody knows the engine here: whoever does hands the count in.

use units::{Granularity, Span};

use super::asked::{EngineAsked, EnginePoint};
use super::bench::{Bench, HOUR_NS, Load, Sweep};
use super::drawing::{at, colour, percent, series, three};
use super::outcome::{Claim, Found};
use crate::plot::{Look, Series};
use model::Result;
use model::{
    Architecture, DIRTY_SHARE_DEFAULT, EngineIos, EngineSettings, MEMORY_BYTES_DEFAULT, Meter,
    MeterSettings,
};
use trace::generate::{Extent, Generator};
use trace::{Devices, Request, RequestKind, Source};

/// The architectures that the engine counts.
const SHOWN: [Architecture; 3] =
    [Architecture::Logging, Architecture::SplitDownstream, Architecture::Checkpointing];
/// At these granularities, in seconds: each is a trace of an hour through the engine.
const GRANULARITIES_S: [u64; 3] = [0, 600, 3600];
/// Price and count agree within this.
const TOLERANCE: f64 = 0.1;

fn granularity(seconds: u64) -> Granularity {
    let span = Span::from_seconds(seconds).filter(|_| seconds > 0);
    span.map_or(Granularity::EveryWrite, Granularity::Interval)
}

impl Bench {
    /// What the engine counts; nothing where nobody asked it.
    pub(super) fn engine_points(
        &mut self,
        load: Load,
        cache_bytes: u64,
        granularities_s: &[u64],
    ) -> Result<Vec<EnginePoint>> {
        let key = (load, cache_bytes, granularities_s.to_vec());
        if let Some(points) = self.engine_counts.get(&key) {
            return Ok(points.clone());
        }
        let Some(mut engine) = self.take_engine() else { return Ok(Vec::new()) };
        let (workload, cache_bytes) = self.scaled_for_engine(load, cache_bytes);
        let extent = Extent { seed: self.seed(), duration_ns: Some(HOUR_NS), requests_max: None };
        let mut meter = Meter::new(MeterSettings::default())?;
        let mut source = Generator::new(workload, extent)?;
        while let Some(request) = source.next()? {
            meter.add(&request)?;
        }
        let profile = meter.finish();
        let memory_bytes = MEMORY_BYTES_DEFAULT.max(2 * cache_bytes);
        let settings = EngineSettings::of(memory_bytes, cache_bytes, DIRTY_SHARE_DEFAULT);
        let mut points = Vec::new();
        for &granularity_s in granularities_s {
            for architecture in SHOWN {
                let granularity = granularity(granularity_s);
                let asked = EngineAsked { architecture, granularity, cache_bytes, memory_bytes };
                let mut source = WritesOnly(Generator::new(workload, extent)?);
                let counted = engine(&mut source, asked)?.total();
                let price = profile.engine_ios(architecture, granularity, settings);
                let price = price.map_or(f64::NAN, EngineIos::total);
                points.push(EnginePoint { granularity_s, architecture, counted, price });
            }
        }
        self.give_engine(engine);
        self.engine_counts.insert(key, points.clone());
        Ok(points)
    }
}

/// What clients read costs no architecture anything that is compared.
struct WritesOnly<S>(S);

impl<S: Source> Source for WritesOnly<S> {
    fn next(&mut self) -> Result<Option<Request>> {
        loop {
            match self.0.next()? {
                Some(request) if request.kind == RequestKind::Read => {}
                other => return Ok(other),
            }
        }
    }

    fn devices(&self) -> &Devices {
        self.0.devices()
    }

    fn start(&self) -> u64 {
        self.0.start()
    }
}

/// Points of the engine for a chart: one series an architecture.
pub(super) fn lines(points: &[(f64, EnginePoint)]) -> Vec<Series> {
    let of = |one: Architecture| {
        let of_it = points.iter().filter(|(_, point)| point.architecture == one);
        let places = of_it.map(|(x, point)| (*x, point.counted)).collect();
        series(format!("{}, engine", one.name()), colour(one), Look::Squares, places)
    };
    if points.is_empty() { Vec::new() } else { SHOWN.into_iter().map(of).collect() }
}

/// How far price and count are apart.
pub(super) fn price_claim(points: &[(f64, EnginePoint)]) -> Claim {
    let worst = points.iter().map(|(_, one)| one.price / one.counted - 1.0);
    let worst = worst.fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
    Claim::new(
        "all that the engine asks of its device against its price",
        "",
        "from distances between writes".to_owned(),
        format!("at most {} apart, {} replays", percent(worst), points.len()),
        worst.abs() < TOLERANCE,
    )
    .fails("a price further than 10 % from what a replay counts")
}

/// Adds the engine's own count to a figure by granularity.
pub(super) fn beside(
    bench: &mut Bench,
    found: &mut Found,
    sweep: &Sweep,
    (load, cache_bytes): (Load, u64),
) -> Result<()> {
    let points = bench.engine_points(load, cache_bytes, &GRANULARITIES_S)?;
    if points.is_empty() {
        return Ok(());
    }
    let placed = |one: EnginePoint| (at(sweep.at(one.granularity_s)), one);
    let points: Vec<_> = points.into_iter().map(placed).collect();
    found.chart.series.extend(lines(&points));
    found.table.columns.extend(SHOWN.map(|one| format!("{}_engine", one.name())));
    for (row, point) in found.table.rows.iter_mut().zip(&sweep.points) {
        let of_it = |one: &Architecture| {
            let mut all = points.iter().map(|(_, one)| one);
            all.find(|p| (p.granularity_s, p.architecture) == (point.granularity_s, *one))
        };
        row.extend(SHOWN.map(|one| of_it(&one).map_or(String::new(), |p| three(p.counted))));
    }
    let every = points.iter().map(|(_, one)| one).filter(|one| one.granularity_s == 0);
    let every: Vec<&EnginePoint> = every.collect();
    let listed = |of: &dyn Fn(&EnginePoint) -> f64| {
        every.iter().map(|one| three(of(one))).collect::<Vec<_>>().join(" : ")
    };
    let is_near = |(one, ios): (&&EnginePoint, f64)| (one.counted / ios - 1.0).abs() < TOLERANCE;
    found.claims.push(
        Claim::new(
            "the same three in the engine, with headers, journal, copies and map",
            "about 1 : 2 : 3, of user data",
            listed(&|one| one.price),
            listed(&|one| one.counted),
            every.iter().zip([1.0, 2.0, 3.0]).all(is_near),
        )
        .fails("one of the three further than 10 % from the paper's")
        .with_note("The engine's journal and map are not in the paper's figure."),
    );
    found.claims.push(price_claim(&points));
    found.setting += " Squares: the engine's own count, of all that it asks of its device, on an \
                      hour of the same at a quarter of the size.";
    Ok(())
}
