//! The checker with a small budget; `make checker` and the checker itself have larger ones.

use anyhow::Result;
use hindsight_tests::checker::{self, Options};
use hindsight_tests::server;

#[test]
fn a_short_run_of_the_checker_finds_nothing() -> Result<()> {
    let counts = checker::run(&server::program()?, 1_000_001, Options::default())?;
    println!("{counts}");
    Ok(())
}
