//! Scratch clones: what the engine knows of clones that go by themselves.

use hindsight_volume::{
    AuditRecord, CacheChange, CloneSpec, Deletion, ErrorKind, Granularity, KeptFor, Pool, Volume,
    VolumeChange, WriteOp,
};
use units::{Moment, Seq};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

fn scratch(length_ns: u64) -> CloneSpec {
    CloneSpec { scratch_ns: Some(length_ns), ..CloneSpec::default() }
}

#[test]
fn a_scratch_clone_stays_one_until_it_is_named_and_is_never_in_the_trash() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let origin = make(&pool, Granularity::EveryWrite, DAY_NS);
    put(&origin, 0, 1);
    for name in ["s", "t"] {
        let clone = pool.clone_as("v", &Moment::Latest, name, scratch(SECOND_NS));
        put(&clone.expect("cloned"), 0, 2);
    }
    let names = |pool: &Pool| -> Vec<String> {
        pool.scratch_clones().iter().map(|(volume, _)| volume.name().to_owned()).collect()
    };
    assert_eq!(names(&pool), ["s", "t"]);
    // A clone of one is an ordinary clone.
    pool.clone_volume("s", &Moment::Latest, "c").expect("cloned");
    assert_eq!(names(&pool), ["s", "t"]);
    drop(origin);
    let pool = rig.kill(pool);
    assert_eq!(names(&pool), ["s", "t"], "the catalogue knows");
    // Somebody who held it as a scratch clone takes it away no more.
    let held = pool.volume("s").expect("there");
    pool.rename_volume("s", "mine", false).expect("renamed");
    let kept = pool.remove_scratch(&held).expect_err("it has a name of its own");
    assert_eq!(kept.kind, ErrorKind::NotFound);
    assert_eq!(names(&pool), ["t"]);
    pool.remove_volume("t", Deletion::default()).expect("removed");
    assert!(pool.trash().expect("told").is_empty());
    let pool = rig.kill(pool);
    assert!(names(&pool).is_empty());
    assert_eq!(get(&pool.volume("mine").expect("kept"), 0), 2);
    assert_eq!(get(&pool.volume("v").expect("there"), 0), 1);
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_full_pool_gives_up_scratch_clones_before_history() {
    [0, 1 << 20].into_iter().for_each(gives_up_scratch_clones);
}

fn write(volume: &Volume, block: u64) -> Result<Seq, hindsight_volume::Error> {
    volume.write_batch(&[WriteOp::Data { offset: block * 4096, bytes: &[5; 4096] }])
}

/// The writer that finds no room writes to the scratch clone itself in every second turn.
fn gives_up_scratch_clones(cache_bytes: u64) {
    let rig = Rig::new(48 << 20, 256 << 10);
    let pool = rig.open_with(16 << 20);
    let live = make(&pool, Granularity::EveryWrite, 1000 * DAY_NS);
    let cache = CacheChange { bytes: Some(cache_bytes), dirty_percent: None };
    live.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
    (0..2048).for_each(|block| _ = put(&live, block, 1));
    let clone = pool.clone_as("v", &Moment::Latest, "s", scratch(DAY_NS)).expect("cloned");
    let next = pool.next_sacrifice().expect("told").expect("something");
    assert_eq!((&*next.volume, next.kept_for), ("s", KeptFor::Scratch));
    let mut gone = None;
    for turn in 0..200_000 {
        put(&live, turn % 2048, 4);
        if let Err(error) = write(&clone, turn % 2048) {
            gone = Some(error);
            break;
        }
        if pool.scratch_clones().is_empty() {
            break;
        }
        assert!(live.view(&Moment::Seq(Seq(1))).is_ok(), "history goes after scratch clones");
    }
    assert!(pool.scratch_clones().is_empty(), "it is still there");
    let after = write(&clone, 0).expect_err("what is gone takes no writes");
    for error in gone.iter().chain([&after]) {
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
    // Whatever the write met that made room of its own volume, it is no failure of the pool.
    put(&live, 0, 6);
    assert_eq!(get(&live, 0), 6, "{gone:?}");
    assert!(live.view(&Moment::Seq(Seq(1))).is_ok());
    let told = pool.audit(0, 10_000).expect("read");
    let is_told = |record: &&AuditRecord| record.action == "sacrifice";
    assert_eq!(told.iter().filter(is_told).count(), 1);
    pool.verify_invariants().expect("sound");
}
