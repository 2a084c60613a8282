//! ext4 and XFS of this machine's kernel on a volume that is reverted to random past moments, or
//! whose server is killed under them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{output, skips_without_root};
use hindsight_tests::disk::Disk;
use hindsight_tests::random::Random;
use serde_json::Value;

use crate::stage::{Stage, moments, seed};

/// How a file system is made and checked.
struct Kind {
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: Kind = Kind { make: &["mkfs.ext4", "-q", "-F"], check: &["e2fsck", "-fn"] };
const XFS: Kind = Kind { make: &["mkfs.xfs", "-q", "-f"], check: &["xfs_repair", "-n"] };

/// A file that was synced, and the present's seq at that time.
struct Synced {
    name: String,
    bytes: Vec<u8>,
    seq: u64,
}

#[test]
fn ext4_is_whole_at_every_past_moment() -> Result<()> {
    is_whole_at_every_past_moment("ext4", &EXT4)
}

#[test]
fn xfs_is_whole_at_every_past_moment() -> Result<()> {
    is_whole_at_every_past_moment("xfs", &XFS)
}

#[test]
fn ext4_keeps_what_was_synced_when_the_server_is_killed() -> Result<()> {
    keeps_what_was_synced("ext4 under kill -9", &EXT4)
}

#[test]
fn xfs_keeps_what_was_synced_when_the_server_is_killed() -> Result<()> {
    keeps_what_was_synced("xfs under kill -9", &XFS)
}

fn is_whole_at_every_past_moment(name: &str, kind: &Kind) -> Result<()> {
    if skips_without_root(name) {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let stage = Stage::new("vol", "512MiB")?;
    let mut disk = make(&stage, kind)?;
    let first = latest(&stage)?;
    let mut synced = Vec::new();
    churn(&stage, &mut random, 400, &mut synced)?;
    disk.unmount()?;
    disk.detach()?;
    let last = latest(&stage)?;
    for _ in 0..moments() {
        let seq = random.between(first, last);
        stage
            .server
            .run(&["revert", "vol", "--to", &format!("seq:{seq}")])
            .with_context(|| format!("revert to seq {seq} of {first} to {last}"))?;
        check(&stage, kind, &synced, seq).with_context(|| format!("{name} at seq {seq}"))?;
    }
    println!("{name}: whole at {} moments between seq {first} and {last}", moments());
    Ok(())
}

fn keeps_what_was_synced(name: &str, kind: &Kind) -> Result<()> {
    if skips_without_root(name) {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let mut stage = Stage::new("vol", "512MiB")?;
    let mut disk = make(&stage, kind)?;
    let mut synced = Vec::new();
    for round in 0..3 {
        churn(&stage, &mut random, 60, &mut synced)?;
        // Something that nobody has synced is under way, too.
        fs::write(stage.path("mnt").join("unsynced"), vec![round; 3 << 20])?;
        stage.server.kill();
        // The device is dead: what unmounting says does not matter, that it is gone does.
        let _ = disk.unmount();
        drop(disk);
        stage.server.up()?;
        check(&stage, kind, &synced, u64::MAX).with_context(|| format!("{name}, {round}"))?;
        disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
        disk.mount(&stage.path("mnt"), "defaults")?;
    }
    disk.detach()
}

fn make(stage: &Stage, kind: &Kind) -> Result<Disk> {
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    run(kind.make, disk.device())?;
    disk.mount(&stage.path("mnt"), "defaults")?;
    Ok(disk)
}

/// Files come, grow, change their names and go; some are synced and then left alone.
fn churn(stage: &Stage, random: &mut Random, rounds: u64, synced: &mut Vec<Synced>) -> Result<()> {
    let root = stage.path("mnt");
    fs::create_dir_all(root.join("churn"))?;
    for _ in 0..rounds {
        let path = root.join("churn").join(random.below(40).to_string());
        match random.below(10) {
            0..5 => {
                let mut bytes = vec![0; random.index(100_000)];
                random.fill(&mut bytes);
                fs::write(&path, bytes)?;
            }
            5..7 => {
                let to = root.join("churn").join(random.below(40).to_string());
                // One of the two may not be there, which is as good.
                let _ = fs::rename(&path, to);
            }
            7 => {
                let _ = fs::remove_file(&path);
            }
            _ => synced.push(write_synced(stage, &root, random, synced.len())?),
        }
    }
    Ok(())
}

fn write_synced(stage: &Stage, root: &Path, random: &mut Random, number: usize) -> Result<Synced> {
    let name = format!("synced-{number}");
    let mut bytes = vec![0; random.index(50_000) + 1];
    random.fill(&mut bytes);
    fs::write(root.join(&name), &bytes)?;
    fs::File::open(root.join(&name))?.sync_all()?;
    fs::File::open(root)?.sync_all()?;
    Ok(Synced { name, bytes, seq: latest(stage)? })
}

/// Mounts, which replays the journal, compares what was synced by then, and checks the structure.
fn check(stage: &Stage, kind: &Kind, synced: &[Synced], seq: u64) -> Result<()> {
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    disk.mount(&stage.path("mnt"), "defaults")?;
    for file in synced.iter().filter(|file| file.seq <= seq) {
        let found = fs::read(stage.path("mnt").join(&file.name))
            .with_context(|| format!("{}, synced by seq {}", file.name, file.seq))?;
        ensure!(found == file.bytes, "{}, synced by seq {}, differs", file.name, file.seq);
    }
    disk.unmount()?;
    run(kind.check, disk.device())?;
    disk.detach()
}

fn run(program: &[&str], device: &str) -> Result<()> {
    let mut command = std::process::Command::new(program[0]);
    let output = output(command.args(&program[1..]).arg(device))?;
    ensure!(
        output.status.success(),
        "{program:?} {device}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn latest(stage: &Stage) -> Result<u64> {
    let volume: Value = stage.server.http().get("/api/v1/volumes/vol")?;
    volume["latest"]["seq"].as_u64().context("latest.seq")
}
