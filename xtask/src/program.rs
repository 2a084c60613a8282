//! Running other programs: what is run is shown, a failure is an error.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tree;

/// Runs cargo in the project.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with(arguments, &[])
}

/// Runs cargo in the project with more variables in its environment.
pub fn cargo_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(arguments).envs(variables.iter().copied()).current_dir(tree::top());
    let shown: Vec<String> =
        variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    eprintln!("$ {}cargo {}", shown.concat(), arguments.join(" "));
    run(&mut command)
}

/// Runs a command; an exit code that is not 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    if !status.success() {
        bail!("{name} failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}: {}", output.status, errors.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {name}"))
}

/// Whether a program is installed.
pub fn is_installed(name: &str, argument: &str) -> bool {
    let mut command = Command::new(name);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Where cargo puts what it builds.
pub fn target_directory() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    tree::top().join(named.unwrap_or_else(|| PathBuf::from("target")))
}

/// Builds the server with optimisation and returns its path.
pub fn release_server() -> Result<PathBuf> {
    cargo(&["build", "--release", "--package", "hindsight-cli"])?;
    Ok(target_directory().join("release/hindsight"))
}
