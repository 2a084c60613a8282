//! A volume gets another name: at once or not at all, whatever it has and whoever has it open.

use std::sync::Arc;

use hindsight_volume::{Deletion, ErrorKind, Granularity, KeepRules, Pool, ScheduleSpec};
use units::{Moment, Span, Timing};

use crate::groups::names;
use crate::hook::{Rig, SECOND_NS, get, make, put};

const HOUR_NS: u64 = 3600 * SECOND_NS;

fn origin_of(pool: &Pool, clone: &str) -> String {
    let info = pool.volume(clone).expect("there").info().expect("told");
    info.cloned_from.expect("a clone").0
}

#[test]
fn all_that_knows_a_volume_knows_it_by_its_new_name_also_after_a_kill() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    let first = put(&volume, 0, 1);
    volume.create_version("kept").expect("captured");
    volume.create_mark("m", &Moment::Seq(first), true).expect("named");
    pool.create_group("g", &names(&["v"])).expect("made");
    let (timing, keep) = (Timing::Every(Span(HOUR_NS)), KeepRules::default());
    let schedule = ScheduleSpec { timing, keep, label: String::new(), hook: None, prove: None };
    volume.set_schedule(&schedule).expect("set");
    let clone = pool.clone_volume("v", &Moment::Seq(first), "c").expect("cloned");
    pool.clone_volume("c", &Moment::Latest, "of-c").expect("cloned");
    let deleted = pool.clone_volume("v", &Moment::Latest, "d").expect("cloned");
    drop(deleted);
    let deleted = pool.remove_volume("d", Deletion::default()).expect("deleted").id;
    clone.revert(&Moment::Latest, false).expect("reverted");
    drop(clone);
    pool.rename_volume("v", "w", true).expect("it could be");
    assert_eq!(volume.name(), "v", "a dry run changes nothing");
    pool.rename_volume("v", "w", false).expect("renamed");
    put(&volume, 0, 2);
    assert_eq!((volume.name(), get(&volume, 0)), ("w", 2), "who has it open keeps it");
    drop(volume);
    let check = |pool: &Arc<Pool>, what: &str| {
        assert_eq!(pool.volume("v").map(drop).expect_err(what).kind, ErrorKind::NotFound);
        let volume = pool.volume("w").expect(what);
        assert_eq!(get(&volume, 0), 2, "{what}");
        for moment in [Moment::Version(0), Moment::Mark("m".to_owned())] {
            assert_eq!(volume.resolve(&moment).expect(what).seq, first, "{what}");
        }
        assert_eq!(pool.group("g").expect(what).volumes, ["w"], "{what}");
        assert!(volume.schedule_info().expect(what).is_some(), "{what}");
        assert_eq!((&*origin_of(pool, "c"), &*origin_of(pool, "of-c")), ("w", "c"), "{what}");
        pool.verify_invariants().expect("sound");
    };
    check(&pool, "at once");
    let pool = rig.kill(pool);
    check(&pool, "after a kill");
    pool.undelete_volume(deleted, None).expect("back");
    assert_eq!(origin_of(&pool, "d"), "w", "a clone in the trash too");
    let audit = pool.audit(0, 10_000).expect("read");
    let renamed = audit.iter().find(|record| record.action == "volume-rename").expect("told");
    assert_eq!((&*renamed.volume, &*renamed.detail), ("w", "volume 1, which was v"));
    let other = make(&pool, Granularity::EveryWrite, HOUR_NS);
    assert_eq!((other.name(), get(&other, 0)), ("v", 0), "the old name is free");
}

#[test]
fn a_name_that_is_taken_or_none_is_refused() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    drop(make(&pool, Granularity::EveryWrite, HOUR_NS));
    pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
    for (from, to, kind) in [
        ("v", "c", ErrorKind::Exists),
        ("v", "v", ErrorKind::Exists),
        ("v", "../v", ErrorKind::Invalid),
        ("nobody", "w", ErrorKind::NotFound),
    ] {
        for dry_run in [true, false] {
            let refused = pool.rename_volume(from, to, dry_run).map(drop).expect_err("no name");
            assert_eq!(refused.kind, kind, "{from} to {to}: {refused}");
        }
    }
    pool.remove_volume("c", Deletion::default()).expect("deleted");
    pool.rename_volume("v", "c", false).expect("a name in the trash is free");
    let pool = rig.kill(pool);
    let names: Vec<String> = pool.volumes().iter().map(|v| v.name().to_owned()).collect();
    assert_eq!(names, ["c"]);
    let back = pool.undelete_volume(pool.trash().expect("told")[0].id, None).map(drop);
    assert_eq!(back.expect_err("now it is taken").kind, ErrorKind::Exists);
}

#[test]
fn a_kill_in_the_middle_leaves_the_old_name_or_the_new_one() {
    let mut met = Vec::new();
    for changes in 0.. {
        let rig = Rig::new(64 << 20, 256 << 10);
        let pool = rig.open();
        put(&make(&pool, Granularity::EveryWrite, HOUR_NS), 0, 7);
        let clone = pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
        clone.flush().expect("flushed");
        drop(clone);
        rig.media.halt_after(changes);
        let renamed = pool.rename_volume("v", "w", false).is_ok();
        let pool = rig.kill(pool);
        let there: Vec<String> = pool.volumes().iter().map(|v| v.name().to_owned()).collect();
        assert_eq!((there.len(), &*there[0]), (2, "c"), "{changes}: {there:?}");
        assert!(!renamed || there[1] == "w", "{changes}: it was said to be done");
        assert_eq!(origin_of(&pool, "c"), there[1], "{changes}");
        assert_eq!(get(&pool.volume(&there[1]).expect("there"), 0), 7, "{changes}");
        pool.verify_invariants().expect("sound");
        met.push(there[1].clone());
        if renamed {
            break;
        }
    }
    met.dedup();
    assert_eq!(met, ["v", "w"], "the halts met both");
}

/// A server closes a volume to clients first, and deletes it once they have left.
#[test]
fn a_delete_is_of_the_volume_that_was_named_when_it_began() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    put(&volume, 0, 1);
    pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
    pool.create_group("g", &names(&["v"])).expect("made");
    pool.rename_volume("v", "old", false).expect("renamed");
    pool.rename_volume("c", "v", false).expect("renamed");
    let of_group = pool.group_volumes("g").expect("there");
    assert_eq!(of_group.iter().map(|volume| volume.name()).collect::<Vec<_>>(), ["old"]);
    let now = Deletion { grace_ns: Some(0), ..Deletion::default() };
    assert_eq!(pool.remove(&volume, now).expect("deleted").name, "old");
    assert_eq!(pool.volume("old").map(drop).expect_err("gone").kind, ErrorKind::NotFound);
    assert_eq!(get(&pool.volume("v").expect("the other one stays"), 0), 1);
    assert_eq!(pool.remove(&volume, now).map(drop).expect_err("gone").kind, ErrorKind::NotFound);
}
