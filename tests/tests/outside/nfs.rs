//! Shares through other people's clients: libnfs' tools, by the present, moments and kills.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::stage::Stage;

/// A server of NFS with a share `home`.
fn stage() -> Result<Stage> {
    let stage = Stage::with("", "", &["--nfs", "127.0.0.1:0"])?;
    stage.server.run(&["share", "create", "home"])?;
    Ok(stage)
}

/// The URL of a path, at the port that the share's mount line has.
fn url(stage: &Stage, share: &str, path: &str) -> Result<String> {
    let shown = stage.server.run(&["share", "show", "home"])?;
    let port = shown.split("mountport=").nth(1).and_then(|rest| rest.split(',').next());
    let port = port.context("no mount line")?;
    Ok(format!("nfs://127.0.0.1/{share}/{path}?version=3&nfsport={port}&mountport={port}"))
}

fn tool(name: &str, arguments: &[&str]) -> Result<Output> {
    // They wait for ever for a server that is gone.
    let output = Command::new("timeout").arg("60").arg(name).args(arguments).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} {arguments:?}: {words}");
    Ok(output)
}

/// How many names a share has at its top.
fn names(stage: &Stage, share: &str) -> Result<usize> {
    let listed = tool("nfs-ls", &[&url(stage, share, "")?])?;
    Ok(String::from_utf8(listed.stdout)?.lines().count())
}

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8 ^ seed).collect()
}

#[test]
fn other_peoples_tools_write_read_and_list_a_share_and_its_past_over_kills() -> Result<()> {
    let mut stage = stage()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("file").display().to_string();
    let versions = [bytes(3_000_000, 1), bytes(1_000, 2), bytes(5_000_001, 3), Vec::new()];
    for (number, content) in versions.iter().enumerate() {
        std::fs::write(&file, content)?;
        let name = format!("file{number}");
        tool("nfs-cp", &[&file, &url(&stage, "home", &name)?])?;
        stage.server.run(&["version", "create", "home"])?;
        if number == 1 {
            stage.server.kill();
            stage.server.up()?;
        }
    }
    for (number, content) in versions.iter().enumerate() {
        let name = format!("file{number}");
        let cat = |share: &str, path: &str| -> Result<Vec<u8>> {
            Ok(tool("nfs-cat", &[&url(&stage, share, path)?])?.stdout)
        };
        ensure!(cat("home", &name)? == *content, "{name} in the present");
        ensure!(cat(&format!("home@v:{number}"), &name)? == *content, "mounted v:{number}");
        let inside = format!(".hindsight/v:{number}/{name}");
        ensure!(cat("home", &inside)? == *content, "{inside}");
        let listed = names(&stage, &format!("home@v:{number}"))?;
        ensure!(listed == number + 1, "v:{number} has {listed}");
    }
    stage.server.run(&["revert", "home", "--to", "v:1"])?;
    ensure!(names(&stage, "home")? == 2, "reverted");
    stage.server.stop()
}
