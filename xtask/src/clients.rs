//! `cargo x clients`, `inspect` and `demo`: doors to what other parts of the project do.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{program, tree};

/// Runs the tests with real clients of a protocol.
pub fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [protocol] if protocol == "nbd" => {
            // They use the program that lies beside them, and do not have it built.
            program::cargo(&["build", "-p", "hindsight-cli"])?;
            program::cargo(&["test", "-p", "hindsight-tests"])
        }
        [protocol] => bail!("no clients for {protocol} yet: only nbd"),
        _ => bail!("which protocol? cargo x clients nbd"),
    }
}

/// Prints what a pool image holds.
pub fn inspect(arguments: &[String]) -> Result<()> {
    let image = arguments.first().context("which image? cargo x inspect IMAGE")?;
    let rest = ["run", "--quiet", "-p", "hindsight-cli", "--", "pool", "inspect", image];
    program::cargo(&rest)
}

/// Plays the PostgreSQL story.
pub fn demo() -> Result<()> {
    program::run(Command::new("make").arg("demo").current_dir(tree::top()))
}
