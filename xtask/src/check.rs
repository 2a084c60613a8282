//! `cargo x check`: everything that is asked of a change besides its tests. Goes on after a
//! failure, so that one run shows all that is wrong.

use anyhow::{Result, bail};

use crate::{graph, program, tidy};

type Check = fn() -> Result<()>;

/// Runs all checks; clippy not where everything was compiled by it already.
pub fn run(is_linted: bool) -> Result<()> {
    let mut checks: Vec<(&str, Check)> = vec![
        ("format", || program::cargo(&["fmt", "--all", "--check"])),
        ("tidy", tidy::run),
        ("graph", graph::run),
        ("clippy", clippy),
        ("dependencies", dependencies),
    ];
    checks.retain(|(name, _)| *name != "clippy" || !is_linted);
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(e) = check() {
            eprintln!("{name}: {e:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    eprintln!("check: all passed");
    Ok(())
}

fn clippy() -> Result<()> {
    program::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

fn dependencies() -> Result<()> {
    if !program::is_installed("cargo-deny", "--version") {
        bail!("cargo-deny is not installed\nhint: scripts/install-packages check");
    }
    // Advisories need the network and change by the day: they are asked for, but only their own
    // failure counts, not that of the network.
    program::cargo(&["deny", "--log-level", "error", "check", "bans", "licenses", "sources"])?;
    if let Err(e) = program::cargo(&["deny", "--log-level", "error", "fetch", "db"]) {
        eprintln!("SKIPPED advisories: no advisory database here ({e:#})");
        return Ok(());
    }
    program::cargo(&["deny", "--log-level", "error", "check", "--disable-fetch", "advisories"])
}
