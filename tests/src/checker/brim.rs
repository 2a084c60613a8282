//! A small pool that is filled to the brim, again and again: deleted volumes and unpinned history
//! go before a write fails with "no space"; then what was captured still opens, deletes work, and
//! once versions are gone writes go on.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::plan::Op;
use super::settle::settle;
use super::subject::number;
use super::world::{ARCHITECTURES, Counts};
use crate::client::Client;
use crate::image::Image;
use crate::nbd::{ENOSPC, Nbd, Reply, Request};
use crate::random::Random;
use crate::server::Server;

const POOL: &str = "128MiB";
const UNIT_BYTES: u64 = 64 << 10;
const SIZE_BYTES: u64 = 8 << 20;
/// So many writes find no room in a pool of that size only if deletes freed nothing.
const WRITES_MAX: u64 = 20_000;
/// What the documentation says of a pool of that size: its reserve, catalogue and maps, and two
/// zones for each volume, take from it; three quarters of the rest always hold what is live and
/// pinned.
const ZONES: u64 = 128;
const ZONE_BYTES: u64 = 1 << 20;
const ZONES_TAKEN: u64 = 6 + 8 + 3 + 4;

/// Moments that may have come since the write that found no room, and been given up neither.
const SEQS_LEFT_MAX: u64 = 256;

struct Subject {
    name: String,
    image: Image,
    versions: Vec<(u64, Image)>,
}

struct Brim {
    server: Server,
    random: Random,
    subjects: Vec<Subject>,
    /// A clone of a volume that was deleted.
    clone: Option<Subject>,
    writes: u64,
}

/// Fills a pool so many times; says how many writes it took.
pub(super) fn run(program: &Path, pool: &Path, seed: u64, times: u64) -> Result<Counts> {
    let server = Server::start_with(program, pool, &["--pool-size", POOL])?;
    let random = Random::new(seed ^ 0xb1);
    let mut brim = Brim { server, random, subjects: Vec::new(), clone: None, writes: 0 };
    for name in ["brim-0", "brim-1"] {
        let granularity = ["on-demand", "every-write"][brim.random.index(2)];
        let subject = brim.create(name, granularity)?;
        brim.subjects.push(subject);
    }
    for turn in 0..times {
        let outcome = brim.turn(turn);
        outcome.with_context(|| {
            let held: Vec<String> = brim.subjects.iter().map(|s| brim.describe(s)).collect();
            format!("filled for time {turn}: {}", held.join(", "))
        })?;
    }
    brim.server.stop()?;
    brim.server.check()?;
    Ok(Counts { writes: brim.writes, ..Counts::default() })
}

impl Brim {
    fn create(&mut self, name: &str, granularity: &str) -> Result<Subject> {
        let architecture = ARCHITECTURES[self.random.index(ARCHITECTURES.len())];
        let mut body = json!({
            "name": name, "size": SIZE_BYTES, "granularity": granularity,
            "architecture": architecture
        });
        if self.random.chance(40) {
            body["cache"] = json!(self.random.between(64 << 10, 2 << 20));
            body["cache_dirty_percent"] = json!(self.random.between(1, 100));
        }
        self.server.http().expect("POST", "/api/v1/volumes", Some(&body))?;
        let (name, image) = (name.to_owned(), Image::zeros(SIZE_BYTES));
        Ok(Subject { name, image, versions: Vec::new() })
    }

    fn describe(&self, subject: &Subject) -> String {
        let shown = self.server.http().get(&format!("/api/v1/volumes/{}", subject.name));
        let shown = shown.unwrap_or_default();
        format!(
            "{} {} {} cache {} with {} versions",
            subject.name,
            shown["architecture"],
            shown["granularity"],
            shown["cache"]["size"],
            subject.versions.len()
        )
    }

    fn turn(&mut self, turn: u64) -> Result<()> {
        for at in 0..2 {
            self.throw_away(&format!("gone-{turn}-{at}")).context("a volume for the trash")?;
        }
        self.fill()?;
        let is_flushed = self.flush()?;
        if is_flushed && self.random.chance(50) {
            self.restart()?;
        }
        self.look().context("full")?;
        for at in 0..self.subjects.len() {
            self.empty(at).context("deletes in a full pool")?;
        }
        // All that is live fits twice over, and one version of each.
        for at in 0..self.subjects.len() {
            let mut link = self.server.connect(&self.subjects[at].name)?;
            for _ in 0..2 * SIZE_BYTES / UNIT_BYTES {
                let is_done = self.write(&mut link, at)?;
                let pool = self.server.http().get("/api/v1/pool")?;
                ensure!(is_done, "no space, though deletes made some: {pool}");
            }
        }
        self.look().context("after deletes")?;
        ensure!(self.flush()?, "no space for a flush, though deletes made some");
        self.server.check()
    }

    /// A volume of any kind that is written, perhaps captured and cloned, and deleted.
    fn throw_away(&mut self, name: &str) -> Result<()> {
        let granularity = ["on-demand", "every-write"][self.random.index(2)];
        let mut subject = self.create(name, granularity)?;
        let mut link = self.server.connect(name)?;
        for _ in 0..self.random.between(1, SIZE_BYTES / UNIT_BYTES) {
            write(&mut link, &mut self.random, &mut subject.image)?;
            if self.random.chance(2) {
                self.capture(&mut subject)?;
            }
        }
        let http = self.server.http();
        if self.clone.is_none() && self.random.chance(30) {
            let body = json!({ "name": format!("clone-of-{name}") });
            http.expect("POST", &format!("/api/v1/volumes/{name}/clones"), Some(&body))?;
            let name = format!("clone-of-{name}");
            self.clone = Some(Subject { name, image: subject.image, versions: Vec::new() });
        }
        http.expect("DELETE", &format!("/api/v1/volumes/{name}?force=true"), None)?;
        Ok(())
    }

    /// Writes and captures until there is no room: nothing must be left then that could be given
    /// up.
    fn fill(&mut self) -> Result<()> {
        let mut links = Vec::new();
        for subject in &self.subjects {
            links.push(self.server.connect(&subject.name)?);
        }
        for _ in 0..WRITES_MAX {
            let at = self.random.index(self.subjects.len());
            if !self.write(&mut links[at], at)? {
                return self.check_sacrificed();
            }
            if self.random.below(SIZE_BYTES / UNIT_BYTES / 2) == 0 {
                let mut subject = self.subjects.swap_remove(at);
                let captured = self.capture(&mut subject);
                self.subjects.push(subject);
                let last = links.len() - 1;
                links.swap(at, last);
                if !captured? {
                    return self.check_sacrificed();
                }
            }
        }
        bail!("{WRITES_MAX} writes found room")
    }

    /// False when there was no room for what waits in a cache.
    fn capture(&mut self, subject: &mut Subject) -> Result<bool> {
        let path = format!("/api/v1/volumes/{}/versions", subject.name);
        let answer = self.server.http().call("POST", &path, Some(&json!({})))?;
        let made = answer.json()?;
        ensure!([201, 507].contains(&answer.status), "{path}: {} {made}", answer.status);
        if answer.status == 201 {
            subject.versions.push((number(&made["number"])?, subject.image.clone()));
        }
        Ok(answer.status == 201)
    }

    fn check_sacrificed(&self) -> Result<()> {
        let http = self.server.http();
        let trash = http.get("/api/v1/trash")?;
        ensure!(trash == Value::Array(Vec::new()), "no space, though there was trash: {trash}");
        let pool = http.get("/api/v1/pool")?;
        let figure = |name: &str| number(&pool[name]).with_context(|| name.to_owned());
        // Moments may be left of which all is pinned or live, and some that a cache wrote since.
        let unpinned = figure("history_bytes")?.saturating_sub(figure("pinned_bytes")?);
        let next = &pool["next_sacrifice"];
        let seqs = |end: &str| next[end]["seq"].as_u64().unwrap_or(0);
        let may_go = seqs("to") - seqs("from") > SEQS_LEFT_MAX && unpinned >= ZONE_BYTES;
        ensure!(!may_go, "no space, though history could go: {pool}");
        // The present of architectures that keep it in place is there twice.
        let held = figure("live_bytes")? + figure("pinned_bytes")? + figure("current_bytes")?;
        let zones = ZONES - ZONES_TAKEN - 2 * figure("volumes")?;
        ensure!(held >= zones * ZONE_BYTES * 3 / 4, "no space, and {held} bytes are held: {pool}");
        Ok(())
    }

    /// Flushes what a kill would take, and a stop could not write; false when it finds no room.
    fn flush(&mut self) -> Result<bool> {
        let names = self.subjects.iter().chain(&self.clone).map(|subject| &subject.name);
        for name in names {
            match self.server.connect(name)?.ask(&Request::Flush)? {
                Reply::Done => {}
                Reply::Error(ENOSPC) => return Ok(false),
                other => bail!("a flush of {name}: {other:?}"),
            }
        }
        Ok(true)
    }

    fn restart(&mut self) -> Result<()> {
        if self.random.chance(50) {
            self.server.kill();
        } else {
            self.server.stop()?;
        }
        self.server.up()
    }

    /// Everything is what it was.
    fn look(&mut self) -> Result<()> {
        for subject in self.subjects.iter().chain(&self.clone) {
            same(&self.server, &subject.name, &subject.image)?;
            for (version, image) in &subject.versions {
                same(&self.server, &format!("{}@v:{version}", subject.name), image)?;
            }
        }
        Ok(())
    }

    /// Deletes all versions but one, perhaps with a revert to one of them before, and the clone.
    fn empty(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        if let Some(clone) = self.clone.take() {
            http.expect("DELETE", &format!("/api/v1/volumes/{}?now=true", clone.name), None)?;
        }
        let (random, subject) = (&mut self.random, &mut self.subjects[at]);
        let path = |rest: String| format!("/api/v1/volumes/{}{rest}", subject.name);
        let reverts = !subject.versions.is_empty() && random.chance(50);
        if reverts {
            let (version, image) = &subject.versions[random.index(subject.versions.len())];
            let to = json!({ "to": format!("v:{version}"), "force": true });
            let answer = http.call("POST", &path("/revert".to_owned()), Some(&to))?;
            // Before it what waits in a cache is written, which may find no room.
            ensure!([200, 507].contains(&answer.status), "a revert: {:?}", answer.json());
            if answer.status == 200 {
                subject.image = image.clone();
            }
        }
        while subject.versions.len() > 1 {
            let (version, _) = subject.versions.swap_remove(random.index(subject.versions.len()));
            http.expect("DELETE", &path(format!("/versions/{version}")), None)?;
        }
        Ok(())
    }

    fn write(&mut self, link: &mut Nbd, at: usize) -> Result<bool> {
        self.writes += 1;
        write(link, &mut self.random, &mut self.subjects[at].image)
    }
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

fn same(server: &Server, export: &str, image: &Image) -> Result<()> {
    let bytes = server.connect(export)?.read(0, SIZE_BYTES).with_context(|| export.to_owned())?;
    let difference = image.first_difference(0, &bytes);
    ensure!(difference.is_none(), "{export}: byte {difference:?} is not what it was");
    Ok(())
}
