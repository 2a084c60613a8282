//! One run of fio with its NBD engine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::patterns::Pattern;

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests per second, reads and writes together.
    pub iops: f64,
    /// Percentiles of the completion latency in microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// The longest of all.
    pub longest_us: f64,
    /// Requests of the slowest second, but for the first and the last; 0 if there is none between.
    pub slow_second_iops: f64,
    /// Requests of the whole run.
    pub requests: u64,
}

/// How much of it.
#[derive(Clone, Copy)]
pub enum Amount {
    /// For so many seconds.
    Seconds(u32),
    /// Until so many bytes were moved.
    Bytes(u64),
    /// The file once.
    Once,
}

/// Runs a pattern against an export; each of `jobs` has a connection of its own.
pub fn run(
    uri: &str,
    pattern: &Pattern,
    size_bytes: u64,
    jobs: u32,
    amount: Amount,
) -> Result<Outcome> {
    let engine = match uri.starts_with("iscsi:") {
        // A colon divides names of files.
        true => {
            ["--ioengine=libiscsi".to_owned(), format!("--filename={}", uri.replace(':', "\\:"))]
        }
        false => ["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
    };
    let job = [engine.to_vec(), vec![format!("--numjobs={jobs}")]].concat();
    started(&job, uri, pattern, size_bytes, amount)
}

/// Runs a pattern on a file past the page cache.
pub fn run_directly(
    file: &Path,
    pattern: &Pattern,
    size_bytes: u64,
    amount: Amount,
) -> Result<Outcome> {
    let name = file.display().to_string();
    let job =
        ["--ioengine=libaio".to_owned(), "--direct=1".to_owned(), format!("--filename={name}")];
    started(&job, &name, pattern, size_bytes, amount)
}

/// The fio in `FIO`, or the one that is installed.
pub fn command() -> Command {
    Command::new(std::env::var_os("FIO").unwrap_or_else(|| "fio".into()))
}

fn started(
    job: &[String],
    name: &str,
    pattern: &Pattern,
    size_bytes: u64,
    amount: Amount,
) -> Result<Outcome> {
    let logs = tempfile::tempdir().context("a folder for fio's log")?;
    let mut command = command();
    command.args(["--name=j", "--output-format=json", "--group_reporting"]).args(job);
    command.arg(format!("--size={size_bytes}")).args(pattern.arguments);
    command.current_dir(logs.path()).args(["--write_iops_log=j", "--log_avg_msec=1000"]);
    match amount {
        Amount::Seconds(seconds) => {
            command.arg("--time_based").arg(format!("--runtime={seconds}"));
        }
        Amount::Bytes(bytes) => {
            command.arg(format!("--io_size={bytes}"));
        }
        Amount::Once => {}
    }
    let output = command.output().context("cannot run fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // fio may write warnings before its JSON.
    let Some(start) = text.find('{').filter(|_| output.status.success()) else {
        bail!("fio failed on {name}: {} {}", text.trim(), errors.trim());
    };
    let result: Value = serde_json::from_str(&text[start..]).context("the output of fio")?;
    ensure!(result["jobs"][0]["error"] == 0, "fio failed on {name}: {}", errors.trim());
    Ok(outcome(&result["jobs"][0], slow_second(&logs.path().join("j_iops.1.log"))))
}

fn outcome(job: &Value, slow_second_iops: f64) -> Outcome {
    let number = |direction: &str, field: &str| job[direction][field].as_f64().unwrap_or(0.0);
    let of = |direction: &str, path: &str| {
        job[direction]["clat_ns"].pointer(path).and_then(Value::as_f64).unwrap_or(0.0) / 1000.0
    };
    let latency_us = |path: &str| of("read", path).max(of("write", path));
    Outcome {
        iops: number("read", "iops") + number("write", "iops"),
        p50_us: latency_us("/percentile/50.000000"),
        p99_us: latency_us("/percentile/99.000000"),
        p999_us: latency_us("/percentile/99.900000"),
        longest_us: latency_us("/max"),
        slow_second_iops,
        requests: (number("read", "total_ios") + number("write", "total_ios")) as u64,
    }
}

/// The slowest second between the first and the last of a log of requests per second. A second in
/// which nothing ended has no line.
fn slow_second(log: &Path) -> f64 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.split(',').map(|field| field.trim().parse::<f64>());
        Some(((fields.next()?.ok()? / 1000.0).round() as u64, fields.next()?.ok()?))
    });
    let mut seconds = std::collections::BTreeMap::new();
    for (second, rate) in fields {
        *seconds.entry(second).or_insert(0.0) += rate;
    }
    let last = seconds.keys().next_back().copied().unwrap_or(0);
    let between = (2..last).map(|second| seconds.get(&second).copied().unwrap_or(0.0));
    between.reduce(f64::min).unwrap_or(0.0)
}

/// Writes everything once, so that no read meets a hole.
pub fn fill(uri: &str, size_bytes: u64) -> Result<()> {
    let whole = Pattern { name: "fill", arguments: &["--rw=write", "--bs=1m", "--iodepth=8"] };
    run(uri, &whole, size_bytes, 1, Amount::Once).map(|_| ())
}
