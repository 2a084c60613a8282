//! The Debian packages on a minimal Debian: `tests/package/run`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{self, skips_without_root};
use hindsight_tests::server::program;

#[test]
fn the_packages_install_serve_upgrade_and_go_and_the_pool_stays() -> Result<()> {
    if skips_without_root("the packages") {
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the project")?;
    let output = command::output(Command::new(root.join("tests/package/run")).arg(program()?))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let under_systemd = if let Some(skipped) = said.lines().find(|l| l.starts_with("SKIPPED")) {
        let _ = std::fs::write("/dev/stderr", format!("{skipped}\n"));
        0
    } else {
        7
    };
    ensure!(said.matches("ok: ").count() == 4 + under_systemd, "{said}");
    Ok(())
}
