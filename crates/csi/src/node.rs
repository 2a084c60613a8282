//! Volumes on this machine: attached and mounted once (staged), and shown to each that uses them
//! (published).
//!
//! 1. A file for each volume that is attached says how; it is there before the volume is used.
//! 2. One call at a time is about a volume; another of the same is sent away, to come again.
//! 3. A blank disk gets a file system. A disk that has one keeps it, or is refused if it is another
//!    than what is asked for.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::Status;

use crate::attach::{Attach, Attached};
use crate::capability::{Use, Wanted};
use crate::controller::ISCSI_NAME;
use crate::grpc::Service;
use crate::names::needed;
use crate::programs::{ended, is_mounted, mounted_at, numbers_of, place_of, run, text, unmount};
use crate::proto::v1 as proto;
use crate::proto::v1::VolumeUsage;
use crate::proto::v1::node_service_capability::{self, rpc};
use crate::proto::v1::volume_usage::Unit;
use crate::turns::{Turn, Turns};

/// Where the name of this machine's initiator stands.
const INITIATOR_FILE: &str = "/etc/iscsi/initiatorname.iscsi";
/// blkid says so of a disk on which it finds nothing.
const BLANK: i32 = 2;

/// This machine.
pub struct Node {
    attach: Attach,
    data: String,
    name: Option<String>,
    state: PathBuf,
    /// Volumes that a call is about.
    turns: Turns,
}

/// The calls of Node.
pub fn calls(node: &Arc<Node>) -> Service<Node> {
    Service::new("Node", node)
        .call("NodeStageVolume", Node::stage)
        .call("NodeUnstageVolume", Node::unstage)
        .call("NodePublishVolume", Node::publish)
        .call("NodeUnpublishVolume", Node::unpublish)
        .call("NodeGetVolumeStats", Node::stats)
        .call("NodeExpandVolume", Node::expand)
        .call("NodeGetCapabilities", Node::capabilities)
        .call("NodeGetInfo", Node::info)
}

fn failed(path: &Path, error: &std::io::Error) -> Status {
    Status::internal(format!("{}: {error}", path.display()))
}

impl Node {
    /// This machine, which keeps what it has attached in a folder.
    pub fn new(
        attach: Attach,
        data: &str,
        name: Option<String>,
        state: &Path,
    ) -> std::io::Result<Node> {
        fs::create_dir_all(state)?;
        let (data, state) = (data.to_owned(), state.canonicalize()?);
        Ok(Node { attach, data, name, state, turns: Turns::default() })
    }

    /// The turn of a call about a volume, with its name.
    fn turn<'a>(&'a self, volume: &'a str) -> Result<(&'a str, Turn<'a>), Status> {
        let volume = needed(volume, "the volume's identity")?;
        Ok((volume, self.turns.take(volume)?))
    }

    /// The folder of a volume, and the file that says how it is attached.
    fn places(&self, volume: &str) -> Result<(PathBuf, PathBuf), Status> {
        if units::VolumeName::check(volume).is_err() {
            return Err(Status::not_found(format!("there is no volume {volume}")));
        }
        // No name of a volume with one of the two endings is one with the other.
        let folder = self.state.join(format!("{volume}.d"));
        let file = self.state.join(format!("{volume}.json"));
        Ok((folder, file))
    }

    fn attached(&self, volume: &str) -> Result<Option<Attached>, Status> {
        let (_, file) = self.places(volume)?;
        let text = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| failed(&file, &error))?,
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| Status::internal(format!("{}: {error}", file.display())))
    }

    fn attach(&self, volume: &str, target: Option<&String>) -> Result<Attached, Status> {
        let before = self.attached(volume)?;
        if let Some(there) = before.clone().filter(Attached::is_there) {
            return Ok(there);
        }
        let (folder, _) = self.places(volume)?;
        let name = match (self.attach, target) {
            (Attach::Iscsi, Some(target)) => target,
            (Attach::Iscsi, None) => {
                let text = format!("{volume} has no target: does the server serve iSCSI?");
                return Err(Status::failed_precondition(text));
            }
            _ => volume,
        };
        let mut attached = self.attach.of(&self.data, name);
        attached.is_new = before.is_some_and(|before| before.is_new);
        // Before it is so: then it can be taken away, whatever comes between.
        self.note(volume, &attached)?;
        attached.attach(&folder)?;
        self.note(volume, &attached)?;
        Ok(attached)
    }

    /// Notes how a volume is attached: whole, or not at all.
    fn note(&self, volume: &str, attached: &Attached) -> Result<(), Status> {
        let (_, file) = self.places(volume)?;
        let text = serde_json::to_vec(attached).map_err(|e| Status::internal(e.to_string()))?;
        let new = file.with_extension("new");
        let written = fs::File::create(&new).and_then(|mut to| {
            to.write_all(&text)?;
            to.sync_all()?;
            fs::rename(&new, &file)?;
            fs::File::open(&self.state)?.sync_all()
        });
        written.map_err(|error| failed(&file, &error))
    }

    fn stage(
        &self,
        request: proto::NodeStageVolumeRequest,
    ) -> Result<proto::NodeStageVolumeResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let staging = PathBuf::from(needed(&request.staging_target_path, "the path")?);
        let wanted = Wanted::of(request.volume_capability.as_ref())?;
        let mut attached = self.attach(volume, request.volume_context.get(ISCSI_NAME))?;
        // Of a disk that is only read no journal is replayed either: a file system that was not
        // left whole is refused. The next user of the device finds what was said of it.
        let how = if wanted.is_read_only { "--setro" } else { "--setrw" };
        run("blockdev", &[how, text(&attached.device)?])?;
        let Use::Mount { kind, options } = &wanted.used else {
            return Ok(proto::NodeStageVolumeResponse {});
        };
        match mounted_at(&staging)? {
            None => {
                fs::create_dir_all(&staging).map_err(|error| failed(&staging, &error))?;
                if self.is_to_be_made(volume, &mut attached, kind, wanted.is_read_only)? {
                    let force = if kind == "xfs" { "-f" } else { "-F" };
                    run(&format!("mkfs.{kind}"), &["-q", force, text(&attached.device)?])?;
                    attached.is_new = false;
                    self.note(volume, &attached)?;
                }
                mount(&attached, kind, options, wanted.is_read_only, &staging)?;
            }
            Some(there) if there == numbers_of(&attached.device)? => {}
            Some(_) => {
                let text = format!("another disk is mounted at {}", staging.display());
                return Err(Status::failed_precondition(text));
            }
        }
        if !wanted.is_read_only {
            grow(&attached.device, &staging)?;
        }
        Ok(proto::NodeStageVolumeResponse {})
    }

    /// Whether a file system is to be made on a disk: it is blank, or one was being made. Another
    /// than what is asked for is refused, and so is what is no file system.
    fn is_to_be_made(
        &self,
        volume: &str,
        attached: &mut Attached,
        kind: &str,
        is_read_only: bool,
    ) -> Result<bool, Status> {
        let device = text(&attached.device)?;
        let (code, found, said) = ended("blkid", &["-p", "-o", "value", "-s", "TYPE", device])?;
        match (code, found.trim()) {
            (Some(0), found) if found == kind => {
                if attached.is_new {
                    attached.is_new = false;
                    self.note(volume, attached)?;
                }
                return Ok(false);
            }
            // It says so too of a disk that it cannot read: the disk is read below.
            (Some(0 | BLANK), "") => {}
            (Some(0), found) => {
                let text = format!("on the disk is {found}, and {kind} is asked for");
                return Err(Status::failed_precondition(text));
            }
            _ => return Err(Status::internal(format!("blkid of {device}: {said}"))),
        }
        if is_read_only {
            return Err(Status::failed_precondition("there is no file system on the disk"));
        }
        if !is_blank(&attached.device)? && !attached.is_new {
            let text = "on the disk is something that is no file system; it is not written over";
            return Err(Status::failed_precondition(text));
        }
        attached.is_new = true;
        self.note(volume, attached)?;
        Ok(true)
    }

    fn unstage(
        &self,
        request: proto::NodeUnstageVolumeRequest,
    ) -> Result<proto::NodeUnstageVolumeResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let staging = PathBuf::from(needed(&request.staging_target_path, "the path")?);
        unmount(&staging)?;
        if let Some(attached) = self.attached(volume)? {
            let (folder, file) = self.places(volume)?;
            if let Some(place) = self.use_of(&attached)? {
                return Err(Status::failed_precondition(format!("{volume} is in use at {place}")));
            }
            attached.detach(&folder)?;
            let _ = fs::remove_dir(&folder);
            fs::remove_file(&file).map_err(|error| failed(&file, &error))?;
        }
        Ok(proto::NodeUnstageVolumeResponse {})
    }

    /// Where a volume is still used, if it is.
    fn use_of(&self, attached: &Attached) -> Result<Option<String>, Status> {
        if !attached.is_there() {
            return Ok(None);
        }
        for at in &attached.published {
            if is_mounted(at)? {
                return Ok(Some(at.display().to_string()));
            }
        }
        place_of(&numbers_of(&attached.device)?)
    }

    fn publish(
        &self,
        request: proto::NodePublishVolumeRequest,
    ) -> Result<proto::NodePublishVolumeResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let target = PathBuf::from(needed(&request.target_path, "the path")?);
        let wanted = Wanted::of(request.volume_capability.as_ref())?;
        let staging = needed(&request.staging_target_path, "the path where it is staged");
        let staging = staging.map_err(|status| Status::failed_precondition(status.message()))?;
        let none = || Status::failed_precondition(format!("{volume} is not staged"));
        let mut attached = self.attached(volume)?.ok_or_else(none)?;
        attached.check()?;
        for other in attached.published.iter().filter(|other| **other != target) {
            if wanted.is_single && is_mounted(other)? {
                let text = format!("{volume} is at {}", other.display());
                return Err(Status::failed_precondition(text));
            }
        }
        if request.readonly && !wanted.is_read_only && wanted.used == Use::Block {
            let text =
                "a disk that may be written to is not shown read-only: ask for a reader's mode";
            return Err(Status::invalid_argument(text));
        }
        // Noted before it is so: what is noted and is not there does no harm.
        attached.published.insert(target.clone());
        self.note(volume, &attached)?;
        if !is_mounted(&target)? {
            let from = match &wanted.used {
                Use::Block => {
                    let parent = target.parent().unwrap_or(&target);
                    fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
                    let made = fs::OpenOptions::new().create(true).append(true).open(&target);
                    made.map_err(|error| failed(&target, &error))?;
                    attached.device
                }
                Use::Mount { .. } => {
                    let there = mounted_at(Path::new(staging))?;
                    if there != Some(numbers_of(&attached.device)?) {
                        return Err(none());
                    }
                    fs::create_dir_all(&target).map_err(|error| failed(&target, &error))?;
                    PathBuf::from(staging)
                }
            };
            run("mount", &["--bind", text(&from)?, text(&target)?])?;
        }
        if request.readonly || wanted.is_read_only {
            let made = run("mount", &["-o", "remount,bind,ro", text(&target)?]);
            made.or_else(|status| unmount(&target).and(Err(status)))?;
        }
        Ok(proto::NodePublishVolumeResponse {})
    }

    fn unpublish(
        &self,
        request: proto::NodeUnpublishVolumeRequest,
    ) -> Result<proto::NodeUnpublishVolumeResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let target = PathBuf::from(needed(&request.target_path, "the path")?);
        unmount(&target)?;
        let removed = match fs::symlink_metadata(&target) {
            Ok(known) if known.is_dir() => fs::remove_dir(&target),
            // What a disk is shown in is an empty file of ours: anything else is somebody's.
            Ok(known) if known.is_file() && known.len() == 0 => fs::remove_file(&target),
            Ok(_) => Err(std::io::Error::other("it is no place where a volume was shown")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|error| failed(&target, &error))?;
        if let Some(mut attached) = self.attached(volume)? {
            attached.published.remove(&target);
            self.note(volume, &attached)?;
        }
        Ok(proto::NodeUnpublishVolumeResponse {})
    }

    fn stats(
        &self,
        request: proto::NodeGetVolumeStatsRequest,
    ) -> Result<proto::NodeGetVolumeStatsResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let path = PathBuf::from(needed(&request.volume_path, "the path")?);
        let none = || Status::not_found(format!("{volume} is not at {}", path.display()));
        self.attached(volume)?.ok_or_else(none)?;
        if !is_mounted(&path)? {
            return Err(none());
        }
        let usage = |unit: Unit, total: u64, available: u64, used: u64| {
            let number = |number: u64| number.try_into().unwrap_or(i64::MAX);
            let (total, available, used) = (number(total), number(available), number(used));
            VolumeUsage { unit: unit as i32, total, available, used }
        };
        let known = fs::metadata(&path).map_err(|error| failed(&path, &error))?;
        let usage = if known.file_type().is_block_device() {
            vec![usage(Unit::Bytes, size_of(&path)?, 0, 0)]
        } else {
            let told = rustix::fs::statvfs(&path).map_err(|error| failed(&path, &error.into()))?;
            let used = (told.f_blocks - told.f_bfree) * told.f_frsize;
            vec![
                usage(
                    Unit::Bytes,
                    told.f_blocks * told.f_frsize,
                    told.f_bavail * told.f_frsize,
                    used,
                ),
                usage(Unit::Inodes, told.f_files, told.f_ffree, told.f_files - told.f_ffree),
            ]
        };
        Ok(proto::NodeGetVolumeStatsResponse { usage })
    }

    fn expand(
        &self,
        request: proto::NodeExpandVolumeRequest,
    ) -> Result<proto::NodeExpandVolumeResponse, Status> {
        let (volume, _turn) = self.turn(&request.volume_id)?;
        let path = PathBuf::from(needed(&request.volume_path, "the path")?);
        let none = || Status::not_found(format!("{volume} is not at {}", path.display()));
        let attached = self.attached(volume)?.ok_or_else(none)?;
        if !is_mounted(&path)? {
            return Err(none());
        }
        attached.check()?;
        attached.look_again()?;
        let known = fs::metadata(&path).map_err(|error| failed(&path, &error))?;
        if known.is_dir() {
            grow(&attached.device, &path)?;
        }
        let wanted = request.capacity_range.unwrap_or_default().required_bytes;
        let size = size_of(&attached.device)?;
        if size < u64::try_from(wanted).unwrap_or_default() {
            let text = "the disk grows when it is attached the next time: end what uses it";
            return Err(Status::failed_precondition(text));
        }
        let capacity_bytes = size.try_into().unwrap_or(i64::MAX);
        Ok(proto::NodeExpandVolumeResponse { capacity_bytes })
    }

    fn capabilities(
        &self,
        _: proto::NodeGetCapabilitiesRequest,
    ) -> Result<proto::NodeGetCapabilitiesResponse, Status> {
        let mut all = vec![
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::SingleNodeMultiWriter,
        ];
        if self.attach.grows_attached() {
            all.push(rpc::Type::ExpandVolume);
        }
        let capabilities = all.into_iter().map(|one| {
            let rpc = node_service_capability::Rpc { r#type: one as i32 };
            let r#type = Some(node_service_capability::Type::Rpc(rpc));
            proto::NodeServiceCapability { r#type }
        });
        Ok(proto::NodeGetCapabilitiesResponse { capabilities: capabilities.collect() })
    }

    fn info(&self, _: proto::NodeGetInfoRequest) -> Result<proto::NodeGetInfoResponse, Status> {
        let node_id = match &self.name {
            Some(name) => name.clone(),
            None => initiator()?,
        };
        Ok(proto::NodeGetInfoResponse { node_id, ..Default::default() })
    }
}

/// The name of this machine's initiator.
fn initiator() -> Result<String, Status> {
    let file = Path::new(INITIATOR_FILE);
    let text = fs::read_to_string(file).map_err(|error| {
        Status::failed_precondition(format!("{INITIATOR_FILE}: {error}; or give --node"))
    })?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("InitiatorName="));
    let none = || Status::failed_precondition(format!("{INITIATOR_FILE} has no InitiatorName="));
    name.map(|name| name.trim().to_owned()).ok_or_else(none)
}

/// The size of a disk, in bytes.
fn size_of(disk: &Path) -> Result<u64, Status> {
    let size = fs::File::open(disk).and_then(|mut disk| disk.seek(SeekFrom::End(0)));
    size.map_err(|error| failed(disk, &error))
}

/// Whether a disk has zeros where anything that is used as a disk has something: in its first MiB
/// and its last 64 KiB. What cannot be read is not blank.
fn is_blank(disk: &Path) -> Result<bool, Status> {
    const FIRST_BYTES: u64 = 1 << 20;
    const LAST_BYTES: u64 = 64 << 10;
    let unread =
        |error: std::io::Error| Status::unavailable(format!("{}: {error}", disk.display()));
    let size = size_of(disk)?;
    if size == 0 {
        return Err(Status::unavailable(format!("{} has no size", disk.display())));
    }
    let file = fs::File::open(disk).map_err(unread)?;
    let mut bytes = vec![1; FIRST_BYTES.min(size) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(unread)?;
    let length = LAST_BYTES.min(size);
    let mut last = vec![1; length as usize];
    file.read_exact_at(&mut last, size - length).map_err(unread)?;
    Ok(bytes.iter().chain(&last).all(|&byte| byte == 0))
}

/// Mounts a disk that has a file system of this kind.
fn mount(
    attached: &Attached,
    kind: &str,
    options: &[String],
    is_read_only: bool,
    at: &Path,
) -> Result<(), Status> {
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    if is_read_only {
        all.push("ro");
    }
    // A clone has the identity of its origin, which may be mounted beside it.
    if kind == "xfs" {
        all.push("nouuid");
    }
    let all = all.join(",");
    let options: &[&str] = if all.is_empty() { &[] } else { &["-o", &all] };
    run("mount", &[&["-t", kind], options, &[text(&attached.device)?, text(at)?]].concat())?;
    Ok(())
}

/// Makes a file system that is mounted as large as its disk.
fn grow(device: &Path, at: &Path) -> Result<(), Status> {
    let (device, at) = (text(device)?, text(at)?);
    let kind = run("findmnt", &["-n", "-o", "FSTYPE", "--target", at])?;
    match kind.trim() {
        "xfs" => run("xfs_growfs", &["-d", at]).map(drop),
        _ => run("resize2fs", &[device]).map(drop),
    }
}
