//! The engine against the model: what its counters say of a trace, within 2 %, and of `hybrid`
//! within 4 %.

use std::collections::HashSet;

use hindsight_replay::{Architecture, MEMORY_BYTES_DEFAULT, ReplaySettings, Replayed, replay};
use model::{
    Architecture as ModelArchitecture, DIRTY_SHARE_DEFAULT, Meter, MeterSettings, dirty_pages,
};
use trace::generate::{Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload};
use trace::{RequestKind, Source};
use units::{BLOCK_BYTES, Granularity};

const HOUR_NS: u64 = 3600 * 1_000_000_000;

fn generator(workload: Workload, requests: u64) -> Generator {
    let extent = Extent { seed: 5, duration_ns: Some(HOUR_NS), requests_max: Some(requests) };
    Generator::new(workload, extent).expect("a workload")
}

fn settings(architecture: Architecture, granularity: &str) -> ReplaySettings {
    ReplaySettings {
        architecture,
        granularity: granularity.parse().expect("a granularity"),
        window_ns: 24 * HOUR_NS,
        volume_bytes: 64 << 30,
        has_reads: false,
        // Small against the traces: what waits at their end would have been written again.
        cache_bytes: architecture.needs_cache().then_some(8 << 20),
        memory_bytes: MEMORY_BYTES_DEFAULT,
    }
}

fn run(workload: Workload, requests: u64, settings: ReplaySettings) -> Replayed {
    replay(&mut generator(workload, requests), settings).expect("the engine takes it")
}

fn spread(length_bytes: u64) -> Workload {
    Workload::Spread(SpreadSettings {
        spread: Spread::Zipf { exponent: 1.0 },
        rate: 10.0,
        write_percent: 60,
        length_bytes,
        capacity_bytes: 64 << 20,
    })
}

#[test]
fn every_architecture_costs_what_the_model_says_at_every_granularity() {
    let workloads = [
        ("cello", Workload::Cello, 5000),
        ("zipf", spread(4096), 5000),
        ("zipf of 64 KiB", spread(65_536), 2000),
        (
            "spc1",
            Workload::Spc1 {
                bsu: 1,
                capacity_bytes: 1_000_000_000,
                has_log: true,
                walk: Walk::Classic,
            },
            5000,
        ),
    ];
    for architecture in Architecture::ALL {
        for (name, workload, requests) in workloads {
            for granularity in ["every-write", "1s", "1min", "10min", "on-demand"] {
                let told = run(workload, requests, settings(architecture, granularity));
                assert!(told.extents_written > 500, "{told:?}");
                let what = format!("{name}, {}, {granularity}", architecture.name());
                // The journal of `checkpointing` is a cache: what is overwritten before the next
                // destage never comes home, and a short trace sees no destage at all.
                if architecture == Architecture::Hybrid {
                    // Held to the lab's count below; nobody counts where windows have no end.
                    assert!(told.measured.total() > 0.0, "{what}: {told:?}");
                    continue;
                }
                let least = if architecture.destages() { -1.0 } else { -0.02 };
                assert!(least <= told.off && told.off < 0.02, "{what}: {told:?}");
            }
        }
    }
}

/// What the cache absorbs has no header in the log. Nothing leaves it before the end, so the log
/// has what this counts: each block once.
#[test]
fn what_a_cache_absorbs_is_not_taken_for_less_than_nothing() {
    let workload = Workload::Spread(SpreadSettings {
        spread: Spread::Zipf { exponent: 1.0 },
        rate: 100_000.0,
        write_percent: 100,
        length_bytes: 4096,
        capacity_bytes: 256 << 10,
    });
    let mut blocks = HashSet::new();
    let mut source = generator(workload, 20_000);
    while let Some(request) = source.next().expect("a generator does not fail") {
        blocks.insert(request.offset_bytes / BLOCK_BYTES);
    }
    for (architecture, times) in [(Architecture::Logging, 1), (Architecture::SplitDownstream, 2)] {
        let cache_bytes = Some(64 << 20);
        let settings = ReplaySettings { cache_bytes, ..settings(architecture, "on-demand") };
        let told = run(workload, 20_000, settings);
        let measured = told.measured.total() * told.extents_written as f64;
        assert!((measured - (times * blocks.len()) as f64).abs() < 0.5, "{measured}: {told:?}");
    }
}

/// What the model says of `hybrid` with a cache of 8 MiB, from the distances between writes.
fn forecast(workload: Workload, requests: u64, granularity: &str) -> f64 {
    let mut meter = Meter::new(MeterSettings::default()).expect("defaults");
    let mut source = generator(workload, requests);
    while let Some(request) = source.next().expect("a generator does not fail") {
        if request.kind != RequestKind::Read {
            meter.add(&request).expect("in range");
        }
    }
    let profile = meter.finish();
    let window_ns = match granularity.parse().expect("a granularity") {
        Granularity::EveryWrite => 0.0,
        Granularity::Interval(span) => span.as_nanos() as f64,
        Granularity::OnDemand => f64::INFINITY,
    };
    let pages = dirty_pages(8 << 20, DIRTY_SHARE_DEFAULT, BLOCK_BYTES);
    let wait_ns = profile.wait_ns_in(window_ns, pages);
    profile.ios(ModelArchitecture::Hybrid, window_ns, wait_ns).total()
}

/// The hybrid costs what the lab counts, and less than both of what it is between.
fn hybrid_is_below_both(name: &str, workload: Workload) {
    let requests = 60_000;
    for granularity in ["every-write", "1min", "10min"] {
        let of = |architecture| {
            let settings = ReplaySettings {
                cache_bytes: Some(8 << 20),
                ..settings(architecture, granularity)
            };
            run(workload, requests, settings)
        };
        let hybrid = of(Architecture::Hybrid);
        let split = of(Architecture::SplitDownstream).measured.total();
        let is_coarse = granularity == "10min";
        let stream = is_coarse.then(|| of(Architecture::SplitStream).measured.total());
        // Its journal is in no count of the paper's.
        let copy = of(Architecture::Checkpointing).predicted.total();
        let total = hybrid.measured.total();
        let saved = 1.0 - total / split.min(copy);
        let forecast = forecast(workload, requests, granularity);
        println!(
            "{name}, {granularity}: {total:.4}, counted {:.4}, off {:+.4}; forecast \
             {forecast:.4}, off {:+.4}; split {split:.4}, copy {copy:.4}, stream {stream:.4?}, \
             saved {saved:.4}",
            hybrid.predicted.total(),
            hybrid.off,
            forecast / total - 1.0,
        );
        // 3.9 % of zipf at 1min, elsewhere below 1.7 %.
        assert!(hybrid.off.abs() < 0.04, "{name}, {granularity}: {hybrid:?}");
        // The error that advice goes by.
        let off = forecast / total - 1.0;
        assert!(off.abs() < 0.06, "{name}, {granularity}: {total}, forecast {forecast}");
        assert!(saved > -0.02, "{name}, {granularity}: {total} is above {split} and {copy}");
        let is_below = stream.is_none_or(|stream| total < 0.9 * stream);
        assert!(is_below, "{name}, {granularity}: {stream:?}");
    }
}

#[test]
fn the_hybrid_costs_what_the_lab_counts_on_a_spread() {
    let spread = SpreadSettings {
        spread: Spread::Zipf { exponent: 1.2 },
        rate: 20.0,
        write_percent: 100,
        length_bytes: 4096,
        capacity_bytes: 64 << 20,
    };
    hybrid_is_below_both("zipf", Workload::Spread(spread));
}

#[test]
fn the_hybrid_costs_what_the_lab_counts_on_an_oltp_workload() {
    let (capacity_bytes, walk) = (1_000_000_000, Walk::Classic);
    let workload = Workload::Spc1 { bsu: 1, capacity_bytes, has_log: false, walk };
    hybrid_is_below_both("spc1", workload);
}

#[test]
fn the_same_trace_gives_the_same_counts() {
    let pattern = Pattern::FileServer;
    let workload = Workload::Iometer { pattern, rate: 50.0, capacity_bytes: 32 << 20 };
    let settings = ReplaySettings { has_reads: true, ..settings(Architecture::SplitStream, "10s") };
    let told = |replayed: Replayed| format!("{replayed:?}");
    assert_eq!(told(run(workload, 3000, settings)), told(run(workload, 3000, settings)));
}

#[test]
fn what_lies_beyond_the_volume_is_counted_and_left_out() {
    let mut settings = settings(Architecture::Logging, "every-write");
    settings.volume_bytes = 16 << 20;
    let told = run(spread(4096), 2000, settings);
    assert!(told.beyond > 100 && told.requests > 100, "{told:?}");
    assert_eq!(told.granularity, Granularity::EveryWrite);
}

#[test]
fn several_devices_are_several_volumes() {
    let workload = Workload::Spc1 {
        bsu: 2,
        capacity_bytes: 1_000_000_000,
        has_log: true,
        walk: Walk::Classic,
    };
    let mut source = generator(workload, 1000);
    let told = replay(&mut source, settings(Architecture::Logging, "1s")).expect("it runs");
    assert_eq!(source.devices().names().len(), 3);
    assert!(told.off.abs() < 0.02, "{told:?}");
}
