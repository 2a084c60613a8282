//! One look: a scratch clone at a moment, attached as was asked for, a command, and its verdict.
//! Nothing of it stays: the clone is deleted; if we are killed, the server removes it, and the
//! process of the mount takes that away.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use api::{Client, CreateClone, DeleteQuery, ExitCode, Resolved, SpanInput, Volume};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use units::Span;

use crate::failure::Failure;
use crate::image;
use crate::nbd::{Address, Export};
use crate::session::Session;

/// How long a clone stays when nobody has it open: when we were killed.
const UNATTENDED: Span = Span(60_000_000_000);
/// A command says so when it cannot tell.
const CANNOT_TELL: i32 = 125;

/// How the moment is attached for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// As an address of NBD only.
    Nbd,
    /// And as a file of this machine, which can be written to.
    Disk,
    /// And as a directory with its files.
    Files,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Good,
    Bad,
    /// It cannot be told.
    Unknown,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Unknown => "cannot tell",
        }
    }
}

/// A look that was had.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub at: Resolved,
    pub verdict: Verdict,
    /// Of the command; none where it was not run.
    pub exit_code: Option<i32>,
    pub took_ms: u64,
}

/// Interrupts: whether there was one, and whom it is passed on to.
#[derive(Default)]
pub struct Interrupted {
    pub is: AtomicBool,
    children: Mutex<BTreeSet<u32>>,
}

impl Interrupted {
    /// Ends the commands under way, and all that would come.
    pub fn interrupt(&self) {
        self.is.store(true, Ordering::Release);
        let children = self.children.lock().map(|children| children.clone()).unwrap_or_default();
        for child in children.into_iter().filter_map(|child| Pid::from_raw(child as i32)) {
            let _ = kill_process(child, Signal::TERM);
        }
    }

    /// Waits for a command, to which interrupts are passed on meanwhile.
    fn wait(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let with = |change: &dyn Fn(&mut BTreeSet<u32>)| {
            if let Ok(mut children) = self.children.lock() {
                change(&mut children);
            }
        };
        let id = child.id();
        with(&|children| _ = children.insert(id));
        // One that came between the start and the note of it.
        if self.is.load(Ordering::Acquire) {
            self.interrupt();
        }
        let status = child.wait();
        with(&|children| _ = children.remove(&id));
        status
    }

    pub fn check(&self) -> anyhow::Result<()> {
        if self.is.load(Ordering::Acquire) {
            let code = ExitCode::Interrupted;
            return Err(Failure { code, ..Failure::new("interrupted") }.into());
        }
        Ok(())
    }
}

/// What is run, and how.
pub struct Trial<'a> {
    pub session: &'a Session,
    pub client: &'a Client,
    pub volume: &'a str,
    pub attach: Attach,
    pub command: &'a [String],
    pub interrupted: &'a Interrupted,
}

/// A scratch clone that is held, and goes when this is dropped.
struct Scratch<'a> {
    client: &'a Client,
    volume: Volume,
    uri: String,
    held: Option<Export>,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.held = None;
        let query = DeleteQuery { force: true, now: true, ..DeleteQuery::default() };
        // It goes by itself, too.
        let _ = self.client.remove_volume(&self.volume.name, &query);
    }
}

/// A mount of a scratch clone, which goes when this is dropped.
struct Mount {
    child: Child,
    dir: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Trial<'_> {
    /// Looks at a moment.
    pub fn look(&self, at: &Resolved) -> anyhow::Result<Run> {
        self.interrupted.check()?;
        let began = Instant::now();
        let scratch = self.scratch(at)?;
        let told = |verdict, exit_code| Run {
            at: *at,
            verdict,
            exit_code,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let mount = match self.attach {
            Attach::Nbd => None,
            Attach::Disk | Attach::Files => match self.mount(&scratch.volume.name)? {
                Some(mount) => Some(mount),
                None => return Ok(told(Verdict::Unknown, None)),
            },
        };
        let code = self.run(at, &scratch, mount.as_ref())?;
        self.interrupted.check()?;
        if self.client.volume(&scratch.volume.name).is_err() {
            let text = format!("the clone of seq:{} went away while the command ran", at.seq);
            return Err(Failure::new(text)
                .with_hint("is the pool full, or the server gone?")
                .into());
        }
        let verdict = match code {
            Some(0) => Verdict::Good,
            Some(CANNOT_TELL) => Verdict::Unknown,
            Some(1..CANNOT_TELL) => Verdict::Bad,
            stopped => {
                let code = stopped.map_or("by a signal".to_owned(), |code| format!("with {code}"));
                let text =
                    format!("the command ended {code} at seq:{}, which stops the search", at.seq);
                return Err(Failure::new(text).into());
            }
        };
        Ok(told(verdict, code))
    }

    fn scratch(&self, at: &Resolved) -> anyhow::Result<Scratch<'_>> {
        let body = CreateClone {
            at: Some(format!("seq:{}", at.seq)),
            scratch: Some(SpanInput(UNATTENDED)),
            ..CreateClone::default()
        };
        let volume = self.client.create_clone(self.volume, &body)?;
        let mut scratch = Scratch { client: self.client, volume, uri: String::new(), held: None };
        let cloned = scratch.volume.cloned_from.as_ref().map(|origin| origin.seq);
        if cloned != Some(at.seq) {
            let text = format!("seq:{} was not kept: the volume keeps not every write", at.seq);
            let hint = "name a version or a mark that is pinned, as --bad v:3";
            return Err(Failure::new(text).with_hint(hint).into());
        }
        scratch.uri = image::uri(&scratch.volume, "")?;
        let address: Address = scratch.uri.parse().map_err(Failure::new)?;
        scratch.held = Some(address.open()?);
        Ok(scratch)
    }

    /// A mount by a process of its own, which outlives us for as long as it takes to go; none where
    /// the files cannot be read.
    fn mount(&self, clone: &str) -> anyhow::Result<Option<Mount>> {
        let dir = std::env::temp_dir().join(format!("hindsight-{clone}"));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| dir.display().to_string())?;
        let shows: &[&str] = match self.attach {
            Attach::Files => &["--files", "--as-me"],
            _ => &["--disk", "--writable"],
        };
        let mut command = Command::new(std::env::current_exe()?);
        self.session.tell(&mut command);
        command.args(["mount", clone]).arg(&dir).args(shows).args(["--foreground", "--attached"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // An interrupt is for us: the mount ends when we are done with it.
        let mut child = command.process_group(0).spawn()?;
        let mut first = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut first)?;
        }
        let mut mount = Mount { child, dir };
        if !first.is_empty() {
            return Ok(Some(mount));
        }
        drop(mount.child.stdin.take());
        let code = mount.child.wait()?.code();
        let _ = fs::remove_dir(&mount.dir);
        let mut said = String::new();
        if let Some(stderr) = &mut mount.child.stderr {
            stderr.read_to_string(&mut said)?;
        }
        if code == Some(ExitCode::Unreadable as i32) {
            crate::session::say(said.trim());
            return Ok(None);
        }
        let said = said.trim().trim_start_matches("error: ").replace('\n', " ");
        let text = format!("the moment cannot be mounted: {said}");
        Err(Failure::new(text).with_hint("--attach nbd does without a mount").into())
    }

    /// Runs the command; its exit code, or none where a signal ended it.
    fn run(
        &self,
        at: &Resolved,
        scratch: &Scratch<'_>,
        mount: Option<&Mount>,
    ) -> anyhow::Result<Option<i32>> {
        let (program, arguments) = self.command.split_first().context("a command")?;
        let mut command = Command::new(program);
        self.session.tell(&mut command);
        command
            .args(arguments)
            .env("HINDSIGHT_URI", &scratch.uri)
            .env("HINDSIGHT_MOMENT", at.time.to_string())
            .env("HINDSIGHT_SEQ", at.seq.to_string())
            .stdin(Stdio::null())
            // What it says is talk: data is what we answer.
            .stdout(Stdio::from(std::io::stderr()));
        match (self.attach, mount) {
            (Attach::Disk, Some(mount)) => command.env("HINDSIGHT_DISK", mount.dir.join("disk")),
            (_, Some(mount)) => command.env("HINDSIGHT_FILES", &mount.dir),
            (_, None) => &mut command,
        };
        let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let status = self.interrupted.wait(&mut child)?;
        if status.signal().is_some() {
            return Ok(None);
        }
        Ok(status.code())
    }
}
