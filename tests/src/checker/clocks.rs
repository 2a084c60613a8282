//! A clock that jumps, under a server that writes: a year and an hour ahead and back, a day behind,
//! a start in 2200. Nothing leaves a window by it, times that were resolved mean what they meant,
//! and order stands.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;

use super::subject::number;
use super::world::{ARCHITECTURES, Counts};
use crate::client::Client;
use crate::http::escape;
use crate::image::{Image, PAGE_BYTES};
use crate::nbd::Request;
use crate::random::Random;
use crate::server::Server;

const SIZE_BYTES: u64 = 1 << 20;
/// A little more than the granularity of the volume that keeps intervals.
const INTERVAL: Duration = Duration::from_millis(1100);
/// Windows are looked at four times a second.
const LOOKED_AT: Duration = Duration::from_millis(1000);
/// A clock that was wrong for so long was believed, once.
const LONG: Duration = Duration::from_secs(4);
/// Moments of a volume that are compared after each jump.
const COMPARED: usize = 6;

struct Moment {
    seq: u64,
    time: String,
    image: Image,
}

struct Subject {
    name: &'static str,
    image: Image,
    moments: Vec<Moment>,
}

struct Clocks {
    server: Server,
    random: Random,
    /// Holds by how much the server's clock is wrong.
    clock: PathBuf,
    /// A volume that nobody writes to again; one that retains every write; one of intervals.
    subjects: [Subject; 3],
    counts: Counts,
}

/// One server, through all that its clock does.
pub(super) fn run(program: &Path, pool: &Path, seed: u64) -> Result<Counts> {
    let clock = pool.with_extension("clock");
    fs::write(&clock, "+0")?;
    let mut server = Server::start(program, pool)?;
    server.stop()?;
    server.set_clock(&clock)?;
    server.up()?;
    let subject = |name| Subject { name, image: Image::zeros(SIZE_BYTES), moments: Vec::new() };
    let subjects = [subject("idle"), subject("busy"), subject("coarse")];
    let (random, counts) = (Random::new(seed ^ 0xc10c), Counts::default());
    let mut clocks = Clocks { server, random, clock, subjects, counts };
    clocks.create()?;
    clocks.jumps()?;
    clocks.server.check()?;
    Ok(clocks.counts)
}

impl Clocks {
    fn create(&mut self) -> Result<()> {
        let http = self.server.http();
        for (name, granularity) in
            [("idle", "every-write"), ("busy", "every-write"), ("coarse", "1s"), ("gone", "1s")]
        {
            let architecture = ARCHITECTURES[self.random.index(ARCHITECTURES.len())];
            let body = json!({
                "name": name, "size": SIZE_BYTES, "granularity": granularity, "window": "1h",
                "architecture": architecture
            });
            http.expect("POST", "/api/v1/volumes", Some(&body))?;
        }
        http.expect("DELETE", "/api/v1/volumes/gone", None)?;
        for _ in 0..8 {
            self.write(0)?;
            self.write(1)?;
        }
        for _ in 0..2 {
            self.write(2)?;
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn jumps(&mut self) -> Result<()> {
        let mut jumps = [("+1y", LONG), ("+1h", LOOKED_AT), ("-1d", LOOKED_AT)];
        for at in (1..jumps.len()).rev() {
            jumps.swap(at, self.random.index(at + 1));
        }
        // Each run two of them, which takes time enough.
        for &(by, time) in &jumps[..2] {
            self.jump(by, time).with_context(|| format!("the clock went {by} and back"))?;
        }
        // Only now: what is written then has times of then.
        self.server.stop()?;
        self.set_clock("@2200-01-01 00:00:00")?;
        self.server.up()?;
        self.go_on(LOOKED_AT).context("in 2200")?;
        self.look().context("in 2200")?;
        self.server.kill();
        self.set_clock("+0")?;
        self.server.up()?;
        self.go_on(LOOKED_AT)?;
        self.look().context("after a start in 2200")?;
        self.counts.jumps += 1;
        self.server.wait_for_talk("ahead of the clock")
    }

    /// The clock is wrong for a while, under writes, and perhaps while the server starts.
    fn jump(&mut self, by: &str, time: Duration) -> Result<()> {
        self.set_clock(by)?;
        if self.random.chance(30) {
            self.restart()?;
        }
        self.go_on(time)?;
        if self.random.chance(50) {
            self.look().context("meanwhile")?;
        }
        self.set_clock("+0")?;
        if self.random.chance(30) {
            self.restart()?;
        }
        self.go_on(INTERVAL)?;
        self.counts.jumps += 1;
        self.look()
    }

    fn restart(&mut self) -> Result<()> {
        if self.random.chance(50) {
            for subject in &self.subjects {
                self.server.connect(subject.name)?.demand(&Request::Flush)?;
            }
            self.server.kill();
            self.counts.kills += 1;
        } else {
            self.server.stop()?;
        }
        self.server.up()?;
        self.forget_interval();
        Ok(())
    }

    fn set_clock(&mut self, to: &str) -> Result<()> {
        self.forget_interval();
        Ok(fs::write(&self.clock, to)?)
    }

    /// Where the clock is found to be behind the log, the log's time goes on from its last write:
    /// the next one is of the same interval, and takes its place.
    fn forget_interval(&mut self) {
        self.subjects[2].moments.pop();
    }

    /// Writes until so much time has passed: to intervals once in each.
    fn go_on(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            self.write(2)?;
            let written = Instant::now();
            for _ in 0..self.random.between(1, 4) {
                self.write(1)?;
            }
            thread::sleep(INTERVAL.saturating_sub(written.elapsed()));
            if began.elapsed() >= time {
                return Ok(());
            }
        }
    }

    /// Writes once, and records the moment by its seq and the time that the server gives it.
    fn write(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        let offset = self.random.below(SIZE_BYTES / PAGE_BYTES) * PAGE_BYTES;
        let mut bytes = vec![0; usize::try_from(PAGE_BYTES)?];
        self.random.fill(&mut bytes);
        subject.image.write(offset, &bytes);
        let request = Request::Write { offset, bytes, fua: self.random.chance(20) };
        self.server.connect(subject.name)?.demand(&request)?;
        let shown = self.server.http().get(&format!("/api/v1/volumes/{}", subject.name))?;
        let seq = number(&shown["latest"]["seq"])?;
        let time = shown["latest"]["time"].as_str().context("a time")?.to_owned();
        subject.moments.push(Moment { seq, time, image: subject.image.clone() });
        self.counts.writes += 1;
        Ok(())
    }

    /// Every moment resolves to what it was, in its order; some are compared byte by byte.
    fn look(&mut self) -> Result<()> {
        let http = self.server.http();
        for subject in &self.subjects {
            let mut before: Option<Timestamp> = None;
            let count = subject.moments.len();
            for (at, moment) in subject.moments.iter().enumerate() {
                let time: Timestamp = moment.time.parse()?;
                ensure!(before < Some(time), "{}: {} is not after {before:?}", subject.name, time);
                before = Some(time);
                let seq = moment.seq;
                for name in [format!("seq:{seq}"), moment.time.clone()] {
                    let what = format!("/api/v1/volumes/{}/resolve?at=", subject.name);
                    let answer = http.get(&(what + &escape(&name)))?;
                    let is_right = number(&answer["seq"])? == seq && answer["exact"] == true;
                    let all = || subject.moments.iter().map(|m| (m.seq, &m.time));
                    ensure!(
                        is_right,
                        "{}@{name} was seq {seq}: {answer} of {:?}",
                        subject.name,
                        all().collect::<Vec<_>>()
                    );
                }
                // The first and the last ones, and some between.
                if at == 0 || at + 2 > count || self.random.index(count) < COMPARED {
                    let by_time = self.random.chance(50);
                    let name = if by_time { moment.time.clone() } else { format!("seq:{seq}") };
                    let export = format!("{}@{name}", subject.name);
                    let found = self.server.connect(&export)?.read(0, SIZE_BYTES)?;
                    let difference = moment.image.first_difference(0, &found);
                    ensure!(difference.is_none(), "{export}: byte {difference:?} is another");
                    self.counts.compared += 1;
                }
            }
        }
        let trash = http.get("/api/v1/trash")?;
        ensure!(trash[0]["name"] == "gone", "what was in the trash has expired: {trash}");
        Ok(())
    }
}
