//! P5 and P6: memory, and the opening of views, reverts and clones, deep in a long history. The
//! load goes through the engine without a server: `crates/volume/examples/load.rs` says how.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Options;
use super::report::Report;
use crate::{program, tree};

/// P5 and P6.
pub fn memory_and_openings(options: &Options) -> Result<Report> {
    let goal = "at most 512 MiB resident with 10^8 retained writes on 1 TiB (P5); view, revert and \
                clone at most 50 ms each, whatever the length of history (P6)";
    let mut report = Report::new("P5 and P6: a long history", goal, "see case").less_is_better();
    program::cargo(&["build", "--release", "-p", "hindsight-volume", "--example", "load"])?;
    let load = program::target_directory().join("release/examples/load");
    let mut command = Command::new(&load);
    command.current_dir(tree::top()).arg(options.directory.join("load.img"));
    command.arg(options.writes.to_string()).arg(options.rounds.to_string());
    let text = program::output(&mut command)?;
    for line in text.lines() {
        let found: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if let Some(note) = found["note"].as_str() {
            report.note(note);
            continue;
        }
        let case = found["case"].as_str().context("a line without a case")?;
        let round = found["round"].as_u64().unwrap_or(0);
        let value = found["value"].as_f64().context("a line without a value")?;
        report.add(case, "engine", usize::try_from(round)?, value, None);
    }
    Ok(report)
}
