//! One run of fio with its NBD engine.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::patterns::Pattern;

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests per second, reads and writes together.
    pub iops: f64,
    /// 99th percentile of the completion latency in microseconds.
    pub p99_us: f64,
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
    let mut command = Command::new("fio");
    command.args(["--name=j", "--ioengine=nbd", "--output-format=json", "--group_reporting"]);
    command.arg(format!("--uri={uri}")).arg(format!("--size={size_bytes}"));
    command.arg(format!("--numjobs={jobs}")).args(pattern.arguments);
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
        bail!("fio failed on {uri}: {} {}", text.trim(), errors.trim());
    };
    let result: Value = serde_json::from_str(&text[start..]).context("the output of fio")?;
    let job = &result["jobs"][0];
    ensure!(job["error"] == 0, "fio failed on {uri}: {}", errors.trim());
    let number = |direction: &str, field: &str| job[direction][field].as_f64().unwrap_or(0.0);
    let p99_ns = |direction: &str| {
        job[direction]["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap_or(0.0)
    };
    let requests = number("read", "total_ios") + number("write", "total_ios");
    Ok(Outcome {
        iops: number("read", "iops") + number("write", "iops"),
        p99_us: p99_ns("read").max(p99_ns("write")) / 1000.0,
        requests: requests as u64,
    })
}

/// Writes everything once, so that no read meets a hole.
pub fn fill(uri: &str, size_bytes: u64) -> Result<()> {
    let whole = Pattern { name: "fill", arguments: &["--rw=write", "--bs=1m", "--iodepth=8"] };
    run(uri, &whole, size_bytes, 1, Amount::Once).map(|_| ())
}
