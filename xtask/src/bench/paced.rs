//! What a writer feels of encoding: its latency while history is encoded beside it.

use anyhow::{Context, Result, ensure};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::Pattern;
use super::report::Report;
use super::servers::Hindsight;

/// Pages of which two thirds compress, so that there is something to encode.
const HALF: &str = "--buffer_compress_percentage=66";
const WRITERS: [Pattern; 2] = [
    Pattern {
        name: "randwrite-4k-qd1",
        arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--refill_buffers", HALF],
    },
    Pattern {
        name: "randwrite-4k-qd1-2000-a-second",
        arguments: &[
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=1",
            "--refill_buffers",
            HALF,
            "--rate_iops=2000",
        ],
    },
];
const SIZE_BYTES: u64 = 64 << 20;
/// What is written before, so that there is a history to encode.
const BEFORE_BYTES: u64 = 256 << 20;

/// The writer's 99th percentile with and without encoding.
pub fn writers(options: &Options) -> Result<Report> {
    let goal = "the writer's p99 within 5 % of what it is without encoding";
    let mut report = Report::new("A writer beside encoding", goal, "p99 us")
        .less_is_better()
        .with_ratio("encoded", &["raw"], "encoded / raw");
    report.note(
        "A volume of 64 MiB that keeps every write; 256 MiB of them were written at random before, \
         then its history is encoded with an age of nothing, or not, while it is written on. \
         `packed` is how many versions were encoded during the measurement.",
    );
    for round in 0..options.rounds {
        let mut kinds = ["raw", "xor"];
        if round % 2 == 1 {
            kinds.reverse();
        }
        for pattern in &WRITERS {
            for kind in kinds {
                let hindsight = Hindsight::start(options)?;
                let size = SIZE_BYTES.to_string();
                hindsight.ask(&["volume", "create", "bench", "--size", &size])?;
                let uri = hindsight.server.uri("bench");
                let before = Amount::Bytes(BEFORE_BYTES);
                fio::run(&uri, &WRITERS[0], SIZE_BYTES, 1, before)?;
                if kind == "xor" {
                    let age = ["--encoding", "xor", "--encode-after", "0s"];
                    hindsight.ask(&[&["volume", "set", "bench"][..], &age].concat())?;
                }
                let amount = Amount::Seconds(3 * options.seconds);
                let outcome = fio::run(&uri, pattern, SIZE_BYTES, 1, amount)?;
                let shown = hindsight.ask(&["volume", "show", "bench"])?;
                let packed = shown["encoding"]["encoded"].as_u64().context("encoded")?;
                ensure!((packed > 0) == (kind == "xor"), "{kind}: {packed} versions packed");
                let server = if kind == "xor" { "encoded" } else { "raw" };
                report.add(pattern.name, server, round, outcome.p99_us, Some(outcome.p99_us));
                let rate = format!("{}: requests/s", pattern.name);
                report.add(&rate, server, round, outcome.iops, None);
                let done = format!("{}: versions packed", pattern.name);
                report.add(&done, server, round, packed as f64, None);
            }
        }
    }
    Ok(report)
}
