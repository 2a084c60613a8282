//! `cargo x fuzz`: coverage-guided fuzzing of whatever faces a client or a disk. The targets live
//! in
//! `fuzz/`, a workspace of its own, because they need the nightly compiler.

use anyhow::{Context, Result, bail};

use crate::{program, tree};

/// Fuzzes one target, or lists them.
pub fn run(arguments: &[String]) -> Result<()> {
    let Some((target, rest)) = arguments.split_first() else {
        for target in targets()? {
            println!("{target}");
        }
        return Ok(());
    };
    if !targets()?.contains(target) {
        bail!("no such target: {target}; `cargo x fuzz` lists them");
    }
    if !program::is_installed("cargo-fuzz", "--version") {
        bail!("cargo-fuzz is not installed\nhint: cargo install --locked cargo-fuzz");
    }
    let mut command = std::process::Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", target]).args(rest);
    command.current_dir(tree::top().join("fuzz"));
    // Inherited from `cargo x`, these would choose the stable compiler again.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    program::run(&mut command)
}

fn targets() -> Result<Vec<String>> {
    let directory = tree::top().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&directory).context("fuzz/fuzz_targets")?;
    let mut targets = Vec::new();
    for entry in entries {
        let path = entry.context("fuzz/fuzz_targets")?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            targets.push(name.to_owned());
        }
    }
    targets.sort();
    Ok(targets)
}
