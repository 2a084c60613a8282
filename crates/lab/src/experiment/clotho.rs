//! Figures 13 and 14 of Clotho (Flouris and Bilas, MSST 2004): random reads of a version of which
//! more and more is compacted. Nobody knows the engine here: whoever does compacts and reads.

use super::asked::{Compacted, CompactionAsked};
use super::bench::Bench;
use super::drawing::{series, three};
use super::outcome::{Claim, Found, Table};
use crate::plot::{Chart, Look, Scale};
use model::Result;

/// Percent of the version's pages that are alike in the version before.
const SHARES: [u64; 5] = [0, 25, 50, 75, 100];
/// Pages of the volume: all of them are written for each version.
const PAGES: u64 = 8192;
/// The paper's number of reads.
const READS: u64 = 2000;
/// How much space a version may still take that is compacted as a whole.
const SPACE_MOST: f64 = 0.1;
/// Reads of the device that Clotho takes for one of a compacted version.
const PAPER_READS: f64 = 2.0;

/// One share.
#[derive(Clone, Copy)]
struct Point {
    share: u64,
    found: Compacted,
}

impl Point {
    /// Percent of the version's blocks that are compacted.
    fn compacted(&self) -> f64 {
        100.0 * self.found.packed as f64 / (self.found.packed + self.found.raw).max(1) as f64
    }

    /// The version's space after, as a share of before: all that was saved is its own.
    fn space(&self) -> f64 {
        1.0 - (self.found.raw_bytes as f64 - self.found.bytes as f64) / (PAGES * 4096) as f64
    }

    /// Device reads for one read, of those of a version that is not compacted.
    fn device_reads(&self) -> f64 {
        self.found.reads.device_reads / self.found.raw_reads.device_reads
    }

    /// Reads a second, of the same.
    fn speed(&self) -> f64 {
        self.found.raw_reads.seconds / self.found.reads.seconds
    }
}

pub(super) fn fig14(bench: &mut Bench) -> Result<Found> {
    let mut points = Vec::new();
    for share in SHARES {
        let seed = bench.seed();
        let asked = CompactionAsked { share_percent: share, pages: PAGES, reads: READS, seed };
        let Some(found) = bench.compacted(asked)? else { break };
        points.push(Point { share, found });
    }
    let setting = format!(
        "Versions of {PAGES} pages of 4 KiB on a pool in one file. Of version 1 a share of the \
         pages, in runs of 64, differs from version 0 in one byte of a hundred, the others are new \
         and random; it is compacted. {READS} random pages of it are read one after the other, in \
         five turns with version 2, which is not compacted; before each turn what is in memory of \
         the file is dropped. Seed {}. Space and reads are counted, times (the middle one) are of \
         this machine.",
        bench.seed()
    );
    Ok(Found { setting, chart: chart(&points), table: table(&points), claims: claims(&points) })
}

fn chart(points: &[Point]) -> Chart {
    let line = |name: &str, colour, y: &dyn Fn(&Point) -> f64| {
        let places = points.iter().map(|one| (one.compacted(), y(one))).collect();
        series(name, colour, Look::Measured, places)
    };
    let paper = vec![(0.0, 1.0), (100.0, 0.5)];
    Chart {
        title: "A compacted version: its space, and random reads of it".to_owned(),
        x_label: "blocks of the version that are compacted".to_owned(),
        y_label: "a version that is not compacted = 1".to_owned(),
        x_scale: Scale::Linear,
        x_ticks: SHARES.map(|share| (share as f64, format!("{share} %"))).to_vec(),
        series: vec![
            line("space", 0, &Point::space),
            line("reads a second", 1, &Point::speed),
            series("the same, Clotho", 1, Look::Squares, paper),
            line("device reads", 2, &Point::device_reads),
        ],
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "alike_percent",
        "blocks_packed",
        "blocks_raw",
        "history_bytes_before",
        "history_bytes_after",
        "space_of_raw",
        "device_reads_a_read_raw",
        "device_reads_a_read",
        "device_bytes_a_read_raw",
        "device_bytes_a_read",
        "microseconds_a_read_raw",
        "microseconds_a_read",
    ]);
    for one in points {
        let (raw, compacted) = (one.found.raw_reads, one.found.reads);
        table.row(vec![
            one.share.to_string(),
            one.found.packed.to_string(),
            one.found.raw.to_string(),
            one.found.raw_bytes.to_string(),
            one.found.bytes.to_string(),
            three(one.space()),
            three(raw.device_reads),
            three(compacted.device_reads),
            format!("{:.0}", raw.device_bytes),
            format!("{:.0}", compacted.device_bytes),
            format!("{:.1}", raw.seconds * 1e6),
            format!("{:.1}", compacted.seconds * 1e6),
        ]);
    }
    table
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let (Some(none), Some(all)) = (points.first(), points.last()) else {
        let found = "left out with the engine's counts".to_owned();
        let what = "space and reads of a compacted version";
        return vec![Claim::new(what, "", String::new(), found, true).not_judged()];
    };
    let listed =
        |value: &dyn Fn(&Point) -> String| points.iter().map(value).collect::<Vec<_>>().join(", ");
    let as_alike = points.iter().all(|one| (one.compacted() - one.share as f64).abs() <= 1.0);
    vec![
        Claim::new(
            "which blocks are compacted",
            "those whose difference is small; the rest stays as it is",
            format!("{} %", listed(&|one| one.share.to_string())),
            format!("{} %", listed(&|one| format!("{:.1}", one.compacted()))),
            as_alike,
        )
        .fails("a share of compacted blocks 1 % off that of pages that are alike"),
        Claim::new(
            "space of a version that is compacted as a whole, of what it was",
            "minimal",
            String::new(),
            format!("{}; with 0 % of it {}", three(all.space()), three(none.space())),
            all.space() < SPACE_MOST && none.space() == 1.0,
        )
        .fails("a tenth or more, or any space saved where nothing is alike"),
        Claim::new(
            "device reads for one read, of those of a raw version",
            "2 with all compacted: the version before and the differences",
            String::new(),
            listed(&|one| three(one.device_reads())),
            all.device_reads() <= PAPER_READS && none.device_reads() < 1.1,
        )
        .fails("more than twice as many with all compacted, or a tenth more with nothing")
        .with_note(
            "A pack has blocks of both versions together. It is read in one piece up to 24 KiB, in \
             two beyond.",
        ),
        Claim::new(
            "reads a second, of those of a raw version",
            "about 0.5 with all compacted",
            String::new(),
            listed(&|one| three(one.speed())),
            true,
        )
        .not_judged()
        .with_note("Times of this machine's device."),
    ]
}
