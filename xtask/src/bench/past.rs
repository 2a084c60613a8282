//! P7: reading a past moment against reading the present.

use anyhow::{Context, Result};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::{RANDOM_READ, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::in_turns;

/// P7.
pub fn reads(options: &Options) -> Result<Report> {
    let goal = "random reads of a past moment at least 0.8 of the same reads of the present";
    let mut report = Report::new("P7: reading the past", goal, "requests/s").with_ratio(
        "past",
        &["present"],
        "past / present, round by round",
    );
    report.note(
        "The volume is filled, overwritten at random by its own size, the moment noted, and \
         overwritten again by its own size; then both are read at random, 4 KiB, queue depth 32, \
         one connection each, from the page cache where it fits.",
    );
    let hindsight = Hindsight::start(options)?;
    hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    let overwrite = || {
        let amount = Amount::Bytes(options.size_bytes);
        fio::run(&hindsight.server.uri("bench"), &RANDOM_WRITE, options.size_bytes, 1, amount)
    };
    overwrite()?;
    let latest = hindsight.ask(&["resolve", "bench@latest"])?;
    let seq = latest["seq"].as_u64().context("resolve says no seq")?;
    overwrite()?;
    hindsight.settle()?;
    let past = format!("bench@seq:{seq}");
    let exports = [("past", past.as_str()), ("present", "bench")];
    in_turns(options.rounds, &exports, |round, (name, export)| {
        let uri = hindsight.server.uri(export);
        let amount = Amount::Seconds(options.seconds);
        let found = fio::run(&uri, &RANDOM_READ, options.size_bytes, 1, amount)?;
        report.add(RANDOM_READ.name, name, round, found.iops, Some(found.p99_us));
        Ok(())
    })?;
    Ok(report)
}
