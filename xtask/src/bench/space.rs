//! P9: bytes on disk for each retained 4 KiB write.

use anyhow::{Context, Result};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::RANDOM_WRITE;
use super::report::Report;
use super::servers::Hindsight;

/// P9.
pub fn per_write(options: &Options) -> Result<Report> {
    let goal = "at most 4096 + 2 % = 4178 bytes per write at queue depth 32, everything counted";
    let title = "P9: bytes on disk per retained 4 KiB write";
    let mut report = Report::new(title, goal, "bytes/write").less_is_better();
    report.note(
        "Each round writes the volume's size at random; the growth of the pool is divided by the \
         writes, after background work has settled. `used` counts whole zones as the pool does \
         (one zone more or less is 32 MiB), `allocated` the blocks that the file system gave the \
         pool file. The last row is over all rounds together, so that single zones weigh less.",
    );
    let hindsight = Hindsight::start(options)?;
    hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    let uri = hindsight.server.uri("bench");
    hindsight.settle()?;
    let sizes = || -> Result<(u64, u64)> {
        let status = hindsight.ask(&["pool", "status"])?;
        let used = status["used_bytes"].as_u64().context("pool status says no used_bytes")?;
        Ok((used, hindsight.allocated_bytes()?))
    };
    let first = sizes()?;
    let mut before = first;
    let mut writes = 0;
    for round in 0..options.rounds {
        let amount = Amount::Bytes(options.size_bytes);
        let found = fio::run(&uri, &RANDOM_WRITE, options.size_bytes, 1, amount)?;
        hindsight.settle()?;
        let after = sizes()?;
        let each = |now: u64, then: u64| (now as f64 - then as f64) / found.requests as f64;
        report.add("used", "hindsight", round, each(after.0, before.0), None);
        report.add("allocated", "hindsight", round, each(after.1, before.1), None);
        writes += found.requests;
        before = after;
    }
    let all = |now: u64, then: u64| (now as f64 - then as f64) / writes.max(1) as f64;
    report.add("used, all rounds", "hindsight", 0, all(before.0, first.0), None);
    report.add("allocated, all rounds", "hindsight", 0, all(before.1, first.1), None);
    Ok(report)
}
