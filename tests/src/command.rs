//! Running other programs, and knowing whether they are there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

/// Runs a command that must succeed; its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command, whatever comes of it.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("run {command:?}"))
}

/// Runs a program with arguments; it must succeed.
pub fn call(program: &str, arguments: &[&str]) -> Result<String> {
    run(Command::new(program).args(arguments))
}

/// Where a program is, looking also where only root's PATH does.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Says that a test is skipped, and what would let it run; true when it must be.
///
/// Missing programs are no reason: `scripts/install-packages test` brings them, so they are an
/// error. Missing rights are, because nobody should have to be root to test.
pub fn skips_without_root(test: &str) -> bool {
    if is_root() && Path::new("/dev/fuse").exists() && Path::new("/dev/loop-control").exists() {
        return false;
    }
    // Past the test harness's capture, so that it is seen.
    let note = format!(
        "SKIPPED {test}: it mounts file systems, which needs root, /dev/fuse and loop devices; \
         run it as root: sudo -E make test\n"
    );
    let _ = std::fs::write("/dev/stderr", note);
    true
}

/// Whether we are root.
#[must_use]
pub fn is_root() -> bool {
    call("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}

/// Sends a signal to one process of ours.
pub fn signal(process: u32, name: &str) -> Result<()> {
    call("kill", &[&format!("-{name}"), &process.to_string()]).map(drop)
}
