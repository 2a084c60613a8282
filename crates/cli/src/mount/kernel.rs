//! The kernel's side of a mount: as root by mount(2), as somebody else by `fusermount3`, the helper
//! of the package fuse3 that may.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use api::ExitCode;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::failure::Failure;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// How the kernel's list of mounts names ours.
const TYPE: &str = "fuse.hindsight";
/// What the kernel reads ahead of what is read one after the other, in KiB.
const READ_AHEAD_KIB: &str = "1024";

/// What a mount is to be.
pub struct Wish<'a> {
    /// Shown as its source.
    pub source: &'a str,
    pub is_writable: bool,
    pub allow_other: bool,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts; requests come from the device.
pub fn mount(at: &Path, wish: &Wish<'_>) -> anyhow::Result<File> {
    if is_root() { by_call(at, wish) } else { by_helper(at, wish) }
}

fn by_call(at: &Path, wish: &Wish<'_>) -> anyhow::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| {
        let lacks = format!("FUSE cannot be used here: {DEVICE}: {error}");
        Failure::new(lacks).with_hint("modprobe fuse; a container must be given the device")
    })?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if !wish.is_writable {
        flags |= MountFlags::RDONLY;
    }
    let others = if wish.allow_other { ",allow_other" } else { "" };
    let number = device.as_raw_fd();
    let data =
        format!("fd={number},rootmode=40000,user_id=0,group_id=0,default_permissions{others}\0");
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes())?;
    rustix::mount::mount(wish.source, at, TYPE, flags, Some(data)).map_err(|error| {
        let hint = "mounting is for root with all capabilities, or for users with fuse3";
        Failure::new(format!("cannot mount at {}: {error}", at.display())).with_hint(hint)
    })?;
    Ok(device)
}

fn by_helper(at: &Path, wish: &Wish<'_>) -> anyhow::Result<File> {
    let (ours, theirs) = UnixStream::pair()?;
    let access = if wish.is_writable { "rw" } else { "ro" };
    let others = if wish.allow_other { ",allow_other" } else { "" };
    // A comma would begin another option.
    let source = wish.source.replace(',', "_");
    let options = format!(
        "{access},nosuid,nodev,default_permissions{others},fsname={source},subtype=hindsight"
    );
    let helper = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(at)
        // It hands the device over through this.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .status();
    let status = helper.map_err(|error| {
        let text = format!("users mount by {HELPER}, which cannot be run: {error}");
        Failure::new(text).with_hint("install the package fuse3, or do it as root")
    })?;
    if !status.success() {
        return Err(Failure::new(format!("{HELPER} could not mount at {}", at.display())).into());
    }
    received(&ours)
}

/// The device that the helper sent.
fn received(socket: &UnixStream) -> anyhow::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message
            && let Some(file) = files.next()
        {
            return Ok(File::from(file));
        }
    }
    Err(Failure::new(format!("{HELPER} handed nothing over")).into())
}

/// Unmounts, or detaches what somebody still uses.
pub fn unmount(at: &Path, is_lazy: bool) -> anyhow::Result<()> {
    if !is_root() {
        let lazy = if is_lazy { &["-z"][..] } else { &[] };
        let status = Command::new(HELPER).args(["-u", "-q"]).args(lazy).arg("--").arg(at).status();
        let status = status.with_context(|| format!("{HELPER} cannot be run"))?;
        return if status.success() { Ok(()) } else { Err(busy(at).into()) };
    }
    let flags = if is_lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::BUSY) => Err(busy(at).into()),
        other => other.with_context(|| format!("cannot unmount {}", at.display())),
    }
}

fn busy(at: &Path) -> Failure {
    let at = at.display();
    let busy = Failure { code: ExitCode::Busy, ..Failure::new(format!("{at} is in use")) };
    busy.with_hint(format!("fuser -vm {at} names who uses it"))
}

/// The number that the kernel has for a mount of ours at a path, if there is one: `0:57`.
pub fn number_of(at: &Path) -> io::Result<Option<String>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mut found = None;
    for line in mounts.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let kind = fields.iter().position(|field| *field == b"-");
        let kind = kind.and_then(|at| fields.get(at + 1));
        if let [_, _, number, _, point, ..] = fields[..]
            && unescaped(point) == at.as_os_str().as_bytes()
        {
            // The last one lies above the others.
            let is_ours = kind.is_some_and(|kind| *kind == TYPE.as_bytes());
            found = is_ours.then(|| String::from_utf8_lossy(number).into_owned());
        }
    }
    Ok(found)
}

/// A path of that list: blanks and the like are octal.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        let octal = more.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

/// Has the kernel read more ahead, where it lets us: only root may say so.
pub fn read_ahead(at: &Path) {
    if let Ok(Some(number)) = number_of(at) {
        // Without it reading is slower, and nothing else.
        let _ = fs::write(format!("/sys/class/bdi/{number}/read_ahead_kb"), READ_AHEAD_KIB);
    }
}

/// A path of a directory from the root on. The last part is not looked at: behind it there may be
/// a mount whose process has died.
pub fn absolute(at: &Path) -> io::Result<PathBuf> {
    match (at.parent(), at.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let whole = parent.canonicalize()?.join(name);
            let is_link = whole.symlink_metadata().is_ok_and(|found| found.is_symlink());
            if is_link { whole.canonicalize() } else { Ok(whole) }
        }
        _ => at.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn paths_of_the_kernels_list_are_read() {
        assert_eq!(unescaped(br"/mnt/a\040b\134c"), b"/mnt/a b\\c");
        assert_eq!(unescaped(br"/mnt/\04"), br"/mnt/\04");
        assert_eq!(unescaped(b"/mnt/\xFF"), b"/mnt/\xFF");
    }
}
