//! P13: iSCSI beside tgt, and beside NBD over TCP of the same server.

use std::process::Command;

use anyhow::{Context, Result};
use tests::tgt::{Tgt, free_port};

use super::Options;
use super::fio;
use super::patterns::{ALONE, RANDOM_READ, RANDOM_WRITE, READ, WRITE};
use super::report::Report;
use super::servers::{Hindsight, cpu_us};
use super::throughput::{in_turns, measure};
use crate::program;

/// Throughput and processor time of requests.
pub fn against_tgt(options: &Options) -> Result<Report> {
    let goal = "1.5 of tgt (2.0 for 4 KiB writes at depth 32, 1.1 for reads of 64 KiB), each with \
                at most 0.6 of its processor time; 0.9 of our NBD over TCP with at most 1.2 of its";
    let mut report = Report::new("P13: iSCSI", goal, "requests/s, or us/request")
        .with_ratio("iscsi", &["tgt"], "iscsi / tgt, round by round")
        .with_ratio("iscsi", &["nbd"], "iscsi / NBD over TCP, round by round");
    report.note(
        "TCP on loopback, one connection; fio's libiscsi engine for both targets, its NBD engine \
         for NBD. tgt: its default store (rdwr) on a file of the same disk. Hindsight: one server, \
         architecture logging, every write, a fresh volume for each pattern. All were written once \
         before.",
    );
    let (portal, port) = (format!("127.0.0.1:{}", free_port()?), free_port()?);
    let nbd = format!("127.0.0.1:{port}");
    let more = ["--iscsi", &portal, "--nbd", &nbd];
    let hindsight = Hindsight::start_named(options, "p13", &more)?;
    let disk = options.directory.join("tgt.img");
    let size = options.size_bytes.to_string();
    program::run(Command::new("fallocate").args(["-l", &size]).arg(&disk))?;
    let other = Tgt::start(&disk)?;
    fio::fill(other.uri(), options.size_bytes)
        .context("Debian's fio has no libiscsi engine\nhint: FIO=/path/to/one that has")?;
    for pattern in [&RANDOM_WRITE, &RANDOM_READ, &WRITE, &READ, &ALONE] {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        let shown = hindsight.ask(&["volume", "show", "bench"])?;
        let uri = shown["iscsi_uri"].as_str().context("iscsi_uri")?.to_owned();
        let own = hindsight.server.id();
        let candidates = [
            ("iscsi", uri, own),
            ("nbd", format!("nbd://{nbd}/bench"), own),
            ("tgt", other.uri().to_owned(), other.process()),
        ];
        in_turns(options.rounds, &candidates, |round, (name, uri, process)| {
            let before = cpu_us(*process)?;
            let found = measure(options, uri, pattern)?;
            let used = cpu_us(*process)? - before;
            report.add(pattern.name, name, round, found.iops, Some(found.p99_us));
            let each = used as f64 / found.requests.max(1) as f64;
            let case = format!("{}: processor us/request", pattern.name);
            report.add(&case, name, round, each, None);
            Ok(())
        })?;
        hindsight.delete_volume("bench")?;
    }
    drop(other);
    std::fs::remove_file(&disk).context("tgt's file")?;
    Ok(report)
}
