//! `file restore`: what was at a path, onto this machine.
//!
//! 1. Nothing is followed: each object is made anew where there is none, and a link that is in the
//!    way is taken away, not gone through. So a disk cannot have anything written beside TO.
//! 2. Holes stay holes. Directories get their modes and times when all is in them.
//! 3. Without root, owners are the caller's, and what only root may make is left out and told of.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{ExitCode, path_text};
use files::{Attributes, Kind, Node, Time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use serde::Serialize;

use super::archive::Stopped;
use super::view::{How, NeedArgs, Reading, View, judge};
use crate::failure::Failure;
use crate::output::{human, pairs};
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The volume, the moment and the path.
    #[arg(value_name = "VOLUME[@MOMENT]:[PART]/PATH")]
    pub of: OsString,
    /// The path it gets here; there may be nothing yet.
    pub to: PathBuf,
    /// Write over what is there: files and links give way, directories are merged into.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub need: NeedArgs,
}

#[derive(Serialize)]
struct Restored {
    #[serde(flatten)]
    how: How,
    path: String,
    to: PathBuf,
    files: u64,
    directories: u64,
    links: u64,
    others: u64,
    bytes: u64,
    /// What could not be put back, by path.
    left_out: Vec<String>,
}

struct Work<'a> {
    view: &'a View,
    is_forced: bool,
    is_root: bool,
    /// The first path of each file that has several.
    seen: BTreeMap<Node, PathBuf>,
    /// Directories, to be finished when all is in them.
    entered: Vec<(PathBuf, Node, Attributes)>,
    restored: Restored,
}

pub fn run(
    session: &Session,
    reading: &Reading,
    to: &Path,
    is_forced: bool,
) -> anyhow::Result<ExitCode> {
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let top = view.look_up(path)?;
    if !is_forced && to.symlink_metadata().is_ok() {
        let is = Failure::new(format!("{} is there already", to.display()));
        return Err(is.with_hint("name what is not there yet, or give --force").into());
    }
    let restored = Restored {
        how: view.how.clone(),
        path: path_text(path),
        to: to.to_owned(),
        files: 0,
        directories: 0,
        links: 0,
        others: 0,
        bytes: 0,
        left_out: Vec::new(),
    };
    let is_root = rustix::process::geteuid().is_root();
    let (seen, entered) = (BTreeMap::new(), Vec::new());
    let mut work = Work { view: &view, is_forced, is_root, seen, entered, restored };
    let walked = files::walk(&*view.tree, top, &mut |path, node, attributes| {
        let to = if path.is_empty() {
            to.to_owned()
        } else {
            to.join(Path::new(OsStr::from_bytes(path)))
        };
        work.put(&to, node, attributes).map_err(Stopped::Here)
    });
    match walked {
        Ok(()) => work.finish()?,
        Err(Stopped::Here(error)) => return Err(error),
        Err(Stopped::Reading(error)) => return Err(judge(error.into())),
    }
    let restored = work.restored;
    session.answer(&restored, show)?;
    restored.left_out.iter().for_each(|what| say(&format!("left out: {what}")));
    Ok(if restored.left_out.is_empty() { ExitCode::Done } else { ExitCode::Partly })
}

fn show(restored: &Restored) -> String {
    pairs(&[
        ("restored", restored.path.clone()),
        ("to", restored.to.display().to_string()),
        ("files", restored.files.to_string()),
        ("directories", restored.directories.to_string()),
        ("links", restored.links.to_string()),
        ("others", restored.others.to_string()),
        ("written", human(restored.bytes)),
    ])
}

impl Work<'_> {
    fn put(&mut self, to: &Path, node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        let failed = || format!("cannot make {}", to.display());
        if attributes.kind == Kind::Directory {
            self.make_way(to, true)?;
            if !to.is_dir() {
                // Open for us alone until all is in it.
                DirBuilder::new().mode(0o700).create(to).with_context(failed)?;
            }
            self.restored.directories += 1;
            self.entered.push((to.to_owned(), node, attributes.clone()));
            return Ok(());
        }
        self.make_way(to, false)?;
        if attributes.links > 1 {
            if let Some(first) = self.seen.get(&node) {
                fs::hard_link(first, to).with_context(failed)?;
                self.restored.links += 1;
                return Ok(());
            }
            self.seen.insert(node, to.to_owned());
        }
        match attributes.kind {
            Kind::File => self.put_file(to, node, attributes)?,
            Kind::Symlink => {
                let target = self.view.tree.link(node).map_err(|error| judge(error.into()))?;
                let target = Path::new(OsStr::from_bytes(&target));
                std::os::unix::fs::symlink(target, to).with_context(failed)?;
                self.restored.links += 1;
            }
            kind => {
                if let Err(error) = make_special(to, kind, attributes) {
                    self.seen.remove(&node);
                    self.left_out(to, kind.word(), &error);
                    return Ok(());
                }
                self.restored.others += 1;
            }
        }
        self.dress(to, node, attributes)
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

    fn put_file(&mut self, to: &Path, node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        let failed = || format!("cannot write {}", to.display());
        let mut options = OpenOptions::new();
        let file: File =
            options.write(true).create_new(true).mode(0o600).open(to).with_context(failed)?;
        let mut lost = None;
        let read = files::read_all(&*self.view.tree, node, &mut |offset, bytes| {
            self.restored.bytes += bytes.len() as u64;
            match file.write_all_at(bytes, offset) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    lost = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = lost {
            return Err(error).with_context(failed);
        }
        read.map_err(|error| judge(error.into()))?;
        file.set_len(attributes.size).with_context(failed)?;
        self.restored.files += 1;
        Ok(())
    }

    fn left_out(&mut self, to: &Path, what: &str, error: &dyn std::fmt::Display) {
        self.restored.left_out.push(format!("{}: {what}: {error}", to.display()));
    }

    /// Owner, extended attributes, mode, times: in an order in which none takes another away.
    fn dress(&mut self, to: &Path, node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        if self.is_root
            && let Some((uid, gid)) = attributes.owner
            && let Err(error) = lchown(to, Some(uid), Some(gid))
        {
            self.left_out(to, "owner", &error);
        }
        let extended = self.view.tree.extended(node).map_err(|error| judge(error.into()))?;
        for (name, value) in extended {
            let is_roots = name.starts_with(b"security.") || name.starts_with(b"trusted.");
            if is_roots && !self.is_root {
                continue;
            }
            if let Err(error) = rustix::fs::lsetxattr(to, &name[..], &value, XattrFlags::empty()) {
                self.left_out(to, &path_text(&name), &error);
            }
        }
        if attributes.kind != Kind::Symlink {
            let mut mode = u32::from(attributes.mode);
            if !self.is_root {
                // What runs as its owner would run as the caller.
                mode &= 0o1777;
            }
            let set = fs::set_permissions(to, Permissions::from_mode(mode));
            set.with_context(|| format!("cannot set the mode of {}", to.display()))?;
        }
        if let Some(modified) = attributes.modified {
            let accessed = attributes.accessed.unwrap_or(modified);
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

    fn finish(&mut self) -> anyhow::Result<()> {
        for (to, node, attributes) in std::mem::take(&mut self.entered).into_iter().rev() {
            self.dress(&to, node, &attributes)?;
        }
        Ok(())
    }
}

fn timespec(time: Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
}

/// A pipe, socket or device.
fn make_special(to: &Path, kind: Kind, attributes: &Attributes) -> io::Result<()> {
    let kind = match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharacterDevice => FileType::CharacterDevice,
        Kind::File | Kind::Directory | Kind::Symlink => return Err(ErrorKind::InvalidInput.into()),
    };
    let (major, minor) = attributes.device.unwrap_or_default();
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device)?)
}
