//! Consistency groups: one instant of several volumes, while others write to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Budget, CacheChange, Deletion, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions,
    Volume, VolumeSpec, WriteOp,
};
use units::Moment;

use crate::hook::{Rig, SECOND_NS, make, put};

pub fn add(pool: &Pool, name: &str, cache_bytes: u64) -> Arc<Volume> {
    let spec = VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: SECOND_NS,
        cache: CacheChange {
            bytes: Some(cache_bytes),
            dirty_percent: (cache_bytes > 0).then_some(90),
        },
        ..VolumeSpec::new(name, 1 << 20)
    };
    pool.create_volume(&spec).expect("made")
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn write_number(volume: &Volume, number: u64) {
    let mut bytes = [0; 4096];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &bytes }]).expect("written");
}

fn number_at(volume: &Arc<Volume>, version: u64) -> u64 {
    let mut bytes = [0; 8];
    let view = volume.view(&Moment::Version(version)).expect("opened");
    view.read(0, &mut bytes).expect("read");
    u64::from_le_bytes(bytes)
}

/// Writers count up in `a`, then in `b`, then in `c`; what a capture holds never runs ahead.
fn captures_never_run_ahead(caches: [u64; 3]) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 30));
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    let pool = Pool::open(device, machine, PoolOptions::default()).expect("opened");
    // Made in another order than they are written in: the order of locks is not that of writes.
    let c = add(&pool, "c", caches[2]);
    let b = add(&pool, "b", caches[1]);
    let a = add(&pool, "a", caches[0]);
    pool.create_group("g", &names(&["a", "b", "c"])).expect("grouped");
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (volumes, stop) = ([Arc::clone(&a), Arc::clone(&b), Arc::clone(&c)], Arc::clone(&stop));
        move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                volumes.iter().for_each(|volume| write_number(volume, number));
            }
        }
    });
    let background = thread::spawn({
        let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                pool.step(Budget { bytes: 1 << 20 }).expect("stepped");
                thread::yield_now();
            }
        }
    });
    let mut seen = Vec::new();
    for round in 0..60 {
        let capture = pool.create_group_version("g", "").expect("captured");
        assert_eq!(capture.number, round);
        let of = |name: &str| capture.versions.iter().find(|(v, _)| v == name).expect("a member").1;
        let [x, y, z] = [(&a, "a"), (&b, "b"), (&c, "c")].map(|(v, name)| number_at(v, of(name)));
        assert!(x >= y && y >= z && x - z <= 1, "capture {round}: {x} {y} {z}");
        seen.push(x);
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("joined");
    background.join().expect("joined");
    assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "{seen:?}");
}

#[test]
fn a_capture_never_holds_a_write_without_those_that_were_acknowledged_before_it() {
    captures_never_run_ahead([0, 0, 0]);
}

#[test]
fn nor_where_writes_wait_in_caches() {
    captures_never_run_ahead([1 << 20, 0, 1 << 20]);
}

#[test]
fn groups_outlive_restarts_and_deleted_volumes_leave_them() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    add(&pool, "w", 0);
    let made = pool.create_group("g", &names(&["w", "v", "v"])).expect("grouped");
    assert_eq!(made.volumes, ["v", "w"]);
    put(&volume, 0, 1);
    let first = pool.create_group_version("g", "both").expect("captured");
    assert_eq!(first.versions.len(), 2);
    put(&volume, 0, 2);
    drop(volume);
    let pool = rig.kill(pool);
    let (all, next) = pool.group_versions("g", 0, 10).expect("listed");
    assert_eq!((&all[..], next), (&[first][..], None));
    pool.delete_volume("w").expect("deleted");
    assert_eq!(pool.group("g").expect("there").volumes, ["v"]);
    let second = pool.create_group_version("g", "").expect("captured");
    assert_eq!(second.versions, [("v".to_owned(), 1)]);
    // What of a capture is deleted is not listed, and a capture of which nothing is left is none.
    pool.volume("v").expect("there").delete_versions(0..=0, false).expect("deleted");
    let (all, _) = pool.group_versions("g", 0, 10).expect("listed");
    assert_eq!(all, [second]);
    let pool = rig.kill(pool);
    assert_eq!(pool.groups()[0].captures, 2);
    pool.delete_group("g").expect("deleted");
    assert_eq!(pool.group("g").expect_err("gone").kind, ErrorKind::NotFound);
    assert_eq!(pool.volume("v").expect("there").versions().expect("listed").len(), 1);
}

#[test]
fn a_capture_is_deleted_as_one_or_not_at_all() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    let other = add(&pool, "w", 0);
    pool.create_group("g", &names(&["w", "v"])).expect("grouped");
    for byte in 0..4 {
        put(&volume, 0, byte);
        write_number(&other, u64::from(byte));
        pool.create_group_version("g", "").expect("captured");
    }
    // One whose member was deleted before goes with what is left of it.
    volume.delete_version(2).expect("deleted");
    let counts = |pool: &Pool| {
        let versions = |name: &str| pool.volume(name).expect("there").versions().map(|v| v.len());
        let captures = pool.group_versions("g", 0, 100).expect("listed").0.len();
        (captures, versions("v").expect("listed"), versions("w").expect("listed"))
    };
    assert_eq!(pool.delete_group_versions("g", 1..=2, true).expect("told"), 2);
    assert_eq!(counts(&pool), (4, 3, 4), "it was only asked");
    assert_eq!(pool.delete_group_versions("g", 1..=2, false).expect("deleted"), 2);
    assert_eq!(counts(&pool), (2, 2, 2));
    for range in [1..=2, 7..=7] {
        let error = pool.delete_group_versions("g", range, false).expect_err("there is none");
        assert_eq!(error.kind, ErrorKind::NotFound);
    }
    assert_eq!(number_at(&other, 3), 3);
    let audit = pool.audit(0, 100).expect("read");
    let told: Vec<_> = audit.iter().filter(|r| r.detail.contains("capture of group g")).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    // A crash in the middle of it leaves all or nothing of a capture.
    drop((volume, other));
    let mut pool = rig.kill(pool);
    let (mut stayed, mut went) = (0, 0);
    for halted_after in 0..40 {
        let (captures, ..) = counts(&pool);
        let capture = pool.create_group_version("g", "").expect("captured");
        rig.media.halt_after(halted_after);
        let number = capture.number;
        let deleted = pool.delete_group_versions("g", number..=number, false);
        pool = rig.kill(pool);
        let left = counts(&pool).0 - captures;
        assert_eq!(counts(&pool), (captures + left, captures + left, captures + left));
        assert!(left == 0 || deleted.is_err(), "halted after {halted_after}: it was deleted");
        stayed += left;
        went += 1 - left;
    }
    assert!(stayed > 0 && went > 0, "{stayed} stayed, {went} went");
}

#[test]
fn what_cannot_be_a_group_is_refused() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    make(&pool, Granularity::OnDemand, 0);
    let kind = |name: &str, members: &[&str]| {
        pool.create_group(name, &names(members)).expect_err("refused").kind
    };
    assert_eq!(kind("g", &["v", "x"]), ErrorKind::NotFound);
    assert_eq!(kind("g", &[]), ErrorKind::Invalid);
    assert_eq!(kind("../g", &["v"]), ErrorKind::Invalid);
    pool.create_group("g", &names(&["v"])).expect("grouped");
    assert_eq!(kind("g", &["v"]), ErrorKind::Exists);
    let error = pool.create_group_version("h", "").expect_err("none");
    assert_eq!(error.kind, ErrorKind::NotFound);
    pool.delete_volume("v").expect("deleted");
    let error = pool.create_group_version("g", "").expect_err("empty");
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[test]
fn a_capture_beside_the_delete_of_a_member_is_of_those_that_are_left() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    for round in 0..100 {
        add(&pool, "a", 0);
        add(&pool, "b", 0);
        pool.create_group("g", &names(&["a", "b"])).expect("grouped");
        let begin = Barrier::new(2);
        let grace_ns = if round % 2 == 0 { Some(0) } else { None };
        let asked = Deletion { grace_ns, force: false, dry_run: false };
        let (deleted, captured) = thread::scope(|scope| {
            let delete = scope.spawn(|| {
                begin.wait();
                pool.remove_volume("a", asked)
            });
            begin.wait();
            let captured = pool.create_group_version("g", "");
            (delete.join().expect("joined"), captured)
        });
        let captured = captured.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let holds_a = captured.versions.iter().any(|(name, _)| name == "a");
        assert!(
            deleted.is_err() || grace_ns == Some(0) || !holds_a,
            "round {round}: a version of what lies in the trash"
        );
        pool.delete_volume("b").expect("deleted");
        let _left = pool.delete_volume("a");
        pool.delete_group("g").expect("deleted");
    }
}
