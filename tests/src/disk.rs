//! Real file systems of this machine's kernel on an export: nbdfuse makes a file of it, a loop
//! device a disk of the file.
//!
//! 1. The loop device never uses direct I/O: over FUSE the kernel does not support it safely.
//! 2. Everything is taken apart in reverse order when dropped, also when a test fails.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::mount::UnmountFlags;

use crate::command::{self, call};

const PATIENCE: Duration = Duration::from_secs(30);

/// An export as a block device, and mounted if asked for.
pub struct Disk {
    nbdfuse: Option<Child>,
    fuse: PathBuf,
    device: Option<String>,
    mounted: Option<PathBuf>,
}

impl Disk {
    /// Attaches an export; `folder` is ours alone and is made.
    pub fn attach(uri: &str, folder: &Path, read_only: bool) -> Result<Disk> {
        std::fs::create_dir_all(folder)?;
        let mut nbdfuse = Command::new("nbdfuse");
        // One request at a time: with more, nbdfuse 1.14 trips over replies that come before it has
        // counted the request (an assertion of its own).
        nbdfuse.arg("-s");
        if read_only {
            nbdfuse.arg("-r");
        }
        let child = nbdfuse
            .arg(folder.join("nbd"))
            .arg(uri)
            .stdin(Stdio::null())
            .spawn()
            .context("start nbdfuse")?;
        let mut disk =
            Disk { nbdfuse: Some(child), fuse: folder.to_owned(), device: None, mounted: None };
        let file = folder.join("nbd");
        wait_until("nbdfuse serves its file", || Ok(file.exists()))?;
        let file = file.to_str().context("a path in UTF-8")?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]);
        if read_only {
            losetup.arg("--read-only");
        }
        disk.device = Some(command::run(losetup.arg(file))?.trim().to_owned());
        Ok(disk)
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.as_deref().unwrap_or_default()
    }

    /// Mounts the device; the folder is made.
    pub fn mount(&mut self, at: &Path, options: &str) -> Result<()> {
        std::fs::create_dir_all(at)?;
        let at_text = at.to_str().context("a path in UTF-8")?;
        call("mount", &["-o", options, self.device(), at_text])?;
        self.mounted = Some(at.to_owned());
        Ok(())
    }

    /// Unmounts, if mounted.
    pub fn unmount(&mut self) -> Result<()> {
        if let Some(at) = &self.mounted {
            unmount(at)?;
            self.mounted = None;
        }
        Ok(())
    }

    /// Takes everything apart; every step must succeed.
    pub fn detach(mut self) -> Result<()> {
        self.unmount()?;
        if let Some(device) = self.device.take() {
            call("losetup", &["--detach", &device])?;
            // Somebody who looks at every disk that comes and goes may have it open still: then it
            // goes with that, and so does the file below.
            let below = Path::new("/sys/block").join(device.trim_start_matches("/dev/"));
            let file = self.fuse.join("nbd");
            let is_of_it = || std::fs::read_to_string(below.join("loop/backing_file"));
            wait_until("the loop device lets go", || {
                Ok(!is_of_it().is_ok_and(|path| Path::new(path.trim()) == file))
            })?;
        }
        unmount(&self.fuse)?;
        let mut child = self.nbdfuse.take().context("it runs until here")?;
        let status = child.wait()?;
        ensure!(status.success(), "nbdfuse ended with {status}");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After detach there is nothing left; otherwise as much as can be.
        if let Some(at) = self.mounted.take() {
            let _ = Command::new("umount").arg("--lazy").arg(&at).status();
        }
        if let Some(device) = self.device.take() {
            let _ = Command::new("losetup").args(["--detach", &device]).status();
        }
        if let Some(mut child) = self.nbdfuse.take() {
            let _ = Command::new("umount").arg("--lazy").arg(&self.fuse).status();
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Unmounts a file system that nobody uses.
///
/// A program that another test starts holds a copy of every open file of this process, from its
/// fork to its exec: a file that we closed may be open for as long, and the mount busy.
fn unmount(at: &Path) -> Result<()> {
    wait_until("nobody has a file of the mount open", || {
        match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::BUSY) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("unmount {}", at.display())),
        }
    })
}

/// Waits until something is so, for at most half a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_so()? {
        ensure!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
