//! The program itself for Prometheus: which it is, and what it takes of the machine, under the
//! names that all exporters have. Read from `/proc` at each scrape; what is not there is left out.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::prometheus::tell;

/// The metrics of this process.
#[derive(Debug)]
pub(crate) struct ProcessCollector;

/// The figures of this process in `/proc`.
struct Taken {
    cpu_seconds: f64,
    start_time_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    threads: u64,
}

/// Reads the fields behind the command's name, which is in brackets and may hold anything.
fn taken() -> Option<Taken> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // proc_pid_stat(5) counts from 1, and two fields are gone.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted: f64 = booted.trim().parse().ok()?;
    Some(Taken {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
        start_time_seconds: booted + field(22)? as f64 / ticks,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * rustix::param::page_size() as u64,
    })
}

/// The most files that may be open; `None` without a limit.
fn files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (name, help) = ("hindsight_build", "Which program this is; always 1");
        let mut build = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("os", std::env::consts::OS)];
        build.encode_info(&labels)?;
        let files = fs::read_dir("/proc/self/fd").map(|files| files.count() as f64).ok();
        let mut gauges = vec![
            ("open_fds", "Open file descriptors", files),
            ("max_fds", "Most file descriptors that may be open", files_max().map(|n| n as f64)),
        ];
        if let Some(taken) = taken() {
            let help = "Processor time of this process, of user and system";
            let cpu = ConstCounter::new(taken.cpu_seconds);
            tell(&mut encoder, ("process_cpu_seconds", help), cpu)?;
            gauges.extend([
                ("start_time_seconds", "When this process began", Some(taken.start_time_seconds)),
                ("resident_memory_bytes", "Memory in use", Some(taken.resident_bytes as f64)),
                ("virtual_memory_bytes", "Addresses in use", Some(taken.virtual_bytes as f64)),
                ("threads", "Threads", Some(taken.threads as f64)),
            ]);
        }
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let name = format!("process_{name}");
            tell(&mut encoder, (&name, help), ConstGauge::new(value))?;
        }
        Ok(())
    }
}
