//! PostgreSQL under pgbench on ext4 on a volume, which is then reverted to random past moments: the
//! database recovers each time, its sums agree, and what was committed by then is there.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::skips_without_root;
use hindsight_tests::disk::Disk;
use hindsight_tests::postgres::Postgres;
use hindsight_tests::random::Random;

use crate::stage::{Stage, moments, seed};

/// How long pgbench writes, in seconds.
const BENCH_SECONDS: u64 = 8;

/// Transactions that had been committed when the volume's present was this seq.
struct Committed {
    count: u64,
    seq: u64,
}

#[test]
fn a_database_recovers_at_every_past_moment() -> Result<()> {
    if skips_without_root("PostgreSQL at past moments") {
        return Ok(());
    }
    let mut random = Random::new(seed("PostgreSQL"));
    let stage = Stage::new("db", "1GiB")?;
    let mut disk = Disk::attach(&stage.server.uri("db"), &stage.path("fuse"), false)?;
    hindsight_tests::command::call("mkfs.ext4", &["-q", "-F", disk.device()])?;
    disk.mount(&stage.path("mnt"), "defaults")?;
    let mut postgres = Postgres::at(&stage.path("mnt/data"), &stage.path("socket"))?;
    postgres.init()?;
    postgres.start()?;
    hindsight_tests::command::run(&mut postgres.bench(&["-i", "-q", "-s", "3"]))?;
    let first = latest(&stage)?;
    let committed = bench(&stage, &postgres)?;
    postgres.stop("fast")?;
    disk.detach()?;
    let last = latest(&stage)?;
    let all = committed.last().context("pgbench ran")?.count;
    for round in 0..moments() {
        let seq = random.between(first, last);
        let count = check(&stage, seq, round % 2 == 0).with_context(|| format!("seq {seq}"))?;
        let least = committed.iter().filter(|c| c.seq <= seq).map(|c| c.count).max().unwrap_or(0);
        ensure!(count >= least, "seq {seq}: {count} transactions, {least} were committed by then");
        ensure!(count <= all + 1000, "seq {seq}: {count} transactions, of {all}");
    }
    println!("PostgreSQL: recovered at {} moments; {all} transactions at the end", moments());
    Ok(())
}

/// Runs pgbench, and notes now and then how many transactions are committed.
fn bench(stage: &Stage, postgres: &Postgres) -> Result<Vec<Committed>> {
    let time = BENCH_SECONDS.to_string();
    let mut child = postgres
        .bench(&["-n", "-c", "4", "-T", &time])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    let mut committed = Vec::new();
    while child.try_wait()?.is_none() {
        ensure!(began.elapsed() < Duration::from_secs(120), "pgbench does not end");
        let count = postgres.check_bench()?;
        committed.push(Committed { count, seq: latest(stage)? });
        thread::sleep(Duration::from_millis(200));
    }
    ensure!(child.wait()?.success(), "pgbench failed");
    committed.push(Committed { count: postgres.check_bench()?, seq: latest(stage)? });
    Ok(committed)
}

/// Goes to a moment, by a revert or in a clone, and returns how many transactions are there.
fn check(stage: &Stage, seq: u64, by_revert: bool) -> Result<u64> {
    let moment = format!("seq:{seq}");
    let volume = if by_revert {
        stage.server.run(&["revert", "db", "--to", &moment])?;
        "db"
    } else {
        stage.server.run(&["clone", &format!("db@{moment}"), "past"])?;
        "past"
    };
    let count = recover(stage, volume)?;
    if !by_revert {
        stage.server.run(&["volume", "delete", "past"])?;
    }
    Ok(count)
}

fn recover(stage: &Stage, volume: &str) -> Result<u64> {
    let mut disk = Disk::attach(&stage.server.uri(volume), &stage.path("fuse"), false)?;
    let mount: &Path = &stage.path("mnt");
    disk.mount(mount, "defaults")?;
    let sockets = stage.path("socket");
    // The log of one recovery at a time, to be told when it fails.
    let _ = fs::remove_file(sockets.join("log"));
    let mut postgres = Postgres::at(&mount.join("data"), &sockets)?;
    postgres.start()?;
    let count = postgres.check_bench()?;
    postgres.stop("immediate")?;
    disk.detach()?;
    Ok(count)
}

fn latest(stage: &Stage) -> Result<u64> {
    let volume = stage.server.http().get("/api/v1/volumes/db")?;
    volume["latest"]["seq"].as_u64().context("latest.seq")
}
