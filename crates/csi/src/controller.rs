//! Volumes and snapshots, as calls of the interface ask the server for them.
//!
//! 1. The name is what makes a call idempotent: what is there under it and is what was asked for is
//!    the answer, and anything else of that name is refused.
//! 2. A volume may be logged in to by the initiators of the machines it is published to, and by
//!    nobody while it is published nowhere.
//! 3. What the server refuses is refused, with its words.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{
    ChangeTarget, ChangeVolume, Client, ClientError, CreateClone, CreateVolume, DeleteQuery,
    IscsiTarget, ProblemKind, Rename, SizeInput, SpanInput, Volume,
};
use tonic::Status;
use units::Size;

use crate::capability::Wanted;
use crate::grpc::Service;
use crate::names::{self, needed};
use crate::proto::v1 as proto;
use crate::proto::v1::controller_service_capability::{self, rpc};
use crate::proto::v1::list_volumes_response;
use crate::proto::v1::validate_volume_capabilities_response::Confirmed;
use crate::proto::v1::volume_content_source::Type as Source;
use crate::turns::Turns;

/// A name that no initiator has: alone in a list it lets nobody in.
const NOBODY: &str = "iqn.2026-11.csi.hindsight:nobody";
/// The size where none is asked for, in bytes.
const SIZE_DEFAULT: u64 = 1 << 30;
/// The largest volume, in bytes.
const SIZE_MAX: u64 = 4 << 50;
/// Sizes are multiples of this, in bytes.
const SIZE_STEP: u64 = 4096;
/// What nodes are told of a volume: the name of its target.
pub const ISCSI_NAME: &str = "iscsiName";
/// Parameters of those that ask begin so, and are theirs.
pub const OF_THE_CALLER: &str = "csi.storage.k8s.io/";

/// What asks the server.
pub struct Controller {
    pub client: Client,
    /// Names of volumes and snapshots that a call is about.
    pub turns: Turns,
}

/// The calls of Controller.
pub fn calls(controller: &Arc<Controller>) -> Service<Controller> {
    Service::new("Controller", controller)
        .call("CreateVolume", Controller::create)
        .call("DeleteVolume", Controller::delete)
        .call("ControllerPublishVolume", Controller::publish)
        .call("ControllerUnpublishVolume", Controller::unpublish)
        .call("ValidateVolumeCapabilities", Controller::validate)
        .call("ListVolumes", Controller::list)
        .call("GetCapacity", Controller::capacity)
        .call("ControllerGetCapabilities", Controller::capabilities)
        .call("CreateSnapshot", Controller::create_snapshot)
        .call("DeleteSnapshot", Controller::delete_snapshot)
        .call("ListSnapshots", Controller::list_snapshots)
        .call("ControllerExpandVolume", Controller::expand)
}

/// What the server said, as the interface has it.
pub fn refused(error: ClientError) -> Status {
    let text = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    let ClientError::Problem(problem) = &error else { return Status::unavailable(text) };
    match problem.problem_kind() {
        Some(ProblemKind::NotFound) => Status::not_found(text),
        Some(ProblemKind::Exists) => Status::already_exists(text),
        Some(ProblemKind::Busy) => Status::failed_precondition(text),
        Some(ProblemKind::Unauthorized) => Status::unauthenticated(text),
        Some(ProblemKind::Forbidden) => Status::permission_denied(text),
        Some(ProblemKind::Malformed | ProblemKind::Invalid | ProblemKind::OutsideWindow) => {
            Status::invalid_argument(text)
        }
        Some(ProblemKind::Full) => Status::resource_exhausted(text),
        Some(ProblemKind::Stopping | ProblemKind::RefusingWrites | ProblemKind::TooMany) => {
            Status::unavailable(text)
        }
        _ => Status::internal(text),
    }
}

/// What of a list begins at a token, and the token of what is behind it.
pub fn page_of<T>(all: Vec<T>, token: &str, entries_max: i32) -> Result<(Vec<T>, String), Status> {
    let start: usize = match token {
        "" => 0,
        token => token.parse().map_err(|_| Status::aborted("this is no token of a page"))?,
    };
    if start > all.len() || entries_max < 0 {
        return Err(Status::aborted("this is no token of a page"));
    }
    let count = if entries_max == 0 { all.len() } else { entries_max as usize };
    let next = start.saturating_add(count);
    let next = if next < all.len() { next.to_string() } else { String::new() };
    Ok((all.into_iter().skip(start).take(count).collect(), next))
}

/// The size that a range asks for, in bytes.
fn size_of(range: Option<proto::CapacityRange>) -> Result<(u64, u64), Status> {
    let range = range.unwrap_or_default();
    let bytes =
        |bytes: i64| u64::try_from(bytes).map_err(|_| Status::out_of_range("a size below zero"));
    let (least, most) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
    let most = if most == 0 { u64::MAX } else { most };
    if least > most {
        return Err(Status::out_of_range("the size is to be more than its limit"));
    }
    Ok((least, most))
}

/// The size of a new volume of a range, in bytes.
fn rounded((least, most): (u64, u64)) -> Result<u64, Status> {
    let wanted = if least == 0 { SIZE_DEFAULT.min(most) } else { least };
    let size = wanted.checked_next_multiple_of(SIZE_STEP).unwrap_or(u64::MAX);
    let size = if size > most { most / SIZE_STEP * SIZE_STEP } else { size };
    if size > SIZE_MAX {
        return Err(Status::out_of_range(format!("a volume has at most {SIZE_MAX} bytes")));
    }
    if size < least.max(SIZE_STEP) {
        let text = format!("no multiple of {SIZE_STEP} bytes lies between the size and its limit");
        return Err(Status::out_of_range(text));
    }
    Ok(size)
}

/// Where a new volume begins: with a moment of another.
struct Origin {
    volume: String,
    moment: String,
    /// Of a snapshot, which is one moment; that of a volume is another each time.
    seq: Option<u64>,
    source: proto::VolumeContentSource,
}

/// The settings of a class of storage.
#[derive(Default)]
struct Settings {
    body: CreateVolume,
    at: Option<String>,
}

fn settings(parameters: &BTreeMap<String, String>) -> Result<Settings, Status> {
    let mut settings = Settings::default();
    for (name, value) in parameters.iter().filter(|(name, _)| !name.starts_with(OF_THE_CALLER)) {
        let wrong = |why: &dyn std::fmt::Display| {
            Status::invalid_argument(format!("{name} = {value}: {why}"))
        };
        let body = &mut settings.body;
        match name.as_str() {
            "architecture" => body.architecture = Some(value.clone()),
            "granularity" => body.granularity = Some(value.parse().map_err(|why| wrong(&why))?),
            "window" => body.window = Some(SpanInput(value.parse().map_err(|why| wrong(&why))?)),
            "historyLimit" => {
                let limit = value.parse::<Size>().map_err(|why| wrong(&why))?;
                body.history_limit = Some(SizeInput(limit));
            }
            "encoding" => body.encoding = Some(value.clone()),
            "at" => settings.at = Some(value.clone()),
            _ => return Err(wrong(&"there is no such parameter")),
        }
    }
    Ok(settings)
}

impl Controller {
    /// One that asks by a client.
    pub fn new(client: Client) -> Controller {
        Controller { client, turns: Turns::default() }
    }

    /// Whether the server answers.
    pub fn probe(&self) -> Result<(), Status> {
        self.client.server().map(drop).map_err(refused)
    }

    pub fn volume(&self, id: &str) -> Result<Volume, Status> {
        let name = needed(id, "the volume's identity")?;
        let none = || Status::not_found(format!("there is no volume {name}"));
        if units::VolumeName::check(name).is_err() {
            return Err(none());
        }
        let found = api::found(self.client.volume(name)).map_err(refused)?;
        // What is none of the interface's volumes is not there.
        let is_one = |volume: &Volume| {
            !volume.share && volume.scratch_until.is_none() && !names::is_being_made(&volume.name)
        };
        found.filter(is_one).ok_or_else(none)
    }

    fn origin(
        &self,
        source: Option<proto::VolumeContentSource>,
        at: Option<String>,
    ) -> Result<Option<Origin>, Status> {
        let Some(source) = source else {
            return match at {
                None => Ok(None),
                Some(_) => {
                    Err(Status::invalid_argument("`at` is a moment of a volume to begin with"))
                }
            };
        };
        let (volume, moment, seq) = match source.r#type.clone() {
            Some(Source::Snapshot(snapshot)) => {
                let none = || Status::not_found(format!("there is no {}", snapshot.snapshot_id));
                let (volume, number) = names::parts_of(&snapshot.snapshot_id).ok_or_else(none)?;
                let version = api::found(self.client.version(volume, number)).map_err(refused)?;
                let seq = version.ok_or_else(none)?.seq;
                (volume.to_owned(), format!("v:{number}"), Some(seq))
            }
            Some(Source::Volume(volume)) => {
                let found = self.volume(&volume.volume_id)?;
                (found.name, at.unwrap_or_else(|| "latest".to_owned()), None)
            }
            None => return Err(Status::invalid_argument("the source is lacking")),
        };
        Ok(Some(Origin { volume, moment, seq, source }))
    }

    fn create(
        &self,
        request: proto::CreateVolumeRequest,
    ) -> Result<proto::CreateVolumeResponse, Status> {
        let name = names::volume_of(needed(&request.name, "the name")?);
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the capabilities are lacking"));
        }
        for capability in &request.volume_capabilities {
            Wanted::of(Some(capability))?;
        }
        let range = size_of(request.capacity_range)?;
        let Settings { body, at } = settings(&request.parameters)?;
        let _turn = self.turns.take(&name)?;
        let origin = self.origin(request.volume_content_source, at)?;
        if let Some(there) = api::found(self.client.volume(&name)).map_err(refused)? {
            return self.found(there, origin.as_ref(), range);
        }
        self.make(&name, body, origin.as_ref(), range)
    }

    /// Makes a volume under another name, which only it ever has, and gives it its own when it is
    /// whole.
    fn make(
        &self,
        name: &str,
        mut body: CreateVolume,
        origin: Option<&Origin>,
        range: (u64, u64),
    ) -> Result<proto::CreateVolumeResponse, Status> {
        let making = names::making(name);
        // One of a controller that was killed.
        self.discard(&making)?;
        body.name.clone_from(&making);
        let made = match origin {
            None => {
                body.size = SizeInput(Size(rounded(range)?));
                self.client.create_volume(&body).map(drop).map_err(refused)
            }
            Some(origin) => {
                let at = Some(origin.moment.clone());
                let clone = CreateClone { name: making.clone(), at, ..CreateClone::default() };
                let made = self.client.create_clone(&origin.volume, &clone).map_err(refused);
                made.and_then(|made| self.dressed(made, &body, range)).map(drop)
            }
        };
        // A clone lets in who may have its origin.
        let made = made.and_then(|()| self.allow(&making, Vec::new()));
        let rename = Rename { name: name.to_owned(), dry_run: false };
        let made = made
            .and_then(|()| self.client.rename_volume(&making, &rename).map(drop).map_err(refused));
        if let Err(status) = made {
            let _ = self.discard(&making);
            return Err(status);
        }
        self.created(self.volume(name)?, origin)
    }

    /// Takes away what was being made, if it is there: for good, as nothing was written to it.
    fn discard(&self, making: &str) -> Result<(), Status> {
        let query = DeleteQuery { now: true, ..DeleteQuery::default() };
        api::found(self.client.remove_volume(making, &query)).map(drop).map_err(refused)
    }

    /// Answers with a volume that is there, if it is what is asked for.
    fn found(
        &self,
        there: Volume,
        origin: Option<&Origin>,
        range: (u64, u64),
    ) -> Result<proto::CreateVolumeResponse, Status> {
        let is_of_it = match (&there.cloned_from, origin) {
            (None, None) => true,
            (Some(of), Some(origin)) => {
                of.volume == origin.volume && origin.seq.is_none_or(|seq| seq == of.seq)
            }
            _ => false,
        };
        let is_of_others = there.share || there.scratch_until.is_some();
        let mut is_it = is_of_it && !is_of_others && (range.0..=range.1).contains(&there.size);
        if is_it && self.published(&there.name)?.is_none() {
            // Somebody else's, which is taken for it only while it is as new.
            is_it = there.live_bytes + there.history_bytes + there.clients == 0;
            if is_it {
                self.allow(&there.name, Vec::new())?;
            }
        }
        if !is_it {
            let text = format!("{} is there, and is another than what is asked for", there.name);
            return Err(Status::already_exists(text));
        }
        self.created(there, origin)
    }

    /// A clone with the settings of its class, and at least as large as a range wants it.
    fn dressed(
        &self,
        volume: Volume,
        body: &CreateVolume,
        range: (u64, u64),
    ) -> Result<Volume, Status> {
        let size = rounded((range.0.max(volume.size), range.1))?;
        let change = ChangeVolume {
            size: (size > volume.size).then_some(SizeInput(Size(size))),
            architecture: body.architecture.clone(),
            granularity: body.granularity,
            window: body.window,
            history_limit: body.history_limit.map(Some),
            encoding: body.encoding.clone(),
            ..ChangeVolume::default()
        };
        if change == ChangeVolume::default() {
            return Ok(volume);
        }
        self.client.change_volume(&volume.name, &change, false).map_err(refused)
    }

    /// Answers with a volume that is there.
    fn created(
        &self,
        volume: Volume,
        origin: Option<&Origin>,
    ) -> Result<proto::CreateVolumeResponse, Status> {
        let mut answer = volume_of(&volume);
        answer.content_source = origin.map(|origin| origin.source.clone());
        Ok(proto::CreateVolumeResponse { volume: Some(answer) })
    }

    fn delete(
        &self,
        request: proto::DeleteVolumeRequest,
    ) -> Result<proto::DeleteVolumeResponse, Status> {
        let done = Ok(proto::DeleteVolumeResponse {});
        let _turn = self.turns.take(needed(&request.volume_id, "the volume's identity")?)?;
        let volume = match self.volume(&request.volume_id) {
            Err(status) if status.code() == tonic::Code::NotFound => return done,
            volume => volume?,
        };
        if let Some(node) = self.published(&volume.name)?.unwrap_or_default().first() {
            return Err(Status::failed_precondition(format!("it is published to {node}")));
        }
        // With versions, pinned marks or clients, also of its past, the server says no.
        let removed = api::found(self.client.remove_volume(&volume.name, &DeleteQuery::default()));
        removed.map_err(refused).and(done)
    }

    fn target(&self, volume: &str) -> Result<IscsiTarget, Status> {
        let targets = self.client.targets().map_err(refused)?;
        let target = targets.into_iter().find(|target| target.volume == volume);
        target.ok_or_else(|| {
            let text = "the server tells no target of it, which says who may have it: serve iSCSI \
                        (on loopback is enough), and let names be shorter than 120 bytes";
            Status::failed_precondition(text)
        })
    }

    /// The nodes that a volume is published to; none where anybody may have it, which is so until
    /// we say otherwise.
    fn published(&self, volume: &str) -> Result<Option<Vec<String>>, Status> {
        Ok(nodes_of(self.target(volume)?))
    }

    fn allow(&self, volume: &str, mut nodes: Vec<String>) -> Result<(), Status> {
        if nodes.is_empty() {
            nodes.push(NOBODY.to_owned());
        }
        let body = ChangeTarget { allow: Some(nodes), ..ChangeTarget::default() };
        self.client.change_target(volume, &body).map(drop).map_err(refused)
    }

    fn publish(
        &self,
        request: proto::ControllerPublishVolumeRequest,
    ) -> Result<proto::ControllerPublishVolumeResponse, Status> {
        let id = needed(&request.volume_id, "the volume's identity")?;
        // As logins compare them.
        let node = needed(&request.node_id, "the node's identity")?.to_ascii_lowercase();
        let wanted = Wanted::of(request.volume_capability.as_ref())?;
        let _turn = self.turns.take(id)?;
        let volume = self.volume(id)?;
        if !["iqn.", "eui.", "naa."].iter().any(|start| node.starts_with(start)) {
            return Err(Status::not_found(format!("{node} is no node: no name of an initiator")));
        }
        let target = self.target(&volume.name)?;
        let sessions: Vec<String> =
            target.sessions.iter().map(|one| one.initiator.clone()).collect();
        let known = nodes_of(target);
        let mut nodes = known.clone().unwrap_or_default();
        let is_there = nodes.contains(&node);
        if is_there && (wanted.is_shared || nodes.len() == 1) {
            return Ok(proto::ControllerPublishVolumeResponse::default());
        }
        let refuse = |by: &str| {
            Err(Status::failed_precondition(format!("{by} has it; it is for one machine")))
        };
        if !wanted.is_shared {
            // A machine that it was taken from may still be at it.
            let mut others = nodes.iter().chain(&sessions).filter(|other| **other != node);
            if let Some(other) = others.next() {
                return refuse(other);
            }
            if volume.clients > 0 && !sessions.contains(&node) {
                return refuse("a client");
            }
        } else if known.is_none() && volume.clients > 0 {
            return refuse("somebody who was not told");
        }
        nodes.push(node);
        self.allow(&volume.name, nodes)?;
        Ok(proto::ControllerPublishVolumeResponse::default())
    }

    fn unpublish(
        &self,
        request: proto::ControllerUnpublishVolumeRequest,
    ) -> Result<proto::ControllerUnpublishVolumeResponse, Status> {
        let done = Ok(proto::ControllerUnpublishVolumeResponse {});
        let _turn = self.turns.take(needed(&request.volume_id, "the volume's identity")?)?;
        let volume = match self.volume(&request.volume_id) {
            Err(status) if status.code() == tonic::Code::NotFound => return done,
            volume => volume?,
        };
        let node = request.node_id.to_ascii_lowercase();
        // What we did not publish is not ours to take away.
        let Some(nodes) = self.published(&volume.name)? else { return done };
        if nodes.is_empty() || !node.is_empty() && !nodes.contains(&node) {
            return done;
        }
        let left = nodes.into_iter().filter(|known| !node.is_empty() && *known != node);
        self.allow(&volume.name, left.collect()).and(done)
    }

    fn validate(
        &self,
        request: proto::ValidateVolumeCapabilitiesRequest,
    ) -> Result<proto::ValidateVolumeCapabilitiesResponse, Status> {
        let id = needed(&request.volume_id, "the volume's identity")?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the capabilities are lacking"));
        }
        self.volume(id)?;
        let mut wrong = request.volume_capabilities.iter().map(|one| Wanted::of(Some(one)));
        if let Some(status) = wrong.find_map(Result::err) {
            let message = status.message().to_owned();
            return Ok(proto::ValidateVolumeCapabilitiesResponse { confirmed: None, message });
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            ..Confirmed::default()
        };
        let confirmed = Some(confirmed);
        Ok(proto::ValidateVolumeCapabilitiesResponse { confirmed, ..Default::default() })
    }

    fn list(
        &self,
        request: proto::ListVolumesRequest,
    ) -> Result<proto::ListVolumesResponse, Status> {
        let mut all = self.client.volumes().map_err(refused)?;
        all.retain(|volume| {
            !volume.share && volume.scratch_until.is_none() && !names::is_being_made(&volume.name)
        });
        let (all, next_token) = page_of(all, &request.starting_token, request.max_entries)?;
        let entry = |volume: Volume| list_volumes_response::Entry {
            volume: Some(volume_of(&volume)),
            status: None,
        };
        let entries = all.into_iter().map(entry).collect();
        Ok(proto::ListVolumesResponse { entries, next_token })
    }

    fn capacity(&self, _: proto::GetCapacityRequest) -> Result<proto::GetCapacityResponse, Status> {
        let pool = self.client.pool().map_err(refused)?;
        let available_capacity = pool.available_bytes.try_into().unwrap_or(i64::MAX);
        let minimum_volume_size = Some(SIZE_STEP as i64);
        Ok(proto::GetCapacityResponse {
            available_capacity,
            minimum_volume_size,
            ..Default::default()
        })
    }

    fn capabilities(
        &self,
        _: proto::ControllerGetCapabilitiesRequest,
    ) -> Result<proto::ControllerGetCapabilitiesResponse, Status> {
        let all = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::GetCapacity,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::ListSnapshots,
            rpc::Type::CloneVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capabilities = all.into_iter().map(|one| {
            let rpc = controller_service_capability::Rpc { r#type: one as i32 };
            let r#type = Some(controller_service_capability::Type::Rpc(rpc));
            proto::ControllerServiceCapability { r#type }
        });
        Ok(proto::ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() })
    }

    fn expand(
        &self,
        request: proto::ControllerExpandVolumeRequest,
    ) -> Result<proto::ControllerExpandVolumeResponse, Status> {
        let id = needed(&request.volume_id, "the volume's identity")?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("the size is lacking"));
        }
        let (least, most) = size_of(request.capacity_range)?;
        let _turn = self.turns.take(id)?;
        let volume = self.volume(id)?;
        if volume.size > most {
            return Err(Status::out_of_range("it is larger than the limit"));
        }
        let size = match least > volume.size {
            true => self.dressed(volume, &CreateVolume::default(), (least, most))?.size,
            false => volume.size,
        };
        Ok(proto::ControllerExpandVolumeResponse {
            capacity_bytes: size.try_into().unwrap_or(i64::MAX),
            node_expansion_required: true,
        })
    }
}

/// The nodes that a target lets in; none where it lets in everybody.
fn nodes_of(target: IscsiTarget) -> Option<Vec<String>> {
    let allow = target.access.allow;
    let is_told = !allow.is_empty();
    is_told.then(|| allow.into_iter().filter(|node| node != NOBODY).collect())
}

fn volume_of(volume: &Volume) -> proto::Volume {
    let context = volume.iscsi_name.clone().map(|name| (ISCSI_NAME.to_owned(), name));
    proto::Volume {
        capacity_bytes: volume.size.try_into().unwrap_or(i64::MAX),
        volume_id: volume.name.clone(),
        volume_context: context.into_iter().collect(),
        ..proto::Volume::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{page_of, rounded, settings, size_of};
    use crate::proto::v1::CapacityRange;

    fn size(required_bytes: i64, limit_bytes: i64) -> Option<u64> {
        size_of(Some(CapacityRange { required_bytes, limit_bytes })).and_then(rounded).ok()
    }

    #[test]
    fn sizes_lie_within_their_range() {
        assert_eq!(size_of(None).and_then(rounded).ok(), Some(1 << 30));
        assert_eq!(size(1, 0), Some(4096));
        assert_eq!(size(4097, 0), Some(8192));
        assert_eq!(size(0, 10_000), Some(8192));
        assert_eq!(size(4097, 8192), Some(8192));
        for (least, most) in [(4097, 8191), (2, 1), (-1, 0), (0, -1), (0, 4095), (i64::MAX, 0)] {
            assert_eq!(size(least, most), None, "{least} to {most}");
        }
    }

    #[test]
    fn pages_are_what_is_there() {
        let all = || vec![1, 2, 3];
        assert_eq!(page_of(all(), "", 0).ok(), Some((all(), String::new())));
        assert_eq!(page_of(all(), "", 2).ok(), Some((vec![1, 2], "2".to_owned())));
        assert_eq!(page_of(all(), "2", 2).ok(), Some((vec![3], String::new())));
        for (token, most) in [("x", 0), ("4", 0), ("-1", 1), ("", -1)] {
            assert!(page_of(all(), token, most).is_err(), "{token}");
        }
    }

    #[test]
    fn parameters_that_are_none_are_refused() {
        let of = |name: &str, value: &str| {
            settings(&[(name.to_owned(), value.to_owned())].into_iter().collect())
        };
        assert!(of("granularity", "1s").is_ok_and(|found| found.body.granularity.is_some()));
        assert!(of("at", "-5min").is_ok_and(|found| found.at.as_deref() == Some("-5min")));
        assert!(of("csi.storage.k8s.io/pvc/name", "x").is_ok());
        for (name, value) in
            [("windows", "1d"), ("window", "x"), ("historyLimit", "x"), ("granularity", "")]
        {
            assert!(of(name, value).is_err(), "{name} = {value}");
        }
    }
}
