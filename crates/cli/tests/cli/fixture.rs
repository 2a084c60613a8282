//! A server process on a pool of its own, and commands run against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use tempfile::TempDir;

/// The command under test, with nothing of the caller's environment that changes what it does.
pub fn hindsight() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hindsight"));
    command
        .env_remove("HINDSIGHT_SERVER")
        .env_remove("HINDSIGHT_TOKEN")
        .env_remove("HINDSIGHT_TOKEN_FILE")
        .env_remove("HINDSIGHT_CA")
        .env_remove("HINDSIGHT_CERT")
        .env_remove("HINDSIGHT_KEY")
        .env_remove("COLUMNS")
        // To find names for one takes megabytes of memory, which a test may have taken away.
        .env_remove("RUST_BACKTRACE")
        .env("TZ", "UTC")
        .env("NO_COLOR", "1");
    command
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs a command without a server.
pub fn run(arguments: &[&str]) -> Ran {
    Ran::of(hindsight().args(arguments).output().expect("run"))
}

/// A server process.
pub struct Fixture {
    pub dir: TempDir,
    pub lines: Vec<String>,
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Fixture {
    pub fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("directory");
        Fixture::on(dir)
    }

    pub fn on(dir: TempDir) -> Fixture {
        Fixture::with(dir, &[])
    }

    /// A server with more flags.
    pub fn with(dir: TempDir, flags: &[&str]) -> Fixture {
        Fixture::of(hindsight(), dir, flags)
    }

    /// A server with more variables in its environment.
    pub fn in_environment(variables: &[(&str, &str)]) -> Fixture {
        let mut command = hindsight();
        command.envs(variables.iter().copied());
        Fixture::of(command, tempfile::tempdir().expect("directory"), &[])
    }

    fn of(mut command: Command, dir: TempDir, flags: &[&str]) -> Fixture {
        let mut child = command
            .args(["serve", "--pool-size", "1GiB", "--memory", "32MiB", "--log-level", "warn"])
            .args(["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--pool"])
            .arg(dir.path().join("pool"))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != "ready") {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).expect("read");
            assert!(read > 0, "the server ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        Fixture { dir, lines, child, stderr }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn server(&self) -> String {
        format!("unix:{}", self.path("pool/api.sock").display())
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hindsight();
        command.args(arguments).env("HINDSIGHT_SERVER", self.server());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().expect("run"))
    }

    /// Runs a command that reads `input` from standard input. It may end before it has read all.
    pub fn pipe(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let mut stdin = child.stdin.take().expect("piped");
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().expect("run")
        })
    }

    /// Where HTTP is served over TCP, with TLS or without, and the token.
    pub fn http_address(&self) -> (&str, &str) {
        let mut lines = self.lines.iter();
        let url = lines.find_map(|line| line.strip_prefix("http http"));
        let (_, place) = url.expect("an HTTP listener").split_once("://").expect("a URL");
        place.split_once("/?token=").expect("a token")
    }

    /// What the HTTP listener answers to a GET, head and body.
    pub fn http(&self, path: &str) -> String {
        let (address, token) = self.http_address();
        let mut stream = TcpStream::connect(address).expect("connect");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("send");
        let mut answer = Vec::new();
        // A connection that is reset has no answer, or a part of one, which the caller sees.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("UTF-8")
    }

    /// Runs a command that must succeed; answers its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs qemu-io on an export of the server; answers whether it succeeded.
    pub fn qemu_io(&self, export: &str, commands: &[&str]) -> bool {
        let socket = self.path("pool/nbd.sock");
        let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]);
        if export.contains('@') {
            command.arg("-r");
        }
        for text in commands {
            command.args(["-c", text]);
        }
        let output = command.arg(uri).output().expect("qemu-io (apt-get install qemu-utils)");
        let text = String::from_utf8_lossy(&output.stdout);
        output.status.success() && !text.contains("failed")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill");
        assert!(sent.success());
    }

    /// Tells the server to stop; answers its exit code and what it said since it was ready.
    pub fn stop(self) -> (i32, Vec<String>, TempDir) {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until it was killed; answers its directory.
    pub fn killed(mut self) -> TempDir {
        assert_eq!(self.child.wait().expect("wait").code(), None, "it was killed");
        std::mem::replace(&mut self.dir, tempfile::tempdir().expect("directory"))
    }

    /// Waits until it has ended; answers the same.
    pub fn ended(mut self) -> (i32, Vec<String>, TempDir) {
        let code = self.child.wait().expect("wait").code().expect("not killed");
        let rest = std::io::BufRead::lines(&mut self.stderr).map_while(Result::ok).collect();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("directory"));
        (code, rest, dir)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Already stopped, or a test failed: either way it must not outlive the test.
        let _ = self.child.kill();
        let status = self.child.wait();
        if std::thread::panicking() {
            let mut said = String::new();
            let _ = self.stderr.read_to_string(&mut said);
            eprintln!("the server, {status:?}, had said:\n{said}");
        }
    }
}
