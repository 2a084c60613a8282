//! What a scrub reads in a second when nobody else wants the devices, against reading the file from
//! its beginning to its end; and what clients have of it.

use anyhow::{Context, Result};

use super::Options;
use super::alone::{forget_pages, read_file, seconds_between};
use super::patterns::{RANDOM_READ, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};

/// A scrub of a pool that nobody uses, and one beside clients.
pub fn alone_and_beside(options: &Options) -> Result<Report> {
    let goal = "alone at least 0.70 of the device; beside clients they keep at least 0.95";
    let mut report = Report::new("Scrubs", goal, "MB/s; beside clients requests/s")
        .with_ratio("scrub", &["file"], "a scrub / reading the member's file, round by round")
        .with_ratio("beside", &["quiet"], "clients beside a scrub / without, round by round");
    report.note(
        "A pool on one member, filled once. Alone: nothing of the member is in the page cache \
         before either; a scrub's time is that of its report, from its beginning to its end. \
         Beside: a scrub is begun anew whenever it has ended before.",
    );
    let hindsight = Hindsight::start_on(options, "scrubbed", "a.img")?;
    hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    hindsight.settle()?;
    in_turns(options.rounds, &["file", "scrub"], |round, what| {
        forget_pages()?;
        let rate = match *what {
            "file" => read_file(&hindsight.file("a.img"), hindsight.used_bytes()?)?,
            _ => scrub(&hindsight)?,
        };
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

/// MB a second of one, by the times in its report.
fn scrub(hindsight: &Hindsight) -> Result<f64> {
    let found = hindsight.ask(&["pool", "scrub", "--wait"])?;
    let read = found["read_bytes"].as_f64().context("what a scrub has read")?;
    Ok(read / 1e6 / seconds_between(&found["started"], &found["ended"])?)
}

fn is_running(hindsight: &Hindsight) -> Result<bool> {
    let status = hindsight.ask(&["pool", "status"])?;
    Ok(status["scrub"]["state"] == "running")
}
