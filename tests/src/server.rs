//! A server of our own: started, killed, started again on the same pool.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::command;
use crate::http::Http;
use crate::nbd::Nbd;

/// How long a start or a stop may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test: `HINDSIGHT_BIN`, or what was built beside this test.
pub fn program() -> Result<PathBuf> {
    if let Some(path) = env::var_os("HINDSIGHT_BIN") {
        return Ok(PathBuf::from(path));
    }
    let own = env::current_exe()?;
    let folder = own.parent().context("a program has a folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let program = folder.join("hindsight");
    ensure!(
        program.is_file(),
        "{} is not there; build it with `cargo build -p hindsight-cli`, or name another one in \
         HINDSIGHT_BIN",
        program.display()
    );
    Ok(program)
}

/// A running server and its pool.
pub struct Server {
    program: PathBuf,
    pool: PathBuf,
    log: PathBuf,
    more: Vec<String>,
    /// Variables of the server's environment.
    environment: Vec<(String, String)>,
    child: Option<Child>,
    /// Writes what the server says to the log; ends with it.
    listener: Option<JoinHandle<()>>,
}

/// The path of libfaketime.
fn faketime() -> Result<String> {
    let machines = std::fs::read_dir("/usr/lib")?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = machines.map(|path| path.join("faketime/libfaketimeMT.so.1"));
    let found = files.find(|path| path.exists());
    let found = found.context("no libfaketime: scripts/install-packages test")?;
    Ok(found.display().to_string())
}

impl Server {
    /// Starts a server on a pool, which is made if it is not there.
    pub fn start(program: &Path, pool: &Path) -> Result<Server> {
        Server::start_with(program, pool, &[])
    }

    /// The same with more arguments, now and at every later start.
    pub fn start_with(program: &Path, pool: &Path, more: &[&str]) -> Result<Server> {
        let log = pool.with_extension("log");
        let more = more.iter().map(|&argument| argument.to_owned()).collect();
        let (program, pool) = (program.to_owned(), pool.to_owned());
        let environment = Vec::new();
        let (child, listener) = (None, None);
        let mut server = Server { program, pool, log, more, environment, child, listener };
        server.up()?;
        Ok(server)
    }

    /// Sets a variable of the server's environment, for every later start.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.environment.push((variable.to_owned(), value.to_owned()));
    }

    /// Has the server's clock be wrong from its next start on, by what a file says: `+1y`, say.
    /// libfaketime (package `faketime`) stands before the C library's clock; monotonic time is the
    /// machine's.
    pub fn set_clock(&mut self, by: &Path) -> Result<()> {
        self.set("LD_PRELOAD", &faketime()?);
        self.set("FAKETIME_TIMESTAMP_FILE", &by.display().to_string());
        self.set("FAKETIME_NO_CACHE", "1");
        self.set("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(())
    }

    /// Starts the server again after it was killed or stopped.
    pub fn up(&mut self) -> Result<()> {
        assert!(self.child.is_none(), "the server runs already");
        let mut child = Command::new(&self.program)
            .arg("serve")
            .arg("--pool")
            .arg(&self.pool)
            .args(["--http", "127.0.0.1:0"])
            .args(&self.more)
            .envs(self.environment.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let talk = child.stderr.take().context("it was piped")?;
        self.child = Some(child);
        let mut log = File::options().create(true).append(true).open(&self.log)?;
        let (ready, is_ready) = mpsc::channel();
        self.listener = Some(thread::spawn(move || {
            for line in BufReader::new(talk).lines().map_while(Result::ok) {
                // A full disk must not end the server by a blocked pipe.
                let _ = writeln!(log, "{line}");
                if line.trim() == "ready" {
                    let _ = ready.send(());
                }
            }
        }));
        if is_ready.recv_timeout(PATIENCE).is_err() {
            self.kill();
            bail!("the server did not become ready; it said:\n{}", self.talk());
        }
        Ok(())
    }

    /// What the server has said so far on standard error.
    #[must_use]
    pub fn talk(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
            self.hear_out();
        }
    }

    /// Waits until all that a server said that has ended is in the log: it is read by a thread.
    fn hear_out(&mut self) {
        let began = Instant::now();
        // Not joined: who has the pipe from the server could keep it.
        while self.listener.as_ref().is_some_and(|listener| !listener.is_finished())
            && began.elapsed() < PATIENCE
        {
            thread::sleep(Duration::from_millis(1));
        }
        self.listener = None;
    }

    /// SIGTERM, and waits for the end, which must be clean.
    pub fn stop(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server does not run")?;
        command::signal(child.id(), "TERM")?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                self.hear_out();
                ensure!(status.success(), "the server ended with {status}:\n{}", self.talk());
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the server did not stop within {PATIENCE:?} of SIGTERM");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the server has said something that contains `text`.
    pub fn wait_for_talk(&self, text: &str) -> Result<()> {
        self.wait_until_said(text, |talk| talk.contains(text))
    }

    /// Waits until `is_said` of all it has said.
    pub fn wait_until_said(&self, what: &str, is_said: impl Fn(&str) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_said(&self.talk()) {
            ensure!(began.elapsed() < PATIENCE, "it did not say {what:?} but:\n{}", self.talk());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for an end that signals have begun; the exit code.
    pub fn wait(&mut self) -> Result<Option<i32>> {
        let mut child = self.child.take().context("the server does not run")?;
        let status = child.wait()?;
        self.hear_out();
        Ok(status.code())
    }

    /// Fails if the server ended by itself or panicked.
    pub fn check(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            self.hear_out();
            bail!("the server ended by itself with {status}:\n{}", self.talk());
        }
        let talk = self.talk();
        ensure!(!talk.contains("panicked at"), "the server panicked:\n{talk}");
        Ok(())
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The folder of the pool.
    #[must_use]
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// The NBD socket.
    #[must_use]
    pub fn nbd_socket(&self) -> PathBuf {
        self.pool.join("nbd.sock")
    }

    /// The NBD URI of an export.
    #[must_use]
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.nbd_socket().display())
    }

    /// The iSCSI URI of a volume, or of a moment of it.
    pub fn iscsi_uri(&self, volume: &str, moment: Option<&str>) -> Result<String> {
        let shown = self.http().get(&format!("/api/v1/volumes/{volume}"))?;
        let uri = shown["iscsi_uri"].as_str().context("the server does not serve iSCSI")?;
        let Some(moment) = moment else { return Ok(uri.to_owned()) };
        let target = uri.strip_suffix("/0").with_context(|| format!("{uri}: no unit"))?;
        Ok(format!("{target}:at:{}/0", moment.to_lowercase()))
    }

    /// A client of the HTTP API.
    #[must_use]
    pub fn http(&self) -> Http {
        Http::new(&self.pool.join("api.sock"))
    }

    /// An NBD connection.
    pub fn connect(&self, export: &str) -> Result<Nbd> {
        Nbd::connect(&self.nbd_socket(), export)
    }

    /// The program with arguments, told to talk to this server.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let socket = format!("unix:{}", self.pool.join("api.sock").display());
        command.args(arguments).env("HINDSIGHT_SERVER", socket).stdin(Stdio::null());
        command
    }

    /// Runs the program against this server; it must succeed; its standard output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        command::run(&mut self.command(arguments))
    }

    /// Runs the program against this server, whatever comes of it.
    pub fn output(&self, arguments: &[&str]) -> Result<Output> {
        command::output(&mut self.command(arguments))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
