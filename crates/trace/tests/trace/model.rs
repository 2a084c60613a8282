//! The model against dull oracles, and against what the paper says in words.

use std::collections::{HashMap, VecDeque};

use hindsight_trace::RequestKind::Write;
use hindsight_trace::generate::{Extent, Generator, Spread, SpreadSettings, Walk, Workload};
use hindsight_trace::{Request, Source};
use model::{
    Advice, Architecture, Constraints, EngineSettings, LastWrites, MEMORY_BYTES_DEFAULT, Meter,
    MeterSettings, Profile, Shares, dirty_pages,
};
use proptest::prelude::{prop, prop_assert, proptest};
use units::{Granularity, Span};

use crate::traces::request;

const SECOND: f64 = 1e9;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
const EXTENT: u64 = 4096;

fn profile(requests: &[Request], reading: LastWrites) -> Profile {
    let mut meter = Meter::new(MeterSettings::default()).expect("defaults");
    for request in requests {
        meter.add(request).expect("in range");
    }
    let mut profile = meter.finish();
    profile.read_last_writes_as(reading);
    profile
}

/// For each write of one extent: the time to the next one of it, if there is one. Quadratic.
fn distances(requests: &[Request]) -> Vec<Option<u64>> {
    let next = |(i, r): (usize, &Request)| {
        let later = requests[i + 1..].iter().find(|l| l.offset_bytes == r.offset_bytes);
        later.map(|later| later.time_ns - r.time_ns)
    };
    requests.iter().enumerate().map(next).collect()
}

/// R and D as means over the writes, as the proofs in the paper have them.
fn naive(distances: &[Option<u64>], reading: LastWrites, g: f64, s: f64) -> (f64, f64) {
    let far = |a: &Option<u64>| match (a, reading) {
        (Some(a), _) => Some(*a as f64),
        (None, LastWrites::Ignored) => None,
        (None, _) => Some(f64::INFINITY),
    };
    let all: Vec<f64> = distances.iter().filter_map(far).collect();
    let mean = |of: &dyn Fn(f64) -> f64| all.iter().map(|a| of(*a)).sum::<f64>() / all.len() as f64;
    let retained = mean(&|a| (a / g).min(1.0));
    let incurred = mean(&|a| if a > s { 1.0 } else { (a / g).min(1.0) });
    (retained, incurred)
}

fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance, "{what}: {found}, expected {expected}");
}

proptest! {
    #[test]
    fn retained_shares_are_those_of_the_quadratic_oracle(
        writes in prop::collection::vec((0..5_000_000_000_u64, 0..20_u64), 2..80),
        g in 1..200_000_000_000_u64,
    ) {
        let mut time_ns = 0;
        let requests: Vec<Request> = writes.into_iter().map(|(step, extent)| {
            time_ns += step;
            request(time_ns, 0, Write, extent * EXTENT, EXTENT)
        }).collect();
        let distances = distances(&requests);
        for reading in [LastWrites::Ignored, LastWrites::Kept] {
            if reading == LastWrites::Ignored && distances.iter().all(Option::is_none) {
                continue;
            }
            let found = profile(&requests, reading).retained(g as f64).value;
            let (expected, _) = naive(&distances, reading, g as f64, 0.0);
            // At most the width of the bucket that g falls into.
            prop_assert!((found - expected).abs() < 0.008, "{found} {expected}");
        }
    }
}

#[test]
fn r_and_d_are_those_of_the_oracle_to_a_thousandth() {
    // 2000 addresses with rates that differ by a factor of 500, 20,000 s.
    let mut requests = Vec::new();
    let mut state = 1_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    for address in 0..2000_u64 {
        let mean = 20.0 * 500_f64.powf(random());
        let mut at = mean * random();
        while at < 20_000.0 {
            requests.push(request((at * SECOND) as u64, 0, Write, address * EXTENT, EXTENT));
            at += -mean * (1.0 - random()).ln();
        }
    }
    requests.sort_by_key(|r| r.time_ns);
    let mut next = HashMap::new();
    let mut distances = vec![None; requests.len()];
    for (i, r) in requests.iter().enumerate().rev() {
        distances[i] = next.insert(r.offset_bytes, r.time_ns).map(|later| later - r.time_ns);
    }
    for reading in [LastWrites::Ignored, LastWrites::Kept] {
        let profile = profile(&requests, reading);
        for g in [1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0].map(|s| s * SECOND) {
            for s in [30.0, 600.0].map(|s| s * SECOND) {
                let shares = profile.shares(g, s);
                let (r, d) = naive(&distances, reading, g, s);
                close(shares.retained, r, 1e-3, "r");
                close(shares.incurred, d, 1e-3, "d");
            }
        }
    }
}

/// What a cache of `pages` (least recently written goes first) and windows of `g` do to a trace:
/// r, c and d, counted write by write where the fate of a write is known.
fn measured(requests: &[Request], g: u64, pages: usize) -> Shares {
    let mut times = Vec::new();
    let (mut retained, mut evicted) = (Vec::new(), Vec::new());
    let mut cached: HashMap<u64, usize> = HashMap::new();
    let mut latest: HashMap<u64, usize> = HashMap::new();
    let mut queue: VecDeque<(u64, usize)> = VecDeque::new();
    let mut full_at = None;
    let writes = requests.iter().filter(|r| r.kind == Write).flat_map(|r| {
        let extents = r.offset_bytes / EXTENT..r.end_bytes().div_ceil(EXTENT);
        extents.map(|e| (r.time_ns, e << 8 | u64::from(r.device)))
    });
    for (time_ns, extent) in writes {
        let number = times.len();
        times.push(time_ns);
        retained.push(true);
        evicted.push(false);
        if let Some(before) = latest.insert(extent, number) {
            retained[before] = times[before] / g != time_ns / g;
        }
        cached.insert(extent, number);
        queue.push_back((extent, number));
        while cached.len() > pages {
            let (extent, number) = queue.pop_front().expect("what is cached is queued");
            if cached.get(&extent) == Some(&number) {
                cached.remove(&extent);
                evicted[number] = true;
                full_at.get_or_insert(time_ns);
            }
        }
    }
    let oldest = queue.iter().find(|(e, n)| cached.get(e) == Some(n)).map_or(0, |(_, n)| *n);
    let end = times.last().copied().unwrap_or_default();
    let known = times[oldest].min(end / g * g);
    let (mut count, mut r, mut c, mut d) = (0.0, 0.0, 0.0, 0.0);
    for i in 0..times.len() {
        if times[i] >= full_at.unwrap_or(0) && times[i] < known {
            count += 1.0;
            r += f64::from(u8::from(retained[i]));
            c += f64::from(u8::from(evicted[i]));
            d += f64::from(u8::from(retained[i] || evicted[i]));
        }
    }
    assert!(count > 10_000.0, "enough writes whose fate is known: {count}");
    Shares { retained: r / count, evicted: c / count, incurred: d / count }
}

fn generate(workload: Workload, duration_ns: u64) -> Vec<Request> {
    let extent = Extent { seed: 11, duration_ns: Some(duration_ns), requests_max: None };
    let mut generator = Generator::new(workload, extent).expect("a workload");
    std::iter::from_fn(|| generator.next().expect("endless")).collect()
}

fn spread(spread: Spread) -> Workload {
    Workload::Spread(SpreadSettings {
        spread,
        rate: 400.0,
        write_percent: 50,
        length_bytes: 4096,
        capacity_bytes: 200 << 20,
    })
}

/// A part of Laden's set-up: as many BSU and as much space in the same ratio give the same
/// distances, if the walks' trees (powers of two) fill as much of their regions.
fn laden(bsu: u32, capacity_bytes: u64) -> Workload {
    Workload::Spc1 { bsu, capacity_bytes, has_log: false, walk: Walk::Classic }
}

#[test]
fn the_forecast_is_within_two_percent_of_what_a_cache_does() {
    let cases = [
        ("uniform", generate(spread(Spread::Uniform), HOUR_NS), 4000),
        ("zipf", generate(spread(Spread::Zipf { exponent: 1.0 }), HOUR_NS), 4000),
        ("cello", generate(Workload::Cello, 6 * HOUR_NS), 491),
        ("spc1", generate(laden(10, 10_000_000_000), HOUR_NS), 3145),
    ];
    for (name, requests, pages) in cases {
        let profile = profile(&requests, LastWrites::Censored);
        for g in [10.0, 60.0, 300.0, 600.0].map(|s| s * SECOND) {
            let measured = measured(&requests, g as u64, pages);
            let forecast = profile.shares(g, profile.wait_ns(pages as u64));
            for (what, found, expected) in [
                ("r", forecast.retained, measured.retained),
                ("c", forecast.evicted, measured.evicted),
                ("d", forecast.incurred, measured.incurred),
            ] {
                let off = (found / expected - 1.0).abs();
                assert!(off < 0.02, "{name} at {g}: {what} {found}, measured {expected}");
            }
            for one in Architecture::ALL {
                let off = (forecast.ios(one).total() / measured.ios(one).total() - 1.0).abs();
                assert!(off < 0.02, "{name} at {g}: {one:?} {off}");
            }
        }
    }
}

#[test]
fn the_table_of_costs_is_that_of_the_paper() {
    let total = |r: f64, c: f64, d: f64| {
        let shares = Shares { retained: r, evicted: c, incurred: d };
        [
            Architecture::Logging,
            Architecture::Checkpointing,
            Architecture::SplitStream,
            Architecture::SplitDownstream,
        ]
        .map(|one| shares.ios(one).total())
    };
    for c in [0.0, 0.3, 1.0] {
        assert_eq!(total(1.0, c, 1.0), [1.0, 3.0, 1.0 + c, 2.0], "every write");
        assert_eq!(total(0.0, c, c), [c, c, 2.0 * c, 2.0 * c], "no history");
    }
    for r in [0.0, 0.25, 0.5] {
        assert_eq!(total(r, 1.0, 1.0), [1.0, 2.0 * r + 1.0, 2.0, 2.0], "no cache");
        assert_eq!(total(r, 0.0, r), [r, 3.0 * r, r, 2.0 * r], "endless cache");
    }
    // The first write after a capture: 1 read and 2 writes, or 1 write that is redirected.
    let first = Shares { retained: 1.0, evicted: 1.0, incurred: 1.0 };
    let copy = first.ios(Architecture::Checkpointing);
    assert_eq!((copy.reads, copy.writes), (1.0, 2.0));
    assert_eq!(first.ios(Architecture::Redirect).total(), 1.0);
}

#[test]
fn writes_every_half_second_cost_checkpointing_two_at_a_second() {
    let writes: Vec<Request> =
        (0..2000).map(|i| request(i * 500_000_000, 0, Write, 0, EXTENT)).collect();
    let shares = profile(&writes, LastWrites::Ignored).shares(SECOND, 0.0);
    close(shares.retained, 0.5, 1e-3, "r");
    close(shares.ios(Architecture::Checkpointing).total(), 2.0, 2e-3, "checkpointing");
    close(shares.ios(Architecture::SplitDownstream).total(), 2.0, 1e-9, "split-downstream");
}

#[test]
fn a_request_of_many_extents_counts_for_each() {
    let writes = [request(0, 0, Write, 0, 65_536), request(1000, 0, Write, 4095, 2)];
    let profile = profile(&writes, LastWrites::Ignored);
    assert_eq!((profile.writes(), profile.distinct()), (18, 16.0));
}

fn minutes(window_ns: Option<u64>) -> Option<f64> {
    window_ns.map(|ns| ns as f64 / MINUTE)
}

#[test]
fn an_oltp_workload_crosses_where_the_paper_says() {
    // A quarter of 100 BSU on 100 GB with 4 GB of cache.
    let busy = profile(&generate(laden(25, 25_000_000_000), HOUR_NS), LastWrites::Censored);
    let pages = dirty_pages(4 << 30, 0.03, EXTENT) / 4;
    let crossing = minutes(busy.crossovers(pages).split_downstream_ns).expect("within the hour");
    assert!((30.0..45.0).contains(&crossing), "beyond 30 minutes, and not far: {crossing}");
    // Coarser than 5 minutes logging costs nearly what no history costs.
    let five = busy.forecast(interval(300), with_pages(pages));
    let logging = five.shares.incurred / five.ios_without_history.total();
    assert!(logging < 1.05, "{logging}");
    // 33 BSU on 100 GB: beyond 60 minutes.
    let calm = profile(&generate(laden(8, 24_242_424_242), HOUR_NS), LastWrites::Censored);
    let pages = dirty_pages(4 << 30, 0.03, EXTENT) * 8 / 33;
    let crossing = calm.crossovers(pages).split_downstream_ns;
    assert_eq!(crossing, None, "{:?} min", minutes(crossing));
}

fn with_pages(dirty_pages: u64) -> EngineSettings {
    EngineSettings { dirty_pages, memory_bytes: MEMORY_BYTES_DEFAULT }
}

fn interval(seconds: u64) -> Granularity {
    Granularity::Interval(Span::from_seconds(seconds).expect("short"))
}

#[test]
fn a_file_server_crosses_where_the_paper_says() {
    let profile = profile(&generate(Workload::Cello, 2 * HOUR_NS), LastWrites::Censored);
    let pages = |mebibytes: u64| dirty_pages(mebibytes << 20, 0.03, EXTENT);
    let crossing =
        |mebibytes: u64| minutes(profile.crossovers(pages(mebibytes)).split_downstream_ns);
    // With 64 MB checkpointing costs less at 5 minutes and coarser.
    let small = crossing(64).expect("within two hours");
    assert!(small <= 5.0, "{small} min");
    // With about 100 MB it is 10 minutes, with 512 MB more.
    let middle = crossing(100).expect("within two hours");
    close(middle, 10.0, 1.0, "minutes with 100 MB");
    assert!(crossing(512).is_none_or(|minutes| minutes > 10.0));
    // At 256 MB a write waits about 10 minutes, and more cache saves nothing at that granularity.
    close(profile.wait_ns(pages(256)) / MINUTE, 10.0, 0.5, "minutes of waiting");
    let d = |mebibytes: u64| {
        profile.forecast(interval(600), with_pages(pages(mebibytes))).shares.incurred
    };
    close(d(512) / d(256), 1.0, 0.02, "what more cache saves");
    assert!(d(128) / d(256) > 1.1);
    // At an hour, checkpointing is near logging, and logging near no history at all.
    let hour = profile.forecast(interval(3600), with_pages(pages(64)));
    let total = |one: Architecture| hour.shares.ios(one).total();
    let none = hour.ios_without_history.total();
    assert!(total(Architecture::Checkpointing) / total(Architecture::Logging) < 1.25);
    assert!(total(Architecture::Logging) / none < 1.05);
    // Every write: 1 to 2 to 3.
    let every = profile.forecast(Granularity::EveryWrite, with_pages(pages(64))).shares;
    assert_eq!(every.ios(Architecture::Logging).total(), 1.0);
    assert_eq!(every.ios(Architecture::SplitDownstream).total(), 2.0);
    assert_eq!(every.ios(Architecture::Checkpointing).total(), 3.0);
}

#[test]
fn space_is_that_of_the_paper() {
    // 100 extents of a volume of 1000, each written once a second for 100 s.
    let writes: Vec<Request> =
        (0..10_000).map(|i| request(i * 10_000_000, 0, Write, i % 100 * EXTENT, EXTENT)).collect();
    let profile = profile(&writes, LastWrites::Ignored);
    let volume_bytes = 1000 * EXTENT;
    let of = |one: Architecture, granularity: Granularity| {
        let space = profile.space(one, granularity, 50_000_000_000, volume_bytes);
        (space.current_bytes / EXTENT as f64, space.history_bytes / EXTENT as f64)
    };
    let near = |found: (f64, f64), expected: (f64, f64)| {
        close(found.0, expected.0, 1.0, "current");
        close(found.1, expected.1, 10.0, "history");
    };
    // rw, a + rw, a + rw - f; of every write, and of a fifth.
    for (granularity, retained) in [(Granularity::EveryWrite, 5000.0), (interval(5), 1000.0)] {
        near(of(Architecture::Logging, granularity), (0.0, retained));
        near(of(Architecture::SplitDownstream, granularity), (1000.0, retained));
        near(of(Architecture::Checkpointing, granularity), (1000.0, retained - 100.0));
    }
}

#[test]
fn a_sample_is_within_its_stated_error() {
    for workload in [spread(Spread::Uniform), spread(Spread::Zipf { exponent: 0.8 })] {
        let requests = generate(workload, HOUR_NS);
        let exact = profile(&requests, LastWrites::Censored);
        let settings = MeterSettings { extent_bytes: EXTENT, entries_max: 4096 };
        let mut meter = Meter::new(settings).expect("in range");
        for request in &requests {
            meter.add(request).expect("in range");
        }
        let sampled = meter.finish();
        assert!(sampled.is_sampled() && !exact.is_sampled());
        assert_eq!(exact.retained(MINUTE).error, 0.0);
        close(sampled.distinct() / exact.distinct(), 1.0, 0.05, "extents");
        for g in [10.0, 60.0, 300.0, 1800.0].map(|s| s * SECOND) {
            let (found, truth) = (sampled.retained(g), exact.retained(g).value);
            assert!(found.error > 0.0 && found.error < 0.2, "{found:?}");
            // Twice the interval of 95 %: a fixed seed, not one time in a thousand.
            let off = (found.value - truth).abs();
            assert!(off <= 2.0 * found.error, "{found:?}, truth {truth} at {g}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for extent_bytes in [0, 256, 4095, 2 << 20] {
        let settings = MeterSettings { extent_bytes, ..MeterSettings::default() };
        assert!(Meter::new(settings).is_err(), "{extent_bytes}");
    }
    let mut meter = Meter::new(MeterSettings::default()).unwrap();
    assert!(meter.add(&request(0, 0, Write, 1 << 62, 512)).is_err());
    assert!(meter.add(&request(0, 0, Write, 0, 1 << 40)).is_err());
}

fn advise(requests: &[Request], constraints: Constraints) -> Advice {
    model::advise(&profile(requests, LastWrites::Censored), &constraints).expect("there are writes")
}

const OPEN: Constraints = Constraints {
    architectures: &Architecture::ALL,
    volume_bytes: Some(1 << 30),
    granularity: None,
    window: None,
    history_limit_bytes: None,
    cache_bytes: None,
    dirty_share: 0.03,
    memory_bytes: MEMORY_BYTES_DEFAULT,
};

#[test]
fn advice_keeps_what_is_decided_and_finds_the_rest() {
    let requests = generate(Workload::Cello, HOUR_NS);
    // Random reads: the log, and every write, since it fits.
    let free = advise(&requests, Constraints { history_limit_bytes: Some(1 << 40), ..OPEN });
    assert_eq!(free.plan.architecture, Architecture::Logging);
    assert_eq!(free.plan.granularity, Granularity::EveryWrite);
    assert_eq!((free.plan.cache_bytes, free.others.len()), (0, 5));
    close(free.plan.ios_per_write.total(), 1.0, 1e-9, "I/Os");
    // A day of every write is 13 GB; of one each minute it is less than the 4 GiB there are.
    let tight = advise(&requests, Constraints { history_limit_bytes: Some(4 << 30), ..OPEN });
    assert_ne!(tight.plan.granularity, Granularity::EveryWrite);
    assert!(tight.plan.history_bytes <= (4_u64 << 30) as f64, "{:?}", tight.plan);
    // What is decided stays.
    let decided = Constraints {
        granularity: Some(interval(600)),
        window: Span::from_seconds(7200),
        cache_bytes: Some(64 << 20),
        ..OPEN
    };
    let plan = advise(&requests, decided).plan;
    assert_eq!(plan.granularity, interval(600));
    assert_eq!((Some(plan.window), plan.cache_bytes), (Span::from_seconds(7200), 64 << 20));
}

#[test]
fn sequential_reads_keep_data_in_place_and_the_price_of_this_engine_decides() {
    let mut requests = generate(Workload::Cello, HOUR_NS);
    let mut next = 0;
    for request in requests.iter_mut().filter(|request| request.kind != Write) {
        request.offset_bytes = next;
        next = request.end_bytes();
    }
    // With the whole cache for both of its streams split-stream is never the worse of the splits.
    for (granularity, cache_bytes, expected) in [
        (Granularity::EveryWrite, 0, Architecture::SplitStream),
        (interval(10), 64 << 20, Architecture::SplitStream),
        // Headers and map are the same for both: what hybrid saves is less than it may be off.
        (interval(120), 64 << 20, Architecture::SplitStream),
        // By the paper's formula it would be checkpointing: its journal and map are not in that.
        (interval(1800), 0, Architecture::SplitStream),
        // Without a cache there is no hybrid.
        (interval(300), 64 << 20, Architecture::Hybrid),
        (interval(300), 0, Architecture::SplitStream),
    ] {
        let decided = Constraints {
            granularity: Some(granularity),
            cache_bytes: Some(cache_bytes),
            history_limit_bytes: Some(1 << 40),
            ..OPEN
        };
        let advice = advise(&requests, decided);
        let plans = std::iter::once(&advice.plan).chain(&advice.others);
        let costs: Vec<_> =
            plans.map(|plan| (plan.architecture.name(), plan.engine_ios_per_write)).collect();
        assert_eq!(advice.plan.architecture, expected, "{costs:?} {:?}", advice.reasons);
        let says_so = advice.cautions.iter().any(|caution| caution.contains("hybrid"));
        assert_eq!(says_so, expected == Architecture::Hybrid, "{:?}", advice.cautions);
    }
}

#[test]
fn no_cache_is_advised_that_the_server_has_no_memory_for() {
    let requests = generate(Workload::Cello, HOUR_NS);
    let cache = |memory_bytes: u64| {
        let decided = Constraints { granularity: Some(interval(600)), memory_bytes, ..OPEN };
        advise(&requests, decided).plan.cache_bytes
    };
    let (small, large) = (cache(128 << 20), cache(16 << 30));
    assert_eq!(small, 64 << 20, "half of the memory");
    assert!(large > small, "with more memory it is more: {large}");
    let asked = Constraints { cache_bytes: Some(1 << 30), ..OPEN };
    let cautions = advise(&requests, asked).cautions;
    assert!(cautions.iter().any(|one| one.contains("refuses this cache")), "{cautions:?}");
}

#[test]
fn flushes_empty_the_cache_of_the_engine_and_not_of_the_paper() {
    // A block is written each second, and a flush comes after every fourth write.
    let mut requests = Vec::new();
    for number in 0..4000_u64 {
        requests.push(request(number * 1_000_000_000, 0, Write, 0, EXTENT));
        if number % 4 == 3 {
            let flush = hindsight_trace::RequestKind::Flush;
            requests.push(request(number * 1_000_000_000, 0, flush, 0, 0));
        }
    }
    let profile = profile(&requests, LastWrites::Censored);
    let forecast = profile.forecast(Granularity::OnDemand, with_pages(100));
    let logging = forecast.ios[0];
    close(logging.ios.total(), 0.0, 1e-9, "the paper's: it never leaves");
    let data = logging.engine.expect("a price").data.writes;
    close(data, 0.25 * (1.0 + 128.0 / 4096.0), 0.002, "one in four, with its header");
}

#[test]
fn a_trace_without_writes_is_nothing_to_advise_on() {
    let none = profile(&[], LastWrites::Censored);
    assert!(model::advise(&none, &OPEN).is_err());
}
