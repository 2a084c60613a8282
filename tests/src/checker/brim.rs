//! A small pool that is filled to the brim, again and again: writes then fail with "no space", what
//! was captured still opens, deletes work, and once versions are gone writes go on.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::plan::Op;
use super::settle::settle;
use super::subject::number;
use crate::image::Image;
use crate::nbd::{Nbd, Reply, Request};
use crate::random::Random;
use crate::server::Server;

const UNIT_BYTES: u64 = 64 << 10;
const SIZE_BYTES: u64 = 16 << 20;
/// The error of a full device.
const ENOSPC: u32 = 28;
/// So many writes find no room in a pool of that size only if deletes freed nothing.
const WRITES_MAX: u64 = 20_000;

struct Subject {
    name: String,
    image: Image,
    versions: Vec<(u64, Image)>,
}

/// Fills a pool so many times; says how many writes it took.
pub(super) fn run(program: &Path, pool: &Path, seed: u64, times: u64) -> Result<u64> {
    let mut server = Server::start_with(program, pool, &["--pool-size", "128MiB"])?;
    let mut random = Random::new(seed);
    let mut subjects = Vec::new();
    for name in ["brim-0", "brim-1"] {
        let body = json!({
            "name": name, "size": SIZE_BYTES, "granularity": "on-demand", "architecture": "logging"
        });
        server.http().expect("POST", "/api/v1/volumes", Some(&body))?;
        let (name, image) = (name.to_owned(), Image::zeros(SIZE_BYTES));
        subjects.push(Subject { name, image, versions: Vec::new() });
    }
    let mut writes = 0;
    for turn in 0..times {
        let story = || format!("a pool of seed {seed}, filled for time {turn}");
        writes += fill(&server, &mut random, &mut subjects).with_context(story)?;
        if random.chance(50) {
            if random.chance(50) {
                server.kill()
            } else {
                server.stop()?
            }
            server.up()?;
        }
        for at in 0..subjects.len() {
            empty(&server, &mut random, &mut subjects[at]).with_context(story)?;
        }
        // All that is live fits three times over, and one version of each.
        for subject in &mut subjects {
            let mut link = server.connect(&subject.name)?;
            for _ in 0..2 * SIZE_BYTES / UNIT_BYTES {
                let is_done = write(&mut link, &mut random, &mut subject.image)?;
                ensure!(
                    is_done,
                    "{}: no space, though deletes made some: {}",
                    story(),
                    server.http().get("/api/v1/pool")?
                );
            }
            same(&mut link, &subject.image)?;
        }
    }
    server.stop()?;
    Ok(writes)
}

/// Writes and captures until there is no room; all that was captured opens then.
fn fill(server: &Server, random: &mut Random, subjects: &mut [Subject]) -> Result<u64> {
    let mut links = Vec::new();
    for subject in &*subjects {
        links.push(server.connect(&subject.name)?);
    }
    for count in 0..WRITES_MAX {
        let at = random.index(subjects.len());
        let subject = &mut subjects[at];
        if !write(&mut links[at], random, &mut subject.image)? {
            for subject in &*subjects {
                let Some((version, image)) = subject.versions.last() else { continue };
                same(&mut server.connect(&format!("{}@v:{version}", subject.name))?, image)?;
            }
            return Ok(count);
        }
        if random.below(SIZE_BYTES / UNIT_BYTES / 2) == 0 {
            let path = format!("/api/v1/volumes/{}/versions", subject.name);
            let made = server.http().expect("POST", &path, Some(&json!({})))?;
            subject.versions.push((number(&made["number"])?, subject.image.clone()));
        }
    }
    bail!("{WRITES_MAX} writes found room")
}

/// Deletes all versions but one, perhaps after a revert to one of them, and that one looks as ever.
fn empty(server: &Server, random: &mut Random, subject: &mut Subject) -> Result<()> {
    let http = server.http();
    let path = |rest: String| format!("/api/v1/volumes/{}{rest}", subject.name);
    if !subject.versions.is_empty() && random.chance(50) {
        let (version, image) = &subject.versions[random.index(subject.versions.len())];
        let to = json!({ "to": format!("v:{version}"), "force": true });
        http.expect("POST", &path("/revert".to_owned()), Some(&to))?;
        subject.image = image.clone();
    }
    while subject.versions.len() > 1 {
        let (version, _) = subject.versions.swap_remove(random.index(subject.versions.len()));
        http.expect("DELETE", &path(format!("/versions/{version}")), None)?;
    }
    for (version, image) in &subject.versions {
        same(&mut server.connect(&format!("{}@v:{version}", subject.name))?, image)?;
    }
    Ok(())
}

/// Writes a unit; false if there was no space, and some of its blocks may be what they were.
fn write(link: &mut Nbd, random: &mut Random, image: &mut Image) -> Result<bool> {
    let offset = random.below(SIZE_BYTES / UNIT_BYTES) * UNIT_BYTES;
    let mut bytes = vec![0; usize::try_from(UNIT_BYTES)?];
    random.fill(&mut bytes);
    let request = Request::Write { offset, bytes, fua: false };
    let reply = link.ask(&request)?;
    let is_done = matches!(reply, Reply::Done);
    ensure!(is_done || matches!(reply, Reply::Error(ENOSPC)), "a write: {reply:?}");
    let op = Op {
        request,
        offset,
        length: UNIT_BYTES,
        sent_after: Some(0),
        done_as: is_done.then_some(0),
    };
    if is_done {
        op.apply(image);
    } else {
        *image = settle(image, &[op], &link.read(0, SIZE_BYTES)?)?;
    }
    Ok(is_done)
}

fn same(link: &mut Nbd, image: &Image) -> Result<()> {
    let difference = image.first_difference(0, &link.read(0, SIZE_BYTES)?);
    ensure!(difference.is_none(), "byte {difference:?} is not what it was");
    Ok(())
}
