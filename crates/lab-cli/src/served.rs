//! Servers of our own: `hindsight`, serving a pool in a directory that is there only meanwhile; and
//! volumes of it over NBD through a unix socket, for `hindsight-lab darc`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use load::drive::Target;
use load::rig::{RigSettings, Serve, Served};
use load::{LoadError, Result};
use wire::nbd::Command as Request;

use terminal::failure::Failure;
use terminal::nbd::{Address, Socket, header, reply};
use terminal::program;

/// The switch that turns the server's buffer pools off.
const NO_BUFFER_POOL: &str = "--no-buffer-pool";

/// `hindsight` as a server.
pub struct OwnServer {
    program: PathBuf,
    has_switch: bool,
}

impl OwnServer {
    /// Looks for it, and whether it can do without buffer pools.
    pub fn find() -> anyhow::Result<OwnServer> {
        let program = program::find("hindsight")
            .ok_or_else(|| Failure::new("hindsight is neither beside hindsight-lab nor in PATH"))?;
        let help = Command::new(&program).args(["serve", "--help"]).output()?;
        let has_switch = String::from_utf8_lossy(&help.stdout).contains(NO_BUFFER_POOL);
        Ok(OwnServer { program, has_switch })
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let ran = Command::new(&self.program).args(arguments).output();
        let ran = ran.map_err(|e| failed(&format!("{arguments:?}"), &e))?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(failed(&format!("{arguments:?}"), &String::from_utf8_lossy(&ran.stderr))),
        }
    }
}

fn failed(what: &str, why: &dyn std::fmt::Display) -> LoadError {
    LoadError::Unexpected(format!("{what}: {why}"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A directory that goes with this.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // One that is left shows by its name what it was for.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that ends with this. Its pool is then whoever's who has its directory.
pub struct Running {
    child: Child,
    /// The lines that it said before it was ready.
    said: String,
}

impl Running {
    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where it serves a protocol, by the name that its lines begin with.
    pub fn address(&self, protocol: &str) -> anyhow::Result<&str> {
        let mut found = self.said.lines().filter_map(|line| line.strip_prefix(protocol));
        let words = found.find_map(|rest| rest.strip_prefix(' '));
        let address = words.and_then(|words| words.split(' ').next());
        address.with_context(|| format!("the server says nothing of {protocol}: {}", self.said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its pool is deleted next: nothing of it has to be kept.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl OwnServer {
    /// Starts it with these arguments of `serve`, and waits until it is ready.
    pub fn start(&self, arguments: &[&str]) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--log-level", "error"]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("its output")?);
        let mut running = Running { child, said: String::new() };
        while !running.said.ends_with("ready\n") {
            let read = lines.read_line(&mut running.said)?;
            ensure!(read > 0, "the server ended: {}", running.said);
        }
        // What it says later is nobody's; it must not stand still for it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(running)
    }
}

impl Serve for OwnServer {
    fn is_missing(&self, has_buffer_pool: bool) -> Option<&'static str> {
        let is_there = has_buffer_pool || self.has_switch;
        (!is_there).then_some("the server has no switch that turns its buffer pools off")
    }

    fn serve(&self, settings: &RigSettings, has_buffer_pool: bool) -> Result<Served> {
        let pool = settings.dir.join("pool");
        let (nbd, api) = (settings.dir.join("n"), settings.dir.join("a"));
        let (api_address, member_bytes) = (format!("unix:{}", text(&api)), settings.member_bytes);
        let (dir, size) = (text(&pool), member_bytes.to_string());
        self.run(&["pool", "create", "--pool", &dir, "--stack", &settings.stack, "--size", &size])?;
        let nbd_address = format!("unix:{}", text(&nbd));
        let memory = settings.memory_bytes.to_string();
        let listeners = ["--nbd", &nbd_address, "--http", &api_address, "--memory", &memory];
        let without: &[&str] = if has_buffer_pool { &[] } else { &[NO_BUFFER_POOL] };
        let running = self.start(&[&["--pool", &dir][..], &listeners, without].concat());
        let running = running.map_err(|e| failed("a server", &format!("{e:#}")))?;
        let mut targets: Vec<Arc<dyn Target>> = Vec::new();
        for (name, bytes) in &settings.volumes {
            let create = ["volume", "create", name, "--size", &bytes.to_string()];
            let how = ["--granularity", "on-demand", "--server", &api_address];
            self.run(&[&create[..], &how[..]].concat())?;
            let address = Address::Unix { path: text(&nbd), export: (*name).to_owned() };
            targets.push(Arc::new(Remote { address, idle: Mutex::default() }));
        }
        let process = running.process();
        let stop = Box::new(move || {
            drop(running);
            Ok(())
        });
        Ok(Served { targets, process, stop })
    }
}

/// A volume behind NBD: as many connections as requests were in flight at once.
struct Remote {
    address: Address,
    idle: Mutex<Vec<Socket>>,
}

impl Remote {
    /// One request on a connection of its own; a connection on which something failed is not used
    /// again.
    fn ask(
        &self,
        request: Request,
        (offset, length): (u64, u64),
        written: &[u8],
        read: &mut [u8],
    ) -> Result<()> {
        let lock = || self.idle.lock().expect("no holder panics");
        let idle = lock().pop();
        let mut socket = match idle {
            Some(socket) => socket,
            None => self.address.open().map_err(|e| failed("NBD", &format!("{e:#}")))?.socket,
        };
        let mut asked = || -> anyhow::Result<u32> {
            socket.write_all(&header(request, false, 0, offset, length))?;
            socket.write_all(written)?;
            let (_, error) = reply(&mut socket)?;
            if error == 0 {
                socket.read_exact(read)?;
            }
            Ok(error)
        };
        match asked().map_err(|e| failed("NBD", &format!("{e:#}")))? {
            0 => lock().push(socket),
            error => return Err(failed("the server answers with error", &error)),
        }
        Ok(())
    }
}

impl Target for Remote {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.ask(Request::Read, (offset, buffer.len() as u64), &[], buffer)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.ask(Request::Write, (offset, bytes.len() as u64), bytes, &mut [])
    }

    fn flush(&self) -> Result<()> {
        self.ask(Request::Flush, (0, 0), &[], &mut [])
    }
}
