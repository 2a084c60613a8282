//! The servers that are measured: started, asked, and stopped when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tests::http::Http;

use super::Options;
use crate::program;

/// Longest time that a server may take to start.
const START_SECONDS_MAX: u64 = 600;

/// A running server.
pub struct Server {
    /// For tables.
    pub name: String,
    child: Child,
    socket: PathBuf,
    files: Vec<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whatever is wrong with it, the next measurement must not share the machine with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Server {
    /// The address of an export.
    pub fn uri(&self, export: &str) -> String {
        // `@` and `:` of a moment are not for the syntax of the address.
        let export = export.replace('@', "%40").replace(':', "%3A");
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time used so far.
    pub fn cpu_us(&self) -> Result<u64> {
        cpu_us(self.child.id())
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill")?;
        self.child.wait().context("wait")?;
        Ok(())
    }
}

/// Processor time that a process has used, user and system, in microseconds (the kernel counts
/// 10 ms).
pub fn cpu_us(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).context("the server's processor time")?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let mut fields = after_name.split(' ').skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (user, system) = ticks().zip(ticks()).context("/proc/PID/stat")?;
    Ok((user + system) * 10_000)
}

/// What another server serves.
#[derive(Clone, Copy)]
pub enum Peer {
    /// nbdkit's file plugin on a raw file.
    NbdkitFile,
    /// qemu-nbd on a raw file.
    QemuRaw,
    /// qemu-nbd on qcow2.
    Qcow,
    /// qemu-nbd on qcow2 over a backing snapshot.
    QcowSnapshot,
    /// nbdkit's null plugin: the protocol alone.
    Null,
}

impl Peer {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::NbdkitFile => "nbdkit-file",
            Peer::QemuRaw => "qemu-nbd-raw",
            Peer::Qcow => "qemu-nbd-qcow2",
            Peer::QcowSnapshot => "qemu-nbd-qcow2-snapshot",
            Peer::Null => "nbdkit-null",
        }
    }

    /// Makes its file and starts it.
    pub fn start(self, options: &Options) -> Result<Server> {
        let name = self.name();
        let socket = options.directory.join(format!("{name}.sock"));
        let disk = options.directory.join(format!("{name}.img"));
        let mut files = vec![socket.clone()];
        for old in [&socket, &disk] {
            let _ = std::fs::remove_file(old);
        }
        let size = options.size_bytes.to_string();
        let mut command = match self {
            Peer::NbdkitFile | Peer::QemuRaw => {
                program::run(Command::new("fallocate").args(["-l", &size]).arg(&disk))?;
                files.push(disk.clone());
                if matches!(self, Peer::QemuRaw) { qemu(&socket, "raw") } else { nbdkit(&socket) }
            }
            Peer::Qcow => {
                let create = ["create", "-q", "-f", "qcow2"];
                program::run(Command::new("qemu-img").args(create).arg(&disk).arg(&size))?;
                files.push(disk.clone());
                qemu(&socket, "qcow2")
            }
            Peer::QcowSnapshot => {
                files.extend(make_snapshot(&disk, &size)?);
                qemu(&socket, "qcow2")
            }
            Peer::Null => nbdkit(&socket),
        };
        match self {
            Peer::NbdkitFile => command.arg("file").arg(&disk),
            Peer::QemuRaw | Peer::Qcow => command.arg(&disk),
            Peer::QcowSnapshot => command.arg(top_of(&disk)),
            Peer::Null => command.args(["null", &size]),
        };
        let child = command.stdout(Stdio::null()).spawn().with_context(|| name.to_owned())?;
        let server = Server { name: name.to_owned(), child, socket, files };
        wait_for(|| server.socket.exists()).with_context(|| format!("{name} does not start"))?;
        Ok(server)
    }
}

fn nbdkit(socket: &Path) -> Command {
    let mut command = Command::new("nbdkit");
    command.arg("-U").arg(socket).arg("-f");
    command
}

fn qemu(socket: &Path, format: &str) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.arg("-k").arg(socket).args(["-f", format, "-t", "-e", "8"]);
    command
}

fn top_of(disk: &Path) -> PathBuf {
    disk.with_extension("top")
}

fn make_snapshot(disk: &Path, size: &str) -> Result<Vec<PathBuf>> {
    let create = ["create", "-q", "-f", "qcow2"];
    program::run(Command::new("qemu-img").args(create).arg(disk).arg(size))?;
    let top = top_of(disk);
    let mut snapshot = Command::new("qemu-img");
    snapshot.args(create).arg("-b").arg(disk).args(["-F", "qcow2"]).arg(&top);
    program::run(&mut snapshot)?;
    Ok(vec![disk.to_owned(), top])
}

/// A Hindsight server on a pool of its own.
pub struct Hindsight {
    /// The process.
    pub server: Server,
    binary: PathBuf,
    pool: PathBuf,
}

impl Hindsight {
    /// Starts one on a fresh pool.
    pub fn start(options: &Options) -> Result<Hindsight> {
        let pool = options.directory.join("pool");
        if pool.exists() {
            std::fs::remove_dir_all(&pool).context("an old pool of the benchmarks")?;
        }
        Hindsight::open(options)
    }

    /// Starts one on a fresh pool on a stack of layers, whose members have room for some volumes.
    pub fn start_on(options: &Options, name: &str, stack: &str) -> Result<Hindsight> {
        let pool = options.directory.join(format!("pool-{name}"));
        if pool.exists() {
            std::fs::remove_dir_all(&pool).context("an old pool of the benchmarks")?;
        }
        let size = (options.size_bytes * 6).max(2 << 30).to_string();
        let mut create = Command::new(&options.hindsight);
        create.args(["pool", "create", "--stack", stack, "--size", &size, "--pool"]).arg(&pool);
        program::output(&mut create)?;
        let mut started = Hindsight::open_at(options, pool)?;
        name.clone_into(&mut started.server.name);
        Ok(started)
    }

    /// Starts one by a name, on a fresh pool of its own, with more arguments.
    pub fn start_named(options: &Options, name: &str, more: &[&str]) -> Result<Hindsight> {
        let pool = options.directory.join(format!("pool-{name}"));
        if pool.exists() {
            std::fs::remove_dir_all(&pool).context("an old pool of the benchmarks")?;
        }
        let mut started = Hindsight::open_with(options, pool, more)?;
        name.clone_into(&mut started.server.name);
        Ok(started)
    }

    /// Starts one on the pool that is there.
    pub fn open(options: &Options) -> Result<Hindsight> {
        Hindsight::open_at(options, options.directory.join("pool"))
    }

    /// Starts one on the pool that [`Hindsight::start_on`] made.
    pub fn open_again(options: &Options, name: &str) -> Result<Hindsight> {
        let mut opened =
            Hindsight::open_at(options, options.directory.join(format!("pool-{name}")))?;
        name.clone_into(&mut opened.server.name);
        Ok(opened)
    }

    fn open_at(options: &Options, pool: PathBuf) -> Result<Hindsight> {
        Hindsight::open_with(options, pool, &[])
    }

    fn open_with(options: &Options, pool: PathBuf, more: &[&str]) -> Result<Hindsight> {
        // Not in the pool's directory: a server makes a pool only where nothing else is.
        let said = pool.with_extension("log");
        let log = File::create(&said).context("the server's log")?;
        let socket = pool.join("nbd.sock");
        let mut command = Command::new(&options.hindsight);
        command.arg("serve").arg("--pool").arg(&pool);
        command.arg("--nbd").arg(format!("unix:{}", socket.display()));
        command.arg("--http").arg(format!("unix:{}", pool.join("api.sock").display()));
        command.args(["--nfs", "none"]).args(more);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().context("hindsight serve")?;
        let mut server = Server { name: "hindsight".to_owned(), child, socket, files: Vec::new() };
        let text = || std::fs::read_to_string(&said).unwrap_or_default();
        let is_ready = || text().lines().any(|line| line.trim() == "ready");
        wait_for(|| is_ready() || !server.is_running())?;
        ensure!(is_ready(), "hindsight does not start: {}", text());
        Ok(Hindsight { server, binary: options.hindsight.clone(), pool })
    }

    /// Runs the CLI against it and reads its JSON.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--json");
        command.env("HINDSIGHT_SERVER", format!("unix:{}", self.pool.join("api.sock").display()));
        let text = program::output(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("the answer to {arguments:?}"))
    }

    /// Runs a command of the CLI that answers nothing.
    pub fn tell(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--json");
        command.env("HINDSIGHT_SERVER", format!("unix:{}", self.pool.join("api.sock").display()));
        program::output(&mut command).map(drop)
    }

    /// A file of its pool.
    pub fn file(&self, name: &str) -> PathBuf {
        self.pool.join(name)
    }

    /// A client of its HTTP API.
    pub fn http(&self) -> Http {
        Http::new(&self.pool.join("api.sock"))
    }

    /// Makes a volume that keeps what `granularity` says, and fills it once.
    pub fn make_volume(&self, name: &str, size_bytes: u64, granularity: &str) -> Result<()> {
        self.make_with(name, size_bytes, &["--granularity", granularity])
    }

    /// Makes a volume with these options and fills it once.
    pub fn make_with(&self, name: &str, size_bytes: u64, options: &[&str]) -> Result<()> {
        let size = size_bytes.to_string();
        let mut create = vec!["volume", "create", name, "--size", &size];
        create.extend(options);
        self.ask(&create)?;
        super::fio::fill(&self.server.uri(name), size_bytes)
    }

    /// Deletes a volume and waits until its space is free again.
    pub fn delete_volume(&self, name: &str) -> Result<()> {
        self.tell(&["volume", "delete", name, "--force"])?;
        self.settle()
    }

    /// Waits until the pool's use of space does not change any more.
    pub fn settle(&self) -> Result<()> {
        let mut before = None;
        for _ in 0..60 {
            std::thread::sleep(Duration::from_secs(1));
            let used = self.used_bytes()?;
            if before == Some(used) {
                return Ok(());
            }
            before = Some(used);
        }
        Ok(())
    }

    /// Bytes of the pool that are in use.
    pub fn used_bytes(&self) -> Result<u64> {
        self.ask(&["pool", "status"])?["used_bytes"].as_u64().context("used bytes")
    }

    /// Bytes that the pool's files take from the disk.
    pub fn allocated_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.pool).context("the pool's directory")? {
            let metadata = entry.and_then(|entry| entry.metadata()).context("the pool's files")?;
            bytes += if metadata.is_file() { metadata.blocks() * 512 } else { 0 };
        }
        Ok(bytes)
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > Duration::from_secs(START_SECONDS_MAX) {
            bail!("waited {START_SECONDS_MAX} s in vain");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
