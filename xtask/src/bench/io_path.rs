//! The I/O path: what requests allocate, and what it gives to keep memory from request to request.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Options;
use super::patterns::{IO_PATH, Pattern, STAGES};
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};
use crate::{program, tree};

/// Allocations of the threads that serve NBD, by kind of request, from a server that counts them.
pub fn allocations(options: &Options) -> Result<Report> {
    let goal = "none for a request on the hot path: up to 256 KiB, whole blocks, in the page cache";
    let mut report =
        Report::new("Allocations per request", goal, "allocations/request").less_is_better();
    report.note(
        "One connection over a unix socket; a volume of 64 MiB, filled, every write kept. What the \
         background thread allocates is not counted. Flushes, parts of blocks and requests of more \
         than 256 KiB are handed to threads that may block: one allocation each is the hand-over.",
    );
    program::cargo(&["build", "--release", "-p", "hindsight-server", "--example", "allocations"])?;
    let counter = program::target_directory().join("release/examples/allocations");
    let mut command = Command::new(&counter);
    command.current_dir(tree::top()).arg(options.rounds.to_string());
    for line in program::output(&mut command)?.lines() {
        let found: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let case = found["case"].as_str().context("a line without a case")?;
        let round = usize::try_from(found["round"].as_u64().unwrap_or(0))?;
        for (name, what) in [("calls", "calls"), ("bytes", "bytes")] {
            let value = found[what].as_f64().context("a line without a value")?;
            report.add(case, name, round, value, None);
        }
    }
    Ok(report)
}

/// The pool of buffers against none, and against another build where `--against` names one.
pub fn buffers(options: &Options) -> Result<Report> {
    let goal = "not below 1.0 of the same server without a pool, nor of the build before";
    let mut report = Report::new("Buffers kept", goal, "requests/s");
    let mut servers = vec![
        Hindsight::start_named(options, "pool", &[])?,
        Hindsight::start_named(options, "no-pool", &["--no-buffer-pool"])?,
    ];
    report = report.with_ratio("pool", &["no-pool"], "pool / no pool, round by round");
    if let Some(other) = &options.against {
        let other = Options { hindsight: other.clone(), ..options.clone() };
        servers.push(Hindsight::start_named(&other, "against", &[])?);
        report = report.with_ratio("pool", &["against"], "this / the other build, round by round");
    }
    report.note("Each server on a pool file of its own on one disk, a fresh volume each.");
    for pattern in &IO_PATH {
        compare(options, &servers, pattern, &mut report)?;
    }
    Ok(report)
}

fn compare(
    options: &Options,
    servers: &[Hindsight],
    pattern: &Pattern,
    report: &mut Report,
) -> Result<()> {
    for hindsight in servers {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
    }
    in_turns(options.rounds, servers, |round, hindsight| {
        let found = measure(options, &hindsight.server.uri("bench"), pattern)?;
        let name = hindsight.server.name.as_str();
        report.add(pattern.name, name, round, found.iops, Some(found.p99_us));
        Ok(())
    })?;
    for hindsight in servers {
        hindsight.delete_volume("bench")?;
    }
    Ok(())
}

/// How far the stages of different requests overlap: time in each of them, against the time that
/// passed.
pub fn stages(options: &Options) -> Result<Report> {
    let goal = "with many requests in flight more than one stage at a time is at work";
    let mut report = Report::new("Stages of requests", goal, "seconds/second");
    report.note(
        "One connection, so one data thread, which receives, carries out (checksums and the write \
         to the page cache among it) and sends; jobs are flushes, and reads and writes beyond 256 \
         KiB, on threads of their own. `all` beyond 1 is what overlaps within the server; the \
         client is beside it. From `hindsight_nbd_stage_seconds_total`, of which the data thread's \
         are a sample of one wake-up in 16.",
    );
    let hindsight = Hindsight::start_named(options, "stages", &[])?;
    for pattern in &STAGES {
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        for round in 0..options.rounds {
            let before = spent(&hindsight)?;
            let began = std::time::Instant::now();
            let found = measure(options, &hindsight.server.uri("bench"), pattern)?;
            // fio needs a moment to begin and to end; then there are no requests.
            let active = f64::from(options.seconds).min(began.elapsed().as_secs_f64());
            let mut all = 0.0;
            for ((stage, after), (_, before)) in spent(&hindsight)?.into_iter().zip(before) {
                let share = (after - before) / active;
                report.add(pattern.name, &stage, round, share, None);
                all += share;
            }
            report.add(pattern.name, "all", round, all, Some(found.p99_us));
        }
        hindsight.delete_volume("bench")?;
    }
    Ok(report)
}

/// Seconds that each stage has taken since the server began.
fn spent(hindsight: &Hindsight) -> Result<Vec<(String, f64)>> {
    let answer = hindsight.http().call("GET", "/metrics", None)?;
    let text = String::from_utf8(answer.body).context("the metrics")?;
    let prefix = "hindsight_nbd_stage_seconds_total{stage=\"";
    let mut stages = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix(prefix)) {
        let (stage, seconds) = line.split_once("\"} ").context("a metric")?;
        stages.push((stage.to_owned(), seconds.parse().context("seconds")?));
    }
    anyhow::ensure!(stages.len() == 4, "the stages are not in the metrics");
    Ok(stages)
}
