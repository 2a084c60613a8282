//! How fast traces are counted and replayed, on one core:
//! `cargo run --release -p hindsight-replay --example replay_rates -- [REQUESTS [ARCHITECTURE]]`.

use std::io::Cursor;
use std::time::Instant;

use hindsight_replay::{Architecture, MEMORY_BYTES_DEFAULT, ReplaySettings, replay};
use lab::simulate::{Extents, PlainSimulation, Simulation, SimulationSettings};
use model::{Meter, MeterSettings};
use trace::Source;
use trace::generate::{Extent, Generator, Walk, Workload};
use trace::read::{Input, ReadOptions, Reader};
use trace::write::{WriteFormat, write_all};
use units::Granularity;

const HOUR_NS: u64 = 3600 * 1_000_000_000;
const COUNTED: u64 = 10_000_000;
const REPLAYED_DEFAULT: u64 = 1_000_000;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn generator(bsu: u32, requests: u64) -> model::Result<Generator> {
    let capacity_bytes = u64::from(bsu) * 1_000_000_000;
    let workload = Workload::Spc1 { bsu, capacity_bytes, has_log: false, walk: Walk::Classic };
    let extent = Extent { seed: 1, duration_ns: None, requests_max: Some(requests) };
    Generator::new(workload, extent)
}

fn say(what: &str, requests: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}: {requests} requests in {seconds:.1} s, {:.0} a second",
        requests as f64 / seconds
    );
}

/// A trace of 10^7 requests: read, measured for the model, and counted with a cache.
fn count() -> Outcome {
    let mut bytes = Vec::new();
    write_all(&mut generator(100, COUNTED)?, WriteFormat::Hindsight, &mut bytes)?;
    let input = Input { name: "trace".to_owned(), bytes: Box::new(Cursor::new(bytes)) };
    let began = Instant::now();
    let mut reader = Reader::open(vec![input], ReadOptions::default())?;
    let mut meter = Meter::new(MeterSettings::default())?;
    let mut extents = Extents::new(4096)?;
    let settings =
        SimulationSettings { window_ns: 600 * 1_000_000_000, dirty_pages: 31_457, end_ns: HOUR_NS };
    let (mut plain, mut cached) =
        (PlainSimulation::new(settings.dirty_pages), Simulation::new(settings));
    while let Some(request) = reader.next()? {
        meter.add(&request)?;
        extents.touch(&request, |touch| {
            plain.write(touch.extent);
            cached.write(touch);
        })?;
    }
    let counted = cached.finish();
    say("read, measured and counted", COUNTED, began);
    let profile = meter.finish();
    let predicted = profile.shares(600e9, profile.wait_ns(settings.dirty_pages));
    println!("    {:?}, predicted {predicted:?}", counted.shares(plain.evicted_share()));
    Ok(())
}

fn main() -> Outcome {
    let mut asked = std::env::args().skip(1);
    let replayed = asked.next().map_or(Ok(REPLAYED_DEFAULT), |count| count.parse())?;
    let only = asked.next();
    if only.is_none() {
        count()?;
    }
    let is_asked = |one: &Architecture| only.as_ref().is_none_or(|name| name == one.name());
    for architecture in Architecture::ALL.into_iter().filter(is_asked) {
        for granularity in ["every-write", "10min"] {
            let granularity: Granularity = granularity.parse().map_err(|_| "a granularity")?;
            let settings = ReplaySettings {
                architecture,
                granularity,
                window_ns: 24 * HOUR_NS,
                volume_bytes: 1 << 40,
                has_reads: false,
                cache_bytes: None,
                memory_bytes: MEMORY_BYTES_DEFAULT,
            };
            let began = Instant::now();
            let told = replay(&mut generator(10, replayed)?, settings)?;
            say(&format!("replayed, {} {granularity}", architecture.name()), told.requests, began);
            println!("    {:?}, predicted {:?}", told.measured, told.predicted);
        }
    }
    Ok(())
}
