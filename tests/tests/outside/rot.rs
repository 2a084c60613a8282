//! A pool file that rots while no server runs: errors, or the right bytes; never others, never a
//! panic.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command;
use hindsight_tests::image::Image;
use hindsight_tests::nbd::{Reply, Request};
use hindsight_tests::random::Random;

use crate::stage::{Stage, seed};

const BLOCK: usize = 4096;
const VOLUME_BYTES: u64 = 4 << 20;
const READ_BYTES: u64 = 64 << 10;
/// Times that the file rots.
const ROUNDS: u64 = 24;

/// A volume, and what it was at some moments.
struct Subject {
    name: &'static str,
    moments: Vec<(String, Image)>,
}

/// What came of opening and reading everything.
#[derive(Default)]
struct Found {
    sound: u64,
    errors: u64,
    refused_starts: u64,
}

#[test]
fn a_pool_file_that_rots_gives_errors_and_never_other_bytes() -> Result<()> {
    let mut random = Random::new(seed("rot"));
    let mut stage = Stage::with("", "", &["--pool-size", "256MiB"])?;
    let subjects = [
        subject(&stage, &mut random, "log", "logging")?,
        subject(&stage, &mut random, "place", "split-stream")?,
    ];
    stage.server.stop()?;
    let (image, sound) = (stage.server.pool().join("pool.img"), stage.text("sound.img"));
    let image_text = image.display().to_string();
    command::call("cp", &["--sparse=always", &image_text, &sound])?;
    let used = used_blocks(&image)?;
    let mut found = Found::default();
    for round in 0..ROUNDS {
        command::call("cp", &["--sparse=always", &sound, &image_text])?;
        // From one bit to a good part of all there is.
        let spots = 1 << random.below(8);
        let what: Vec<String> =
            (0..spots).map(|_| rot(&image, &used, &mut random)).collect::<Result<_>>()?;
        if let Err(error) = look(&mut stage, &subjects, &mut found) {
            return Err(error.context(format!("round {round}: {}", what.join(", "))));
        }
    }
    let Found { sound, errors, refused_starts } = found;
    println!("{sound} reads were right, {errors} errors, {refused_starts} starts refused");
    ensure!(sound > 0 && errors > 0, "nothing was hit, or nothing was left: {sound}, {errors}");
    Ok(())
}

/// A volume of random bytes, some of them written over between versions.
fn subject(
    stage: &Stage,
    random: &mut Random,
    name: &'static str,
    architecture: &str,
) -> Result<Subject> {
    let size = VOLUME_BYTES.to_string();
    let server = &stage.server;
    server.run(&["volume", "create", name, "--size", &size, "--architecture", architecture])?;
    let mut client = server.connect(name)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    let mut moments = Vec::new();
    for version in 0..3 {
        for _ in 0..40 {
            let length = random.between(1, 16) * BLOCK as u64;
            let offset = random.below(VOLUME_BYTES - length);
            let mut bytes = vec![0; usize::try_from(length)?];
            random.fill(&mut bytes);
            image.write(offset, &bytes);
            client.demand(&Request::Write { offset, bytes, fua: false })?;
        }
        client.demand(&Request::Flush)?;
        server.run(&["version", "create", name])?;
        moments.push((format!("{name}@v:{version}"), image.clone()));
    }
    moments.push((name.to_owned(), image));
    Ok(Subject { name, moments })
}

/// The blocks of a pool file in which something is.
fn used_blocks(image: &Path) -> Result<Vec<u64>> {
    let file = File::open(image)?;
    let mut block = vec![0; BLOCK];
    let mut used = Vec::new();
    for offset in (0..file.metadata()?.len()).step_by(BLOCK) {
        file.read_exact_at(&mut block, offset)?;
        if block.iter().any(|&byte| byte != 0) {
            used.push(offset);
        }
    }
    Ok(used)
}

/// Spoils a place; says how.
fn rot(image: &Path, used: &[u64], random: &mut Random) -> Result<String> {
    let file = File::options().read(true).write(true).open(image)?;
    let offset = used[random.index(used.len())];
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, offset)?;
    let what = match random.below(4) {
        0 => {
            let bit = random.below(BLOCK as u64 * 8);
            block[usize::try_from(bit / 8)?] ^= 1 << (bit % 8);
            format!("bit {bit} of the block at {offset}")
        }
        1 => {
            let sector = random.index(BLOCK / 512) * 512;
            random.fill(&mut block[sector..sector + 512]);
            format!("the sector at {}", offset + sector as u64)
        }
        2 => {
            block.fill(0);
            format!("the block at {offset} is zeros")
        }
        _ => {
            let other = used[random.index(used.len())];
            file.read_exact_at(&mut block, other)?;
            format!("the block at {offset} is that of {other}")
        }
    };
    file.write_all_at(&block, offset)?;
    Ok(what)
}

/// Starts the server if it starts, and reads every moment of every volume.
fn look(stage: &mut Stage, subjects: &[Subject], found: &mut Found) -> Result<()> {
    let told = stage.server.talk().len();
    if stage.server.up().is_err() {
        found.refused_starts += 1;
        let talk = stage.server.talk().split_off(told);
        ensure!(!talk.contains("panicked at"), "a start panicked:\n{talk}");
        let last = talk.lines().rev().find(|line| line.starts_with("error:"));
        ensure!(last.is_some(), "a start failed without an error:\n{talk}");
        return Ok(());
    }
    for subject in subjects {
        for (export, expected) in &subject.moments {
            let Ok(mut client) = stage.server.connect(export) else {
                found.errors += 1;
                continue;
            };
            for offset in (0..VOLUME_BYTES).step_by(usize::try_from(READ_BYTES)?) {
                let length = u32::try_from(READ_BYTES)?;
                match client.ask(&Request::Read { offset, length })? {
                    Reply::Bytes(bytes) => {
                        let right = bytes == expected.read(offset, READ_BYTES);
                        ensure!(right, "other bytes at {offset} of {export} ({})", subject.name);
                        found.sound += 1;
                    }
                    Reply::Error(_) => found.errors += 1,
                    other => anyhow::bail!("{other:?} to a read"),
                }
            }
        }
    }
    stage.server.check()?;
    // What it cannot write any more it says; what matters is that it ends.
    let process = stage.server.process().unwrap_or_default();
    command::signal(process, "TERM")?;
    stage.server.wait()?;
    let talk = stage.server.talk();
    ensure!(!talk.contains("panicked at"), "a stop panicked:\n{talk}");
    Ok(())
}
