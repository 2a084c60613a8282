//! `cargo x format`: the pages of `docs/format/`, and the API document, against the code.

use anyhow::{Result, bail};

use crate::program;

/// Runs the tests that hold documents and code together; `--bless` writes what the code says.
pub fn run(arguments: &[String]) -> Result<()> {
    let (pages, document): (&[(&str, &str)], &[(&str, &str)]) = match arguments {
        [] => (&[], &[]),
        [bless] if bless == "--bless" => (&[("FORMAT_BLESS", "1")], &[("BLESS", "1")]),
        _ => bail!("cargo x format [--bless]"),
    };
    program::cargo_with(&["test", "-p", "hindsight-format"], pages)?;
    program::cargo_with(&["test", "-p", "hindsight-server", "openapi"], document)
}
