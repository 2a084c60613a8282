//! P8: how soon a server that was killed serves again; and what of that a mirror takes to settle.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::{Pattern, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;
use crate::program;

/// P8.
pub fn after_kill(options: &Options) -> Result<Report> {
    let goal = "serving within 2 s after kill -9, with 50 GiB of history";
    let mut report =
        Report::new("P8: restart after kill -9", goal, "seconds until a read").less_is_better();
    let gib = options.history_bytes as f64 / f64::from(1 << 30);
    report.note(format!(
        "{gib:.0} GiB of random 4 KiB writes at queue depth 32 on one volume, every one kept; \
         then, each round, more writes for {} s, kill -9 while they go on, start, and one block \
         read over NBD. The page cache stays as the kill left it.",
        options.seconds
    ));
    let mut hindsight = Hindsight::start(options)?;
    hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    let uri = hindsight.server.uri("bench");
    let amount = Amount::Bytes(options.history_bytes);
    fio::run(&uri, &RANDOM_WRITE, options.size_bytes, 1, amount)?;
    for round in 0..options.rounds {
        std::thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| {
                let amount = Amount::Seconds(options.seconds + 5);
                // It fails when the server is killed under it, as it should.
                let _ = fio::run(&uri, &RANDOM_WRITE, options.size_bytes, 1, amount);
            });
            std::thread::sleep(std::time::Duration::from_secs(u64::from(options.seconds)));
            hindsight.server.kill()?;
            let _ = writer.join();
            Ok(())
        })?;
        let began = Instant::now();
        hindsight = Hindsight::open(options)?;
        let ready = began.elapsed().as_secs_f64();
        read_one_block(&uri)?;
        report.add("ready", "hindsight", round, ready, None);
        report.add("first read", "hindsight", round, began.elapsed().as_secs_f64(), None);
    }
    Ok(report)
}

/// What was going on when a server was killed.
struct Case {
    name: &'static str,
    stack: &'static str,
    /// Volumes that are written to at the same time.
    volumes: u32,
    amount: Amount,
}

const MIRROR: &str = "mirror(a.img, b.img)";
const PARITY: &str = "parity(a.img, b.img, c.img)";
/// Less than the time after which a map is written out.
const GIB: Amount = Amount::Bytes(1 << 30);
/// As long as marks of regions stay where little is written.
const LONG: Amount = Amount::Seconds(9);

const CASES: [Case; 7] = [
    Case { name: "file, 1 GiB", stack: "a.img", volumes: 1, amount: GIB },
    Case { name: "mirror, 1 GiB", stack: MIRROR, volumes: 1, amount: GIB },
    Case { name: "parity, 1 GiB", stack: PARITY, volumes: 1, amount: GIB },
    Case { name: "file, 9 s", stack: "a.img", volumes: 1, amount: LONG },
    Case { name: "mirror, 9 s", stack: MIRROR, volumes: 1, amount: LONG },
    Case { name: "parity, 9 s", stack: PARITY, volumes: 1, amount: LONG },
    Case { name: "file, 8 volumes, 9 s", stack: "a.img", volumes: 8, amount: LONG },
];

const FAST_WRITE_BYTES: f64 = 16384.0;
const FAST_WRITE: Pattern = Pattern {
    name: "randwrite-16k-qd32",
    arguments: &["--rw=randwrite", "--bs=16k", "--iodepth=32"],
};

/// How long an opening takes when as much as may be waits in the log.
pub fn tail(options: &Options) -> Result<Report> {
    let goal = "serving within 2 s after kill -9, whatever the stack";
    let mut report =
        Report::new("Opening after kill -9, by what was written", goal, "seconds; entries; MB/s")
            .less_is_better();
    report.note(
        "Random 16 KiB writes at queue depth 32, none flushed, kill -9 as soon as they end, and \
         start. `entries` is what waited for the map then, `written` how fast the writes were.",
    );
    let builds = [Some(&options.hindsight), options.against.as_ref()];
    for round in 0..options.rounds {
        for case in &CASES {
            for (build, path) in ["this", "against"].into_iter().zip(builds) {
                let Some(hindsight) = path.cloned() else { continue };
                let options = Options { hindsight, ..options.clone() };
                let (ready, entries, written) = opening_after(&options, case)?;
                report.add(case.name, build, round, ready, None);
                report.add(&format!("{} entries", case.name), build, round, entries, None);
                report.add(&format!("{} written", case.name), build, round, written, None);
            }
        }
    }
    Ok(report)
}

/// The seconds until a server is ready again; the entries that waited; megabytes a second.
fn opening_after(options: &Options, case: &Case) -> Result<(f64, f64, f64)> {
    let mut server = Hindsight::start_on(options, "tail", case.stack)?;
    let size_bytes = options.size_bytes / u64::from(case.volumes);
    let size = size_bytes.to_string();
    let names: Vec<String> = (0..case.volumes).map(|number| format!("bench{number}")).collect();
    for name in &names {
        server.ask(&["volume", "create", name, "--size", &size])?;
    }
    let uris: Vec<String> = names.iter().map(|name| server.server.uri(name)).collect();
    let written = std::thread::scope(|scope| -> Result<f64> {
        let write = |uri| move || fio::run(uri, &FAST_WRITE, size_bytes, 1, case.amount);
        let writers: Vec<_> = uris.iter().map(|uri| scope.spawn(write(uri))).collect();
        let mut sum = 0.0;
        for writer in writers {
            sum += writer.join().expect("fio ends")?.iops * FAST_WRITE_BYTES / 1e6;
        }
        Ok(sum)
    })?;
    let pool = server.http().get("/api/v1/pool")?;
    let entries = pool["pending_entries"].as_f64().context("pending_entries")?;
    server.server.kill()?;
    let began = Instant::now();
    drop(Hindsight::open_again(options, "tail")?);
    Ok((began.elapsed().as_secs_f64(), entries, written))
}

/// What is written before the kill, as parts of the volume: 1 in so many.
const WRITTEN: [u64; 3] = [16, 4, 1];

/// After so long nothing is marked any more of what an earlier case wrote.
const MARKS_SECONDS: u64 = 15;

/// How long a mirror's opening takes by how much was in flight.
pub fn settling(options: &Options) -> Result<Report> {
    let goal = "none; what was in flight is read on both sides before the pool serves";
    let mut report =
        Report::new("Settling after kill -9", goal, "seconds; regions in MiB").less_is_better();
    report.note(
        "A mirror of two files. So much is written at random, 4 KiB at a time, kill -9 at once, \
         before marks on regions are taken back, and start. `in flight` is what was marked.",
    );
    let mut hindsight = Hindsight::start_on(options, "settled", "mirror(a.img, b.img)")?;
    let size = options.size_bytes.to_string();
    let volume = ["volume", "create", "bench", "--size", &size, "--granularity", "on-demand"];
    hindsight.ask(&volume)?;
    for round in 0..options.rounds {
        for part in WRITTEN {
            std::thread::sleep(std::time::Duration::from_secs(MARKS_SECONDS));
            let bytes = options.size_bytes / part;
            let uri = hindsight.server.uri("bench");
            fio::run(&uri, &RANDOM_WRITE, options.size_bytes, 1, Amount::Bytes(bytes))?;
            hindsight.server.kill()?;
            let began = Instant::now();
            hindsight = Hindsight::open_again(options, "settled")?;
            let ready = began.elapsed().as_secs_f64();
            let case = format!("{} MiB written", bytes >> 20);
            report.add(&case, "ready", round, ready, None);
            let seconds = "hindsight_pool_opening_seconds{phase=\"copies\"} ";
            report.add(&case, "settling", round, figure(&hindsight, seconds)?, None);
            let bytes = figure(&hindsight, "hindsight_pool_opening_unsettled_bytes ")?;
            report.add(&case, "in flight", round, bytes / f64::from(1 << 20), None);
        }
    }
    Ok(report)
}

/// A figure of the server's metrics.
fn figure(hindsight: &Hindsight, name: &str) -> Result<f64> {
    let answer = hindsight.http().call("GET", "/metrics", None)?;
    let text = String::from_utf8(answer.body).context("the metrics")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.context("it is not in the metrics")?.parse().context("a figure")
}

fn read_one_block(uri: &str) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-r", "-f", "raw", "-c", "read 0 4k", uri]);
    program::output(&mut command).map(|_| ())
}
