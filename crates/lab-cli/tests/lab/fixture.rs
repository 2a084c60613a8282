//! Both programs, and a server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use tempfile::TempDir;

/// The program under test.
pub const LAB: &str = env!("CARGO_BIN_EXE_hindsight-lab");

/// The other one, which starts it as `hindsight lab`.
pub fn program() -> PathBuf {
    let path = Path::new(LAB).with_file_name("hindsight");
    assert!(path.is_file(), "{}: cargo build -p hindsight-cli", path.display());
    path
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Ran {
        let output = command.env_remove("COLUMNS").env("NO_COLOR", "1").output().expect("run");
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

pub fn lab(arguments: &[&str]) -> Ran {
    Ran::of(Command::new(LAB).args(arguments))
}

pub fn hindsight(arguments: &[&str]) -> Ran {
    Ran::of(Command::new(program()).args(arguments))
}

/// A server of a pool of its own, which ends with this.
pub struct Server {
    dir: TempDir,
    child: Child,
    /// Open as long as the server may say something.
    _stderr: BufReader<ChildStderr>,
}

impl Server {
    pub fn start() -> Server {
        let dir = tempfile::tempdir().expect("directory");
        let mut command = Command::new(program());
        command.args(["serve", "--pool-size", "1GiB", "--memory", "32MiB", "--log-level", "warn"]);
        command.arg("--pool").arg(dir.path().join("pool"));
        let api = format!("unix:{}", dir.path().join("api.sock").display());
        command.args(["--http", &api]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while line.trim_end() != "ready" {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("read") > 0, "the server ended");
        }
        Server { dir, child, _stderr: stderr }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command that must succeed; answers its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let api = format!("unix:{}", self.path("api.sock").display());
        let ran = hindsight(&[arguments, &["--server", &api]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its pool goes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
