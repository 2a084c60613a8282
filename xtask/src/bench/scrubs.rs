//! What a scrub reads in a second when nobody else wants the devices, against reading the file from
//! its beginning to its end; and what clients have of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Options;
use super::patterns::{RANDOM_READ, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};

/// Bytes read at a time from the file.
const PART_BYTES: usize = 1 << 20;

/// A scrub of a pool that nobody uses, and one beside clients.
pub fn alone_and_beside(options: &Options) -> Result<Report> {
    let goal = "alone at least 0.70 of the device; beside clients they keep at least 0.95";
    let mut report = Report::new("Scrubs", goal, "MB/s; beside clients requests/s")
        .with_ratio("scrub", &["file"], "a scrub / reading the member's file, round by round")
        .with_ratio("beside", &["quiet"], "clients beside a scrub / without, round by round");
    report.note(
        "A pool on one member, filled once. Alone: nothing of the member is in the page cache \
         before either. Beside: a scrub is begun anew whenever it has ended before.",
    );
    let hindsight = Hindsight::start_on(options, "scrubbed", "a.img")?;
    hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    hindsight.settle()?;
    in_turns(options.rounds, &["file", "scrub"], |round, what| {
        forget_pages()?;
        let rate = if *what == "file" { read_file(&hindsight)? } else { scrub(&hindsight)? };
        report.add("alone", what, round, rate, None);
        Ok(())
    })?;
    for pattern in [&RANDOM_READ, &RANDOM_WRITE] {
        in_turns(options.rounds, &["quiet", "beside"], |round, what| {
            if *what == "beside" && !is_running(&hindsight)? {
                hindsight.tell(&["pool", "scrub"])?;
            }
            let found = measure(options, &hindsight.server.uri("bench"), pattern)?;
            if *what == "beside" && is_running(&hindsight)? {
                hindsight.tell(&["pool", "scrub", "--stop"])?;
            }
            report.add(pattern.name, what, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
    }
    Ok(report)
}

/// Has the kernel forget what it has of files; needs root.
fn forget_pages() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("only root can empty the page cache")
}

/// Reads as much of the member's file as the pool uses, which fills zones from the lowest on; MB a
/// second.
fn read_file(hindsight: &Hindsight) -> Result<f64> {
    let used = hindsight.ask(&["pool", "status"])?["used_bytes"].as_u64().context("used bytes")?;
    let file = File::open(hindsight.file("a.img"))?;
    let mut part = vec![0; PART_BYTES];
    let began = Instant::now();
    let mut read = 0;
    while read < used {
        let count = file.read_at(&mut part, read)?;
        ensure!(count > 0, "the file ends at {read}");
        read += count as u64;
    }
    Ok(read as f64 / 1e6 / began.elapsed().as_secs_f64())
}

fn scrub(hindsight: &Hindsight) -> Result<f64> {
    let began = Instant::now();
    let found = hindsight.ask(&["pool", "scrub", "--wait"])?;
    let read = found["read_bytes"].as_f64().context("what a scrub has read")?;
    Ok(read / 1e6 / began.elapsed().as_secs_f64())
}

fn is_running(hindsight: &Hindsight) -> Result<bool> {
    let status = hindsight.ask(&["pool", "status"])?;
    Ok(status["scrub"]["state"] == "running")
}
