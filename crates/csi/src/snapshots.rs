//! Snapshots: versions whose label says so.

use api::{CreateVersion, ListQuery, Page, Version, Volume};
use tonic::Status;

use crate::controller::{Controller, OF_THE_CALLER, page_of, refused};
use crate::names::{self, needed};
use crate::proto::v1 as proto;
use crate::proto::{Timestamp, v1::list_snapshots_response};

/// The parameter that names a hook around the capture.
const HOOK: &str = "hook";
const NANOS: u64 = 1_000_000_000;

fn snapshot_of(volume: &Volume, version: &Version) -> proto::Snapshot {
    let time = version.time.0.as_nanos();
    proto::Snapshot {
        size_bytes: volume.size.try_into().unwrap_or(i64::MAX),
        snapshot_id: names::snapshot_id(&volume.name, version.number),
        source_volume_id: volume.name.clone(),
        creation_time: Some(Timestamp {
            seconds: (time / NANOS).cast_signed(),
            nanos: (time % NANOS) as i32,
        }),
        ready_to_use: true,
        ..proto::Snapshot::default()
    }
}

impl Controller {
    /// The versions of a volume that are snapshots, with their names.
    pub fn snapshots_of(&self, volume: &str) -> Result<Vec<(Version, String)>, Status> {
        let all = Page::all(|next| {
            self.client.versions(volume, &ListQuery { next, ..ListQuery::default() })
        });
        let all = api::found(all).map_err(refused)?.unwrap_or_default();
        let named = all.into_iter().filter_map(|version| {
            let name = names::snapshot_of(&version.label)?.to_owned();
            Some((version, name))
        });
        Ok(named.collect())
    }

    fn all_snapshots(&self) -> Result<Vec<(proto::Snapshot, String)>, Status> {
        let mut found = Vec::new();
        let volumes = self.client.volumes().map_err(refused)?;
        for volume in volumes.iter().filter(|volume| !volume.share) {
            let snapshots = self.snapshots_of(&volume.name)?.into_iter();
            found.extend(snapshots.map(|(version, name)| (snapshot_of(volume, &version), name)));
        }
        Ok(found)
    }

    pub fn create_snapshot(
        &self,
        request: proto::CreateSnapshotRequest,
    ) -> Result<proto::CreateSnapshotResponse, Status> {
        let name = needed(&request.name, "the name")?;
        let id = needed(&request.source_volume_id, "the volume's identity")?;
        let is_ours = |name: &&String| *name == HOOK || name.starts_with(OF_THE_CALLER);
        if let Some(name) = request.parameters.keys().find(|name| !is_ours(name)) {
            return Err(Status::invalid_argument(format!("{name}: there is no such parameter")));
        }
        let _turn = self.turns.take(&names::label_of(name))?;
        let volume = self.volume(id)?;
        // A name is of one snapshot of all volumes.
        let there = self.all_snapshots()?.into_iter().find(|(_, known)| known == name);
        if let Some((snapshot, _)) = there {
            if snapshot.source_volume_id != volume.name {
                let text = format!("{name} is a snapshot of {}", snapshot.source_volume_id);
                return Err(Status::already_exists(text));
            }
            return Ok(proto::CreateSnapshotResponse { snapshot: Some(snapshot) });
        }
        let hook = request.parameters.get(HOOK).cloned();
        let body = CreateVersion { label: Some(names::label_of(name)), hook };
        let version = self.client.create_version(&volume.name, &body).map_err(refused)?;
        let snapshot = Some(snapshot_of(&volume, &version));
        Ok(proto::CreateSnapshotResponse { snapshot })
    }

    pub fn delete_snapshot(
        &self,
        request: proto::DeleteSnapshotRequest,
    ) -> Result<proto::DeleteSnapshotResponse, Status> {
        let id = needed(&request.snapshot_id, "the snapshot's identity")?;
        let done = Ok(proto::DeleteSnapshotResponse {});
        let Some((volume, number)) = names::parts_of(id) else { return done };
        let version = api::found(self.client.version(volume, number)).map_err(refused)?;
        // Versions of others are none of ours to delete.
        if version.is_none_or(|version| names::snapshot_of(&version.label).is_none()) {
            return done;
        }
        api::found(self.client.delete_version(volume, number)).map_err(refused).and(done)
    }

    pub fn list_snapshots(
        &self,
        request: proto::ListSnapshotsRequest,
    ) -> Result<proto::ListSnapshotsResponse, Status> {
        let is_wanted = |snapshot: &proto::Snapshot| {
            (request.snapshot_id.is_empty() || snapshot.snapshot_id == request.snapshot_id)
                && (request.source_volume_id.is_empty()
                    || snapshot.source_volume_id == request.source_volume_id)
        };
        let all = self.all_snapshots()?.into_iter().map(|(snapshot, _)| snapshot);
        let all = all.filter(is_wanted).collect();
        let (all, next_token) = page_of(all, &request.starting_token, request.max_entries)?;
        let entry = |snapshot| list_snapshots_response::Entry { snapshot: Some(snapshot) };
        let entries = all.into_iter().map(entry).collect();
        Ok(proto::ListSnapshotsResponse { entries, next_token })
    }
}
