//! Versions: what a list says of them, what deleting a range does, and that their number does not
//! matter.

use hindsight_volume::{Budget, ErrorKind, Granularity, Pool, Version, Volume, WriteOp};
use units::Moment;

use crate::hook::{Rig, SECOND_NS, make, put};

fn step(pool: &Pool) {
    while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
}

fn changed(volume: &Volume) -> Vec<(u64, bool)> {
    let versions = volume.versions().expect("listed");
    versions.iter().map(|version| (version.bytes_changed, version.bytes_exact)).collect()
}

#[test]
fn a_list_says_what_changed_at_most_and_later_exactly() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 3600 * SECOND_NS);
    let capture = || volume.create_version("").expect("captured");
    put(&volume, 0, 1);
    put(&volume, 0, 2);
    put(&volume, 7, 1);
    let first = capture();
    assert_eq!((first.bytes_changed, first.bytes_exact), (3 * 4096, false), "three were written");
    capture();
    let trim = WriteOp::Zero { offset: 0, length_bytes: 4096 };
    volume.write_batch(&[trim]).expect("trimmed");
    capture();
    step(&pool);
    assert_eq!(changed(&volume), [(8192, true), (0, true), (4096, true)]);
    volume.revert(&Moment::Version(0), false).expect("reverted");
    put(&volume, 9, 1);
    let last = capture();
    assert!(!last.bytes_exact && last.bytes_changed >= 8192, "{last:?}");
    step(&pool);
    assert_eq!(changed(&volume)[3], (8192, true), "block 0 is back, block 9 is new");
    // The one in between goes: its heir differs from another one now.
    volume.delete_versions(1..=2, false).expect("deleted");
    step(&pool);
    assert_eq!(changed(&volume), [(8192, true), (4096, true)]);
    drop(volume);
    // What was counted and not stored is counted again.
    let pool = rig.kill(pool);
    step(&pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(changed(&volume), [(8192, true), (4096, true)]);
    capture_and_close(&pool, &volume);
    drop((pool, volume));
    let pool = rig.open();
    let volume = pool.volume("v").expect("there");
    assert_eq!(changed(&volume)[..2], [(8192, true), (4096, true)], "stored with the next capture");
}

fn capture_and_close(pool: &Pool, volume: &Volume) {
    volume.create_version("").expect("captured");
    pool.close().expect("closed");
}

#[test]
fn spans_clones_and_views_are_listed() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    for byte in 1..4 {
        put(&volume, 0, byte);
        volume.create_version("").expect("captured");
        rig.clock.advance(10 * SECOND_NS);
    }
    pool.clone_volume("v", &Moment::Version(1), "c").expect("cloned");
    let view = volume.view(&Moment::Version(2)).expect("opened");
    let versions = volume.versions().expect("listed");
    let span = |version: &Version| {
        // The log's time, which rises with every write, is a few nanoseconds ahead of the clock.
        let nanos = version.until.map(|u| u.as_nanos() - version.stamp.time.as_nanos());
        nanos.map(|nanos| nanos.div_ceil(SECOND_NS))
    };
    let spans: Vec<_> = versions.iter().map(span).collect();
    assert_eq!(spans, [Some(10), Some(10), None]);
    assert_eq!(volume.version(1).expect("there"), versions[1], "one is told as in a list");
    assert_eq!(versions[1].dependants.clones, ["c"]);
    assert_eq!((versions[2].dependants.views, versions[0].dependants.views), (1, 0));
    // They do not stop the deletion, and keep what they need.
    volume.delete_versions(0..=2, false).expect("deleted");
    step(&pool);
    let mut bytes = [0];
    view.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[0], 3);
    pool.volume("c").expect("there").read(0, &mut bytes).expect("read");
    assert_eq!(bytes[0], 2);
}

#[test]
fn a_range_is_deleted_or_only_told() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    for _ in 0..20 {
        volume.create_version("").expect("captured");
    }
    assert_eq!(volume.delete_versions(3..=9, true).expect("told"), 7);
    assert_eq!(volume.versions().expect("listed").len(), 20);
    assert_eq!(volume.delete_versions(3..=9, false).expect("deleted"), 7);
    assert_eq!(volume.delete_versions(8..=10, false).expect("deleted"), 1);
    for range in [3..=9, 100..=200] {
        let error = volume.delete_versions(range, false).expect_err("there is none");
        assert_eq!(error.kind, ErrorKind::NotFound);
    }
    let page = volume.versions_page(2, 3).expect("listed");
    let numbers: Vec<u64> = page.versions.iter().map(|version| version.number).collect();
    assert_eq!((numbers, page.next), (vec![2, 11, 12], Some(13)));
    let audit = pool.audit(0, 100).expect("read");
    let told: Vec<_> = audit.iter().filter(|r| r.action == "version-delete").collect();
    assert!(told[0].detail.starts_with("versions 3 to 9 (7 of them"), "{}", told[0].detail);
    assert_eq!(told.len(), 2);
}
