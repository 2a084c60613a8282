//! Experiments at a small scale: what they claim, and what they write.

use std::collections::HashMap;

use hindsight_lab::experiment::{
    Bench, BenchSettings, Compacted, CompactionAsked, EXPERIMENTS, EngineCount, Experiment,
    Outcome, Verdict, VersionReads, chosen,
};
use hindsight_lab::plot::{png, svg};
use hindsight_lab::report::{COUNTED, report};
use hindsight_lab::simulate::{
    Counted, Extents, PlainSimulation, Simulation, SimulationSettings, Touch,
};
use model::{Architecture, DeviceIos, EngineIos};
use trace::Request;
use trace::RequestKind::Write;

const SECOND_NS: u64 = 1_000_000_000;

fn write(time_ns: u64, offset_bytes: u64, length_bytes: u64) -> Request {
    Request { time_ns, device: 0, kind: Write, is_fua: false, offset_bytes, length_bytes }
}

/// A quarter of the paper's size: small enough for a test, large enough for its distances.
fn bench() -> Bench {
    let bench = Bench::new(BenchSettings { seed: 11, scale: 4 }).expect("in range");
    bench.with_compaction(Box::new(|asked| Ok(compacted(asked))))
}

/// As an engine would that packs what is alike into nothing, and reads a pack in two pieces.
fn compacted(asked: CompactionAsked) -> Compacted {
    let packed = asked.pages * asked.share_percent / 100;
    let share = asked.share_percent as f64 / 100.0;
    let raw_reads = VersionReads { device_reads: 1.0, device_bytes: 4096.0, seconds: 1e-4 };
    Compacted {
        packed,
        raw: asked.pages - packed,
        raw_bytes: 2 * asked.pages * 4096,
        bytes: (2 * asked.pages - packed) * 4096,
        raw_reads,
        reads: VersionReads { device_reads: 1.0 + share, ..raw_reads },
    }
}

fn run(names: &[&str]) -> Vec<Outcome> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut bench = bench();
    let run = |one: Experiment| one.run(&mut bench).expect("generators run");
    chosen(&names).expect("known").into_iter().map(run).collect()
}

#[test]
fn every_claim_about_the_papers_holds_at_a_quarter_of_the_size() {
    for outcome in run(&["all"]) {
        assert!(!outcome.claims.is_empty() && !outcome.table.rows.is_empty(), "{}", outcome.name);
        for claim in &outcome.claims {
            assert_ne!(claim.verdict, Verdict::Differs, "{}: {claim:?}", outcome.name);
            let is_judged = claim.verdict != Verdict::NotJudged;
            assert!(!is_judged || !claim.fails_with.is_empty(), "{}: {claim:?}", outcome.name);
        }
        let csv = outcome.table.csv();
        let width = outcome.table.columns.len();
        assert!(csv.lines().all(|line| line.split(',').count() == width), "{}", outcome.name);
    }
}

#[test]
fn the_count_of_the_engine_stands_beside_the_figure_and_is_judged() {
    let count = |counted: [f64; 3]| -> EngineCount {
        Box::new(move |source, asked| {
            assert_eq!((asked.cache_bytes, source.next()?.is_some()), (64 << 20, true));
            let shown =
                [Architecture::Logging, Architecture::SplitDownstream, Architecture::Checkpointing];
            let writes = shown.iter().zip(counted).find(|(one, _)| **one == asked.architecture);
            let data = DeviceIos { reads: 0.0, writes: writes.expect("one of the three").1 };
            Ok(EngineIos { data, ..EngineIos::default() })
        })
    };
    let verdicts = |counted: [f64; 3]| {
        let mut bench = bench().with_engine(count(counted));
        let one = chosen(&["laden-fig12".to_owned()]).expect("known")[0];
        let outcome = one.run(&mut bench).expect("it runs");
        let names: Vec<&str> = outcome.chart.series.iter().map(|one| &*one.name).collect();
        assert!(names.contains(&"checkpointing, engine"), "{names:?}");
        assert!(outcome.table.columns.contains(&"logging_engine".to_owned()));
        let of_engine = outcome.claims.iter().filter(|claim| claim.what.contains("engine"));
        of_engine.map(|claim| (claim.verdict, claim.fails_with.is_empty())).collect::<Vec<_>>()
    };
    // As the paper says, which is not what the engine's price is; and neither.
    assert_eq!(verdicts([1.0, 2.0, 3.0]), [(Verdict::Holds, false), (Verdict::Differs, false)]);
    assert_eq!(verdicts([9.0, 9.0, 9.0]), [(Verdict::Differs, false), (Verdict::Differs, false)]);
}

#[test]
fn a_compacted_version_is_judged_by_what_is_packed_by_space_and_by_reads() {
    type Change = fn(&mut Compacted);
    let verdicts = |change: Option<Change>| {
        let bench = Bench::new(BenchSettings::default()).expect("in range");
        let mut bench = match change {
            None => bench,
            Some(change) => bench.with_compaction(Box::new(move |asked| {
                let mut found = compacted(asked);
                change(&mut found);
                Ok(found)
            })),
        };
        let one = chosen(&["clotho".to_owned()]).expect("known")[0];
        let outcome = one.run(&mut bench).expect("it runs");
        outcome.claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
    };
    use Verdict::{Differs, Holds, NotJudged};
    assert_eq!(verdicts(None), [NotJudged], "nobody compacts");
    assert_eq!(verdicts(Some(|_| {})), [Holds, Holds, Holds, NotJudged]);
    let fewer: Change = |found| (found.packed, found.raw) = (found.packed / 2, found.raw + 1000);
    assert_eq!(verdicts(Some(fewer)), [Differs, Holds, Holds, NotJudged]);
    let larger: Change = |found| found.bytes += 1000 * 4096;
    assert_eq!(verdicts(Some(larger)), [Holds, Differs, Holds, NotJudged]);
    let more_reads: Change = |found| found.reads.device_reads *= 1.2;
    assert_eq!(verdicts(Some(more_reads)), [Holds, Holds, Differs, NotJudged]);
}

#[test]
fn every_write_is_joined_to_nothing() {
    let one = &run(&["laden-fig5"])[0];
    for series in &one.chart.series {
        assert!(series.points[0].1.is_finite() && series.points[1].1.is_nan(), "{series:?}");
        assert!(series.points[2..].iter().all(|(_, y)| y.is_finite()), "{series:?}");
    }
    assert!(!svg(&one.chart).contains("NaN"));
}

#[test]
fn a_report_needs_nothing_else_and_names_every_claim() {
    let outcomes = run(&["laden-fig12", "xiao"]);
    let page = report(COUNTED, &outcomes);
    for word in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    for outcome in &outcomes {
        assert!(page.contains(&format!("<h2 id=\"{}\">", outcome.name)));
        assert!(page.contains(&outcome.claims[0].measured), "{}", outcome.name);
    }
    assert_eq!(page.matches("<svg").count(), outcomes.len());
    assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
}

#[test]
fn a_chart_is_the_same_picture_every_time_in_both_formats() {
    let one = run(&["laden-fig12"]);
    let two = run(&["laden-fig12"]);
    let chart = &one[0].chart;
    assert_eq!(svg(chart), svg(&two[0].chart));
    assert_eq!(
        svg(chart).matches("<polyline").count(),
        svg(chart).matches("/>").count()
            - svg(chart).matches("<circle").count()
            - svg(chart).matches("<rect").count()
    );
    let bytes = png(chart);
    assert_eq!(bytes, png(&two[0].chart));
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    // Width and height, big-endian, after the length and name of the first chunk.
    assert_eq!(bytes[16..24], [0, 0, 0x06, 0xb8, 0, 0, 0x03, 0xc0]);
    assert!(bytes.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"), "the checksum of the last chunk");
}

#[test]
fn names_stand_for_one_a_group_or_all() {
    let names = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
        chosen(&list).map(|found| found.len())
    };
    assert_eq!(names(&["all"]).unwrap(), EXPERIMENTS.len());
    assert_eq!(names(&["laden-fig9", "laden-fig9"]).unwrap(), 1);
    assert_eq!(names(&["xiao"]).unwrap(), 3);
    let error = names(&["laden-fig99"]).unwrap_err();
    assert!(error.hint.expect("a hint").contains("laden-fig14"));
    for scale in [0, 3, 8] {
        assert!(Bench::new(BenchSettings { seed: 1, scale }).is_err());
    }
}

/// The same by the dullest means: every version with its fate, then counted.
fn dull(touches: &[Touch], window_ns: u64, pages: usize, end_ns: u64) -> [u64; 5] {
    struct Version {
        extent: u32,
        window: u64,
        is_out: bool,
        is_gone: bool,
    }
    let mut versions: Vec<Version> = Vec::new();
    let (mut copies, mut before) = (0, 0);
    let mut store: HashMap<u32, u64> = HashMap::new();
    let mut out = |version: &mut Version| {
        version.is_out = true;
        match store.insert(version.extent, version.window) {
            Some(window) => copies += u64::from(window != version.window),
            None => {
                copies += 1;
                before += 1;
            }
        }
    };
    for (number, touch) in touches.iter().enumerate() {
        let window = touch.time_ns.checked_div(window_ns).unwrap_or(number as u64);
        for version in &mut versions {
            let is_dirty = !version.is_out && !version.is_gone;
            if version.extent == touch.extent && is_dirty {
                if version.window == window {
                    version.is_gone = true;
                } else {
                    out(version);
                }
            }
        }
        let extent = touch.extent;
        versions.push(Version { extent, window, is_out: false, is_gone: false });
        while versions.iter().filter(|one| !one.is_out && !one.is_gone).count() > pages {
            let oldest = versions.iter_mut().find(|one| !one.is_out && !one.is_gone);
            out(oldest.expect("some are dirty"));
        }
    }
    versions.iter_mut().filter(|one| !one.is_out && !one.is_gone).for_each(&mut out);
    let destaged = versions.iter().filter(|version| version.is_out).count() as u64;
    let is_last = |i: usize| {
        let version = &versions[i];
        !versions[i + 1..].iter().any(|l| (l.extent, l.window) == (version.extent, version.window))
    };
    let retained = (0..versions.len()).filter(|i| is_last(*i)).count() as u64;
    assert!(touches.iter().all(|touch| touch.time_ns < end_ns));
    [touches.len() as u64, retained, destaged, copies, before]
}

#[test]
fn counts_are_those_of_a_dull_simulation() {
    let mut state = 9_u64;
    let mut random = |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for (window_s, pages) in [(0, 0), (0, 5), (4, 0), (4, 6), (10, 3), (20, 12), (60, 100)] {
        let end_ns = 60 * SECOND_NS;
        let mut times: Vec<u64> = (0..300).map(|_| random(end_ns)).collect();
        times.sort_unstable();
        let touches = times.into_iter().map(|time_ns| {
            let extent = (random(5) * random(6)) as u32;
            Touch { time_ns, extent }
        });
        let touches: Vec<Touch> = touches.collect();
        let window_ns = window_s * SECOND_NS;
        let settings = SimulationSettings { window_ns, dirty_pages: pages, end_ns };
        let mut simulation = Simulation::new(settings);
        touches.iter().for_each(|touch| simulation.write(*touch));
        let found: Counted = simulation.finish();
        let expected = dull(&touches, window_ns, pages as usize, end_ns);
        let counted = [
            found.writes,
            found.retained,
            found.incurred,
            found.checkpointing.reads,
            found.copies_of_before,
        ];
        assert_eq!(counted, expected, "windows of {window_s} s, {pages} pages");
        assert_eq!(found.logging.total(), found.incurred);
        assert_eq!(found.split_downstream.total(), 2 * found.incurred);
        assert_eq!(found.checkpointing.writes, found.incurred + found.checkpointing.reads);
        assert!(
            found.hybrid.total() <= found.split_downstream.total().max(found.checkpointing.total())
        );
        let split = found.ios(Architecture::SplitStream, 0.5).total();
        assert!((split - found.ios(Architecture::Logging, 0.5).total() - 0.5).abs() < 1e-12);
    }
}

#[test]
fn a_cache_that_never_fills_evicts_nothing() {
    let mut plain = PlainSimulation::new(100);
    (0..1000).for_each(|number| plain.write(number % 50));
    assert_eq!(plain.evicted_share(), 0.0);
}

#[test]
fn extents_are_numbered_as_they_come_and_bounded() {
    let mut extents = Extents::new(4096).expect("a power of two");
    let mut seen = Vec::new();
    for (offset, length) in [(8192, 4096), (0, 12_288), (4095, 2)] {
        let request = write(5, offset, length);
        extents.touch(&request, |touch| seen.push(touch.extent)).expect("in range");
    }
    assert_eq!((seen.as_slice(), extents.len()), ([0, 1, 2, 0, 1, 2].as_slice(), 3));
    assert!(extents.touch(&write(0, 0, 1 << 40), |_| {}).is_err());
    assert!(Extents::new(5000).is_err());
}
