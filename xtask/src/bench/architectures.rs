//! What each architecture gives to clients: requests per second beside a plain file.

use anyhow::Result;

use super::Options;
use super::fio;
use super::patterns::{Pattern, RANDOM_READ, RANDOM_WRITE, READ, WRITE};
use super::report::Report;
use super::servers::{Hindsight, Peer, Server};
use super::throughput::{in_turns, measure};

/// What is measured, in the order of the tables, and how such a volume is made.
const ARCHITECTURES: [(&str, &[&str]); 6] = [
    ("logging", &["--architecture", "logging"]),
    ("logging-cached", &["--architecture", "logging", "--cache", "64MiB"]),
    ("split-stream", &["--architecture", "split-stream"]),
    ("split-downstream", &["--architecture", "split-downstream", "--cache", "64MiB"]),
    ("redirect", &["--architecture", "redirect"]),
    ("checkpointing", &["--architecture", "checkpointing"]),
];
const FILE: &str = "nbdkit-file";

/// Every architecture and a file, each pattern in the state that the one before left: the reads at
/// the end meet what random writes have scattered.
pub fn against_file(options: &Options) -> Result<Report> {
    let goal = "reads of a present that lies in place at least 0.9 of nbdkit on a raw file";
    let mut report = Report::new("Architectures", goal, "requests/s");
    for (name, _) in ARCHITECTURES {
        let text = format!("{name} / {FILE}, round by round");
        report = report.with_ratio(name, &[FILE], &text);
    }
    report.note(
        "One server, a volume of each architecture at every-write, filled once; a cache only where \
         the name says so, and for split-downstream (64 MiB each, 3 % dirty); one connection. \
         Patterns in this order, on the same volumes.",
    );
    let hindsight = Hindsight::start(options)?;
    let file = Peer::NbdkitFile.start(options)?;
    fio::fill(&file.uri(""), options.size_bytes)?;
    let mut candidates: Vec<(&Server, &str, &str)> = vec![(&file, "", FILE)];
    for (name, made_with) in ARCHITECTURES {
        hindsight.make_with(name, options.size_bytes, made_with)?;
        candidates.push((&hindsight.server, name, name));
    }
    let named = |name, pattern: Pattern| Pattern { name, ..pattern };
    for pattern in [
        named("read-64k-qd16 as filled", READ),
        named("randread-4k-qd32 as filled", RANDOM_READ),
        WRITE,
        RANDOM_WRITE,
        named("read-64k-qd16 after random writes", READ),
        named("randread-4k-qd32 after random writes", RANDOM_READ),
    ] {
        in_turns(options.rounds, &candidates, |round, (server, export, name)| {
            let found = measure(options, &server.uri(export), &pattern)?;
            report.add(pattern.name, name, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
    }
    Ok(report)
}
