//! P1, P2, P3, P4, P11 and P16: requests per second and processor time, side by side.

use std::process::Command;

use anyhow::{Context, Result};

use super::Options;
use super::fio::{self, Amount};
use super::patterns::{ALL, Pattern, RANDOM_READ, RANDOM_WRITE, WRITES};
use super::report::Report;
use super::servers::{Hindsight, Peer, Server};
use crate::program;

/// Runs one measurement of each candidate per round, the order turned around every other round.
/// What one leaves in the page cache is on the disk before the next begins: else a candidate that
/// writes over the same bytes would pay for one that keeps them all.
pub fn in_turns<T>(
    rounds: usize,
    candidates: &[T],
    mut measure: impl FnMut(usize, &T) -> Result<()>,
) -> Result<()> {
    for round in 0..rounds {
        for index in 0..candidates.len() {
            let turned = if round % 2 == 0 { index } else { candidates.len() - 1 - index };
            program::run(&mut Command::new("sync"))?;
            measure(round, &candidates[turned])?;
        }
    }
    Ok(())
}

/// P1: against servers of a raw file.
pub fn against_raw(options: &Options) -> Result<Report> {
    let goal = "at least 1.0 of the better of nbdkit and qemu-nbd on a raw file, every write kept";
    against(options, "P1: history for free", goal, &[Peer::NbdkitFile, Peer::QemuRaw])
}

/// P2: against qcow2 with a snapshot.
pub fn against_snapshot(options: &Options) -> Result<Report> {
    let goal = "at least 1.5 of qemu-nbd on qcow2 with one backing snapshot";
    against(options, "P2: against a classic snapshot", goal, &[Peer::QcowSnapshot])
}

fn against(options: &Options, title: &str, goal: &str, peers: &[Peer]) -> Result<Report> {
    let names: Vec<&str> = peers.iter().map(|peer| peer.name()).collect();
    let mut report = Report::new(title, goal, "requests/s").with_ratio(
        "hindsight",
        &names,
        "hindsight / the best other server, round by round",
    );
    report.note(
        "NBD over a unix socket, fio's nbd engine, one connection. Hindsight: architecture \
         logging, granularity every-write, a fresh volume for each pattern, filled once before. \
         The others: one file, filled once. All through the page cache.",
    );
    let hindsight = Hindsight::start(options)?;
    let mut others = Vec::new();
    for peer in peers {
        let server = peer.start(options)?;
        fio::fill(&server.uri(""), options.size_bytes)?;
        others.push(server);
    }
    for pattern in &ALL {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        let mut candidates: Vec<(&Server, &str)> = vec![(&hindsight.server, "bench")];
        candidates.extend(others.iter().map(|server| (server, "")));
        in_turns(options.rounds, &candidates, |round, (server, export)| {
            let found = measure(options, &server.uri(export), pattern)?;
            report.add(pattern.name, &server.name, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
        hindsight.delete_volume("bench")?;
    }
    Ok(report)
}

/// One measurement of one export.
pub fn measure(options: &Options, uri: &str, pattern: &Pattern) -> Result<fio::Outcome> {
    fio::run(uri, pattern, options.size_bytes, 1, Amount::Seconds(options.seconds))
}

/// P3: every write kept against nothing kept, in one server.
pub fn cost_of_protection(options: &Options) -> Result<Report> {
    let goal = "keeping every write costs at most 5 % (ratio at least 0.95)";
    let mut report = Report::new("P3: the cost of protection", goal, "requests/s").with_ratio(
        "every-write",
        &["on-demand"],
        "every-write / on-demand, round by round",
    );
    report.note("One server, two volumes; the one on demand has no version.");
    let hindsight = Hindsight::start(options)?;
    for pattern in &WRITES {
        for granularity in ["every-write", "on-demand"] {
            hindsight.make_volume(granularity, options.size_bytes, granularity)?;
        }
        in_turns(options.rounds, &["every-write", "on-demand"], |round, volume| {
            let found = measure(options, &hindsight.server.uri(volume), pattern)?;
            report.add(pattern.name, volume, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
        for granularity in ["every-write", "on-demand"] {
            hindsight.delete_volume(granularity)?;
        }
    }
    Ok(report)
}

/// P4: processor time per request, against a server that stores nothing.
pub fn cpu_per_request(options: &Options) -> Result<Report> {
    let goal = "at most 1.5 of nbdkit null";
    let mut report = Report::new("P4: processor time per 4 KiB request", goal, "us/request")
        .less_is_better()
        .with_ratio("hindsight", &["nbdkit-null"], "hindsight / nbdkit null, round by round");
    report.note(
        "User and system time of the server process from /proc/PID/stat around a run of fio, \
         divided by its requests. Background work that falls into the run is counted; what comes \
         later is not.",
    );
    let hindsight = Hindsight::start(options)?;
    let null = Peer::Null.start(options)?;
    for pattern in [&RANDOM_WRITE, &RANDOM_READ] {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        let candidates = [(&hindsight.server, "bench"), (&null, "")];
        in_turns(options.rounds, &candidates, |round, (server, export)| {
            let before = server.cpu_us()?;
            let found = measure(options, &server.uri(export), pattern)?;
            let used = server.cpu_us()? - before;
            let each = used as f64 / found.requests.max(1) as f64;
            report.add(pattern.name, &server.name, round, each, Some(found.p99_us));
            Ok(())
        })?;
        hindsight.delete_volume("bench")?;
    }
    Ok(report)
}

/// P11: a version every second against none, of one volume.
pub fn cost_of_versions(options: &Options) -> Result<Report> {
    let goal = "a version captured every second costs at most 2 % (ratio at least 0.98)";
    let mut report = Report::new("P11: versions under load", goal, "requests/s").with_ratio(
        "version every second",
        &["no versions"],
        "a version every second / none, round by round",
    );
    report.note(
        "One server, one volume that keeps every write; a schedule of one second is set for one \
         measurement and removed for the next. Each capture flushes the device. The versions stay.",
    );
    let hindsight = Hindsight::start(options)?;
    let mut captured = 0;
    for pattern in &WRITES {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        in_turns(options.rounds, &[true, false], |round, &captures| {
            let name = if captures { "version every second" } else { "no versions" };
            if captures {
                hindsight.ask(&["version", "schedule", "set", "bench", "--every", "1s"])?;
            }
            let found = measure(options, &hindsight.server.uri("bench"), pattern)?;
            if captures {
                hindsight.tell(&["version", "schedule", "remove", "bench"])?;
            }
            report.add(pattern.name, name, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
        let shown = hindsight.ask(&["volume", "show", "bench"])?;
        captured += shown["versions"].as_u64().context("no count of versions")?;
        hindsight.delete_volume("bench")?;
    }
    report.note(format!("{captured} versions were captured."));
    Ok(report)
}

/// P16: one connection and two.
pub fn scaling(options: &Options) -> Result<Report> {
    let goal = "two connections at least 1.7 of one, where the client is not the limit";
    let mut report = Report::new("P16: scaling with connections", goal, "requests/s").with_ratio(
        "2 connections",
        &["1 connection"],
        "two connections / one, round by round",
    );
    report.note(
        "Each connection is a process of fio. The rows of nbdkit null show what the clients alone \
         leave room for on this machine.",
    );
    let hindsight = Hindsight::start(options)?;
    let null = Peer::Null.start(options)?;
    for pattern in [&RANDOM_WRITE, &RANDOM_READ] {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        for (server, export) in [(&hindsight.server, "bench"), (&null, "")] {
            let case = format!("{} {}", server.name, pattern.name);
            in_turns(options.rounds, &[1, 2], |round, &jobs| {
                let amount = Amount::Seconds(options.seconds);
                let uri = server.uri(export);
                let found = fio::run(&uri, pattern, options.size_bytes, jobs, amount)?;
                let name = if jobs == 1 { "1 connection" } else { "2 connections" };
                report.add(&case, name, round, found.iops, Some(found.p99_us));
                Ok(())
            })?;
        }
        hindsight.delete_volume("bench")?;
    }
    Ok(report)
}
