//! Files and all else that trees have, made on this machine: what `file restore` and
//! `share export` do.
//!
//! 1. Nothing is followed: each object is made anew where there is none, and a link that is in the
//!    way is taken away, not gone through. So nothing can be written beside where it goes.
//! 2. Directories get their modes and times when all is in them.
//! 3. Without root, owners are the caller's, and what only root may make is left out and told of.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::path_text;
use files::{Attributes, Kind, Time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::human;

/// What is set of an object besides its content.
#[derive(Clone, Debug)]
pub struct Dress {
    pub kind: Kind,
    pub mode: u16,
    pub owner: Option<(u32, u32)>,
    pub modified: Option<Time>,
    pub accessed: Option<Time>,
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Dress {
    pub fn of(attributes: &Attributes, extended: Vec<(Vec<u8>, Vec<u8>)>) -> Dress {
        let Attributes { kind, mode, owner, modified, accessed, .. } = *attributes;
        Dress { kind, mode, owner, modified, accessed, extended }
    }
}

/// What was made.
#[derive(Debug, Default, Serialize)]
pub struct Made {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub others: u64,
    pub bytes: u64,
    /// What could not be put back, by path.
    pub left_out: Vec<String>,
}

impl Made {
    pub fn rows(&self) -> [(&'static str, String); 5] {
        [
            ("files", self.files.to_string()),
            ("directories", self.directories.to_string()),
            ("links", self.links.to_string()),
            ("others", self.others.to_string()),
            ("written", human(self.bytes)),
        ]
    }
}

/// Makes objects on this machine.
pub struct Placing {
    is_forced: bool,
    is_root: bool,
    /// Directories, to be finished when all is in them.
    entered: Vec<(PathBuf, Dress)>,
    pub made: Made,
}

impl Placing {
    /// With force, files and links that are there give way, and directories are merged into.
    pub fn new(is_forced: bool) -> Placing {
        let is_root = rustix::process::geteuid().is_root();
        Placing { is_forced, is_root, entered: Vec::new(), made: Made::default() }
    }

    /// Refuses a place where something is, unless forced.
    pub fn check_top(&self, to: &Path) -> anyhow::Result<()> {
        if !self.is_forced && to.symlink_metadata().is_ok() {
            let is = Failure::new(format!("{} is there already", to.display()));
            return Err(is.with_hint("name what is not there yet, or give --force").into());
        }
        Ok(())
    }

    pub fn directory(&mut self, to: &Path, dress: Dress) -> anyhow::Result<()> {
        self.make_way(to, true)?;
        if !to.is_dir() {
            // Open for us alone until all is in it.
            let made = DirBuilder::new().mode(0o700).create(to);
            made.with_context(|| cannot_make(to))?;
        }
        self.made.directories += 1;
        self.entered.push((to.to_owned(), dress));
        Ok(())
    }

    /// A further name of what was made.
    pub fn hard_link(&mut self, first: &Path, to: &Path) -> anyhow::Result<()> {
        self.make_way(to, false)?;
        fs::hard_link(first, to).with_context(|| cannot_make(to))?;
        self.made.links += 1;
        Ok(())
    }

    /// A file of this size; `fill` writes into it, and says how many bytes.
    pub fn file(
        &mut self,
        to: &Path,
        size: u64,
        dress: &Dress,
        fill: impl FnOnce(&File) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        self.make_way(to, false)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(to);
        let file = file.with_context(|| cannot_make(to))?;
        self.made.bytes += fill(&file)?;
        file.set_len(size).with_context(|| cannot_write(to))?;
        self.made.files += 1;
        self.dress(to, dress)
    }

    pub fn symlink(&mut self, to: &Path, target: &[u8], dress: &Dress) -> anyhow::Result<()> {
        self.make_way(to, false)?;
        symlink(Path::new(OsStr::from_bytes(target)), to).with_context(|| cannot_make(to))?;
        self.made.links += 1;
        self.dress(to, dress)
    }

    /// A pipe, socket or device; whether that could be made.
    pub fn special(
        &mut self,
        to: &Path,
        device: Option<(u32, u32)>,
        dress: &Dress,
    ) -> anyhow::Result<bool> {
        self.make_way(to, false)?;
        if let Err(error) = make_special(to, dress.kind, device) {
            self.left_out(to, dress.kind.word(), &error);
            return Ok(false);
        }
        self.made.others += 1;
        self.dress(to, dress)?;
        Ok(true)
    }

    pub fn left_out(&mut self, to: &Path, what: &str, error: &dyn std::fmt::Display) {
        let to = path_text(to.as_os_str().as_bytes());
        self.made.left_out.push(format!("{to}: {what}: {error}"));
    }

    pub fn finish(mut self) -> anyhow::Result<Made> {
        for (to, dress) in std::mem::take(&mut self.entered).into_iter().rev() {
            self.dress(&to, &dress)?;
        }
        Ok(self.made)
    }

    /// Takes away what is in the way, if that is wanted.
    fn make_way(&self, to: &Path, is_for_directory: bool) -> anyhow::Result<()> {
        let Ok(there) = to.symlink_metadata() else { return Ok(()) };
        if !self.is_forced {
            // Two names of a directory on the disk are one here, or TO changed meanwhile.
            return Err(Failure::new(format!("{} is there already", to.display())).into());
        }
        match (there.is_dir(), is_for_directory) {
            (true, true) => Ok(()),
            (true, false) => {
                let text = format!("{} is a directory, and was none then", to.display());
                Err(Failure::new(text).with_hint("remove it, or restore to another place").into())
            }
            (false, _) => {
                fs::remove_file(to).with_context(|| format!("cannot remove {}", to.display()))
            }
        }
    }

    /// Owner, extended attributes, mode, times: in an order in which none takes another away.
    fn dress(&mut self, to: &Path, dress: &Dress) -> anyhow::Result<()> {
        if self.is_root
            && let Some((uid, gid)) = dress.owner
            && let Err(error) = lchown(to, Some(uid), Some(gid))
        {
            self.left_out(to, "owner", &error);
        }
        for (name, value) in &dress.extended {
            let is_roots = name.starts_with(b"security.") || name.starts_with(b"trusted.");
            if is_roots && !self.is_root {
                continue;
            }
            if let Err(error) = rustix::fs::lsetxattr(to, &name[..], value, XattrFlags::empty()) {
                self.left_out(to, &path_text(name), &error);
            }
        }
        if dress.kind != Kind::Symlink {
            let mut mode = u32::from(dress.mode);
            if !self.is_root {
                // What runs as its owner would run as the caller.
                mode &= 0o1777;
            }
            let set = fs::set_permissions(to, Permissions::from_mode(mode));
            set.with_context(|| format!("cannot set the mode of {}", to.display()))?;
        }
        if let Some(modified) = dress.modified {
            let accessed = dress.accessed.unwrap_or(modified);
            let times = Timestamps {
                last_access: timespec(accessed),
                last_modification: timespec(modified),
            };
            let set = rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW);
            if let Err(error) = set {
                self.left_out(to, "times", &error);
            }
        }
        Ok(())
    }
}

fn cannot_make(to: &Path) -> String {
    format!("cannot make {}", to.display())
}

pub fn cannot_write(to: &Path) -> String {
    format!("cannot write {}", to.display())
}

fn timespec(time: Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
}

/// A pipe, socket or device.
fn make_special(to: &Path, kind: Kind, device: Option<(u32, u32)>) -> io::Result<()> {
    let kind = match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharacterDevice => FileType::CharacterDevice,
        Kind::File | Kind::Directory | Kind::Symlink => return Err(ErrorKind::InvalidInput.into()),
    };
    let (major, minor) = device.unwrap_or_default();
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device)?)
}
