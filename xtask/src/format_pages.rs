//! `cargo x format`: the pages of `docs/format/`, and the API document, against the code.

use anyhow::{Result, bail};

use crate::program;

/// Runs the tests that hold documents and code together; `--bless` writes what the code says.
pub fn run(arguments: &[String]) -> Result<()> {
    let blesses = match arguments {
        [] => false,
        [bless] if bless == "--bless" => true,
        _ => bail!("cargo x format [--bless]"),
    };
    let with = |variable: &'static str| if blesses { vec![(variable, "1")] } else { Vec::new() };
    let pages = ["test", "-p", "hindsight-format", "-p", "hindsight-trace"];
    program::cargo_with(&pages, &with("HINDSIGHT_BLESS"))?;
    program::cargo_with(&["test", "-p", "hindsight-server", "openapi"], &with("BLESS"))
}
