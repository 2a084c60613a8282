//! Attaching volumes to this machine, as disks of the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::programs::{ended, run, text, unmount};

/// How long a disk may take until it is there.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the kernel's NBD waits for a server that does not answer, in seconds: never 0, which
/// is for ever.
const NBD_TIMEOUT: &str = "600";
/// iscsiadm says so where a session is there, or a target is none that it knows.
const ISCSI_THERE: i32 = 15;
const ISCSI_NONE: i32 = 21;

/// How volumes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// By open-iscsi, which outlives restarts of either side.
    Iscsi,
    /// By nbd-client.
    Nbd,
    /// By nbdfuse and a loop device, where the kernel has neither; for tests.
    Nbdfuse,
}

/// A volume that is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub attach: Attach,
    /// Where the server was reached.
    pub data: String,
    /// The name of its target, or export.
    pub name: String,
    /// The disk; none yet while it is being attached.
    pub device: PathBuf,
    /// By which the kernel tells this attachment of the disk from others.
    #[serde(default)]
    pub mark: String,
    /// Where it is shown to those that use it.
    #[serde(default)]
    pub published: BTreeSet<PathBuf>,
    /// A file system is being made on it, which was blank.
    #[serde(default)]
    pub is_new: bool,
}

fn failed(what: &Path, error: &std::io::Error) -> Status {
    Status::internal(format!("{}: {error}", what.display()))
}

/// Waits until something is there.
fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Status>,
) -> Result<T, Status> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(Status::deadline_exceeded(format!("{what} is not there in time")));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The names in a folder; none where it is not there.
fn names_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    names
}

impl Attach {
    /// Whether what is attached may become larger.
    pub fn grows_attached(self) -> bool {
        self == Attach::Iscsi
    }

    /// A volume that is to be attached: by the name of its target, or of its export.
    pub fn of(self, data: &str, name: &str) -> Attached {
        let (device, mark) = (PathBuf::new(), String::new());
        let (data, name, published) = (data.to_owned(), name.to_owned(), BTreeSet::new());
        Attached { attach: self, data, name, device, mark, published, is_new: false }
    }

    /// What the kernel says of the attachment that a disk is now; none if it is none.
    fn mark(self, device: &Path) -> Option<String> {
        let name = device.file_name()?;
        let of =
            |file: &str| fs::read_to_string(Path::new("/sys/block").join(name).join(file)).ok();
        // Numbers of processes come again after a start of the machine.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        match self {
            Attach::Iscsi => Some(String::new()),
            Attach::Nbd => Some(format!("{} {}", boot.trim(), of("pid")?.trim())),
            Attach::Nbdfuse => Some(format!("{} {}", boot.trim(), of("loop/backing_file")?.trim())),
        }
    }
}

impl Attached {
    /// Attaches it. `folder` is its own.
    pub fn attach(&mut self, folder: &Path) -> Result<(), Status> {
        self.device = match self.attach {
            Attach::Iscsi => iscsi(&self.data, &self.name)?,
            Attach::Nbd => nbd(&self.data, &self.name)?,
            Attach::Nbdfuse => nbdfuse(&self.data, &self.name, folder)?,
        };
        let gone = || Status::unavailable(format!("{} went away", self.device.display()));
        self.mark = self.attach.mark(&self.device).ok_or_else(gone)?;
        Ok(())
    }

    /// Whether it is still so, and the disk is no other volume's by now: not after the machine was
    /// started again.
    pub fn is_there(&self) -> bool {
        match self.attach {
            Attach::Iscsi => disk_of(&self.name).as_ref() == Some(&self.device),
            attach => attach.mark(&self.device).as_ref() == Some(&self.mark),
        }
    }

    /// Fails unless it is.
    pub fn check(&self) -> Result<(), Status> {
        if self.is_there() {
            return Ok(());
        }
        let text = format!("{} is not attached any more: stage it again", self.name);
        Err(Status::failed_precondition(text))
    }

    /// Takes it away.
    pub fn detach(&self, folder: &Path) -> Result<(), Status> {
        let device = text(&self.device)?;
        match self.attach {
            Attach::Iscsi => {
                let target = ["-m", "node", "-T", &self.name, "-p", &self.data];
                for words in [&["--logout"][..], &["-o", "delete"]] {
                    let arguments = [&target[..], words].concat();
                    let (code, _, said) = ended("iscsiadm", &arguments)?;
                    if code != Some(0) && code != Some(ISCSI_NONE) {
                        let text = format!("iscsiadm {words:?} of {}: {said}", self.name);
                        return Err(Status::internal(text));
                    }
                }
                Ok(())
            }
            Attach::Nbd if self.is_there() => run("nbd-client", &["-d", device]).map(drop),
            Attach::Nbd => Ok(()),
            Attach::Nbdfuse => {
                if self.is_there() {
                    run("losetup", &["--detach", device])?;
                }
                wait_for("the end of the loop device", || Ok((!self.is_there()).then_some(())))?;
                unmount(&folder.join("nbd"))?;
                unmount(folder)
            }
        }
    }

    /// Has the kernel look at its size again.
    pub fn look_again(&self) -> Result<(), Status> {
        if self.attach == Attach::Iscsi {
            let session = ["-m", "node", "-T", &self.name, "-p", &self.data, "--rescan"];
            run("iscsiadm", &session)?;
        }
        Ok(())
    }
}

/// The disk of a session with a target.
fn disk_of(target: &str) -> Option<PathBuf> {
    let sessions = names_in(Path::new("/sys/class/iscsi_session"));
    let is_it = |session: &&PathBuf| {
        fs::read_to_string(session.join("targetname")).is_ok_and(|name| name.trim() == target)
    };
    let session = sessions.iter().find(is_it)?;
    let below = |folder: &Path, start: &str| {
        let is_one = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with(start))
        };
        names_in(folder).into_iter().find(is_one)
    };
    let host = below(&session.join("device"), "target")?;
    let unit = names_in(&host).into_iter().find(|path| path.join("block").exists())?;
    let disk = names_in(&unit.join("block")).into_iter().next()?;
    Some(Path::new("/dev").join(disk.file_name()?))
}

fn iscsi(portal: &str, target: &str) -> Result<PathBuf, Status> {
    let node = ["-m", "node", "-T", target, "-p", portal];
    run("iscsiadm", &[&node[..], &["-o", "new"]].concat())?;
    let (code, _, said) = ended("iscsiadm", &[&node[..], &["--login"]].concat())?;
    if code != Some(0) && code != Some(ISCSI_THERE) {
        return Err(Status::internal(format!("iscsiadm --login to {target}: {said}")));
    }
    let disk = wait_for("the disk of the iSCSI session", || Ok(disk_of(target)))?;
    // udev makes it, and may take a moment.
    wait_for("the disk of the iSCSI session", || Ok(disk.exists().then_some(())))?;
    Ok(disk)
}

fn is_taken(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block").join(name).join("pid").exists()
}

fn nbd(data: &str, export: &str) -> Result<PathBuf, Status> {
    // A device that is free is taken before another call looks.
    static LOOK: Mutex<()> = Mutex::new(());
    let _look = LOOK.lock().map_err(|_| Status::internal("a look for a device failed"))?;
    let (host, port) = data.rsplit_once(':').unwrap_or((data, "10809"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_disk = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("nbd").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let disks = names_in(Path::new("/sys/block")).into_iter().filter(is_disk);
    let mut free = disks.filter(|disk| !is_taken(disk));
    let none = || Status::resource_exhausted("no NBD device is free: modprobe nbd nbds_max=64");
    let free = free.next().ok_or_else(none)?;
    let device = Path::new("/dev").join(free.file_name().unwrap_or_default());
    let words = ["-N", export, host, port, text(&device)?, "-timeout", NBD_TIMEOUT];
    run("nbd-client", &words)?;
    Ok(device)
}

fn nbdfuse(data: &str, export: &str, folder: &Path) -> Result<PathBuf, Status> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let file = folder.join("nbd");
    let mut command = Command::new("nbdfuse");
    command.arg("-s").arg(&file).arg(format!("nbd://{data}/{export}"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child =
        command.spawn().map_err(|error| Status::internal(format!("nbdfuse: {error}")))?;
    wait_for("the file of nbdfuse", || match child.try_wait() {
        Ok(None) => Ok(file.exists().then_some(())),
        _ => Err(Status::internal("nbdfuse ended")),
    })?;
    // It ends when its mount is taken away.
    thread::spawn(move || child.wait());
    let device = run("losetup", &["--find", "--show", text(&file)?])?;
    Ok(PathBuf::from(device.trim()))
}
