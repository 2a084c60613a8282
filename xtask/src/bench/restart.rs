//! P8: how soon a server that was killed serves again.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

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

fn read_one_block(uri: &str) -> Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-r", "-f", "raw", "-c", "read 0 4k", uri]);
    program::output(&mut command).map(|_| ())
}
