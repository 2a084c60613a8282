//! A pool on a file system that others have filled.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::{call, skips_without_root};
use hindsight_tests::disk::wait_until;
use hindsight_tests::nbd::{ENOSPC, Reply, Request};
use hindsight_tests::random::Random;
use hindsight_tests::server::{self, Server};

use crate::stage;

const SIZE_BYTES: u64 = 64 << 20;
const WRITE_BYTES: u64 = 1 << 20;

/// A file system on a loop device, unmounted when dropped.
struct Mounted(String);

impl Mounted {
    fn new(image: &Path, at: &Path, kind: &str) -> Result<Mounted> {
        let (image, at) = (image.display().to_string(), at.display().to_string());
        call("truncate", &["-s", "400M", &image])?;
        call(&format!("mkfs.{kind}"), &["-q", &image])?;
        std::fs::create_dir(&at)?;
        call("mount", &["-o", "loop", &image, &at])?;
        Ok(Mounted(at))
    }

    /// Takes all that is left, in a file.
    fn fill(&self) -> Result<()> {
        let filler = format!("{}/filler", self.0);
        let mut step = 64 << 20;
        let mut end = 0_u64;
        // What is left is enough for a socket.
        while step >= 1 << 20 {
            let (offset, length) = (end.to_string(), step.to_string());
            match call("fallocate", &["-o", &offset, "-l", &length, &filler]) {
                Ok(_) => end += step,
                Err(_) => step /= 2,
            }
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = call("umount", &[&self.0]);
    }
}

/// Overwrites the whole volume, by requests of which each has to succeed.
fn overwrite(server: &Server, random: &mut Random) -> Result<()> {
    let mut link = server.connect("v")?;
    for offset in (0..SIZE_BYTES).step_by(usize::try_from(WRITE_BYTES)?) {
        let mut bytes = vec![0; usize::try_from(WRITE_BYTES)?];
        random.fill(&mut bytes);
        match link.ask(&Request::Write { offset, bytes, fua: false })? {
            Reply::Done => {}
            Reply::Error(ENOSPC) => anyhow::bail!("no space for the MiB at {offset}"),
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}

fn goes_on_after_a_restart(name: &str, kind: &str) -> Result<()> {
    if skips_without_root(name) {
        return Ok(());
    }
    let folder = stage::folder()?;
    let mounted = Mounted::new(&folder.path().join("image"), &folder.path().join("m"), kind)?;
    let pool = folder.path().join("m/pool");
    let mut server = Server::start_with(&server::program()?, &pool, &["--pool-size", "2GiB"])?;
    server.run(&["volume", "create", "v", "--size", "64MiB"])?;
    let mut random = Random::new(5);
    for _ in 0..3 {
        overwrite(&server, &mut random)?;
    }
    mounted.fill()?;
    for restart in 0..3 {
        overwrite(&server, &mut random).with_context(|| format!("after {restart} restarts"))?;
        let shown = server.http().get("/api/v1/volumes/v")?;
        let history = shown["history_bytes"].as_u64().context("history_bytes")?;
        ensure!(history > 0, "there was history to give up");
        if restart == 1 {
            server.stop()?
        } else {
            server.kill()
        }
        server.up()?;
    }
    overwrite(&server, &mut random)?;
    server.stop()?;
    drop(mounted);
    wait_until("the file system is gone", || Ok(!pool.exists()))
}

#[test]
fn a_pool_on_a_full_ext4_gives_up_history_after_restarts_as_well() -> Result<()> {
    goes_on_after_a_restart("a_pool_on_a_full_ext4", "ext4")
}

#[test]
fn a_pool_on_a_full_xfs_gives_up_history_after_restarts_as_well() -> Result<()> {
    goes_on_after_a_restart("a_pool_on_a_full_xfs", "xfs")
}
