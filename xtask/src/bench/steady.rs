//! Writing for a minute and longer over a volume that is larger than what the kernel lets wait in
//! its page cache, with history that is given up and space that is used again meanwhile.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Options;
use super::fio::{self, Amount, Outcome};
use super::patterns::{ALONE, Pattern, RANDOM_WRITE, WRITE};
use super::report::Report;
use super::servers::{Hindsight, Peer};
use super::throughput::in_turns;
use crate::program;

/// What is kept of the history, at most: a pool of so many times the volume has less room.
const WINDOW: &str = "30s";
const POOL_TIMES: u64 = 4;
/// The limit of the page cache on this machine that matters.
const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

/// Who writes.
enum Candidate<'a> {
    /// A client of a server.
    Server(&'a str, String),
    /// The file system past the page cache, without a server.
    Direct,
}

/// Throughput over time and latencies of a steady stream of writes.
pub fn writes(options: &Options) -> Result<Report> {
    let goal = "sequential 64 KiB at least 1.0 of nbdkit file and 0.85 of direct I/O; no stall \
                longer than the others'";
    let mut report = Report::new("Writing for long", goal, "requests/s, or as the case says");
    for peer in ["nbdkit-file", "qemu-nbd-qcow2", "direct"] {
        let text = format!("hindsight / {peer}, round by round");
        report = report.with_ratio("hindsight", &[peer], &text);
    }
    report.note(format!(
        "Volumes and files are {} MiB, written once before; dirty pages may be {} MiB. Hindsight: \
         every write, a window of {WINDOW}, a pool of {POOL_TIMES} times the volume, all of which \
         was written to before, by a server that was started again since. `direct` is fio's \
         libaio engine with O_DIRECT on a file of the same file system. A slow second is \
         the slowest of the run but for its first and last.",
        options.size_bytes >> 20,
        dirty_limit()? >> 20,
    ));
    let file = options.directory.join("direct.img");
    let size = options.size_bytes.to_string();
    program::run(std::process::Command::new("fallocate").args(["-l", &size]).arg(&file))?;
    let whole = Pattern { name: "fill", arguments: &["--rw=write", "--bs=1m", "--iodepth=8"] };
    fio::run_directly(&file, &whole, options.size_bytes, Amount::Once)?;
    let others = [Peer::NbdkitFile.start(options)?, Peer::Qcow.start(options)?];
    for server in &others {
        fio::fill(&server.uri(""), options.size_bytes)?;
    }
    let pool_bytes = (options.size_bytes * POOL_TIMES).to_string();
    let more = ["--pool-size", &pool_bytes, "--iscsi", "none"];
    let mut hindsight = Hindsight::start_named(options, "steady", &more)?;
    hindsight.make_with("bench", options.size_bytes, &["--window", WINDOW])?;
    for _ in 0..POOL_TIMES {
        fio::fill(&hindsight.server.uri("bench"), options.size_bytes)?;
    }
    hindsight.server.kill()?;
    hindsight = Hindsight::open_again(options, "steady")?;
    "hindsight".clone_into(&mut hindsight.server.name);
    let mut candidates = vec![Candidate::Server("hindsight", hindsight.server.uri("bench"))];
    candidates.extend(others.iter().map(|one| Candidate::Server(&one.name, one.uri(""))));
    candidates.push(Candidate::Direct);
    for pattern in [&WRITE, &RANDOM_WRITE, &ALONE] {
        in_turns(options.rounds, &candidates, |round, candidate| {
            let (name, outcome, cpu_us) = match candidate {
                Candidate::Direct => ("direct", direct(options, &file, pattern)?, None),
                Candidate::Server(name, uri) => {
                    let mut all = others.iter().chain([&hindsight.server]);
                    let server = all.find(|one| one.name == *name).context("a server")?;
                    let before = server.cpu_us()?;
                    let amount = Amount::Seconds(options.seconds);
                    let outcome = fio::run(uri, pattern, options.size_bytes, 1, amount)?;
                    (*name, outcome, Some(server.cpu_us()? - before))
                }
            };
            add(&mut report, pattern, name, round, &outcome, cpu_us);
            Ok(())
        })?;
    }
    std::fs::remove_file(&file).context("the file that was written directly")?;
    Ok(report)
}

fn add(
    report: &mut Report,
    pattern: &Pattern,
    name: &str,
    round: usize,
    outcome: &Outcome,
    cpu_us: Option<u64>,
) {
    report.add(pattern.name, name, round, outcome.iops, Some(outcome.p99_us));
    let case = |what: &str| format!("{}: {what}", pattern.name);
    report.add(&case("slow second"), name, round, outcome.slow_second_iops, None);
    report.add(&case("p50 us"), name, round, outcome.p50_us, None);
    report.add(&case("p99.9 us"), name, round, outcome.p999_us, None);
    report.add(&case("longest us"), name, round, outcome.longest_us, None);
    if let Some(cpu_us) = cpu_us {
        let each = cpu_us as f64 / outcome.requests.max(1) as f64;
        report.add(&case("processor us/request"), name, round, each, None);
    }
}

fn direct(options: &Options, file: &Path, pattern: &Pattern) -> Result<Outcome> {
    let amount = Amount::Seconds(options.seconds);
    fio::run_directly(file, pattern, options.size_bytes, amount)
}

/// Bytes that may wait in the page cache before writers are slowed down.
fn dirty_limit() -> Result<u64> {
    let number = |path: &str| -> Result<u64> {
        let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
        text.trim().parse().with_context(|| path.to_owned())
    };
    match number(DIRTY_BYTES)? {
        0 => {
            let memory = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
            let line = memory.lines().find(|line| line.starts_with("MemAvailable:"));
            let kib: Option<u64> = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
            let kib = kib.context("MemAvailable")?;
            let ratio = number(DIRTY_RATIO)?;
            ensure!(ratio <= 100, "{DIRTY_RATIO}: {ratio}");
            Ok(kib * 1024 * ratio / 100)
        }
        bytes => Ok(bytes),
    }
}
