//! `cargo x bench`: the goals P1 to P11, P15 and P16, the architectures, layers, scrubs and
//! rebuilds, measured side by side on one machine.
//!
//! Invariants
//! 1. Servers that are compared take turns, and the order turns around from round to round; a ratio
//!    is made within a round, and the median of the rounds is reported with their spread.
//! 2. A run leaves all raw values, and what the machine was and did, in `bench/runs/DATE-NAME/`.
//! 3. Nothing here fails because something is slow: a figure is reported, not asserted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::{program, tree};

mod alone;
mod architectures;
mod darc;
mod encoding;
mod engine;
mod fio;
mod io_path;
mod iscsi;
mod machine;
mod paced;
mod past;
mod patterns;
mod rebuilds;
mod report;
mod restart;
mod scrubs;
mod servers;
mod space;
mod stacks;
mod steady;
mod throughput;

/// What can be chosen on the command line.
#[derive(Clone)]
pub struct Options {
    /// Rounds; at least five for a figure that is quoted.
    pub rounds: usize,
    /// Seconds of each measurement.
    pub seconds: u32,
    /// Bytes of the volumes and files.
    pub size_bytes: u64,
    /// Where pools and files are made; on the disk that is to be measured.
    pub directory: PathBuf,
    /// Retained writes of the engine's load (P5, P6).
    pub writes: u64,
    /// Bytes of history before the restart (P8).
    pub history_bytes: u64,
    /// The optimised server.
    pub hindsight: PathBuf,
    /// Another build of it, to be held against.
    pub against: Option<PathBuf>,
}

type Bench = fn(&Options) -> Result<report::Report>;

const BENCHES: &[(&str, Bench)] = &[
    ("p1", throughput::against_raw),
    ("p2", throughput::against_snapshot),
    ("p3", throughput::cost_of_protection),
    ("p4", throughput::cpu_per_request),
    ("p5", engine::memory_and_openings),
    ("p7", past::reads),
    ("p8", restart::after_kill),
    ("settling", restart::settling),
    ("tail", restart::tail),
    ("p9", space::per_write),
    ("p10", stacks::cost_of_layers),
    ("parity", stacks::cost_of_parity),
    ("p11", throughput::cost_of_versions),
    ("p13", iscsi::against_tgt),
    ("p15", encoding::of_history),
    ("writers", paced::writers),
    ("scrubs", scrubs::alone_and_beside),
    ("rebuild", rebuilds::alone_and_beside),
    ("p16", throughput::scaling),
    ("steady", steady::writes),
    ("allocations", io_path::allocations),
    ("buffers", io_path::buffers),
    ("stages", io_path::stages),
    ("architectures", architectures::against_file),
    ("darc", darc::figures),
];

/// Runs the named benchmarks, or all.
pub fn run(arguments: &[String]) -> Result<()> {
    let (names, options) = parse(arguments)?;
    for program in ["fio", "nbdkit", "qemu-nbd"] {
        let found = program::is_installed(program, "--version");
        ensure!(found, "{program} is not installed\nhint: scripts/install-packages bench");
    }
    for name in names {
        let (_, bench) = BENCHES.iter().find(|(known, _)| *known == name).expect("checked");
        eprintln!("bench {name}");
        let before = machine::load();
        let options = Options { directory: options.directory.join(&name), ..options.clone() };
        make_empty(&options.directory)?;
        let report = bench(&options).with_context(|| format!("bench {name}"))?;
        let folder = report.write(&name, &options, &before)?;
        print!("{}", report.summary());
        eprintln!("written: {}", folder.display());
        // Pools of tens of GiB, which the next one needs.
        fs::remove_dir_all(&options.directory).context("the bench's directory")?;
    }
    Ok(())
}

/// A directory with nothing in it: one that failed before may have left pools.
fn make_empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

fn parse(arguments: &[String]) -> Result<(Vec<String>, Options)> {
    let target = program::target_directory();
    let mut options = Options {
        rounds: 5,
        seconds: 4,
        size_bytes: 1 << 30,
        directory: target.join("bench"),
        writes: 10_000_000,
        history_bytes: 4 << 30,
        hindsight: PathBuf::new(),
        against: None,
    };
    let mut names = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
            "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
            "--size" => options.size_bytes = bytes_of(value()?)?,
            "--history" => options.history_bytes = bytes_of(value()?)?,
            "--writes" => options.writes = value()?.parse().context("--writes")?,
            "--dir" => options.directory = PathBuf::from(value()?),
            "--against" => options.against = Some(PathBuf::from(value()?)),
            "--hindsight" => options.hindsight = PathBuf::from(value()?),
            // One load answers both.
            "p6" => names.push("p5".to_owned()),
            name if BENCHES.iter().any(|(known, _)| *known == name) => names.push(name.to_owned()),
            other => bail!("no such benchmark or option: {other}"),
        }
    }
    ensure!(options.rounds > 0 && options.seconds > 0, "at least one round of one second");
    if names.is_empty() {
        names = BENCHES.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    if options.hindsight.as_os_str().is_empty() {
        options.hindsight = program::release_server()?;
    }
    options.directory = tree::top().join(&options.directory);
    Ok((names, options))
}

fn bytes_of(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => bail!("{text}: a size is a number with K, M, G or T"),
    };
    let number: u64 = digits.parse().with_context(|| format!("{text}: not a size"))?;
    number.checked_mul(1 << shift).with_context(|| format!("{text}: too large"))
}
