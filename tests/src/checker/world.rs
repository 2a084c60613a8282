//! One run: a server, its volumes, and the steps that are taken with them.

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::Options;
use super::past::compare;
use super::subject::{Retains, SHORT_WINDOW, Subject, Window};
use crate::client::Client;
use crate::image::Image;
use crate::nbd::Request;
use crate::random::Random;
use crate::server::Server;

/// How many steps are told when something is found.
const STORY_STEPS: usize = 60;
const VOLUMES_MAX: usize = 5;
/// Where volumes may keep their present; to a client they are the same.
pub(super) const ARCHITECTURES: [&str; 6] =
    ["logging", "split-stream", "split-downstream", "redirect", "checkpointing", "hybrid"];
/// Recorded moments of a volume that are compared at its end, of which the newest and a sample.
pub(super) const COMPARED_AT_END: usize = 24;

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
    /// Bits that flipped.
    pub flips: u64,
    /// Starts that were refused for that.
    pub refused: u64,
    /// Sessions over iSCSI.
    pub sessions: u64,
    /// Times that verbs conflicted.
    pub clashes: u64,
    /// Times that the clock jumped and came back.
    pub jumps: u64,
    /// Restores and repairs of shares.
    pub repairs: u64,
    /// Times that calls of NFS were sent again.
    pub sent_again: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.writes += other.writes;
        self.compared += other.compared;
        self.kills += other.kills;
        self.reverts += other.reverts;
        self.clones += other.clones;
        self.diffs += other.diffs;
        self.flips += other.flips;
        self.refused += other.refused;
        self.sessions += other.sessions;
        self.clashes += other.clashes;
        self.jumps += other.jumps;
        self.repairs += other.repairs;
        self.sent_again += other.sent_again;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} writes, {} moments compared, {} kills, {} reverts, {} clones, {} diffs, \
             {} bits flipped ({} starts refused), \
             {} sessions over iSCSI, {} clashes, {} jumps of the clock, \
             {} repairs of shares, {} times calls sent again",
            self.writes,
            self.compared,
            self.kills,
            self.reverts,
            self.clones,
            self.diffs,
            self.flips,
            self.refused,
            self.sessions,
            self.clashes,
            self.jumps,
            self.repairs,
            self.sent_again
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
            server: Server::start_with(program, pool, &["--iscsi", "127.0.0.1:0"])?,
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
        self.create_volume(Retains::Everything, Window::Long)?;
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
            52..56 => self.create_version(at),
            56..58 => self.compact_version(at),
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
            98 => self.convert(at),
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
        let window = if self.random.chance(50) { Window::Short } else { Window::Long };
        self.create_volume(retains, window)
    }

    pub(super) fn create_volume(&mut self, retains: Retains, window: Window) -> Result<()> {
        let name = format!("vol-{}", self.fresh());
        let granularity = match retains {
            Retains::Everything => "every-write",
            Retains::Intervals => "50ms",
            Retains::OnDemand => "on-demand",
        };
        let size = self.random.between(128, self.options.volume_bytes_max / 512) * 512;
        let architecture = ARCHITECTURES[self.random.index(ARCHITECTURES.len())];
        let mut body = json!({
            "name": name, "size": size, "granularity": granularity, "architecture": architecture
        });
        if self.random.chance(60) {
            body["extent"] = json!(4096_u64 << self.random.between(0, 4));
        }
        if window == Window::Short {
            body["window"] = json!(SHORT_WINDOW);
        }
        if self.random.chance(40) {
            body["cache"] = json!(self.random.between(64 << 10, 2 << 20));
            body["cache_dirty_percent"] = json!(self.random.between(1, 100));
        }
        if self.random.chance(50) {
            body["encoding"] = json!(["xor", "delta"][self.random.index(2)]);
            body["encode_after"] = json!("0s");
        }
        if self.random.chance(30) {
            body["dedup"] = json!(true);
        }
        self.note(format!("create {body}"));
        self.server.http().expect("POST", "/api/v1/volumes", Some(&body))?;
        let mut subject = Subject::new(&name, retains, window, Image::zeros(size));
        subject.note_cache(&self.server.http())?;
        if retains == Retains::Everything {
            subject.record(&self.server.http(), false)?;
        }
        self.subjects.push(subject);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        if self.random.chance(50) {
            self.flush_caches()?;
            self.server.kill();
            self.note("kill -9 at rest".to_owned());
        } else {
            self.server.stop()?;
            self.note("stop".to_owned());
        }
        self.up_again()?;
        self.check_all_presents()
    }

    /// Flushes what a kill would take.
    pub(super) fn flush_caches(&mut self) -> Result<()> {
        for subject in self.subjects.iter().filter(|subject| subject.is_cached) {
            self.server.connect(&subject.name)?.demand(&Request::Flush)?;
        }
        Ok(())
    }

    pub(super) fn up_again(&mut self) -> Result<()> {
        self.counts.kills += 1;
        self.subjects.iter_mut().for_each(Subject::drop_links);
        self.server.up()?;
        let ready = self.server.http().call("GET", "/readyz", None)?;
        ensure!(ready.status == 200, "/readyz gives {}", ready.status);
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
}
