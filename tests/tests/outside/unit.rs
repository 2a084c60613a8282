//! The shipped unit, with its drop-ins, under a systemd of its own: `tests/unit/run`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{self, skips_without_root};
use hindsight_tests::server::program;

/// What `run` exits with where control groups cannot be made.
const EXIT_SKIPPED: i32 = 77;

#[test]
fn the_shipped_unit_serves_freezes_reaches_disks_and_lets_a_group_in() -> Result<()> {
    if skips_without_root("the shipped unit") {
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the project")?;
    let output = command::output(Command::new(root.join("tests/unit/run")).arg(program()?))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(EXIT_SKIPPED) {
        let _ = std::fs::write("/dev/stderr", "SKIPPED the shipped unit: no control groups here\n");
        return Ok(());
    }
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(said.matches("ok: ").count() == 9, "{said}");
    Ok(())
}
