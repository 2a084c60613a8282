//! Generators: what their workloads state, and that a seed is a workload for ever.

use hindsight_trace::generate::{
    Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload,
};
use hindsight_trace::{ErrorKind, Request, RequestKind};

use crate::traces::all;

const GIB: u64 = 1 << 30;

fn spc1(walk: Walk, has_log: bool) -> Workload {
    Workload::Spc1 { bsu: 10, capacity_bytes: 10 * GIB, has_log, walk }
}

fn spread(spread: Spread) -> Workload {
    Workload::Spread(SpreadSettings {
        spread,
        rate: 1000.0,
        write_percent: 70,
        length_bytes: 4096,
        capacity_bytes: GIB,
    })
}

fn iometer(pattern: Pattern) -> Workload {
    Workload::Iometer { pattern, rate: 1000.0, capacity_bytes: GIB }
}

const MAIL: Workload = Workload::Mail { rate: 1000.0, data_bytes: GIB, log_bytes: GIB / 8 };
const QUERIES: Workload = Workload::Queries { rate: 1000.0, capacity_bytes: GIB };

fn generate(workload: Workload, seed: u64, requests: u64) -> Vec<Request> {
    let extent = Extent { seed, requests_max: Some(requests), duration_ns: None };
    all(&mut Generator::new(workload, extent).expect("a workload"))
}

fn workloads() -> Vec<(&'static str, Workload)> {
    vec![
        ("spc1", spc1(Walk::Classic, true)),
        ("spc1 fixed", spc1(Walk::Fixed, false)),
        ("spc1 v2", spc1(Walk::V2, false)),
        ("cello", Workload::Cello),
        ("iometer ws", iometer(Pattern::SequentialWrite)),
        ("iometer rs", iometer(Pattern::SequentialRead)),
        ("iometer oltp", iometer(Pattern::Oltp)),
        ("iometer fs", iometer(Pattern::FileServer)),
        ("iometer web", iometer(Pattern::WebServer)),
        ("uniform", spread(Spread::Uniform)),
        ("zipf", spread(Spread::Zipf { exponent: 1.0 })),
        ("mail", MAIL),
        ("queries", QUERIES),
    ]
}

/// What 5000 requests of seed 7 come to.
const DIGESTS: [(&str, u64); 13] = [
    ("spc1", 10_619_751_383_108_041_042),
    ("spc1 fixed", 8_602_148_962_486_925_642),
    ("spc1 v2", 6_142_906_982_894_194_179),
    ("cello", 16_046_888_047_718_507_802),
    ("iometer ws", 3_554_452_065_540_352_053),
    ("iometer rs", 11_696_019_023_731_066_597),
    ("iometer oltp", 11_352_670_733_952_820_611),
    ("iometer fs", 17_294_112_451_665_384_965),
    ("iometer web", 7_444_347_328_395_414_421),
    ("uniform", 14_385_523_034_332_780_303),
    ("zipf", 7_139_226_447_059_770_119),
    ("mail", 12_450_524_905_310_153_719),
    ("queries", 5_723_591_912_986_196_401),
];

/// A digest of requests that depends on nothing but them.
fn digest(requests: &[Request]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for r in requests {
        let kind = r.kind as u64;
        for value in [r.time_ns, r.device.into(), kind, r.offset_bytes, r.length_bytes] {
            digest = (digest ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }
    digest
}

#[test]
fn a_seed_is_a_workload_for_ever() {
    let found: Vec<(&str, u64)> = workloads()
        .into_iter()
        .map(|(name, workload)| (name, digest(&generate(workload, 7, 5000))))
        .collect();
    assert_eq!(found, DIGESTS);
    for (name, workload) in workloads() {
        let other = digest(&generate(workload, 8, 5000));
        assert!(!DIGESTS.contains(&(name, other)), "{name}: another seed is another workload");
    }
}

#[test]
fn every_workload_is_in_order_and_inside_its_devices() {
    for (name, workload) in workloads() {
        let requests = generate(workload, 3, 50_000);
        assert_eq!(requests.len(), 50_000);
        assert!(requests.windows(2).all(|w| w[0].time_ns <= w[1].time_ns), "{name}");
        assert!(requests.iter().all(|r| r.is_valid() && r.end_bytes() <= 10 * GIB), "{name}");
    }
}

#[test]
fn a_duration_ends_a_workload() {
    let extent = Extent { seed: 1, duration_ns: Some(10_000_000_000), requests_max: None };
    let requests = all(&mut Generator::new(spread(Spread::Uniform), extent).unwrap());
    assert!((9_700..10_300).contains(&requests.len()), "{}", requests.len());
    assert!(requests.iter().all(|r| r.time_ns < 10_000_000_000));
}

/// Share of the requests that are so.
fn share(requests: &[Request], is_so: impl Fn(&Request) -> bool) -> f64 {
    requests.iter().filter(|r| is_so(r)).count() as f64 / requests.len() as f64
}

fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() < tolerance, "{found}, expected {expected}");
}

#[test]
fn spc1_has_the_shares_and_rates_that_are_published() {
    let requests = generate(spc1(Walk::Classic, true), 5, 400_000);
    for (asu, expected) in [(0, 0.596), (1, 0.123), (2, 0.281)] {
        close(share(&requests, |r| r.device == asu), expected, 0.004);
    }
    close(share(&requests, |r| r.kind == RequestKind::Read), 0.3944, 0.004);
    let seconds = requests.last().unwrap().time_ns as f64 / 1e9;
    close(400_000.0 / seconds / 10.0, 50.0, 0.5);
    let log: Vec<Request> = requests.iter().copied().filter(|r| r.device == 2).collect();
    let mean = log.iter().map(|r| r.length_bytes).sum::<u64>() as f64 / log.len() as f64;
    close(mean / 1024.0, 14.4, 0.2);
    assert!(requests.iter().all(|r| r.offset_bytes % 4096 == 0));

    let requests = generate(spc1(Walk::Classic, false), 5, 400_000);
    close(share(&requests, |r| r.kind == RequestKind::Read), 0.549, 0.004);
    let seconds = requests.last().unwrap().time_ns as f64 / 1e9;
    let writes = requests.iter().filter(|r| r.kind == RequestKind::Write).count() as f64;
    close(writes / seconds / 10.0, 16.23, 0.2);
}

#[test]
fn spc1_walks_stay_in_their_regions() {
    let asu1_bytes = 10.0 * GIB as f64 * 0.45;
    for walk in [Walk::Classic, Walk::Fixed, Walk::V2] {
        let requests = generate(spc1(walk, false), 6, 200_000);
        let inside = |r: &Request| {
            let place = r.offset_bytes as f64 / asu1_bytes;
            r.device == 0 && ((0.15..0.2).contains(&place) || (0.7..0.75).contains(&place))
        };
        let walked = (0.281 + 0.210) / 0.719;
        // A tenth of the uniform ones fall into the regions too.
        close(share(&requests, inside), walked + 0.1 * 0.035 / 0.719, 0.006);
    }
}

#[test]
fn iometer_has_its_mixes() {
    let writes = |requests: &[Request]| share(requests, |r| r.kind == RequestKind::Write);
    close(writes(&generate(iometer(Pattern::Oltp), 1, 100_000)), 0.33, 0.006);
    let files = generate(iometer(Pattern::FileServer), 1, 100_000);
    close(writes(&files), 0.2, 0.006);
    close(share(&files, |r| r.length_bytes <= 4096), 0.8, 0.006);
    let web = generate(iometer(Pattern::WebServer), 1, 100_000);
    close(writes(&web), 0.0, 1e-9);
    close(share(&web, |r| r.length_bytes <= 4096), 0.68, 0.006);
    // Every size that DARC names, of the file server and of the web server.
    let of_size = |requests: &[Request], kib: u64| share(requests, |r| r.length_bytes == kib << 10);
    for (kib, percent) in [(8, 2.0), (16, 4.0), (32, 4.0), (64, 10.0)] {
        close(of_size(&files, kib), percent / 100.0, 0.004);
    }
    let sizes = [(8, 15.0), (16, 2.0), (32, 6.0), (64, 7.0), (128, 1.0), (512, 1.0)];
    for (kib, percent) in sizes {
        close(of_size(&web, kib), percent / 100.0, 0.004);
    }
    // All places are as likely as others: the halves of the device, and its ends.
    for requests in [&files, &web] {
        close(share(requests, |r| r.offset_bytes < GIB / 2), 0.5, 0.006);
        close(share(requests, |r| r.offset_bytes < GIB / 100), 0.01, 0.002);
        close(share(requests, |r| r.offset_bytes >= GIB / 100 * 99), 0.01, 0.002);
    }
    let sequence = generate(iometer(Pattern::SequentialWrite), 1, 20_000);
    assert!(sequence.iter().all(|r| r.length_bytes == 65_536 && r.kind == RequestKind::Write));
    let starts_over = sequence.windows(2).filter(|w| w[0].end_bytes() != w[1].offset_bytes).count();
    assert_eq!(starts_over as u64, 20_000 / (GIB / 65_536));
}

#[test]
fn a_mail_store_has_the_mix_of_jetstress() {
    let requests = generate(MAIL, 1, 100_000);
    let of = |device: u32, kind: RequestKind| {
        requests.iter().filter(|r| r.device == device && r.kind == kind).collect::<Vec<_>>()
    };
    let (reads, writes, log) =
        (of(0, RequestKind::Read), of(0, RequestKind::Write), of(1, RequestKind::Write));
    assert_eq!(reads.len() + writes.len() + log.len(), requests.len());
    // 85 operations in a hundred change the page that they read.
    close(writes.len() as f64 / reads.len() as f64, 0.85, 0.01);
    // As in DARC's Table 3: 70.32 writes of the log for 556.79 pages written.
    close(log.len() as f64 / writes.len() as f64, 70.32 / 556.79, 0.003);
    let bytes: u64 = log.iter().map(|r| r.length_bytes).sum();
    close(bytes as f64 / log.len() as f64 / 1024.0, 2.9, 0.06);
    assert!(
        log.windows(2).all(|w| w[0].end_bytes() == w[1].offset_bytes || w[1].offset_bytes == 0)
    );
    assert!(
        requests.iter().all(|r| r.is_fua == (r.device == 1)),
        "only the log is written through"
    );
    assert!(reads.iter().all(|r| r.length_bytes == 8192 && r.offset_bytes % 8192 == 0));
}

#[test]
fn queries_read_everything_in_order_and_write_little() {
    let requests = generate(QUERIES, 1, 100_000);
    close(share(&requests, |r| r.kind == RequestKind::Write), 0.005, 0.0005);
    let scanned: Vec<_> = requests.iter().filter(|r| r.length_bytes == 65_536).collect();
    close(scanned.len() as f64 / requests.len() as f64, 1.0 - 0.005 - 1.0 / 17.0, 0.001);
    let jumps = scanned.windows(2).filter(|w| w[0].end_bytes() != w[1].offset_bytes).count();
    assert_eq!(jumps as u64, (scanned.len() as u64 - 1) / (GIB / 65_536));
}

#[test]
fn zipf_favours_few_places() {
    let requests = generate(spread(Spread::Zipf { exponent: 1.0 }), 1, 200_000);
    let mut counts = std::collections::HashMap::new();
    for request in &requests {
        *counts.entry(request.offset_bytes).or_insert(0_u64) += 1;
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // Of 262,144 places the first is asked for by one in 13.05.
    close(counts[0] as f64 / 200_000.0, 1.0 / 13.05, 0.003);
    close(counts[0] as f64 / counts[9] as f64, 10.0, 1.0);
}

#[test]
fn settings_out_of_range_are_refused() {
    let none = Extent { seed: 0, duration_ns: None, requests_max: Some(1) };
    let bad = [
        Workload::Spc1 { bsu: 0, capacity_bytes: GIB, has_log: true, walk: Walk::Classic },
        Workload::Spc1 { bsu: 1, capacity_bytes: 1 << 20, has_log: true, walk: Walk::Classic },
        Workload::Iometer { pattern: Pattern::Oltp, rate: 0.0, capacity_bytes: GIB },
        Workload::Iometer { pattern: Pattern::Oltp, rate: 1.0, capacity_bytes: 0 },
        Workload::Mail { rate: 1.0, data_bytes: GIB, log_bytes: 1024 },
        Workload::Queries { rate: 1.0, capacity_bytes: 65_535 },
        spread(Spread::Zipf { exponent: -1.0 }),
        spread(Spread::Zipf { exponent: f64::NAN }),
    ];
    for workload in bad {
        let error = Generator::new(workload, none).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Setting, "{workload:?}");
    }
}
