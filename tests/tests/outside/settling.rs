//! A default server that is left alone: what its architecture promises is soon so on its disk, and
//! the next start has little to read.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::nbd::Request;

use crate::stage::Stage;

const MIB: u64 = 1 << 20;
const SIZE_MIB: u64 = 32;
const OVERWRITES: u64 = 4000;
/// The rule is seconds; a loaded machine may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The byte that fills a block after all writes: the last overwrite of it, or its first write.
fn byte_of(block: u64) -> u8 {
    (0..OVERWRITES).rev().find(|&turn| place(turn) == block).map_or(1, |turn| turn as u8 | 1)
}

fn place(turn: u64) -> u64 {
    turn * 7919 % (SIZE_MIB * 256)
}

/// Bytes that the server has read by system calls since it was started.
fn read_bytes(stage: &Stage) -> Result<u64> {
    let process = stage.server.process().context("it runs")?;
    let told = fs::read_to_string(format!("/proc/{process}/io"))?;
    let line = told.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(line.context("Linux tells it")?.parse()?)
}

#[test]
fn a_default_server_settles_in_seconds_and_then_starts_with_little_to_read() -> Result<()> {
    let mut stage = Stage::new("", "")?;
    let size = format!("{SIZE_MIB}MiB");
    let made = ["volume", "create", "v", "--size", &size, "--architecture", "checkpointing"];
    stage.server.run(&made)?;
    let mut link = stage.server.connect("v")?;
    for mib in 0..SIZE_MIB {
        let bytes = vec![1; MIB as usize];
        link.demand(&Request::Write { offset: mib * MIB, bytes, fua: false })?;
    }
    for turn in 0..OVERWRITES {
        let bytes = vec![turn as u8 | 1; 4096];
        link.demand(&Request::Write { offset: place(turn) * 4096, bytes, fua: false })?;
    }
    link.demand(&Request::Flush)?;
    drop(link);
    stage.server.kill();
    stage.server.up()?;
    let unsettled_start = read_bytes(&stage)?;

    let http = stage.server.http();
    let (began, mut left) = (Instant::now(), (u64::MAX, u64::MAX));
    while left != (0, 0) {
        ensure!(began.elapsed() < PATIENCE, "after {PATIENCE:?} unplaced, pending: {left:?}");
        thread::sleep(Duration::from_millis(200));
        let of = |target: &str, name: &str| -> Result<u64> {
            http.get(target)?[name].as_u64().with_context(|| format!("{target} has {name}"))
        };
        left = (of("/api/v1/volumes/v", "unplaced_bytes")?, of("/api/v1/pool", "pending_entries")?);
    }
    stage.server.kill();
    stage.server.up()?;
    let settled_start = read_bytes(&stage)?;
    println!("bytes read at a start: {unsettled_start} unsettled, {settled_start} settled");
    ensure!(settled_start < 8 * MIB, "{settled_start} bytes were read to open a settled pool");

    let mut link = stage.server.connect("v")?;
    let before = read_bytes(&stage)?;
    for mib in 0..SIZE_MIB {
        let found = link.read(mib * MIB, MIB)?;
        for (index, block) in found.chunks(4096).enumerate() {
            let wanted = byte_of(mib * 256 + index as u64);
            ensure!(block.iter().all(|&byte| byte == wanted), "MiB {mib}, block {index}");
        }
    }
    let read = read_bytes(&stage)? - before;
    // In the order of its addresses: its bytes and the map, not zones of a log with old versions.
    ensure!(read < (SIZE_MIB + 8) * MIB, "{read} bytes were read for {SIZE_MIB} MiB");
    drop(link);
    stage.server.stop()
}
