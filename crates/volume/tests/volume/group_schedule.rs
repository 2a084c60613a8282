//! Schedules of groups: captures of one instant by the clock, pruned as one, explained.

use std::sync::Arc;

use hindsight_volume::{
    Budget, Consistency, ErrorKind, Explained, Granularity, KeepRules, MadeBy, OpenFiles, Pool,
    Quiet, ScheduleSpec, VolumeChange,
};
use units::{Span, Timing};

use crate::groups::{add, names};
use crate::hook::{Rig, SECOND_NS, make, put};

const MINUTE_NS: u64 = 60 * SECOND_NS;

fn rig() -> (Rig, Arc<Pool>) {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    make(&pool, Granularity::OnDemand, 0);
    add(&pool, "w", 0);
    pool.create_group("g", &names(&["w", "v"])).expect("grouped");
    (rig, pool)
}

fn spec(minutes: u64, last: u32) -> ScheduleSpec {
    ScheduleSpec {
        timing: Timing::Every(Span(minutes * MINUTE_NS)),
        keep: KeepRules { last, ..KeepRules::default() },
        label: "auto".to_owned(),
        hook: None,
        prove: None,
    }
}

/// Lets time pass a minute at a time, with background work.
fn minutes(rig: &Rig, pool: &Pool, count: u64) {
    for _ in 0..count {
        rig.clock.advance(MINUTE_NS);
        while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
    }
}

/// Numbers of the captures that are listed.
fn captures(pool: &Pool) -> Vec<u64> {
    let (all, _) = pool.group_versions("g", 0, 1000).expect("listed");
    all.iter().map(|capture| capture.number).collect()
}

/// Numbers of the versions of a volume.
fn versions(pool: &Pool, name: &str) -> Vec<u64> {
    let versions = pool.volume(name).expect("there").versions().expect("listed");
    versions.iter().map(|version| version.number).collect()
}

fn explained(pool: &Pool) -> Vec<Explained> {
    pool.explain_group_retention("g", 0, 1000).expect("explained").0
}

#[test]
fn a_group_is_captured_when_it_is_due_and_pruned_as_one() {
    let (rig, pool) = rig();
    let volume = pool.volume("v").expect("there");
    pool.create_group_version("g", "by hand").expect("captured");
    volume.create_version("by hand").expect("captured");
    pool.set_group_schedule("g", &spec(5, 3)).expect("set");
    for round in 0..12_u8 {
        put(&volume, 0, round + 1);
        minutes(&rig, &pool, 5);
    }
    assert_eq!(captures(&pool), [0, 10, 11, 12], "three of the schedule, and one by hand");
    assert_eq!(versions(&pool, "w"), [0, 10, 11, 12], "with their versions");
    assert_eq!(versions(&pool, "v"), [0, 1, 11, 12, 13]);
    let (all, _) = pool.group_versions("g", 11, 1).expect("listed");
    let times = all[0].versions.iter().map(|(name, number)| {
        let version = pool.volume(name).expect("there").version(*number).expect("there");
        assert!(version.is_scheduled && version.label == "auto", "{version:?}");
        version.stamp.time
    });
    let times: Vec<_> = times.collect();
    assert!(all[0].is_scheduled && times == [all[0].time; 2], "one instant: {all:?} {times:?}");
    let info = pool.group_schedule("g").expect("read").expect("there is one");
    assert_eq!((info.captures, info.pruned, info.failures), (12, 9, 0));
    assert_eq!(info.newest.map(|(number, _)| number), Some(12));
    let audit = pool.audit(0, 1000).expect("read");
    let pruned: Vec<_> = audit.iter().filter(|r| r.action == "version-prune").collect();
    assert_eq!(pruned.len(), 18, "a line for each version");
    let why = ": capture of group g: none of last 3 keeps it";
    assert!(pruned.iter().all(|r| r.detail.ends_with(why)), "{}", pruned[0].detail);
    let set: Vec<_> = audit.iter().filter(|r| r.action == "schedule-set").collect();
    assert_eq!(set[0].detail, "group g: every 5min, keep last 3");
}

#[test]
fn what_was_missed_is_one_capture_and_what_was_made_is_known_after_a_restart() {
    let (rig, pool) = rig();
    pool.set_group_schedule("g", &spec(1, 2)).expect("set");
    minutes(&rig, &pool, 3);
    assert_eq!(captures(&pool), [0, 1, 2]);
    let pool = rig.kill(pool);
    rig.clock.advance(100 * MINUTE_NS);
    while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
    assert_eq!(captures(&pool), [0, 1, 2, 3]);
    let doomed = pool.apply_group_retention("g", true).expect("told");
    assert_eq!((&doomed[..], &captures(&pool)[..]), (&[0, 1][..], &[0, 1, 2, 3][..]));
    assert_eq!(pool.apply_group_retention("g", false).expect("pruned"), doomed);
    assert_eq!((captures(&pool), versions(&pool, "v")), (vec![2, 3], vec![2, 3]));
    pool.remove_group_schedule("g").expect("removed");
    minutes(&rig, &pool, 30);
    assert_eq!(captures(&pool), [2, 3], "nothing is captured or pruned any more");
    let kind = |outcome: hindsight_volume::Result<()>| outcome.expect_err("none").kind;
    assert_eq!(kind(pool.remove_group_schedule("g")), ErrorKind::NotFound);
    assert_eq!(kind(pool.apply_group_retention("g", true).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(pool.set_group_schedule("h", &spec(1, 1)).map(drop)), ErrorKind::NotFound);
    let pool = rig.kill(pool);
    assert_eq!(pool.group_schedule("g").expect("read"), None);
    assert_eq!(explained(&pool)[0].made_by, MadeBy::RemovedSchedule);
}

#[test]
fn every_capture_is_explained_and_so_are_its_versions() {
    let (rig, pool) = rig();
    pool.create_group_version("g", "by hand").expect("captured");
    pool.set_group_schedule("g", &spec(1, 2)).expect("set");
    let own = ScheduleSpec { keep: KeepRules::default(), ..spec(7, 1) };
    pool.volume("v").expect("there").set_schedule(&own).expect("set");
    minutes(&rig, &pool, 4);
    let told = explained(&pool);
    assert_eq!((told[0].made_by, told[0].stays), (MadeBy::People, true));
    let stays: Vec<(u64, bool)> = told.iter().map(|e| (e.number, e.stays)).collect();
    assert_eq!(stays, [(0, true), (1, false), (2, false), (3, true), (4, true)]);
    assert_eq!((told[4].made_by, &told[4].rules[..]), (MadeBy::Schedule, &["last 1/2".into()][..]));
    assert!(told[3].goes > Some(told[3].time) && told[1].goes.is_some(), "{told:?}");
    let volume = pool.volume("v").expect("there");
    let (of_volume, _) = volume.explain_retention(0, 100).expect("explained");
    let ends: Vec<_> = of_volume.iter().map(|e| (e.made_by, e.stays)).collect();
    assert_eq!(ends[1], (MadeBy::GroupSchedule, false), "{of_volume:?}");
    assert_eq!(of_volume[4].rules, ["group g: last 1/2"]);
    // The volume's own rules do not touch them.
    assert_eq!(volume.apply_retention(true).expect("told"), [0; 0]);
    let (page, next) = pool.explain_group_retention("g", 1, 2).expect("explained");
    assert_eq!((page.len(), page[0].number, next), (2, 1, Some(3)));
}

#[test]
fn what_was_deleted_of_a_capture_takes_no_place_in_a_rule() {
    let (rig, pool) = rig();
    pool.set_group_schedule("g", &spec(1, 2)).expect("set");
    minutes(&rig, &pool, 4);
    // Of capture 3 one version stays, of capture 2 none.
    pool.volume("v").expect("there").delete_versions(2..=3, false).expect("deleted");
    pool.volume("w").expect("there").delete_version(2).expect("deleted");
    assert_eq!(pool.apply_group_retention("g", true).expect("told"), [0]);
    pool.delete_group_versions("g", 3..=3, false).expect("deleted");
    assert_eq!(pool.apply_group_retention("g", true).expect("told"), [0; 0]);
    assert_eq!(captures(&pool), [0, 1]);
}

#[test]
fn members_that_are_deleted_leave_the_schedule_and_a_group_without_any_fails() {
    let (rig, pool) = rig();
    pool.set_group_schedule("g", &spec(1, 2)).expect("set");
    minutes(&rig, &pool, 2);
    pool.delete_volume("w").expect("deleted");
    minutes(&rig, &pool, 20);
    assert_eq!(captures(&pool), [20, 21]);
    assert_eq!(versions(&pool, "v"), [20, 21], "also those of which only one was left");
    pool.delete_volume("v").expect("deleted");
    minutes(&rig, &pool, 3);
    let info = pool.group_schedule("g").expect("read").expect("there is one");
    assert!(info.failures > 0 && info.newest.is_none(), "{info:?}");
    assert_eq!(info.error.as_deref(), Some("group g has no volumes any more"));
    let pool = rig.kill(pool);
    assert_eq!(pool.group_schedules().len(), 1);
    pool.delete_group("g").expect("deleted");
    minutes(&rig, &pool, 3);
    // A group of the same name has no schedule.
    make(&pool, Granularity::OnDemand, 0);
    pool.create_group("g", &names(&["v"])).expect("grouped");
    let pool = rig.kill(pool);
    assert_eq!(pool.group_schedule("g").expect("read"), None);
}

#[test]
fn a_crash_while_capturing_or_pruning_leaves_all_or_nothing() {
    let (rig, mut pool) = rig();
    pool.set_group_schedule("g", &spec(1, 2)).expect("set");
    let (mut made, mut missed, mut pruned) = (0, 0, 0);
    for halted_after in 0..60 {
        let before = captures(&pool);
        rig.clock.advance(MINUTE_NS);
        rig.media.halt_after(halted_after % 30);
        // It fails when the machine halts in the middle of it.
        if halted_after < 30 {
            let _ = pool.step(Budget { bytes: 0 });
        } else {
            let _ = pool.apply_group_retention("g", false);
        }
        pool = rig.kill(pool);
        let after = captures(&pool);
        assert_eq!(versions(&pool, "v"), versions(&pool, "w"), "halted after {halted_after}");
        assert_eq!(versions(&pool, "v"), after, "halted after {halted_after}");
        made += usize::from(after.last() > before.last());
        missed += usize::from(halted_after < 30 && after.last() == before.last());
        pruned += before.iter().filter(|number| !after.contains(number)).count();
    }
    assert!(made > 0 && missed > 0 && pruned > 0, "{made} made, {missed} missed, {pruned} pruned");
}

#[test]
fn a_hook_that_is_set_goes_around_captures_that_name_none() {
    let (rig, pool) = rig();
    let set = |name: &str, hook: Option<&str>| {
        let hook = Some(hook.map(str::to_owned));
        let change = VolumeChange { hook, ..VolumeChange::default() };
        pool.volume(name).expect("there").change(&change)
    };
    let planned = |pool: &Pool, said: Option<&str>| -> Vec<(String, String)> {
        let hooks = pool.group_hooks("g", said).expect("told").into_iter();
        hooks.map(|planned| (planned.hook, planned.subject)).collect()
    };
    let pair = |hook: &str, subject: &str| (hook.to_owned(), subject.to_owned());
    assert_eq!(planned(&pool, None), []);
    set("w", Some("freeze")).expect("set");
    assert_eq!(set("w", Some("../x")).expect_err("no name").kind, ErrorKind::Invalid);
    // Without a hook of its own a group's capture has those of its volumes.
    assert_eq!(planned(&pool, None), [pair("freeze", "w")]);
    set("v", Some("pg")).expect("set");
    assert_eq!(planned(&pool, None), [pair("pg", "v"), pair("freeze", "w")]);
    pool.set_group_hook("g", Some("all")).expect("set");
    assert_eq!(planned(&pool, None), [pair("all", "g")]);
    assert_eq!(planned(&pool, Some("other")), [pair("other", "g")]);
    assert_eq!(planned(&pool, Some("none")), []);
    let told: Vec<String> = {
        let audit = pool.audit(0, 100).expect("read").into_iter();
        audit.filter(|r| r.detail.contains("hook")).map(|r| r.detail).collect()
    };
    assert_eq!(told, ["hook freeze", "hook pg", "group g: hook all"]);
    let pool = rig.kill(pool);
    assert_eq!(pool.group("g").expect("there").hook.as_deref(), Some("all"));
    let volume = pool.volume("w").expect("there");
    assert_eq!(volume.info().expect("told").hook.as_deref(), Some("freeze"));
    assert_eq!(volume.hook_for(Some("none")), None);
    // A clone is mounted elsewhere, if at all.
    let clone = pool.clone_volume("w", &units::Moment::Latest, "c").expect("cloned");
    assert_eq!(clone.hook_for(None), None);
}

#[test]
fn captures_that_are_due_wait_for_those_who_run_hooks() {
    let (rig, pool) = rig();
    let volume = pool.volume("w").expect("there");
    let hook = Some(Some("freeze".to_owned()));
    volume.change(&VolumeChange { hook, ..VolumeChange::default() }).expect("set");
    pool.set_group_hook("g", Some("all")).expect("set");
    // A schedule that names no hook leaves its captures to those who run hooks.
    for (hook, waits) in [(None, true), (Some("none"), false), (Some("pg"), true)] {
        let spec = ScheduleSpec { hook: hook.map(str::to_owned), ..spec(1, 9) };
        pool.set_group_schedule("g", &spec).expect("set");
        volume.set_schedule(&spec).expect("set");
        let before = (captures(&pool).len(), versions(&pool, "w").len());
        minutes(&rig, &pool, 1);
        let after = (captures(&pool).len(), versions(&pool, "w").len());
        assert_eq!(before == after, waits, "{hook:?}");
        assert_eq!(volume.due_hook(), waits.then(|| hook.unwrap_or("freeze").to_owned()));
        let due = pool.due_group_hooks();
        let due: Vec<&str> = due.iter().map(|(_, hooks)| &hooks[0].hook[..]).collect();
        assert_eq!(due, if waits { vec![hook.unwrap_or("all")] } else { Vec::new() });
    }
    let mut files = OpenFiles::default();
    files.add("/srv/x\u{1b}");
    (0..2000).for_each(|number| files.add(&format!("/srv/{number}")));
    let files = Arc::new(files);
    let quiet = |name: &str| match name {
        "w" => Quiet { consistency: Consistency::Quiesced, open_files: Some(files.clone()) },
        _ => Consistency::QuiesceFailed.into(),
    };
    pool.capture_group_hooked("g", &quiet);
    let (all, _) = pool.group_versions("g", 0, 100).expect("listed");
    let made = all.last().expect("captured");
    assert_eq!(made.consistency, Consistency::QuiesceFailed);
    let each = made.versions.iter().map(|(name, number)| {
        pool.volume(name).expect("there").version(*number).expect("there").consistency
    });
    assert_eq!(each.collect::<Vec<_>>(), [Consistency::QuiesceFailed, Consistency::Quiesced]);
    let number = made.versions[1].1;
    let told = volume.open_files(number).expect("read").expect("it was told");
    assert_eq!((told.count, told.paths.len(), &told.paths[0][..]), (2001, 1000, "/srv/x\\u{1b}"));
    assert_eq!(volume.version(number).expect("there").open_files, Some(2001));
    let other = pool.volume("v").expect("there").open_files(made.versions[0].1);
    assert_eq!(other.expect("read"), None, "nobody looked");
    let number_before = volume.create_version("").expect("captured").number - 1;
    assert_eq!(number_before, number);
    volume.delete_version(number).expect("deleted");
    assert_eq!(volume.open_files(number).expect_err("gone").kind, ErrorKind::NotFound);
}

#[test]
fn every_volume_of_the_newest_capture_is_due_for_the_check_of_the_groups_schedule() {
    let (rig, pool) = rig();
    let due = |pool: &Pool| -> Vec<(String, String)> {
        let all = pool.due_proofs().into_iter();
        let mut all: Vec<_> = all.map(|(of, _, hook)| (of.name().to_owned(), hook)).collect();
        all.sort();
        all
    };
    let boots = Some("boots".to_owned());
    pool.set_group_schedule("g", &ScheduleSpec { prove: boots, ..spec(5, 3) }).expect("set");
    assert_eq!(due(&pool), []);
    minutes(&rig, &pool, 5);
    let both = ["v", "w"].map(|name| (name.to_owned(), "boots".to_owned()));
    assert_eq!(due(&pool), both);
    drop(pool);
    let pool = rig.open();
    assert_eq!(due(&pool), both, "over a restart");
    pool.remove_group_schedule("g").expect("removed");
    assert_eq!(due(&pool), []);
}
