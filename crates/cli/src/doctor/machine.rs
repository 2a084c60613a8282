//! The machine: its clock, the server's process with its limits, and where the pool lies.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::sockopt::socket_peercred;
use server::{Config, memory_bytes, write_memory_default};

use super::report::{Level, Report};
use crate::output::human;

/// Open files beside the connections: members, listeners, views' files.
const FILES_BESIDE_CONNECTIONS: u64 = 256;
/// How much of the machine's memory the server may be told to take, in percent.
const MEMORY_PERCENT_MAX: u64 = 80;

/// A server's process.
pub struct Process {
    /// What /proc has of it.
    folder: PathBuf,
    /// Its command line.
    words: Vec<String>,
}

/// The server that listens on a socket. The kernel tells 0 of one in another namespace, and who
/// made the socket if that was not the server: only a process of its name is believed.
pub fn process(socket: &Path) -> Option<Process> {
    let stream = UnixStream::connect(socket).ok()?;
    let number = socket_peercred(&stream).ok()?.pid.as_raw_nonzero();
    let folder = PathBuf::from(format!("/proc/{number}"));
    if !fs::read_to_string(folder.join("comm")).ok()?.starts_with("hindsight") {
        return None;
    }
    let command = fs::read(folder.join("cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&command).split('\0').map(str::to_owned).collect();
    Some(Process { folder, words })
}

impl Process {
    /// The path that a flag of its command line names.
    pub fn told(&self, flag: &str) -> Option<PathBuf> {
        let is_value =
            |word: &'_ String| word.strip_prefix(flag)?.strip_prefix('=').map(str::to_owned);
        let mut words = self.words.iter();
        let value = words.clone().find_map(is_value);
        let value =
            value.or_else(|| words.find(|word| *word == flag).and(words.next().cloned()))?;
        let path = self.folder.join("cwd").join(value);
        Some(path.canonicalize().unwrap_or(path))
    }
}

/// Whether the kernel's clock is kept by somebody, as timedatectl tells it.
pub fn look_at_clock(report: &mut Report) {
    let mut ask = Command::new("timedatectl");
    ask.args(["show", "--property=NTPSynchronized", "--value"]).stderr(Stdio::null());
    let said = ask.stdin(Stdio::null()).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    match said.as_deref() {
        Ok("yes") => {}
        Ok("no") => report.find(
            ("clock", Level::Warning),
            "the clock is not synchronised",
            "moments are named by it, schedules go by it, and windows end by it",
            "timedatectl set-ntp true (or chrony), then: timedatectl",
        ),
        Ok(_) | Err(_) => report.not_looked("clock", "timedatectl does not tell"),
    }
}

pub fn look_at_process(process: &Process, config: Option<&Config>, report: &mut Report) {
    let at = |name: &str| process.folder.join(name);
    match fs::read_link(at("exe")) {
        Ok(program) => look_at_program(&program.to_string_lossy(), report),
        Err(error) => report.not_looked("program", format!("{}: {error}", at("exe").display())),
    }
    match fs::read_to_string(at("limits")) {
        Ok(limits) => look_at_files(&limits, config, report),
        Err(error) => {
            report.not_looked("open-files", format!("{}: {error}", at("limits").display()));
        }
    }
    let Some(config) = config else {
        return report.not_looked("memory", "there is no configuration file that says it");
    };
    let is_told = |word: &str| word.starts_with("--memory") || word.starts_with("--buffers");
    if process.words.iter().any(|word| is_told(word) || word.starts_with("--write-memory")) {
        return report.not_looked("memory", "it was said at the start, not by the configuration");
    }
    let limit = memory_bytes(&fs::read_to_string(at("cgroup")).unwrap_or_default());
    look_at_memory(asked_memory(config, limit), limit, report);
}

/// The program of a process whose file was replaced.
pub(super) fn look_at_program(program: &str, report: &mut Report) {
    if !program.ends_with(" (deleted)") {
        return;
    }
    report.find(
        ("program", Level::Warning),
        "the server runs a program that was replaced since",
        "what the newer one mends is not in use",
        "when clients can stand it: systemctl restart hindsight",
    );
}

pub(super) fn look_at_files(limits: &str, config: Option<&Config>, report: &mut Report) {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    // The server raises the first, the soft limit, to the second.
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    let Some(Ok(hard)) = hard.map(str::parse::<u64>) else { return };
    let connections = config.map_or(1024, |config| config.nbd_connections_max as u64);
    let needed = connections + FILES_BESIDE_CONNECTIONS;
    if hard >= needed {
        return;
    }
    report.find(
        ("open-files", Level::Warning),
        format!(
            "the server may open {hard} files, and {connections} NBD connections need {needed}"
        ),
        "connections are refused before their limit",
        "LimitNOFILE=65536 in a drop-in: systemctl edit hindsight",
    );
}

/// The memory that a configuration may take, with what write buffers take by themselves.
pub(super) fn asked_memory(config: &Config, limit: u64) -> u64 {
    let buffers = config.write_memory_bytes;
    let buffers = buffers.unwrap_or_else(|| write_memory_default(limit).unwrap_or(0));
    config.memory_bytes + config.buffers_bytes as u64 + buffers
}

pub(super) fn look_at_memory(asked: u64, limit: u64, report: &mut Report) {
    if asked <= limit / 100 * MEMORY_PERCENT_MAX {
        return;
    }
    let (asked, limit) = (human(asked), human(limit));
    report.find(
        ("memory", Level::Warning),
        format!("the server may take {asked}, and has {limit}"),
        "a server that the kernel kills for its memory is away while it starts again",
        "less of memory, buffers or write_memory in the configuration, or MemoryMax= of the unit",
    );
}

/// The kinds of file systems that statfs tells by number, and why a pool should not be there.
const KINDS: &[(u64, Level, &str, &str)] = &[
    (0x6969, Level::Warning, "NFS", NETWORK),
    (0xff53_4d42, Level::Warning, "CIFS", NETWORK),
    (0xfe53_4d42, Level::Warning, "SMB", NETWORK),
    (0x00c3_6400, Level::Warning, "Ceph", NETWORK),
    (0x0102_1997, Level::Warning, "9p", NETWORK),
    (
        0x0102_1994,
        Level::Critical,
        "tmpfs",
        "it is memory: nothing of the pool outlives the machine",
    ),
    (
        0x8584_58f6,
        Level::Critical,
        "ramfs",
        "it is memory: nothing of the pool outlives the machine",
    ),
    (0x794c_7630, Level::Warning, "overlayfs", "it is a container's own: the pool goes with it"),
];
const NETWORK: &str = "a flush is as durable as the other machine makes it, and locks are not sure";

pub fn look_at_folder(pool: &Path, report: &mut Report) {
    match rustix::fs::statfs(pool) {
        Ok(told) => look_at_kind(pool, told.f_type as u64 & 0xffff_ffff, report),
        Err(error) => report.not_looked("file-system", format!("{}: {error}", pool.display())),
    }
}

pub(super) fn look_at_kind(pool: &Path, number: u64, report: &mut Report) {
    let Some((_, level, name, why)) = KINDS.iter().find(|(known, ..)| *known == number) else {
        return;
    };
    report.find(
        ("file-system", *level),
        format!("the pool at {} lies on {name}", pool.display()),
        *why,
        "move it, stopped, to a local file system: cp --sparse=always",
    );
}
