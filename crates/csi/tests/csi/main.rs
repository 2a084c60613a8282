//! The driver from outside: a server, `hindsight-csi`, and calls over its socket. Attaching is
//! tried with nbdfuse, as root; the kernel's iSCSI and NBD in the emulated machine.
//!
//! `CSI_SANITY=/path/to/csi-sanity` runs that of kubernetes-csi too.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod rig;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use csi_messages::proto::v1 as csi;
use csi_messages::proto::v1::volume_capability::access_mode::Mode;
use rig::{Held, Rig, is_root, mount, run};
use tonic::Code;

const MIB: i64 = 1 << 20;

fn wanted(name: &str, bytes: i64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![mount("ext4", Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

fn from_volume(volume: &str) -> Option<csi::VolumeContentSource> {
    let source = csi::volume_content_source::VolumeSource { volume_id: volume.to_owned() };
    let r#type = Some(csi::volume_content_source::Type::Volume(source));
    Some(csi::VolumeContentSource { r#type })
}

fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_volume_is_made_once_and_begins_with_any_moment_of_another() {
    let rig = Rig::new();
    let made = rig.create(&wanted("pg", 8 * MIB)).unwrap();
    assert_eq!((made.volume_id.as_str(), made.capacity_bytes), ("pg", 8 * MIB));
    assert!(made.volume_context["iscsiName"].ends_with(":pg"));
    assert_eq!(rig.create(&wanted("pg", 8 * MIB)).unwrap(), made);
    assert_eq!(rig.create(&wanted("pg", 9 * MIB)).unwrap_err().code(), Code::AlreadyExists);
    rig.write("pg", 0x11);
    let before = rig.hindsight(&["resolve", "pg@latest", "--json"]);
    let before: serde_json::Value = serde_json::from_str(&before).unwrap();
    rig.write("pg", 0x22);
    let clone = |name: &str, at: &str, bytes: i64| {
        let content = from_volume("pg");
        let at = if at.is_empty() { BTreeMap::new() } else { parameters(&[("at", at)]) };
        let wanted = wanted(name, bytes);
        rig.create(&csi::CreateVolumeRequest {
            volume_content_source: content,
            parameters: at,
            ..wanted
        })
    };
    let seq = format!("seq:{}", before["seq"]);
    assert_eq!(clone("then", &seq, 16 * MIB).unwrap().capacity_bytes, 16 * MIB);
    assert_eq!(clone("now", "", 1).unwrap().capacity_bytes, 8 * MIB);
    assert_eq!((rig.first_byte("then"), rig.first_byte("now")), (0x11, 0x22));
    // The same again is what is there; of another origin it is another.
    assert_eq!(clone("then", &seq, 16 * MIB).unwrap().volume_id, "then");
    assert_eq!(rig.create(&wanted("then", 16 * MIB)).unwrap_err().code(), Code::AlreadyExists);
    // Somebody's clone, which was not made for it.
    rig.hindsight(&["clone", &format!("pg@{seq}"), "half"]);
    assert_eq!(clone("half", &seq, 16 * MIB).unwrap_err().code(), Code::AlreadyExists);
    // With the settings of its class.
    let dressed = csi::CreateVolumeRequest {
        volume_content_source: from_volume("pg"),
        parameters: parameters(&[("window", "2h"), ("granularity", "1s")]),
        ..wanted("dressed", MIB)
    };
    rig.create(&dressed).unwrap();
    let shown = rig.hindsight(&["volume", "show", "dressed", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["window"], &shown["granularity"]), (&"2h".into(), &"1s".into()));
    // From before it was made; nothing stays of what was refused.
    for (name, at, bytes, code) in [
        ("x", "-5min", MIB, Code::InvalidArgument),
        ("x", "yesterdays", MIB, Code::NotFound),
        ("x", &*seq, i64::MAX, Code::OutOfRange),
    ] {
        let refused = clone(name, at, bytes).unwrap_err();
        assert_eq!(refused.code(), code, "{at}: {refused:?}");
    }
    let all = rig.hindsight(&["volume", "list", "--json"]);
    assert!(!all.contains("\"x\"") && !all.contains("csi-making"), "{all}");
    let wrong = csi::CreateVolumeRequest {
        parameters: parameters(&[("windows", "1d")]),
        ..wanted("y", MIB)
    };
    assert_eq!(rig.create(&wrong).unwrap_err().code(), Code::InvalidArgument);
    // A name that no volume can have.
    let odd = rig.create(&wanted("a/b c", MIB)).unwrap();
    assert!(odd.volume_id.starts_with("csi-of-abc-"), "{odd:?}");
    assert_eq!(rig.create(&wanted("a/b c", MIB)).unwrap(), odd);
}

#[test]
fn snapshots_are_versions_and_hold_their_volume() {
    let rig = Rig::new();
    rig.create(&wanted("pg", 4 * MIB)).unwrap();
    rig.write("pg", 0x33);
    let snap = |name: &str, volume: &str| {
        let request = csi::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: volume.to_owned(),
            ..Default::default()
        };
        let answer: Result<csi::CreateSnapshotResponse, _> =
            rig.call("Controller/CreateSnapshot", &request);
        answer.map(|answer| answer.snapshot.unwrap())
    };
    let taken = snap("before", "pg").unwrap();
    assert_eq!((taken.snapshot_id.as_str(), taken.ready_to_use), ("pg@v:0", true));
    assert_eq!(snap("before", "pg").unwrap(), taken);
    rig.create(&wanted("other", MIB)).unwrap();
    assert_eq!(snap("before", "other").unwrap_err().code(), Code::AlreadyExists);
    // A version of somebody else is no snapshot, and is not deleted as one.
    rig.hindsight(&["version", "create", "pg", "--label", "by hand"]);
    let list = |request: csi::ListSnapshotsRequest| {
        let answer: csi::ListSnapshotsResponse =
            rig.call("Controller/ListSnapshots", &request).unwrap();
        answer.entries.len()
    };
    assert_eq!(list(csi::ListSnapshotsRequest::default()), 1);
    let delete = |id: &str| {
        let request =
            csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        rig.call::<_, csi::DeleteSnapshotResponse>("Controller/DeleteSnapshot", &request).unwrap();
    };
    delete("pg@v:1");
    assert!(rig.hindsight(&["version", "list", "pg"]).contains("by hand"));
    rig.write("pg", 0x44);
    let source = csi::volume_content_source::SnapshotSource { snapshot_id: "pg@v:0".to_owned() };
    let r#type = Some(csi::volume_content_source::Type::Snapshot(source));
    let volume_content_source = Some(csi::VolumeContentSource { r#type });
    rig.create(&csi::CreateVolumeRequest { volume_content_source, ..wanted("back", MIB) }).unwrap();
    assert_eq!(rig.first_byte("back"), 0x33);
    let remove = |volume: &str| {
        let request =
            csi::DeleteVolumeRequest { volume_id: volume.to_owned(), ..Default::default() };
        rig.call::<_, csi::DeleteVolumeResponse>("Controller/DeleteVolume", &request)
    };
    assert_eq!(remove("pg").unwrap_err().code(), Code::FailedPrecondition);
    delete("pg@v:0");
    delete("pg@v:0");
    // Nor is a version that was made by hand taken away with it.
    assert_eq!(remove("pg").unwrap_err().code(), Code::FailedPrecondition);
    rig.hindsight(&["version", "delete", "pg", "1"]);
    remove("pg").unwrap();
    remove("pg").unwrap();
    rig.hindsight(&["volume", "undelete", "pg"]);
    // The same name with another snapshot is another volume.
    let again = snap("after", "pg").unwrap();
    let source = csi::volume_content_source::SnapshotSource { snapshot_id: again.snapshot_id };
    let r#type = Some(csi::volume_content_source::Type::Snapshot(source));
    let volume_content_source = Some(csi::VolumeContentSource { r#type });
    let other = csi::CreateVolumeRequest { volume_content_source, ..wanted("back", MIB) };
    assert_eq!(rig.create(&other).unwrap_err().code(), Code::AlreadyExists);
}

/// The name under which the driver makes a volume.
fn csi_making(name: &str) -> String {
    let sum = run("sh", &["-c", &format!("printf %s {name} | sha256sum")]);
    format!("csi-making-{}", &sum[..32])
}

/// What a controller that was killed had begun of one is in nobody's way.
fn a_clone_is_published_nowhere(rig: &Rig, one: &str) {
    for name in ["clone", "again"] {
        let volume_content_source = from_volume("pg");
        let clone = csi::CreateVolumeRequest { volume_content_source, ..wanted(name, MIB) };
        let made = rig.create(&clone).unwrap();
        let url = format!("iscsi://127.0.0.1:{}/{}/0", rig.iscsi, made.volume_context["iscsiName"]);
        let login = Command::new("iscsi-inq").args(["-i", one, &url]).output().unwrap();
        assert!(!login.status.success(), "{name}: {login:?}");
        // The name under which the next is made.
        let making = csi_making("again");
        if name == "clone" {
            rig.hindsight(&["clone", "pg", &making]);
        }
    }
    let request = csi::ListVolumesRequest::default();
    let all: csi::ListVolumesResponse = rig.call("Controller/ListVolumes", &request).unwrap();
    assert_eq!(all.entries.len(), 3);
}

#[test]
fn a_volume_is_published_to_one_machine_and_lets_no_other_in() {
    let rig = Rig::new();
    let made = rig.create(&wanted("pg", 4 * MIB)).unwrap();
    let target = &made.volume_context["iscsiName"];
    let login = |node: &str| {
        let url = format!("iscsi://127.0.0.1:{}/{target}/0", rig.iscsi);
        Command::new("iscsi-inq").args(["-i", node, &url]).output().unwrap().status.success()
    };
    let (one, two) = ("iqn.2026-11.test:one", "iqn.2026-11.test:two");
    let publish = |node: &str, mode| {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: "pg".to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(mount("ext4", mode)),
            ..Default::default()
        };
        let call = "Controller/ControllerPublishVolume";
        rig.call::<_, csi::ControllerPublishVolumeResponse>(call, &request)
    };
    let unpublish = |node: &str| {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: "pg".to_owned(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        let call = "Controller/ControllerUnpublishVolume";
        rig.call::<_, csi::ControllerUnpublishVolumeResponse>(call, &request).unwrap();
    };
    assert!(!login(one), "nobody has it yet");
    publish(one, Mode::SingleNodeWriter).unwrap();
    publish(one, Mode::SingleNodeWriter).unwrap();
    assert!(login(one) && !login(two));
    let refused = publish(two, Mode::SingleNodeWriter).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert_eq!(publish("two", Mode::SingleNodeWriter).unwrap_err().code(), Code::NotFound);
    // Names of initiators are compared without regard to case.
    publish(&one.to_uppercase().replace("IQN", "iqn"), Mode::SingleNodeWriter).unwrap();
    publish(two, Mode::MultiNodeReaderOnly).unwrap();
    assert!(login(one) && login(two));
    unpublish(one);
    unpublish(one);
    assert!(!login(one) && login(two));
    unpublish("iqn.2026-11.test:three");
    assert!(login(two));
    unpublish("");
    assert!(!login(two));
    // One that somebody has is for nobody else.
    let used = Held::open(&rig, "pg");
    let refused = publish(one, Mode::SingleNodeWriter).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    drop(used);
    publish(one, Mode::SingleNodeWriter).unwrap();
    assert!(login(one));
    a_clone_is_published_nowhere(&rig, one);
    // For several before, for one now.
    publish(one, Mode::MultiNodeReaderOnly).unwrap();
    publish(two, Mode::MultiNodeReaderOnly).unwrap();
    let refused = publish(one, Mode::SingleNodeWriter).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
}

/// And is mounted beside its origin.
fn a_larger_clone_has_the_room(rig: &Rig) {
    let (stage, other) = (rig.path("stage"), rig.path("other"));
    let xfs = mount("xfs", Mode::SingleNodeWriter);
    rig.create(&wanted("tree", 320 * MIB)).unwrap();
    rig.stage("tree", &stage, &xfs).unwrap();
    fs::write(stage.join("file"), "kept").unwrap();
    run("sync", &["-f", stage.to_str().unwrap()]);
    let volume_content_source = from_volume("tree");
    let clone = csi::CreateVolumeRequest { volume_content_source, ..wanted("more", 512 * MIB) };
    rig.create(&clone).unwrap();
    rig.stage("more", &other, &xfs).unwrap();
    assert_eq!(fs::read(other.join("file")).unwrap(), b"kept");
    let size = run("stat", &["-f", "-c", "%b %S", other.to_str().unwrap()]);
    let size: Vec<i64> = size.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(size[0] * size[1] > 400 * MIB, "{size:?}");
    rig.unstage("more", &other);
    rig.unstage("tree", &stage);
}

#[test]
fn what_is_staged_is_there_again_and_grows() {
    if !is_root() {
        eprintln!("skipped: attaching needs root");
        return;
    }
    let rig = Rig::new();
    rig.create(&wanted("pg", 32 * MIB)).unwrap();
    let block = csi::VolumeCapability {
        access_type: Some(csi::volume_capability::AccessType::Block(
            csi::volume_capability::BlockVolume {},
        )),
        ..mount("", Mode::SingleNodeWriter)
    };
    let (stage, show) = (rig.path("stage"), rig.path("with a blank/show"));
    rig.stage("pg", &stage, &mount("ext4", Mode::SingleNodeWriter)).unwrap();
    rig.stage("pg", &stage, &mount("ext4", Mode::SingleNodeWriter)).unwrap();
    for _ in 0..2 {
        rig.publish("pg", &stage, &show, &mount("ext4", Mode::SingleNodeWriter)).unwrap();
    }
    fs::write(show.join("file"), "kept").unwrap();
    let stats = csi::NodeGetVolumeStatsRequest {
        volume_id: "pg".to_owned(),
        volume_path: show.to_str().unwrap().to_owned(),
        ..Default::default()
    };
    let told: csi::NodeGetVolumeStatsResponse =
        rig.call("Node/NodeGetVolumeStats", &stats).unwrap();
    assert!(told.usage[0].total > 20 * MIB && told.usage[0].total < 32 * MIB, "{told:?}");
    for _ in 0..2 {
        rig.unpublish("pg", &show);
    }
    assert!(!show.exists());
    for _ in 0..2 {
        rig.unstage("pg", &stage);
    }
    // Another file system than what is asked for stays.
    let wrong = rig.stage("pg", &stage, &mount("xfs", Mode::SingleNodeWriter)).unwrap_err();
    assert!(wrong.code() == Code::FailedPrecondition && wrong.message().contains("ext4"));
    rig.stage("pg", &stage, &mount("ext4", Mode::SingleNodeWriter)).unwrap();
    assert_eq!(fs::read(stage.join("file")).unwrap(), b"kept");
    rig.unstage("pg", &stage);
    a_larger_clone_has_the_room(&rig);
    // As a disk.
    rig.create(&wanted("raw", 8 * MIB)).unwrap();
    let disk = rig.path("disk");
    assert!(rig.publish("raw", &stage, &disk, &block).is_err(), "it is not staged");
    rig.stage("raw", &stage, &block).unwrap();
    rig.publish("raw", &stage, &disk, &block).unwrap();
    assert_eq!(run("blockdev", &["--getsize64", disk.to_str().unwrap()]).trim(), "8388608");
    rig.unpublish("raw", &disk);
    // A file of somebody is no place where a volume was shown.
    let mine = rig.path("mine");
    fs::write(&mine, "text").unwrap();
    let request = csi::NodeUnpublishVolumeRequest {
        volume_id: "raw".to_owned(),
        target_path: mine.to_str().unwrap().to_owned(),
    };
    let call = "Node/NodeUnpublishVolume";
    rig.call::<_, csi::NodeUnpublishVolumeResponse>(call, &request).unwrap_err();
    assert_eq!(fs::read(&mine).unwrap(), b"text");
    rig.unstage("raw", &stage);
    // Nothing of it stays.
    assert_eq!(fs::read_dir(rig.path("state")).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(rig.path("").to_str().unwrap()), "{mounts}");
}

/// The token that the page of the driver has made.
#[test]
fn a_token_for_volumes_of_claims_is_enough() {
    let rig = Rig::of_token(&["pvc-*", "csi-*"]);
    rig.hindsight(&["volume", "create", "secret", "--size", "1MiB"]);
    rig.create(&wanted("pvc-1", 4 * MIB)).unwrap();
    rig.write("pvc-1", 0x11);
    let volume_content_source = from_volume("pvc-1");
    let clone = csi::CreateVolumeRequest { volume_content_source, ..wanted("pvc-2", 8 * MIB) };
    assert_eq!(rig.create(&clone).unwrap().capacity_bytes, 8 * MIB);
    let snapshot = csi::CreateSnapshotRequest {
        name: "before".to_owned(),
        source_volume_id: "pvc-1".to_owned(),
        ..Default::default()
    };
    let answer: csi::CreateSnapshotResponse =
        rig.call("Controller/CreateSnapshot", &snapshot).unwrap();
    assert_eq!(answer.snapshot.unwrap().snapshot_id, "pvc-1@v:0");
    let publish = csi::ControllerPublishVolumeRequest {
        volume_id: "pvc-2".to_owned(),
        node_id: rig::NODE.to_owned(),
        volume_capability: Some(mount("ext4", Mode::SingleNodeWriter)),
        ..Default::default()
    };
    let call = "Controller/ControllerPublishVolume";
    rig.call::<_, csi::ControllerPublishVolumeResponse>(call, &publish).unwrap();
    let capacity: csi::GetCapacityResponse =
        rig.call("Controller/GetCapacity", &csi::GetCapacityRequest::default()).unwrap();
    assert!(capacity.available_capacity > 100 * MIB, "{capacity:?}");
    let request = csi::ListVolumesRequest::default();
    let all: csi::ListVolumesResponse = rig.call("Controller/ListVolumes", &request).unwrap();
    assert_eq!(all.entries.len(), 2);
    let foreign = csi::CreateVolumeRequest {
        volume_content_source: from_volume("secret"),
        ..wanted("pvc-3", MIB)
    };
    assert_eq!(rig.create(&foreign).unwrap_err().code(), Code::NotFound);
}

/// What others made, and wrote to, is not taken over, published or shut.
#[test]
fn volumes_of_others_stay_as_they_are() {
    let rig = Rig::new();
    rig.hindsight(&["volume", "create", "mine", "--size", "1MiB"]);
    assert_eq!(rig.create(&wanted("mine", MIB)).unwrap().volume_id, "mine", "it is as new");
    rig.hindsight(&["volume", "create", "used", "--size", "1MiB"]);
    rig.write("used", 1);
    assert_eq!(rig.create(&wanted("used", MIB)).unwrap_err().code(), Code::AlreadyExists);
    rig.hindsight(&["share", "create", "files"]);
    assert_eq!(rig.create(&wanted("files", MIB)).unwrap_err().code(), Code::AlreadyExists);
    let request = csi::ControllerUnpublishVolumeRequest {
        volume_id: "used".to_owned(),
        node_id: "iqn.2026-11.test:one".to_owned(),
        ..Default::default()
    };
    let call = "Controller/ControllerUnpublishVolume";
    rig.call::<_, csi::ControllerUnpublishVolumeResponse>(call, &request).unwrap();
    let shown = rig.hindsight(&["target", "show", "used", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["access"]["allow"], serde_json::json!([]), "{shown}");
    let request = csi::DeleteVolumeRequest { volume_id: "files".to_owned(), ..Default::default() };
    rig.call::<_, csi::DeleteVolumeResponse>("Controller/DeleteVolume", &request).unwrap();
    assert!(rig.hindsight(&["share", "list"]).contains("files"));
}

/// A disk that is no file system, or another volume's by now, is not written to.
#[test]
fn what_is_on_a_disk_is_not_written_over() {
    if !is_root() {
        eprintln!("skipped: attaching needs root");
        return;
    }
    let rig = Rig::new();
    rig.create(&wanted("raw", 8 * MIB)).unwrap();
    // Its first block is data that nobody knows.
    rig.write("raw", 0x5A);
    let stage = rig.path("stage");
    let ext4 = mount("ext4", Mode::SingleNodeWriter);
    let refused = rig.stage("raw", &stage, &ext4).unwrap_err();
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("no file"));
    rig.unstage("raw", &stage);
    assert_eq!(rig.first_byte("raw"), 0x5A);
    // A reader makes nothing, and finds nothing.
    rig.create(&wanted("blank", 8 * MIB)).unwrap();
    let reader = mount("ext4", Mode::SingleNodeReaderOnly);
    assert!(rig.stage("blank", &stage, &reader).is_err());
    rig.unstage("blank", &stage);
    // The file says that it is attached, and the disk is gone, or is another's.
    rig.stage("blank", &stage, &ext4).unwrap();
    let file = rig.path("state/blank.json");
    let noted = fs::read_to_string(&file).unwrap();
    run("umount", &[stage.to_str().unwrap()]);
    let mut other: serde_json::Value = serde_json::from_str(&noted).unwrap();
    assert_eq!(other["is_new"], false);
    other["mark"] = "another start of the machine".into();
    fs::write(&file, other.to_string()).unwrap();
    let show = rig.path("show");
    let refused = rig.publish("blank", &stage, &show, &ext4).unwrap_err();
    assert!(refused.message().contains("not attached any more"), "{refused:?}");
    // It is not ours to take away.
    let staged = |at: &str| csi::NodeUnstageVolumeRequest {
        volume_id: "blank".to_owned(),
        staging_target_path: rig.path(at).to_str().unwrap().to_owned(),
    };
    let unstage = |at: &str| {
        let call = "Node/NodeUnstageVolume";
        rig.call::<_, csi::NodeUnstageVolumeResponse>(call, &staged(at))
    };
    let _ = unstage("nothing");
    let device = other["device"].as_str().unwrap();
    assert_eq!(run("losetup", &["--noheadings", "--output", "NAME", device]).trim(), device);
    fs::write(&file, noted).unwrap();
    rig.stage("blank", &stage, &ext4).unwrap();
    rig.publish("blank", &stage, &show, &ext4).unwrap();
    let refused = unstage("stage").unwrap_err();
    assert!(refused.message().contains("in use at"), "{refused:?}");
    rig.unpublish("blank", &show);
    rig.unstage("blank", &stage);
}

#[test]
fn a_node_alone_asks_no_server() {
    let rig = Rig::alone();
    let told: csi::GetPluginCapabilitiesResponse =
        rig.call("Identity/GetPluginCapabilities", &csi::GetPluginCapabilitiesRequest {}).unwrap();
    let is_service = |one: &csi::PluginCapability| {
        matches!(one.r#type, Some(csi::plugin_capability::Type::Service(_)))
    };
    assert!(!told.capabilities.iter().any(is_service), "{told:?}");
    assert_eq!(rig.create(&wanted("pg", MIB)).unwrap_err().code(), Code::Unimplemented);
    let info: csi::NodeGetInfoResponse =
        rig.call("Node/NodeGetInfo", &csi::NodeGetInfoRequest {}).unwrap();
    assert_eq!(info.node_id, rig::NODE);
}

#[test]
fn the_sanity_suite_passes() {
    let Ok(sanity) = std::env::var("CSI_SANITY") else { return };
    let rig = Rig::new();
    let text = |name: &str| rig.path(name).to_str().unwrap().to_owned();
    let endpoint = format!("unix://{}", text("csi.sock"));
    let said = run(
        &sanity,
        &[
            "--csi.endpoint",
            &endpoint,
            "--csi.mountdir",
            &text("mnt"),
            "--csi.stagingdir",
            &text("st"),
        ],
    );
    println!("{said}");
}
