//! A file system that is frozen for a capture: what nobody has synced is in it, and it goes on.

use std::fs;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, find, skips_without_root};
use hindsight_tests::disk::Disk;
use serde_json::Value;

use crate::stage::{Stage, folder};

#[test]
fn an_ext4_that_is_frozen_is_captured_clean_and_goes_on() -> Result<()> {
    if skips_without_root("a frozen ext4") {
        return Ok(());
    }
    let fsfreeze = find("fsfreeze").context("fsfreeze (apt-get install util-linux)")?;
    let own = folder()?;
    let (mount, config) = (own.path().join("mnt"), own.path().join("config.toml"));
    let hook = format!(
        "[hooks.freeze]\nbefore = [{0:?}, \"-f\", {1:?}]\nafter = [{0:?}, \"-u\", {1:?}]\n",
        fsfreeze.display().to_string(),
        mount.display().to_string()
    );
    fs::write(&config, hook)?;
    let stage = Stage::with("vol", "256MiB", &["--config", &config.display().to_string()])?;
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    call("mkfs.ext4", &["-q", "-F", disk.device()])?;
    disk.mount(&mount, "defaults")?;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
    fs::write(mount.join("unsynced"), &bytes)?;

    let capture = |hook: &[&str]| -> Result<Value> {
        let arguments = [&["version", "create", "vol", "--json"], hook].concat();
        Ok(serde_json::from_str(&stage.server.run(&arguments)?)?)
    };
    let quiesced = capture(&["--hook", "freeze"])?;
    ensure!(quiesced["consistency"] == "quiesced", "{quiesced}");
    fs::write(mount.join("later"), "it is not frozen any more")?;
    let plain = capture(&[])?;
    ensure!(plain["consistency"] == "crash-consistent", "{plain}");

    let mut past = Disk::attach(&stage.server.uri("vol@v:0"), &stage.path("past-fuse"), true)?;
    let header = call("dumpe2fs", &["-h", past.device()])?;
    ensure!(!header.contains("needs_recovery"), "the journal is empty when it is frozen: {header}");
    call("e2fsck", &["-fn", past.device()])?;
    past.mount(&stage.path("past"), "ro,noload")?;
    ensure!(
        fs::read(stage.path("past").join("unsynced"))? == bytes,
        "what was not synced is there"
    );
    ensure!(!stage.path("past").join("later").exists(), "what came later is not");
    past.detach()?;
    disk.detach()
}
