//! Verbs that conflict, asked for at one instant by several threads: no server error, no hang, and
//! what is there afterwards is what some order of them leaves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::orders::{Outcome, Pages, Seen, State, Told, Verb, Volume, explain};
use super::subject::number;
use super::world::{ARCHITECTURES, Counts};
use crate::client::Client;
use crate::http::Http;
use crate::image::PAGE_BYTES;
use crate::nbd::{Nbd, Refused, Reply, Request};
use crate::random::Random;
use crate::server::Server;

const TURNS: u64 = 30;
const PAGES: u64 = 48;
const VERSIONS: u64 = 3;

struct Clash {
    server: Server,
    random: Random,
    turn: u64,
}

/// What a thread does: with a client that it has already, or none.
struct Script {
    link: Option<Nbd>,
    verbs: Vec<Verb>,
    wait: Duration,
}

/// What a thread was told, and the client that it has still.
type Acted = (Vec<Told>, Option<Nbd>);

/// Turns on one server, each with volumes of its own.
pub(super) fn run(program: &Path, pool: &Path, seed: u64) -> Result<Counts> {
    let server = Server::start(program, pool)?;
    let mut clash = Clash { server, random: Random::new(seed ^ 0x3e9), turn: 0 };
    let mut counts = Counts::default();
    for turn in 0..TURNS {
        clash.turn = turn;
        counts += clash.turn().with_context(|| format!("turn {turn}"))?;
        clash.server.check()?;
    }
    clash.server.stop()?;
    Ok(counts)
}

impl Clash {
    fn name(&self, letter: &str) -> String {
        format!("{letter}-{}", self.turn)
    }

    fn turn(&mut self) -> Result<Counts> {
        let mut counts = Counts { clashes: 1, ..Counts::default() };
        let kills = self.random.chance(12);
        let (mut state, trashed) = self.set_up(kills)?;
        let count = if self.random.chance(60) { 2 } else { 3 };
        let mut scripts = Vec::new();
        for thread in 0..count {
            scripts.push(self.script(thread, &mut state, &trashed)?);
        }
        let verbs: Vec<String> = scripts.iter().map(|s| format!("{:?}", s.verbs)).collect();
        let (told, links) = self.go(scripts, kills)?;
        drop(links);
        if kills {
            counts.kills += 1;
            self.server.up()?;
        }
        let seen = self.look().with_context(|| verbs.join("\n"))?;
        let explained = explain(&state, &told, &seen);
        if let Err(others) = explained {
            let answers: Vec<String> = told.iter().map(|all| format!("{all:?}")).collect();
            bail!(
                "no order of these explains what was found:\n{}\nbefore: {state:?}\nfound: {seen:?}\
                 \nthe answers allow: {others:?}",
                answers.join("\n")
            );
        }
        if self.random.chance(10) {
            self.restart()?;
            counts.kills += 1;
            let again = self.look().context("after a restart")?;
            ensure!(again == seen, "before a restart: {seen:?}\nafter it: {again:?}\n{verbs:?}");
        }
        self.clear(&seen)?;
        Ok(counts)
    }

    /// Two volumes and a group of both, with versions, and perhaps a third in the trash.
    fn set_up(&mut self, kills: bool) -> Result<(State, Vec<u64>)> {
        let (mut state, mut trashed) = (State::default(), Vec::new());
        let http = self.server.http();
        let names = [self.name("a"), self.name("b")];
        for name in &names {
            let volume = self.create(name, kills)?;
            state.create(name, volume, true);
        }
        let body = json!({ "name": self.name("g"), "volumes": names });
        http.expect("POST", "/api/v1/groups", Some(&body))?;
        if self.random.chance(30) {
            let letter = ["a", "t"][self.random.index(2)];
            let name = self.name(letter);
            if name == names[0] {
                http.expect("DELETE", &path(&name, "?force=true"), None)?;
            } else {
                let volume = self.create(&name, kills)?;
                state.create(&name, volume, false);
                http.expect("DELETE", &path(&name, "?force=true"), None)?;
            }
            let trash = http.get("/api/v1/trash")?;
            let id = number(&trash[0]["id"])?;
            state.throw(&name, id);
            trashed.push(id);
            if name == names[0] && self.random.chance(50) {
                let volume = self.create(&name, kills)?;
                state.create(&name, volume, false);
            }
        }
        Ok((state, trashed))
    }

    fn create(&mut self, name: &str, kills: bool) -> Result<Volume> {
        let http = self.server.http();
        let architecture = ARCHITECTURES[self.random.index(if kills { 2 } else { 6 })];
        let granularity = ["every-write", "on-demand"][self.random.index(2)];
        let mut body = json!({
            "name": name, "size": PAGES * PAGE_BYTES, "granularity": granularity,
            "architecture": architecture, "window": "1h"
        });
        if !kills && self.random.chance(30) {
            body["cache"] = json!(256 << 10);
        }
        http.expect("POST", "/api/v1/volumes", Some(&body))?;
        let mut pages = Pages(vec![0; usize::try_from(PAGES)?]);
        let mut versions = BTreeMap::new();
        let mut link = self.server.connect(name)?;
        for _ in 0..self.random.below(VERSIONS + 1) {
            for _ in 0..self.random.between(1, 6) {
                let page = self.random.index(pages.0.len());
                pages.0[page] = self.fill();
                link.demand(&a_write(page, pages.0[page]))?;
            }
            let made = http.expect("POST", &path(name, "/versions"), Some(&json!({})))?;
            versions.insert(number(&made["number"])?, pages.clone());
        }
        for _ in 0..self.random.below(4) {
            let page = self.random.index(pages.0.len());
            pages.0[page] = self.fill();
            link.demand(&a_write(page, pages.0[page]))?;
        }
        Ok(Volume { pages, versions, window: "1h".to_owned() })
    }

    fn fill(&mut self) -> u8 {
        u8::try_from(self.random.between(1, 255)).unwrap_or(1)
    }

    /// What a thread is to do; mostly to the first volume.
    fn script(&mut self, thread: usize, state: &mut State, trashed: &[u64]) -> Result<Script> {
        let wait = Duration::from_micros(self.random.below(3) * self.random.below(2000));
        let letter = if self.random.chance(85) { "a" } else { "b" };
        let name = self.name(letter);
        if self.random.chance(30) {
            let mut verbs = vec![Verb::Attach { name: name.clone() }];
            let mut link = None;
            if self.random.chance(50) && self.server.http().get(&path(&name, "")).is_ok() {
                link = Some(self.server.connect(&name)?);
                state.attach(&name, thread);
                verbs.clear();
            }
            for _ in 0..self.random.between(1, 2) {
                let page = self.random.index(usize::try_from(PAGES)?);
                verbs.push(Verb::Write { page, fill: self.fill() });
            }
            if self.random.chance(40) {
                verbs.push(Verb::Detach);
            }
            return Ok(Script { link, verbs, wait });
        }
        let mut verbs = vec![self.verb(name.clone(), trashed)];
        if self.random.chance(30) {
            verbs.push(self.verb(name, trashed));
        }
        Ok(Script { link: None, verbs, wait })
    }

    fn verb(&mut self, name: String, trashed: &[u64]) -> Verb {
        let force = self.random.chance(60);
        let version = self.random.below(VERSIONS + 1);
        let pages = [PAGES / 2, PAGES, PAGES + 8, PAGES * 2][self.random.index(4)];
        let to = [self.name("a"), self.name("c"), self.name("c")][self.random.index(3)].clone();
        let id = trashed.first().copied();
        match (self.random.below(20), id) {
            (0..4, Some(id)) => Verb::Undelete { id },
            (4..6, Some(id)) => Verb::EmptyTrash { id },
            (0..4, None) => Verb::Delete { name, force, now: self.random.chance(50) },
            (4..7, _) => Verb::Revert { name, version, force },
            (7..10, _) => {
                let version = Some(version).filter(|_| self.random.chance(60));
                Verb::Clone { name, version, to }
            }
            (10..12, _) => Verb::CreateVersion { name },
            (12..14, _) => Verb::DeleteVersion { name, version },
            (14..16, _) => Verb::Resize { name, pages: usize::try_from(pages).unwrap_or(0), force },
            (16, _) => {
                let window = ["1h", "2h", "3h"][self.random.index(3)].to_owned();
                Verb::SetWindow { name, window }
            }
            (17, _) => Verb::Delete { name, force: true, now: self.random.chance(50) },
            _ => Verb::CaptureGroup,
        }
    }

    /// Runs the scripts at one instant, and perhaps kills the server meanwhile.
    fn go(&mut self, scripts: Vec<Script>, kills: bool) -> Result<(Vec<Vec<Told>>, Vec<Nbd>)> {
        let barrier = Barrier::new(scripts.len() + 1);
        let group = self.name("g");
        let life = Duration::from_micros(self.random.below(30_000));
        let server = &mut self.server;
        let http = server.http();
        let socket = server.nbd_socket();
        let all: Vec<Result<Acted>> = thread::scope(|scope| {
            let mut running = Vec::new();
            for script in scripts {
                let (barrier, http, group, socket) = (&barrier, &http, &group, &socket);
                running.push(scope.spawn(move || {
                    let mut actor = Actor { http, socket, group, link: script.link, kills };
                    barrier.wait();
                    thread::sleep(script.wait);
                    let mut told = Vec::new();
                    for verb in script.verbs {
                        let outcome = actor.act(&verb).with_context(|| format!("{verb:?}"))?;
                        told.push((verb, outcome));
                    }
                    Ok((told, actor.link))
                }));
            }
            barrier.wait();
            if kills {
                thread::sleep(life);
                server.kill();
            }
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Acted>>| {
                thread.join().unwrap_or_else(|_| bail!("a thread of the checker panicked"))
            };
            running.into_iter().map(join).collect()
        });
        let all: Vec<Acted> = all.into_iter().collect::<Result<_>>()?;
        let (told, links): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Ok((told, links.into_iter().flatten().collect()))
    }

    fn look(&self) -> Result<Seen> {
        let http = self.server.http();
        let mut seen = Seen::default();
        let list = http.get("/api/v1/volumes")?;
        for shown in list.as_array().context("a list")? {
            let name = shown["name"].as_str().context("a name")?.to_owned();
            let mut versions = BTreeMap::new();
            let listed = http.get(&path(&name, "/versions?limit=1000"))?;
            for version in listed.as_array().context("a list")? {
                let number = number(&version["number"])?;
                versions.insert(number, self.read(&format!("{name}@v:{number}"))?);
            }
            ensure!(
                number(&shown["versions"])? == versions.len() as u64,
                "{name}: {shown} has {} versions",
                versions.len()
            );
            let window = shown["window"].as_str().context("a window")?.to_owned();
            let pages = self.read(&name)?;
            seen.volumes.insert(name, Volume { pages, versions, window });
        }
        for deleted in http.get("/api/v1/trash")?.as_array().context("a list")? {
            seen.trash.push(deleted["name"].as_str().context("a name")?.to_owned());
        }
        seen.trash.sort_unstable();
        Ok(seen)
    }

    fn read(&self, export: &str) -> Result<Pages> {
        let mut link = self.server.connect(export)?;
        let bytes = link.read(0, link.size()).with_context(|| export.to_owned())?;
        let mut pages = Pages(Vec::new());
        for page in bytes.chunks(usize::try_from(PAGE_BYTES)?) {
            ensure!(page.iter().all(|byte| *byte == page[0]), "{export}: a torn page");
            pages.0.push(page[0]);
        }
        Ok(pages)
    }

    fn restart(&mut self) -> Result<()> {
        self.server.stop()?;
        self.server.up()
    }

    /// Nothing is left for the next turn.
    fn clear(&self, seen: &Seen) -> Result<()> {
        let http = self.server.http();
        for name in seen.volumes.keys() {
            http.expect("DELETE", &path(name, "?force=true&now=true"), None)?;
        }
        for deleted in http.get("/api/v1/trash")?.as_array().context("a list")? {
            http.expect("DELETE", &format!("/api/v1/trash/{}", deleted["id"]), None)?;
        }
        http.expect("DELETE", &format!("/api/v1/groups/{}", self.name("g")), None)?;
        Ok(())
    }
}

/// A thread's ways to the server, and the client that it has.
struct Actor<'a> {
    http: &'a Http,
    socket: &'a Path,
    group: &'a str,
    link: Option<Nbd>,
    /// The server may be gone.
    kills: bool,
}

impl Actor<'_> {
    fn act(&mut self, verb: &Verb) -> Result<Outcome> {
        match verb {
            Verb::Attach { name } => self.attach(name),
            Verb::Write { page, fill } => {
                let Some(link) = &mut self.link else {
                    return Ok(Outcome::Refused("it is not attached".to_owned()));
                };
                match link.ask(&a_write(*page, *fill)) {
                    Ok(Reply::Done) => Ok(Outcome::Done),
                    _ if self.kills => Ok(Outcome::Lost),
                    // Cut off, or told so.
                    Ok(reply) => Ok(Outcome::Refused(format!("{reply:?}"))),
                    Err(error) => Ok(Outcome::Refused(format!("{error:#}"))),
                }
            }
            Verb::Detach => {
                let Some(link) = self.link.take() else { return Ok(Outcome::Done) };
                drop(link.disconnect());
                Ok(Outcome::Done)
            }
            Verb::CaptureGroup | Verb::CreateVersion { .. } => self.ask_for_versions(verb),
            _ => Ok(self.ask(verb)?.map_or_else(|outcome| outcome, |_| Outcome::Done)),
        }
    }

    fn attach(&mut self, name: &str) -> Result<Outcome> {
        match Nbd::connect(self.socket, name) {
            Ok(link) => {
                self.link = Some(link);
                Ok(Outcome::Done)
            }
            Err(error) if error.downcast_ref::<Refused>().is_some() => {
                Ok(Outcome::Refused(format!("{error:#}")))
            }
            // The server is gone, or it was disconnected at once.
            Err(_) => Ok(Outcome::Lost),
        }
    }

    fn ask_for_versions(&self, verb: &Verb) -> Result<Outcome> {
        let made = match self.ask(verb)? {
            Ok(made) => made,
            Err(outcome) => return Ok(outcome),
        };
        if let Verb::CreateVersion { name } = verb {
            return Ok(Outcome::Made(vec![(name.clone(), number(&made["number"])?)]));
        }
        let mut versions = Vec::new();
        for version in made["versions"].as_array().context("a list")? {
            let name = version["volume"].as_str().context("a name")?;
            versions.push((name.to_owned(), number(&version["number"])?));
        }
        versions.sort();
        Ok(Outcome::Made(versions))
    }

    /// The answer to what was done, or what else came of it.
    fn ask(&self, verb: &Verb) -> Result<Result<Value, Outcome>> {
        let (method, target, body) = request(verb, self.group);
        let answer = match self.http.call(method, &target, body.as_ref()) {
            Ok(answer) => answer,
            Err(_) if self.kills => return Ok(Err(Outcome::Lost)),
            Err(error) => return Err(error),
        };
        let told = answer.json()?;
        match answer.status {
            200..300 => Ok(Ok(told)),
            409 if told.to_string().contains("meanwhile") => {
                Ok(Err(Outcome::Busy(told.to_string())))
            }
            400..500 => Ok(Err(Outcome::Refused(told.to_string()))),
            _ if self.kills => Ok(Err(Outcome::Lost)),
            status => bail!("{status}: {told}"),
        }
    }
}

fn request(verb: &Verb, group: &str) -> (&'static str, String, Option<Value>) {
    match verb {
        Verb::Delete { name, force, now } => {
            ("DELETE", path(name, &format!("?force={force}&now={now}")), None)
        }
        Verb::Undelete { id } => ("POST", format!("/api/v1/trash/{id}/undelete"), Some(json!({}))),
        Verb::EmptyTrash { id } => ("DELETE", format!("/api/v1/trash/{id}"), None),
        Verb::Revert { name, version, force } => {
            let body = json!({ "to": format!("v:{version}"), "force": force });
            ("POST", path(name, "/revert"), Some(body))
        }
        Verb::Clone { name, version, to } => {
            let mut body = json!({ "name": to });
            if let Some(version) = version {
                body["at"] = json!(format!("v:{version}"));
            }
            ("POST", path(name, "/clones"), Some(body))
        }
        Verb::CreateVersion { name } => ("POST", path(name, "/versions"), Some(json!({}))),
        Verb::DeleteVersion { name, version } => {
            ("DELETE", path(name, &format!("/versions/{version}")), None)
        }
        Verb::Resize { name, pages, force } => {
            let body = json!({ "size": *pages as u64 * PAGE_BYTES });
            ("PATCH", path(name, &format!("?force={force}")), Some(body))
        }
        Verb::SetWindow { name, window } => {
            ("PATCH", path(name, ""), Some(json!({ "window": window, "grace": "0s" })))
        }
        Verb::CaptureGroup => ("POST", format!("/api/v1/groups/{group}/versions"), Some(json!({}))),
        Verb::Attach { .. } | Verb::Write { .. } | Verb::Detach => unreachable!("of NBD"),
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/api/v1/volumes/{name}{rest}")
}

fn a_write(page: usize, fill: u8) -> Request {
    let bytes = vec![fill; PAGE_BYTES as usize];
    Request::Write { offset: page as u64 * PAGE_BYTES, bytes, fua: false }
}
