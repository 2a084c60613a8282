//! Versions that are compacted and uncompacted by hand, whatever the volume's policy.

use hindsight_volume::{
    Architecture, Budget, Compaction, CompactionInfo, CompactionState, Encoding, ErrorKind,
    Granularity, Volume,
};

use crate::base::{BLOCK, Rig};
use crate::packs::{Pages, encode, pack, packed};

/// The compaction of a version as it is told.
fn compaction(volume: &Volume, number: u64) -> CompactionInfo {
    volume.compaction(number).expect("told").expect("asked for")
}

fn done(volume: &Volume, number: u64) -> (u64, u64) {
    let info = compaction(volume, number);
    assert_eq!(info.state, CompactionState::Done, "version {number}: {info:?}");
    (info.packed, info.raw)
}

/// A volume with three versions of 20 pages, each of 400 writes that are kept.
fn with_versions(rig: &Rig, architecture: Architecture) -> (std::sync::Arc<Volume>, Pages) {
    let volume = rig.make("v", architecture, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    for _ in 0..3 {
        pages.change(&volume, 20, 400);
        volume.create_version("").expect("captured");
    }
    pages.change(&volume, 20, 100);
    (volume, pages)
}

#[test]
fn a_version_is_compacted_and_uncompacted_and_reads_as_before() {
    for architecture in Architecture::ALL {
        let mut rig = Rig::new();
        let (volume, pages) = with_versions(&rig, architecture);
        rig.settle();
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: nothing was asked for");
        let asked = volume.compact_version(1, Compaction::Compacted).expect("asked");
        assert_eq!((asked.wish, asked.state), (Compaction::Compacted, CompactionState::Waiting));
        rig.settle();
        let (in_packs, raw) = done(&volume, 1);
        assert!(in_packs > 350 && in_packs + raw <= 400, "{architecture:?}: {in_packs} and {raw}");
        let (bytes, were) = packed(&volume);
        assert_eq!(were, in_packs * BLOCK, "{architecture:?}: only what belongs to it");
        assert!(bytes * 4 < were, "{architecture:?}: {were} bytes became {bytes}");
        assert_eq!(volume.compaction(0).expect("told"), None);
        pages.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
        drop(volume);

        let volume = rig.restart();
        assert_eq!(done(&volume, 1), (in_packs, raw), "{architecture:?}: it is remembered");
        pages.check(&volume);
        volume.compact_version(1, Compaction::Uncompacted).expect("asked");
        rig.settle();
        assert_eq!(done(&volume, 1), (0, in_packs + raw), "{architecture:?}");
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: all of it is raw again");
        pages.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn what_was_asked_for_goes_before_the_policy_of_the_volume() {
    let rig = Rig::new();
    let (volume, pages) = with_versions(&rig, Architecture::Logging);
    volume.compact_version(2, Compaction::Uncompacted).expect("asked");
    rig.settle();
    encode(&rig, &volume, Encoding::Xor);
    let (in_packs, raw) = done(&volume, 2);
    assert_eq!((in_packs, raw), (0, 400), "nothing of it is packed");
    assert!(packed(&volume).1 > 800 * BLOCK, "the others are");
    pages.check(&volume);
    rig.pool().verify_invariants().expect("all agree");
    volume.compact_version(2, Compaction::Compacted).expect("asked");
    rig.settle();
    assert!(done(&volume, 2).0 > 350);
    pages.check(&volume);
}

#[test]
fn a_version_that_is_deleted_takes_what_was_asked_for_with_it() {
    let mut rig = Rig::new();
    let (volume, mut pages) = with_versions(&rig, Architecture::Logging);
    volume.compact_version(1, Compaction::Compacted).expect("asked");
    volume.compact_version(0, Compaction::Uncompacted).expect("asked");
    rig.settle();
    volume.delete_version(1).expect("deleted");
    assert_eq!(volume.compaction(1).expect_err("gone").kind, ErrorKind::NotFound);
    assert_eq!(volume.compactions().len(), 1);
    drop(volume);
    let volume = rig.restart();
    assert_eq!(volume.compactions().len(), 1, "and it does not come back");
    pages.change(&volume, 20, 100);
    pack(&rig);
    pages.check(&volume);
    rig.pool().verify_invariants().expect("all agree");
    rig.pool().delete_volume("v").expect("deleted");
    rig.settle();
}

#[test]
fn what_is_not_there_is_not_compacted() {
    let rig = Rig::new();
    let (volume, _) = with_versions(&rig, Architecture::Logging);
    for wish in [Compaction::Compacted, Compaction::Uncompacted] {
        let error = volume.compact_version(7, wish).expect_err("no such version");
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
    assert!(volume.compactions().is_empty());
}

#[test]
fn versions_that_left_their_packs_are_told_as_shadows() {
    let rig = Rig::new();
    let (volume, _) = with_versions(&rig, Architecture::Logging);
    encode(&rig, &volume, Encoding::Xor);
    assert_eq!(volume.info().expect("info").encoding.shadow_bytes, 0);
    volume.compact_version(1, Compaction::Uncompacted).expect("asked");
    let mut shadows = 0;
    while compaction(&volume, 1).state != CompactionState::Done {
        rig.pool().step(Budget { bytes: 64 << 20 }).expect("a step");
        shadows = volume.info().expect("info").encoding.shadow_bytes.max(shadows);
    }
    assert!(shadows > 0, "a third of what is in packs has left them");
    rig.settle();
    rig.pool().verify_invariants().expect("all agree");
}
