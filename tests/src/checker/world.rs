//! One run: a server, its volumes, and the steps that are taken with them.

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::Options;
use super::past::{
    check_between, check_changed_context, check_diff, check_holes, check_moment,
    check_refuses_writes, compare,
};
use super::plan;
use super::settle::settle;
use super::storm::Storm;
use super::subject::{Held, Moment, Retains, Subject};
use crate::image::Image;
use crate::random::Random;
use crate::server::Server;

/// How many steps are told when something is found.
const STORY_STEPS: usize = 60;
const VOLUMES_MAX: usize = 5;
/// Recorded moments of a volume that are compared at its end, of which the newest and a sample.
const COMPARED_AT_END: usize = 24;

/// What a run has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests that change bytes.
    pub writes: u64,
    /// Recorded moments compared.
    pub compared: u64,
    /// Ends of the server by `kill -9`.
    pub kills: u64,
    /// Reverts, undone ones included.
    pub reverts: u64,
    /// Clones.
    pub clones: u64,
    /// Diffs compared.
    pub diffs: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.writes += other.writes;
        self.compared += other.compared;
        self.kills += other.kills;
        self.reverts += other.reverts;
        self.clones += other.clones;
        self.diffs += other.diffs;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} writes, {} moments compared, {} kills, {} reverts, {} clones, {} diffs",
            self.writes, self.compared, self.kills, self.reverts, self.clones, self.diffs
        )
    }
}

pub(super) struct World {
    pub server: Server,
    pub random: Random,
    pub subjects: Vec<Subject>,
    pub options: Options,
    pub counts: Counts,
    story: VecDeque<String>,
    names: u64,
    step: u64,
}

impl World {
    pub fn new(program: &Path, pool: &Path, seed: u64, options: Options) -> Result<World> {
        Ok(World {
            server: Server::start(program, pool)?,
            random: Random::new(seed),
            subjects: Vec::new(),
            options,
            counts: Counts::default(),
            story: VecDeque::new(),
            names: 0,
            step: 0,
        })
    }

    pub fn run(&mut self) -> Result<()> {
        self.create_volume(Retains::Everything)?;
        for step in 0..self.options.steps {
            self.step = step;
            self.take_step()?;
            self.server.check()?;
        }
        self.finish()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn story(&self) -> String {
        self.story.iter().cloned().collect::<Vec<String>>().join("\n")
    }

    pub fn server_log(&self) -> String {
        let talk = self.server.talk();
        let lines: Vec<&str> = talk.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<&str>>().join("\n")
    }

    pub fn note(&mut self, what: String) {
        if self.story.len() == STORY_STEPS {
            self.story.pop_front();
        }
        self.story.push_back(format!("  {:3} {what}", self.step));
    }

    pub fn fresh(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn take_step(&mut self) -> Result<()> {
        let at = self.random.index(self.subjects.len());
        match self.random.below(100) {
            0..32 => self.storm(at),
            32..37 => self.sequence(at),
            37..49 => self.look_back(at),
            49..52 => self.hold_view(at),
            52..58 => self.create_version(at),
            58..60 => self.delete_version(at),
            60..65 => self.create_mark(at),
            65..67 => self.delete_mark(at),
            67..75 => self.revert(at),
            75..79 if self.subjects.len() < VOLUMES_MAX => self.clone_volume(at),
            79..84 => self.compare_diff(at),
            84..87 => self.resize(at),
            87..89 if self.subjects.len() > 1 => self.delete_volume(at),
            89..91 if self.subjects.len() < VOLUMES_MAX => self.create_any_volume(),
            91..96 => self.storm_and_kill(at),
            96..98 => self.restart(),
            _ => {
                thread::sleep(Duration::from_millis(self.random.below(60)));
                self.check_present(at, false)
            }
        }
    }

    fn create_any_volume(&mut self) -> Result<()> {
        let retains = match self.random.below(4) {
            0 => Retains::Intervals,
            1 => Retains::OnDemand,
            _ => Retains::Everything,
        };
        self.create_volume(retains)
    }

    fn create_volume(&mut self, retains: Retains) -> Result<()> {
        let name = format!("vol-{}", self.fresh());
        let granularity = match retains {
            Retains::Everything => "every-write",
            Retains::Intervals => "50ms",
            Retains::OnDemand => "on-demand",
        };
        let size = self.random.between(128, self.options.volume_bytes_max / 512) * 512;
        let body = json!({ "name": name, "size": size, "granularity": granularity });
        self.note(format!("create {body}"));
        self.server.http().expect("POST", "/api/v1/volumes", Some(&body))?;
        let mut subject = Subject::new(&name, retains, Image::zeros(size));
        if retains == Retains::Everything {
            subject.record(&self.server.http(), false)?;
        }
        self.subjects.push(subject);
        Ok(())
    }

    /// Connections enough for a storm, some of them kept from the one before.
    fn link(&mut self, at: usize) -> Result<()> {
        let wanted = usize::try_from(self.random.between(1, 4))?;
        let subject = &mut self.subjects[at];
        if self.random.chance(20) {
            subject.links.clear();
        }
        subject.links.truncate(wanted);
        while subject.links.len() < wanted {
            let link = self.server.connect(&subject.name)?;
            ensure!(link.size() == subject.image.size(), "{} has another size", subject.name);
            subject.links.push(link);
        }
        Ok(())
    }

    fn storm(&mut self, at: usize) -> Result<()> {
        self.link(at)?;
        let racing = self.random.chance(30);
        let count = self.random.between(1, 60);
        let depth = usize::try_from(self.random.between(1, 64))?;
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        let first = subject.latest_seq(&http)?;
        let mut ops = plan::ops(&mut self.random, &subject.image, count, racing);
        let name = format!("storm on {}: {} ops, depth {depth}", subject.name, ops.len());
        Storm::new(&mut ops, &mut subject.links, &subject.image)
            .run(&mut self.random, depth)
            .context(name.clone())?;
        self.counts.writes += ops.len() as u64;
        let before = subject.image.clone();
        if racing {
            let found = subject.links[0].read(0, before.size())?;
            subject.image = settle(&before, &ops, &found).context(name.clone())?;
        } else {
            ops.iter().for_each(|op| op.apply(&mut subject.image));
        }
        let last = subject.latest_seq(&http)?;
        ensure!(last > first, "{name}: the seq did not rise from {first}");
        if subject.retains == Retains::Everything && self.random.chance(70) {
            let by_time = self.random.chance(50);
            subject.record(&http, by_time)?;
            if !racing && self.random.chance(40) {
                check_between(
                    &self.server,
                    subject,
                    (first, &before),
                    last,
                    &ops,
                    &mut self.random,
                )?;
            }
        }
        self.note(format!("{name}, racing {racing}: seq {first} to {last}"));
        self.check_present(at, false)
    }

    /// One request after the other, each of them a recorded moment.
    fn sequence(&mut self, at: usize) -> Result<()> {
        self.link(at)?;
        let http = self.server.http();
        for _ in 0..self.random.between(1, 8) {
            let subject = &mut self.subjects[at];
            let ops = plan::ops(&mut self.random, &subject.image, 1, true);
            for op in &ops {
                subject.links[0].demand(&op.request)?;
                op.apply(&mut subject.image);
            }
            if subject.retains == Retains::Everything {
                subject.record(&http, false)?;
            }
            self.counts.writes += 1;
        }
        let name = self.subjects[at].name.clone();
        self.note(format!("{name}: one write after the other"));
        self.check_present(at, false)
    }

    pub(super) fn check_present(&mut self, at: usize, whole: bool) -> Result<()> {
        let subject = &self.subjects[at];
        let latest = if self.random.chance(20) { "@latest" } else { "" };
        let export = format!("{}{latest}", subject.name);
        let mut link = self.server.connect(&export)?;
        compare(&mut link, &subject.image, whole, &mut self.random)
            .and_then(|()| if whole { check_holes(&mut link, &subject.image) } else { Ok(()) })
            .with_context(|| format!("the present of {export}"))
    }

    fn look_back(&mut self, at: usize) -> Result<()> {
        let subject = &self.subjects[at];
        if subject.moments.is_empty() {
            return Ok(());
        }
        for _ in 0..self.random.between(1, 4) {
            let moment = &subject.moments[self.random.index(subject.moments.len())];
            let whole = self.random.chance(50);
            check_moment(&self.server, subject, moment, whole, &mut self.random)?;
            self.counts.compared += 1;
        }
        if self.random.chance(20) {
            check_refuses_writes(&self.server, &format!("{}@latest", subject.name))?;
        }
        Ok(())
    }

    fn hold_view(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        let kept: Vec<&Moment> = subject.moments.iter().filter(|m| subject.keeps(m)).collect();
        if kept.is_empty() || subject.held.len() > 3 {
            return Ok(());
        }
        let moment = kept[self.random.index(kept.len())];
        let name = format!("{}@seq:{}", subject.name, moment.seq);
        let held = Held {
            link: self.server.connect(&name)?,
            name: name.clone(),
            image: moment.image.clone(),
        };
        subject.held.push(held);
        self.note(format!("hold {name}"));
        Ok(())
    }

    fn compare_diff(&mut self, at: usize) -> Result<()> {
        let subject = &self.subjects[at];
        let kept: Vec<&Moment> = subject.moments.iter().filter(|m| subject.keeps(m)).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let from = kept[self.random.index(kept.len())];
        let to = kept[self.random.index(kept.len())];
        let limit = if self.random.chance(50) { 65_536 } else { self.random.between(1, 20) };
        let second = if self.random.chance(30) {
            ("latest", &subject.image)
        } else {
            (to.names[0].as_str(), &to.image)
        };
        let first = (from.names[0].as_str(), &from.image);
        check_diff(&self.server, subject, first, second, limit)?;
        if self.random.chance(50) {
            check_changed_context(&self.server, subject, first, second)?;
        }
        self.counts.diffs += 1;
        Ok(())
    }

    fn storm_and_kill(&mut self, at: usize) -> Result<()> {
        self.link(at)?;
        let count = self.random.between(4, 120);
        let until = self.random.below(count + 1);
        let racing = self.random.chance(40);
        let subject = &mut self.subjects[at];
        let mut ops = plan::ops(&mut self.random, &subject.image, count, racing);
        let server = &mut self.server;
        Storm::new(&mut ops, &mut subject.links, &subject.image).run_until_killed(
            &mut self.random,
            until,
            || server.kill(),
        )?;
        let acknowledged = ops.iter().filter(|op| op.done_as.is_some()).count();
        let sent = ops.iter().filter(|op| op.sent_after.is_some()).count();
        self.counts.writes += sent as u64;
        let name = subject.name.clone();
        self.note(format!("kill -9: {name}, {sent} sent, {acknowledged} acknowledged"));
        self.up_again()?;
        let subject = &mut self.subjects[at];
        let found = self.server.connect(&name)?.read(0, subject.image.size())?;
        subject.image = settle(&subject.image, &ops, &found)
            .with_context(|| format!("{name} after kill -9"))?;
        if subject.retains == Retains::Everything {
            subject.record(&self.server.http(), true)?;
        }
        self.check_all_presents()
    }

    fn restart(&mut self) -> Result<()> {
        if self.random.chance(50) {
            self.server.kill();
            self.note("kill -9 at rest".to_owned());
        } else {
            self.server.stop()?;
            self.note("stop".to_owned());
        }
        self.up_again()?;
        self.check_all_presents()
    }

    fn up_again(&mut self) -> Result<()> {
        self.counts.kills += 1;
        self.subjects.iter_mut().for_each(Subject::drop_links);
        self.server.up()?;
        let ready = self.server.http().call("GET", "/readyz", None)?;
        ensure!(ready.status == 200, "/readyz gives {}", ready.status);
        Ok(())
    }

    fn check_all_presents(&mut self) -> Result<()> {
        for at in 0..self.subjects.len() {
            self.check_present(at, true)?;
            self.look_back(at)?;
        }
        Ok(())
    }

    /// Compares everything once more, before and after a last restart, and while volumes go.
    fn finish(&mut self) -> Result<()> {
        self.note("the end: compare everything".to_owned());
        for subject in &mut self.subjects {
            for held in &mut subject.held {
                compare(&mut held.link, &held.image, true, &mut self.random)
                    .with_context(|| format!("{}, held open", held.name))?;
            }
        }
        self.compare_everything()?;
        self.restart()?;
        self.compare_everything()?;
        while self.subjects.len() > 1 {
            let at = self.random.index(self.subjects.len());
            self.delete_volume(at)?;
            self.check_all_presents()?;
        }
        self.compare_everything()?;
        self.server.stop()?;
        let talk = self.server.talk();
        if let Some(line) = talk.lines().find(|line| line.contains(" ERROR ")) {
            bail!("the server logged an error: {line}");
        }
        Ok(())
    }

    fn compare_everything(&mut self) -> Result<()> {
        for at in 0..self.subjects.len() {
            self.check_present(at, true)?;
            let subject = &self.subjects[at];
            let all = subject.moments.len();
            for (index, moment) in subject.moments.iter().enumerate() {
                let left = (all - index) as u64;
                if self.random.below(left) < COMPARED_AT_END as u64 / 2 || index % 4 == 0 {
                    check_moment(&self.server, subject, moment, true, &mut self.random)?;
                    self.counts.compared += 1;
                }
            }
        }
        Ok(())
    }
}
