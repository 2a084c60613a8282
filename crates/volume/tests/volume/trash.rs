//! A deleted volume can be had back, whole, until its grace period is over or room is wanted.

use std::sync::{Arc, Barrier};
use std::thread;

use hindsight_volume::{
    AccessChange, Budget, CacheChange, Credential, Deletion, ErrorKind, Granularity, KeepRules,
    KeptFor, Pool, ScheduleSpec, Secret, VolumeChange, WriteOp,
};
use sim::{Failure, Op};
use units::{Moment, Seq, Span, Timing, WallTime};

use crate::groups::{add, names};
use crate::hook::{Rig, SECOND_NS, get, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };
const HOUR_NS: u64 = 3600 * SECOND_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

fn step_all(pool: &Pool) {
    for _ in 0..10_000 {
        if !pool.step(ALL).expect("stepped") {
            return;
        }
    }
    panic!("background work never ends");
}

/// The volume's number in the trash.
fn discard(pool: &Pool, name: &str, force: bool) -> u64 {
    let asked = Deletion { force, ..Deletion::default() };
    pool.remove_volume(name, asked).expect("deleted").id
}

fn audited(pool: &Pool, action: &str) -> Vec<String> {
    let records = pool.audit(0, 10_000).expect("read").into_iter();
    records.filter(|record| record.action == action).map(|record| record.detail).collect()
}

fn byte_at(pool: &Pool, moment: &Moment) -> u8 {
    let mut bytes = [0; 4096];
    let view = pool.volume("v").expect("there").view(moment).expect("opened");
    view.read(0, &mut bytes).expect("read");
    bytes[0]
}

#[test]
fn what_was_deleted_comes_back_whole_after_a_kill() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let mut pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    let first = put(&volume, 0, 1);
    volume.create_version("kept").expect("captured");
    put(&volume, 0, 2);
    volume.create_mark("m", &Moment::Seq(first), true).expect("named");
    pool.create_group("g", &names(&["v"])).expect("made");
    let timing = Timing::Every(Span(HOUR_NS));
    let (keep, label) = (KeepRules::default(), String::new());
    let schedule = ScheduleSpec { timing, keep, label, hook: None, prove: None };
    volume.set_schedule(&schedule).expect("set");
    let id = discard(&pool, "v", true);
    assert!(pool.volume("v").is_err(), "nobody finds it");
    let late = volume.write_batch(&[WriteOp::Zero { offset: 0, length_bytes: 4096 }]);
    assert_eq!(late.expect_err("it was deleted").kind, ErrorKind::NotFound);
    drop(volume);
    for _ in 0..2 {
        pool = rig.kill(pool);
        // Longer than its window: what is in the trash stands still, its schedule too.
        rig.clock.advance(3 * HOUR_NS);
        step_all(&pool);
        let told = pool.trash().expect("told");
        assert_eq!((told.len(), told[0].id, &*told[0].name), (1, id, "v"));
        assert_eq!((told[0].versions, told[0].pinned_marks), (1, 1));
    }
    let volume = pool.undelete_volume(id, None).expect("back");
    assert!(pool.trash().expect("told").is_empty());
    step_all(&pool);
    let again = pool.undelete_volume(id, None).map(drop).expect_err("it is there");
    assert_eq!(again.kind, ErrorKind::NotFound);
    assert_eq!(get(&volume, 0), 2);
    assert_eq!(byte_at(&pool, &Moment::Version(0)), 1);
    assert_eq!(byte_at(&pool, &Moment::Mark("m".to_owned())), 1);
    assert_eq!(byte_at(&pool, &Moment::Seq(Seq(0))), 0, "the window is as it was");
    assert_eq!(pool.group("g").expect("there").volumes, ["v"]);
    assert!(volume.schedule_info().expect("told").is_some());
    let pool = rig.kill(pool);
    assert_eq!(byte_at(&pool, &Moment::Seq(Seq(0))), 0);
    rig.clock.advance(2 * DAY_NS);
    step_all(&pool);
    let view = pool.volume("v").expect("there").view(&Moment::Seq(Seq(0)));
    assert!(view.is_err(), "the day is over that it was kept for");
    assert_eq!(audited(&pool, "volume-delete").len(), 1);
    assert_eq!(audited(&pool, "volume-undelete").len(), 1);
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_volume_that_is_deleted_for_good_keeps_no_secrets() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    make(&pool, Granularity::EveryWrite, 1 << 60);
    let credential = |user: &str, secret: &str| {
        let secret = Secret::new(secret.to_owned()).expect("it fits");
        Some(Some(Credential { user: user.to_owned(), secret }))
    };
    let (one, other) = ("of-twelve-bytes", "another-of-them");
    let chap = AccessChange { chap: credential("me", one), ..AccessChange::default() };
    let mutual = AccessChange { mutual: credential("store", one), ..AccessChange::default() };
    pool.set_access("v", &chap).expect("set");
    // A clone needs the past of the volume, which so stays under no name.
    pool.clone_volume("v", &Moment::Latest, "clone").expect("cloned");
    assert!(pool.volume("clone").expect("there").access().chap.is_some(), "that of its origin");
    let own = AccessChange { chap: credential("you", other), ..AccessChange::default() };
    pool.set_access("clone", &own).expect("set");
    let reflected = pool.set_access("clone", &mutual).map(drop).expect_err("it is v's");
    assert_eq!(reflected.kind, ErrorKind::Invalid);
    let id = discard(&pool, "v", false);
    pool.set_access("clone", &mutual).map(drop).expect_err("it may come back");
    pool.empty_trash(id, false).expect("emptied");
    pool.set_access("clone", &mutual).expect("nobody has it");
}

#[test]
fn versions_and_pinned_marks_are_in_the_way_of_a_delete() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    let seq = put(&volume, 0, 1);
    volume.create_mark("loose", &Moment::Seq(seq), false).expect("named");
    let dry = Deletion { dry_run: true, ..Deletion::default() };
    pool.remove_volume("v", dry).expect("a mark that pins nothing is in nobody's way");
    assert!(pool.volume("v").is_ok(), "nothing was done");
    volume.create_version("").expect("captured");
    volume.create_mark("m", &Moment::Seq(seq), true).expect("named");
    for asked in [dry, Deletion::default(), Deletion { grace_ns: Some(0), ..dry }] {
        let refused = pool.remove_volume("v", asked).expect_err("there is something pinned");
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert!(refused.message.contains("1 versions and 1 pinned marks"), "{refused}");
    }
    volume.delete_version(0).expect("deleted");
    pool.remove_volume("v", dry).expect_err("the mark is there");
    volume.delete_mark("m").expect("deleted");
    discard(&pool, "v", false);
}

#[test]
fn a_name_that_was_taken_meanwhile_needs_another_one() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let ids: Vec<u64> = (1..=3)
        .map(|byte| {
            put(&make(&pool, Granularity::EveryWrite, HOUR_NS), 0, byte);
            discard(&pool, "v", false)
        })
        .collect();
    put(&make(&pool, Granularity::EveryWrite, HOUR_NS), 0, 4);
    let pool = rig.kill(pool);
    assert_eq!(pool.trash().expect("told").iter().map(|d| d.id).collect::<Vec<_>>(), ids);
    let taken = pool.undelete_volume(ids[1], None).map(drop).expect_err("there is another");
    assert_eq!(taken.kind, ErrorKind::Exists);
    assert_eq!(
        pool.undelete_volume(ids[1], Some("v")).map(drop).expect_err("the same").kind,
        taken.kind
    );
    let bad = pool.undelete_volume(ids[1], Some("-")).map(drop).expect_err("no name");
    assert_eq!(bad.kind, ErrorKind::Invalid);
    let second = pool.undelete_volume(ids[1], Some("w")).expect("back");
    assert_eq!((second.name(), get(&second, 0)), ("w", 2));
    let beyond = second.read(8 << 20, &mut [0; 4096]).expect_err("beyond its end");
    assert!(beyond.message.contains("the end of w"), "{beyond}");
    pool.empty_trash(ids[0], true).expect("told");
    assert_eq!(pool.trash().expect("told").len(), 2);
    pool.empty_trash(ids[0], false).expect("deleted");
    drop(second);
    let pool = rig.kill(pool);
    assert_eq!(pool.trash().expect("told").iter().map(|d| d.id).collect::<Vec<_>>(), [ids[2]]);
    let bytes = ["v", "w"].map(|name| get(&pool.volume(name).expect("there"), 0));
    assert_eq!(bytes, [4, 2]);
    rig.clock.advance(SECOND_NS);
    discard(&pool, "w", false);
    assert_eq!(pool.trash().expect("told")[1].name, "w");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_deleted_volume_goes_when_its_grace_is_over_and_not_for_a_clock_that_jumps() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    put(&make(&pool, Granularity::EveryWrite, HOUR_NS), 0, 1);
    add(&pool, "long", 0);
    let clone = pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let asked = Deletion { grace_ns: Some(DAY_NS), ..Deletion::default() };
    pool.remove_volume("v", asked).expect("deleted");
    discard(&pool, "long", false);
    drop(clone);
    let pool = rig.kill(pool);
    rig.clock.set_wall(WallTime::from_nanos(rig.clock_now() + 300 * DAY_NS));
    step_all(&pool);
    assert_eq!(pool.trash().expect("told").len(), 2, "one look at a clock deletes nothing");
    rig.clock.set_wall(WallTime::from_nanos(rig.clock_now() - 300 * DAY_NS));
    for _ in 0..30 {
        rig.clock.advance(HOUR_NS);
        step_all(&pool);
    }
    assert_eq!(pool.trash().expect("told").len(), 1);
    assert_eq!(audited(&pool, "trash-expire").len(), 1);
    assert_eq!(get(&pool.volume("c").expect("there"), 0), 1, "a clone lives on");
    let pool = rig.kill(pool);
    assert_eq!(pool.trash().expect("told")[0].name, "long");
    rig.clock.advance(7 * DAY_NS);
    step_all(&pool);
    rig.clock.advance(HOUR_NS);
    step_all(&pool);
    assert!(pool.trash().expect("told").is_empty(), "a week unless something else is said");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_full_pool_gives_up_the_trash_before_history() {
    [0, 1 << 20].into_iter().for_each(gives_up_the_trash);
}

/// The writer that finds no room makes it, through a cache as well.
fn gives_up_the_trash(cache_bytes: u64) {
    let rig = Rig::new(48 << 20, 256 << 10);
    let pool = rig.open_with(16 << 20);
    let live = make(&pool, Granularity::EveryWrite, 1000 * DAY_NS);
    let cache = CacheChange { bytes: Some(cache_bytes), dirty_percent: None };
    live.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
    (0..2048).for_each(|block| _ = put(&live, block, 1));
    for (name, byte) in [("a", 2), ("b", 3)] {
        let volume = add(&pool, name, 0);
        (0..1024).for_each(|turn| _ = put(&volume, turn % 256, byte));
        volume.create_version("").expect("captured");
        (0..256).for_each(|block| _ = put(&volume, block, byte + 10));
        drop(volume);
        discard(&pool, name, true);
        rig.clock.advance(SECOND_NS);
    }
    let next = pool.next_sacrifice().expect("told").expect("something");
    assert_eq!((&*next.volume, next.kept_for), ("a", KeptFor::Trash));
    let mut gone = Vec::new();
    for turn in 0..200_000 {
        put(&live, turn % 2048, 4);
        let left: Vec<String> = pool.trash().expect("told").into_iter().map(|d| d.name).collect();
        if left.len() + gone.len() < 2 {
            gone.push(left);
            let whole = live.view(&Moment::Seq(Seq(1)));
            assert!(whole.is_ok(), "history goes after the trash");
        }
        if gone.len() == 2 {
            break;
        }
    }
    assert_eq!(gone, [vec!["b".to_owned()], vec![]], "the first that was deleted goes first");
    assert_eq!(audited(&pool, "sacrifice").len(), 2);
    assert!(pool.trash().expect("told").is_empty());
    pool.verify_invariants().expect("sound");
}

#[test]
fn what_waited_in_a_cache_is_there_when_the_volume_comes_back() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(16 << 20);
    let volume = add(&pool, "v", 1 << 20);
    (0..20).for_each(|block| _ = put(&volume, block, 5));
    drop(volume);
    let id = discard(&pool, "v", false);
    pool.close().expect("closed");
    drop(pool);
    let pool = rig.open_with(16 << 20);
    let volume = pool.undelete_volume(id, None).expect("back");
    (0..20).for_each(|block| assert_eq!(get(&volume, block), 5));
    put(&volume, 0, 6);
    volume.flush().expect("flushed");
    drop(volume);
    let pool: Arc<Pool> = rig.kill(pool);
    assert_eq!(get(&pool.volume("v").expect("there"), 0), 6);
    pool.verify_invariants().expect("sound");
}

#[test]
fn no_version_that_was_captured_meanwhile_goes_with_a_delete_that_is_not_forced() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    for round in 0..200 {
        let volume = add(&pool, "v", 0);
        let begin = Barrier::new(2);
        let grace_ns = if round % 2 == 0 { Some(0) } else { None };
        let asked = Deletion { grace_ns, ..Deletion::default() };
        let (deleted, captured) = thread::scope(|scope| {
            let capture = scope.spawn(|| {
                begin.wait();
                match round % 4 {
                    0 | 1 => volume.create_version("").map(drop),
                    _ => volume.create_mark("m", &Moment::Latest, true).map(drop),
                }
            });
            begin.wait();
            let deleted = pool.remove_volume("v", asked);
            (deleted, capture.join().expect("joined"))
        });
        assert!(
            deleted.is_ok() != captured.is_ok(),
            "round {round}: {deleted:?} beside {captured:?}"
        );
        if deleted.is_err() {
            pool.delete_volume("v").expect("deleted");
        }
    }
}

#[test]
fn a_clone_takes_no_name_that_its_origin_left_meanwhile() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    for round in 0..200 {
        add(&pool, "v", 0);
        let begin = Barrier::new(2);
        let (deleted, cloned) = thread::scope(|scope| {
            let clone = scope.spawn(|| {
                begin.wait();
                pool.clone_volume("v", &Moment::Latest, "v").map(drop)
            });
            begin.wait();
            let deleted = pool.remove_volume("v", Deletion::default());
            (deleted, clone.join().expect("joined"))
        });
        deleted.expect("deleted");
        // There was a volume of that name, or none to clone.
        let error = cloned.expect_err("neither before nor after");
        let is_known = matches!(error.kind, ErrorKind::Exists | ErrorKind::NotFound);
        assert!(is_known, "round {round}: {error}");
    }
}

/// As `ARCHITECTURE.md` says: a commit would stand on a sync that may not have done what it said.
#[test]
fn after_a_failed_write_deletes_are_refused_until_the_pool_is_opened_again() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    put(&volume, 0, 1);
    let version = volume.create_version("").expect("captured").number;
    rig.media.fail(Failure::once(Op::Write));
    let op = WriteOp::Data { offset: 0, bytes: &[2; 4096] };
    volume.write_batch(&[op]).expect_err("the device fails it");
    rig.media.calm();
    let refused = [
        volume.delete_version(version).map(drop),
        pool.delete_volume("v"),
        volume.create_mark("m", &Moment::Latest, false).map(drop),
    ];
    for outcome in refused {
        assert_eq!(outcome.expect_err("nothing is committed").kind, ErrorKind::Refused);
    }
    assert_eq!(get(&volume, 0), 1, "reads go on");
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    volume.delete_version(version).expect("deleted");
    pool.delete_volume("v").expect("deleted");
}
