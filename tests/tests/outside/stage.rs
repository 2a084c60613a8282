//! What every test stands on: a folder, a server, and volumes in it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hindsight_tests::server::{self, Server};
use tempfile::TempDir;

/// A server with a pool of its own; everything goes when it is dropped.
pub struct Stage {
    // Before the folder, so that it has ended when the folder goes.
    pub server: Server,
    folder: TempDir,
}

impl Stage {
    /// A server with one volume, or none when `size` is empty.
    pub fn new(volume: &str, size: &str) -> Result<Stage> {
        Stage::with(volume, size, &[])
    }

    /// The same, the server started with more arguments.
    pub fn with(volume: &str, size: &str, more: &[&str]) -> Result<Stage> {
        let folder = folder()?;
        let pool = folder.path().join("pool");
        let server = Server::start_with(&server::program()?, &pool, more)?;
        if !size.is_empty() {
            server.run(&["volume", "create", volume, "--size", size])?;
        }
        Ok(Stage { server, folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text, for arguments.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// A folder that other users may enter, as PostgreSQL must.
pub fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("hindsight-test-").tempdir()?;
    open(folder.path())?;
    Ok(folder)
}

fn open(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?)
}

/// How many moments a test goes back to: `HINDSIGHT_MOMENTS`, or 20.
pub fn moments() -> usize {
    std::env::var("HINDSIGHT_MOMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// The seed of a test: `HINDSIGHT_SEED`, or one from the clock, printed to be had again.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("HINDSIGHT_SEED").ok().and_then(|n| n.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| u64::from(since.subsec_nanos()))
    });
    println!("{test}: HINDSIGHT_SEED={seed}");
    seed
}
