//! P8: how soon a server that was killed serves again; and what of that a mirror takes to settle.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::RANDOM_WRITE;
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

/// Volumes that are written to when the server is killed: each has regions of its own in flight.
const WRITTEN: [usize; 3] = [1, 4, 16];

/// How long a mirror's opening takes by how much was in flight.
pub fn settling(options: &Options) -> Result<Report> {
    let goal = "none; what was in flight is read on both sides before the pool serves";
    let mut report =
        Report::new("Settling after kill -9", goal, "seconds; regions in MiB").less_is_better();
    report.note(format!(
        "A mirror of two files. Random 4 KiB writes at queue depth 32 to 1, 4 and 16 volumes at \
         once for {} s, kill -9 while they go on, start. `in flight` is what was marked as open.",
        options.seconds
    ));
    let most = WRITTEN.into_iter().max().expect("not empty");
    let size_bytes = (options.size_bytes / most as u64).max(16 << 20);
    let mut hindsight = Hindsight::start_on(options, "settled", "mirror(a.img, b.img)")?;
    let names: Vec<String> = (0..most).map(|number| format!("bench{number}")).collect();
    let size = size_bytes.to_string();
    for name in &names {
        hindsight.ask(&[
            "volume",
            "create",
            name,
            "--size",
            &size,
            "--granularity",
            "on-demand",
        ])?;
    }
    for round in 0..options.rounds {
        for count in WRITTEN {
            kill_under_writes(options, &mut hindsight, &names[..count], size_bytes)?;
            let began = Instant::now();
            hindsight = Hindsight::open_again(options, "settled")?;
            let ready = began.elapsed().as_secs_f64();
            let case = format!("{count} volumes");
            report.add(&case, "ready", round, ready, None);
            let seconds = "hindsight_pool_opening_seconds{phase=\"copies\"} ";
            report.add(&case, "settling", round, figure(&hindsight, seconds)?, None);
            let bytes = figure(&hindsight, "hindsight_pool_opening_unsettled_bytes ")?;
            report.add(&case, "in flight", round, bytes / f64::from(1 << 20), None);
        }
    }
    Ok(report)
}

fn kill_under_writes(
    options: &Options,
    hindsight: &mut Hindsight,
    names: &[String],
    size_bytes: u64,
) -> Result<()> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = names
            .iter()
            .map(|name| {
                let uri = hindsight.server.uri(name);
                let amount = Amount::Seconds(options.seconds + 5);
                // It fails when the server is killed under it, as it should.
                scope.spawn(move || drop(fio::run(&uri, &RANDOM_WRITE, size_bytes, 1, amount)))
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_secs(u64::from(options.seconds)));
        hindsight.server.kill()?;
        for writer in writers {
            let _ = writer.join();
        }
        Ok(())
    })
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
