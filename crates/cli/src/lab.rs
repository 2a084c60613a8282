//! `hindsight lab`: the program `hindsight-lab`, if it is there.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use api::ExitCode;
use terminal::program;

use crate::failure::Failure;
use crate::session::Session;

const PROGRAM: &str = "hindsight-lab";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the laboratory shall do; --help has it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let json = session.json.then(|| OsString::from("--json"));
    start(&json.into_iter().chain(args.arguments.iter().cloned()).collect::<Vec<_>>())
}

/// Becomes the laboratory.
pub fn start(arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<ExitCode> {
    let Some(program) = program::find(PROGRAM) else {
        let missing = format!("{PROGRAM} is neither beside hindsight nor in PATH");
        return Err(Failure::new(missing)
            .with_hint("the laboratory is a program of its own: `make lab` builds it")
            .into());
    };
    let failed = Command::new(&program).args(arguments).exec();
    Err(failed).with_context(|| format!("cannot start {}", program.display()))
}

/// What the laboratory completes; nothing where it is not there.
pub fn candidates(words: &[String]) -> Vec<String> {
    let Some(program) = program::find(PROGRAM) else { return Vec::new() };
    let found = Command::new(program).args(["complete", "--"]).args(words).output();
    let found = found.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned());
    found.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The laboratory's own manual pages, if it is there.
pub fn write_pages(dir: &Path) -> anyhow::Result<()> {
    let Some(program) = program::find(PROGRAM) else { return Ok(()) };
    let ran = Command::new(&program).arg("man").arg(dir).stderr(Stdio::null()).status();
    let ran = ran.with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(ran.success(), "{} wrote no manual pages", program.display());
    Ok(())
}
