//! Rot after a `kill -9`: one bit of the pool flips among what was written last, and the server is
//! started on that. Whatever was flushed then reads right, or as an error that says where; what was
//! before it, or zeros, is a finding, and so is an error where a mirror has a sound copy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::plan::Op;
use super::subject::number;
use super::world::{ARCHITECTURES, Counts};
use crate::client::Client;
use crate::command;
use crate::image::{Image, PAGE_BYTES};
use crate::nbd::{Nbd, Reply, Request};
use crate::random::Random;
use crate::server::Server;

const POOL: &str = "64MiB";
const SIZE_BYTES: u64 = 1 << 20;
const PAGES: u64 = SIZE_BYTES / PAGE_BYTES;
/// Pages of a request at most.
const PAGES_MAX: u64 = 12;
const ROUNDS: u64 = 3;
/// Bits that flip after each kill, one at a time.
const FLIPS: u64 = 4;
/// Bytes at the beginning of what was written in one piece: where its headers are.
const HEAD_BYTES: usize = 256;
const EIO: u32 = 5;

struct Subject {
    name: String,
    /// What was flushed last.
    image: Image,
    /// Writes since, none of a block of another.
    unflushed: Vec<Op>,
    moments: Vec<(String, Image)>,
    is_cached: bool,
}

struct Rot {
    server: Server,
    random: Random,
    subjects: Vec<Subject>,
    /// The files of the pool.
    members: Vec<PathBuf>,
    /// Errors that may be answered.
    may_fail: bool,
    counts: Counts,
}

/// One pool, whose server is killed again and again.
pub(super) fn run(program: &Path, pool: &Path, seed: u64) -> Result<Counts> {
    let mut random = Random::new(seed ^ 0x207);
    let stacks = [None, None, Some("mirror(a.img, b.img)")];
    let stack = stacks[random.index(stacks.len())];
    let may_fail = stack.is_none();
    // The pool is put back as the kill left it, again and again: all of it has to be there.
    let without = ["--write-memory", "0"];
    let (server, members) = match stack {
        None => {
            let more = [&["--pool-size", POOL][..], &without].concat();
            let server = Server::start_with(program, pool, &more)?;
            (server, vec![pool.join("pool.img")])
        }
        Some(stack) => {
            let pool_text = pool.display().to_string();
            let make = ["pool", "create", "--pool", &pool_text, "--stack", stack, "--size", POOL];
            command::run(std::process::Command::new(program).args(make))?;
            let members = ["a.img", "b.img"].map(|name| pool.join(name));
            let members = members.into_iter().filter(|path| path.exists()).collect();
            (Server::start_with(program, pool, &without)?, members)
        }
    };
    let counts = Counts::default();
    let mut rot = Rot { server, random, subjects: Vec::new(), members, may_fail, counts };
    rot.create()?;
    for round in 0..ROUNDS {
        let outcome = rot.round();
        outcome.with_context(|| {
            format!("round {round} on {}; it said\n{}", stack.unwrap_or("a file"), rot.said())
        })?;
    }
    Ok(rot.counts)
}

impl Rot {
    fn said(&self) -> String {
        let talk = self.server.talk();
        let lines: Vec<&str> = talk.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<&str>>().join("\n")
    }

    fn create(&mut self) -> Result<()> {
        for at in 0..3 {
            let granularity = ["every-write", "on-demand", "1s"][self.random.index(3)];
            let architecture = ARCHITECTURES[self.random.index(ARCHITECTURES.len())];
            let name = format!("rot-{at}-{architecture}-{granularity}");
            let mut body = json!({
                "name": name, "size": SIZE_BYTES, "granularity": granularity,
                "architecture": architecture
            });
            if self.random.chance(25) {
                body["cache"] = json!(256 << 10);
            }
            let made = self.server.http().expect("POST", "/api/v1/volumes", Some(&body))?;
            self.subjects.push(Subject {
                name,
                image: Image::zeros(SIZE_BYTES),
                unflushed: Vec::new(),
                moments: Vec::new(),
                is_cached: made["cache"].is_object(),
            });
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        let before_all = self.copy()?;
        self.write_and_flush()?;
        let before_last = self.copy()?;
        self.write_and_flush()?;
        if self.random.chance(50) {
            self.write_unflushed()?;
        }
        self.server.kill();
        self.counts.kills += 1;
        let sound = self.copy()?;
        for _ in 0..FLIPS {
            let from = if self.random.chance(50) { &before_all } else { &before_last };
            let member = self.random.index(self.members.len());
            let at = a_change(&from[member], &sound[member], &mut self.random)?;
            let bit = self.random.below(8);
            let path = self.members[member].clone();
            let hurt = {
                let mut hurt = sound[member].clone();
                hurt[at] ^= 1 << bit;
                hurt
            };
            put_back(&path, &hurt)?;
            let zone = at / ((64 << 20) / 256);
            self.look_at_hurt().with_context(|| {
                format!("bit {bit} of byte {at} (zone {zone}) of {} flipped", path.display())
            })?;
            for (path, bytes) in self.members.iter().zip(&sound) {
                put_back(path, bytes)?;
            }
            self.counts.flips += 1;
        }
        self.server.up()?;
        self.settle().context("without any rot")
    }

    /// Writes to every volume, flushes, and records moments.
    fn write_and_flush(&mut self) -> Result<()> {
        let http = self.server.http();
        for subject in &mut self.subjects {
            let mut link = self.server.connect(&subject.name)?;
            for _ in 0..self.random.between(1, 8) {
                let op = an_op(&mut self.random);
                op.apply(&mut subject.image);
                link.demand(&op.request)?;
                self.counts.writes += 1;
            }
            link.demand(&Request::Flush)?;
            let path = format!("/api/v1/volumes/{}", subject.name);
            if subject.name.ends_with("every-write") {
                let seq = number(&http.get(&path)?["latest"]["seq"])?;
                let name = format!("{}@seq:{seq}", subject.name);
                subject.moments.push((name, subject.image.clone()));
            } else if self.random.chance(50) {
                let made = http.expect("POST", &format!("{path}/versions"), Some(&json!({})))?;
                let name = format!("{}@v:{}", subject.name, number(&made["number"])?);
                subject.moments.push((name, subject.image.clone()));
            }
        }
        Ok(())
    }

    fn write_unflushed(&mut self) -> Result<()> {
        for subject in &mut self.subjects {
            let mut link = self.server.connect(&subject.name)?;
            for _ in 0..self.random.between(1, 4) {
                let op = an_op(&mut self.random);
                if !subject.unflushed.iter().any(|other| other.overlaps(op.offset, op.length)) {
                    link.demand(&op.request)?;
                    subject.unflushed.push(op);
                }
            }
        }
        Ok(())
    }

    fn copy(&self) -> Result<Vec<Vec<u8>>> {
        self.members.iter().map(|path| Ok(fs::read(path)?)).collect()
    }

    /// Starts the server, reads everything, and perhaps goes on and does so again.
    fn look_at_hurt(&mut self) -> Result<()> {
        if !self.starts()? {
            return Ok(());
        }
        self.look()?;
        if self.random.chance(30) {
            // What comes after it is not lost either.
            let subject = &self.subjects[self.random.index(self.subjects.len())];
            let (name, offset) = (subject.name.clone(), self.random.below(PAGES) * PAGE_BYTES);
            let mut bytes = vec![0; usize::try_from(PAGE_BYTES)?];
            self.random.fill(&mut bytes);
            let request = Request::Write { offset, bytes: bytes.clone(), fua: true };
            let is_written = match self.server.connect(&name) {
                Ok(mut link) => matches!(link.ask(&request)?, Reply::Done),
                Err(_) => false,
            };
            self.server.kill();
            if is_written && self.starts()? {
                let mut link = self.server.connect(&name)?;
                let length = u32::try_from(PAGE_BYTES)?;
                match link.ask(&Request::Read { offset, length })? {
                    Reply::Bytes(found) => {
                        ensure!(found == bytes, "{name}: what was written after it at {offset}");
                    }
                    Reply::Error(EIO) if self.may_fail => {}
                    other => bail!("{name}: a read after it: {other:?}"),
                }
            }
        }
        self.server.check()?;
        self.server.kill();
        Ok(())
    }

    /// Whether the server starts; if not it must say why.
    fn starts(&mut self) -> Result<bool> {
        let told = self.server.talk().len();
        if self.server.up().is_ok() {
            return Ok(true);
        }
        let talk = self.server.talk().split_off(told);
        ensure!(!talk.contains("panicked at"), "a start panicked:\n{talk}");
        let error = talk.lines().rev().find(|line| line.starts_with("error:"));
        let error = error.with_context(|| format!("a start failed without an error:\n{talk}"))?;
        ensure!(self.may_fail, "refused with a sound copy: {error}");
        let pool = self.server.pool().display().to_string();
        ensure!(error.contains(&pool), "the pool is not named: {error}");
        self.counts.refused += 1;
        Ok(false)
    }

    fn look(&mut self) -> Result<()> {
        for subject in &self.subjects {
            let present = (subject.name.clone(), subject.image.clone());
            for (at, (export, image)) in [&present].into_iter().chain(&subject.moments).enumerate()
            {
                let later = if at == 0 { &subject.unflushed[..] } else { &[] };
                let mut link = match self.server.connect(export) {
                    Err(_) if self.may_fail => continue,
                    link => link?,
                };
                // Most of it is right, and read at once.
                if at > 0 && is_all_right(&mut link, image)? {
                    self.counts.compared += 1;
                    continue;
                }
                for page in 0..PAGES {
                    let is_right = check_page(&mut link, page * PAGE_BYTES, image, later);
                    let is_right = is_right.with_context(|| export.clone())?;
                    ensure!(is_right || self.may_fail, "{export}: an error with a sound copy");
                }
                self.counts.compared += 1;
            }
        }
        Ok(())
    }

    /// The present is known again.
    fn settle(&mut self) -> Result<()> {
        for subject in &mut self.subjects {
            let found = self.server.connect(&subject.name)?.read(0, SIZE_BYTES)?;
            for op in &mut subject.unflushed {
                // A kill takes only what waits in a cache.
                op.sent_after = Some(0);
                op.done_as = (!subject.is_cached).then_some(0);
            }
            let ops = std::mem::take(&mut subject.unflushed);
            subject.image = super::settle::settle(&subject.image, &ops, &found)?;
        }
        self.look()
    }
}

fn is_all_right(link: &mut Nbd, image: &Image) -> Result<bool> {
    let length = u32::try_from(SIZE_BYTES)?;
    let reply = link.ask(&Request::Read { offset: 0, length })?;
    Ok(matches!(reply, Reply::Bytes(bytes) if image.first_difference(0, &bytes).is_none()))
}

/// Whether a page reads as it must: an error is false, other bytes are a finding.
fn check_page(link: &mut Nbd, offset: u64, image: &Image, later: &[Op]) -> Result<bool> {
    let length = u32::try_from(PAGE_BYTES)?;
    match link.ask(&Request::Read { offset, length })? {
        Reply::Error(EIO) => Ok(false),
        Reply::Bytes(bytes) => {
            let is_later =
                |op: &Op| op.covers(offset, PAGE_BYTES) && op.bytes(offset, PAGE_BYTES) == bytes;
            let is_right = image.first_difference(offset, &bytes).is_none();
            ensure!(
                is_right || later.iter().any(is_later),
                "block {} holds {:02x?}..., not {:02x?}...",
                offset / PAGE_BYTES,
                &bytes[..8],
                image.read(offset, 8)
            );
            Ok(true)
        }
        other => bail!("a read at {offset}: {other:?}"),
    }
}

/// A write or zeros, of whole pages.
fn an_op(random: &mut Random) -> Op {
    let pages = random.between(1, PAGES_MAX);
    let offset = random.below(PAGES - pages + 1) * PAGE_BYTES;
    let length = pages * PAGE_BYTES;
    let request = if random.chance(10) {
        let length = u32::try_from(length).expect("requests are small");
        Request::Zero { offset, length, no_hole: false, fast: false }
    } else {
        let mut bytes = vec![0; usize::try_from(length).expect("requests are small")];
        random.fill(&mut bytes);
        Request::Write { offset, bytes, fua: false }
    };
    Op { request, offset, length, sent_after: None, done_as: None }
}

/// A byte that was changed: mostly one of the first of a piece, where headers are.
fn a_change(from: &[u8], to: &[u8], random: &mut Random) -> Result<usize> {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for (sector, (a, b)) in from.chunks(64).zip(to.chunks(64)).enumerate() {
        if a != b {
            match pieces.last_mut() {
                Some(last) if last.1 == sector * 64 => last.1 += 64,
                _ => pieces.push((sector * 64, sector * 64 + 64)),
            }
        }
    }
    ensure!(!pieces.is_empty() && from.len() == to.len(), "nothing was written to the pool");
    let (begin, end) = pieces[random.index(pieces.len())];
    let length = if random.chance(60) { HEAD_BYTES.min(end - begin) } else { end - begin };
    let changed = (0..length).map(|at| begin + at).filter(|&at| from[at] != to[at]);
    let changed: Vec<usize> = changed.collect();
    Ok(if changed.is_empty() { begin } else { changed[random.index(changed.len())] })
}

/// Makes a file hold these bytes, with holes where they are zero.
fn put_back(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (at, chunk) in bytes.chunks(64 << 10).enumerate() {
        if chunk.iter().any(|&byte| byte != 0) {
            file.write_all_at(chunk, (at as u64) * (64 << 10))?;
        }
    }
    Ok(())
}
