//! How fast the laboratory is, and where Laden's workloads cross at full size:
//! `cargo run --release -p hindsight-lab --example rates`.

use std::io::Cursor;
use std::time::Instant;

use hindsight_lab::generate::{Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload};
use hindsight_lab::model::{LastWrites, Meter, MeterSettings, Profile, dirty_pages};
use hindsight_lab::read::{Input, ReadOptions, Reader};
use hindsight_lab::write::{WriteFormat, write_all};
use hindsight_lab::{Result, Source};

const REQUESTS: u64 = 5_000_000;
const HOUR_NS: u64 = 3600 * 1_000_000_000;

fn say(what: &str, count: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!("{what:28} {:8.2} million a second", count as f64 / seconds / 1e6);
}

fn generator(workload: Workload, extent: Extent) -> Result<Generator> {
    Generator::new(workload, extent)
}

fn laden(bsu: u32) -> Workload {
    let capacity_bytes = 100_000_000_000;
    Workload::Spc1 { bsu, capacity_bytes, has_log: false, walk: Walk::Classic }
}

fn spread(spread: Spread) -> Workload {
    Workload::Spread(SpreadSettings {
        spread,
        rate: 1e6,
        write_percent: 100,
        length_bytes: 4096,
        capacity_bytes: 16 << 30,
    })
}

fn generators() -> Result<()> {
    let iometer = |pattern| Workload::Iometer { pattern, rate: 1e6, capacity_bytes: 16 << 30 };
    for (name, workload) in [
        ("generate spc1", laden(100)),
        ("generate cello", Workload::Cello),
        ("generate iometer fs", iometer(Pattern::FileServer)),
        ("generate uniform", spread(Spread::Uniform)),
        ("generate zipf", spread(Spread::Zipf { exponent: 1.0 })),
    ] {
        let extent = Extent { seed: 1, requests_max: Some(REQUESTS), duration_ns: None };
        let mut generator = generator(workload, extent)?;
        let began = Instant::now();
        while let Some(request) = generator.next()? {
            std::hint::black_box(request);
        }
        say(name, REQUESTS, began);
    }
    Ok(())
}

fn traces() -> Result<()> {
    for (name, format) in [("hindsight", WriteFormat::Hindsight), ("fio-v3", WriteFormat::FioV3)] {
        let extent = Extent { seed: 1, requests_max: Some(REQUESTS), duration_ns: None };
        let mut bytes = Vec::new();
        let began = Instant::now();
        let written = write_all(&mut generator(laden(100), extent)?, format, &mut bytes)?;
        say(&format!("generate and write {name}"), REQUESTS, began);
        println!("{:28} {:8.2} bytes a request", "", written.bytes as f64 / REQUESTS as f64);
        let input = Input { name: name.to_owned(), bytes: Box::new(Cursor::new(bytes)) };
        let began = Instant::now();
        let mut reader = Reader::open(vec![input], ReadOptions::default())?;
        while let Some(request) = reader.next()? {
            std::hint::black_box(request);
        }
        say(&format!("read {name}"), REQUESTS, began);
    }
    Ok(())
}

fn measure(workload: Workload, extent: Extent, settings: MeterSettings) -> Result<Profile> {
    let mut meter = Meter::new(settings)?;
    let mut generator = generator(workload, extent)?;
    let mut requests = Vec::new();
    while let Some(request) = generator.next()? {
        requests.push(request);
    }
    let began = Instant::now();
    for request in &requests {
        meter.add(request)?;
    }
    let profile = meter.finish();
    let sampled = if profile.is_sampled() { ", sampled" } else { "" };
    say(&format!("model{sampled}"), requests.len() as u64, began);
    Ok(profile)
}

fn crossings() -> Result<()> {
    let extent = Extent { seed: 1, duration_ns: Some(HOUR_NS), requests_max: None };
    let pages = dirty_pages(4 << 30, 0.03, 4096);
    for bsu in [33, 50, 75, 100] {
        let mut profile = measure(laden(bsu), extent, MeterSettings::default())?;
        for reading in [LastWrites::Ignored, LastWrites::Censored, LastWrites::Kept] {
            profile.read_last_writes_as(reading);
            let minutes = |ns: u64| ns as f64 / 60e9;
            let crossing = profile.crossovers(pages).split_downstream_ns.map(minutes);
            let wait_s = profile.wait_ns(pages) / 1e9;
            println!("{bsu} BSU, {reading:?}: crossing at {crossing:?} min, s {wait_s:.1} s");
            for minutes in [5.0, 30.0, 60.0] {
                let shares = profile.shares(minutes * 60e9, profile.wait_ns(pages));
                println!("    {minutes} min: {shares:?}");
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    generators()?;
    traces()?;
    let extent = Extent { seed: 1, requests_max: Some(REQUESTS), duration_ns: None };
    measure(spread(Spread::Uniform), extent, MeterSettings::default())?;
    let few = MeterSettings { entries_max: 100_000, ..MeterSettings::default() };
    measure(spread(Spread::Uniform), extent, few)?;
    crossings()
}
