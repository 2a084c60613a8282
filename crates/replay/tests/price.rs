//! The price of this engine against what it counts, within a tenth: on every generator, with
//! and without flushes, with Laden's caches.
//!
//! Price and count share no code: the one is worked out from distances between writes
//! (`model/engine`), the other is what the engine's counters say after the trace went through.

use hindsight_replay::{Architecture, MEMORY_BYTES_DEFAULT, ReplaySettings, Replayed, replay};
use trace::Source;
use trace::change::FlushedSource;
use trace::generate::{Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload};

const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// How far price and count may be apart.
const TOLERANCE: f64 = 0.1;
/// Where it is further off, and by how much: replays of one seed are all alike, so that a miss that
/// grows is found as well as one that is mended. The price takes a cache to hold blocks for one
/// span of time; the second store of SPC-1 writes in bursts, which an exact LRU keeps for less. And
/// it knows from the start which blocks `hybrid` best lets wait, which the engine has to learn.
/// Traces of less load miss it by more: SPC-1 of 1 BSU by up to -25.6 % without flushes, and
/// `checkpointing` there by +17.5 % with them.
const MISSES: [(&str, Architecture, &str, Option<u64>, f64); 3] = [
    ("cello", Architecture::Hybrid, "10min", None, -0.109),
    ("spc1", Architecture::Hybrid, "10min", None, -0.168),
    ("spc1", Architecture::Hybrid, "10min", Some(FLUSH_EVERY), -0.115),
];
/// How far a miss may be from what is said of it.
const MISS_TOLERANCE: f64 = 0.01;
/// A flush after so many writes, where there are any.
const FLUSH_EVERY: u64 = 50;

fn spread(spread: Spread, rate: f64, capacity_bytes: u64) -> Workload {
    let (write_percent, length_bytes) = (60, 4096);
    let settings = SpreadSettings { spread, rate, write_percent, length_bytes, capacity_bytes };
    Workload::Spread(settings)
}

fn iometer(pattern: Pattern, rate: f64) -> Workload {
    Workload::Iometer { pattern, rate, capacity_bytes: 500 << 20 }
}

fn run(
    (workload, requests): (Workload, u64),
    flush_every: Option<u64>,
    settings: ReplaySettings,
) -> Replayed {
    let extent = Extent { seed: 5, duration_ns: None, requests_max: Some(requests) };
    let made = Generator::new(workload, extent).expect("a workload");
    let mut source: Box<dyn Source> = match flush_every {
        None => Box::new(made),
        Some(every) => Box::new(FlushedSource::new(made, every).expect("above 0")),
    };
    replay(&mut *source, settings).expect("the engine takes it")
}

/// Every architecture at the ends of granularity, with 64 MiB of cache; without one, too, where
/// that may be.
fn all_are_near(name: &str, workload: (Workload, u64)) {
    let mut worst = 0.0_f64;
    for architecture in Architecture::ALL {
        for granularity in ["every-write", "10min"] {
            let caches: &[(u64, Option<u64>)] = match architecture {
                Architecture::Logging | Architecture::Checkpointing => {
                    &[(0, Some(FLUSH_EVERY)), (64 << 20, None), (64 << 20, Some(FLUSH_EVERY))]
                }
                _ => &[(64 << 20, None), (64 << 20, Some(FLUSH_EVERY))],
            };
            for &(cache_bytes, flush_every) in caches {
                let settings = ReplaySettings {
                    architecture,
                    granularity: granularity.parse().expect("a granularity"),
                    window_ns: 24 * HOUR_NS,
                    volume_bytes: 64 << 30,
                    has_reads: false,
                    cache_bytes: (cache_bytes > 0).then_some(cache_bytes),
                    memory_bytes: MEMORY_BYTES_DEFAULT,
                };
                let told = run(workload, flush_every, settings);
                let off = told.engine_off.expect("a price");
                println!(
                    "{name}, {}, {granularity}, cache {cache_bytes}, flushes {flush_every:?}: \
                     price {:.3}, counted {:.3}, off {:+.1} %; paper {:.3}",
                    architecture.name(),
                    told.engine.expect("a price").total(),
                    told.counted.total(),
                    off * 100.0,
                    told.predicted.total(),
                );
                let is_it = |miss: &&(&str, Architecture, &str, Option<u64>, f64)| {
                    (miss.0, miss.1, miss.2, miss.3)
                        == (name, architecture, granularity, flush_every)
                };
                match MISSES.iter().find(is_it) {
                    Some(miss) => worst = worst.max((off - miss.4).abs() / MISS_TOLERANCE),
                    None => worst = worst.max(off.abs() / TOLERANCE),
                }
            }
        }
    }
    assert!(worst < 1.0, "{name}: {worst} of what may be");
}

#[test]
fn the_price_is_what_is_counted_on_a_file_server() {
    all_are_near("cello", (Workload::Cello, 60_000));
}

#[test]
fn the_price_is_what_is_counted_on_spreads() {
    let zipf = Spread::Zipf { exponent: 1.0 };
    all_are_near("zipf", (spread(zipf, 400.0, 200 << 20), 40_000));
    all_are_near("uniform", (spread(Spread::Uniform, 400.0, 200 << 20), 40_000));
}

#[test]
fn the_price_is_what_is_counted_on_an_oltp_workload() {
    let (capacity_bytes, walk) = (1_000_000_000, Walk::Classic);
    let workload = Workload::Spc1 { bsu: 4, capacity_bytes, has_log: false, walk };
    all_are_near("spc1", (workload, 60_000));
}

#[test]
fn the_price_is_what_is_counted_on_patterns_of_iometer() {
    all_are_near("oltp", (iometer(Pattern::Oltp, 400.0), 40_000));
    all_are_near("file server", (iometer(Pattern::FileServer, 400.0), 20_000));
    all_are_near("sequential write", (iometer(Pattern::SequentialWrite, 40.0), 3000));
}

#[test]
fn the_price_is_what_is_counted_on_a_mail_store() {
    let (rate, data_bytes, log_bytes) = (200.0, 1 << 30, 64 << 20);
    all_are_near("mail", (Workload::Mail { rate, data_bytes, log_bytes }, 40_000));
}

/// Figure 14 of Laden et al.: with 1 GiB versions wait in the cache for most of the hour.
#[test]
fn the_price_is_what_is_counted_with_the_caches_of_a_file_server() {
    for cache_bytes in [128_u64 << 20, 256 << 20, 1 << 30] {
        for architecture in [Architecture::Logging, Architecture::SplitDownstream] {
            let settings = ReplaySettings {
                architecture,
                granularity: "10min".parse().expect("a granularity"),
                window_ns: 24 * HOUR_NS,
                volume_bytes: 64 << 30,
                has_reads: false,
                cache_bytes: Some(cache_bytes),
                memory_bytes: MEMORY_BYTES_DEFAULT.max(2 * cache_bytes),
            };
            let told = run((Workload::Cello, 69_000), None, settings);
            let off = told.engine_off.expect("a price");
            assert!(off.abs() < TOLERANCE, "{cache_bytes}: {told:?}");
        }
    }
}

#[test]
fn the_price_is_what_is_counted_with_large_caches() {
    let workload = spread(Spread::Zipf { exponent: 1.0 }, 2000.0, 1 << 30);
    for cache_bytes in [512 << 20, 4 << 30] {
        for architecture in [Architecture::Logging, Architecture::SplitDownstream] {
            let settings = ReplaySettings {
                architecture,
                granularity: "10min".parse().expect("a granularity"),
                window_ns: 24 * HOUR_NS,
                volume_bytes: 64 << 30,
                has_reads: false,
                cache_bytes: Some(cache_bytes),
                memory_bytes: 16 << 30,
            };
            let told = run((workload, 600_000), None, settings);
            let off = told.engine_off.expect("a price");
            assert!(off.abs() < TOLERANCE, "{cache_bytes}: {told:?}");
        }
    }
}
