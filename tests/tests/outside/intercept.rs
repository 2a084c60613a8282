//! A share that follows another NFS server: nfs-ganesha, in a network of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use hindsight_tests::server::program;

#[test]
fn a_share_follows_nfs_ganesha_over_kills_and_changes_behind_it() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the project");
    let alone = Command::new("unshare").args(["--net", "true"]).output()?;
    if !alone.status.success() {
        println!("skipped: no network of its own: {}", String::from_utf8_lossy(&alone.stderr));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let ran = Command::new("timeout")
        .arg("120")
        // The server sees at once what changes beneath it.
        .env("EXPORT_SETTINGS", "Attr_Expiration_Time = 0;")
        .arg(root.join("scripts/with-ganesha"))
        .arg(dir.path())
        .arg(root.join("tests/nfs/behind-ganesha"))
        .arg(program()?)
        .arg(dir.path())
        .output()?;
    let (said, wrong) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    ensure!(ran.status.success() && said.ends_with("done\n"), "{said}{wrong}");
    Ok(())
}
