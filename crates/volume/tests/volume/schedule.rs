//! Schedules: captured by the clock, pruned by rules, through restarts, jumps and full disks.

use std::sync::Arc;

use hindsight_volume::{
    Budget, ErrorKind, Explained, Granularity, KeepRules, MadeBy, Pool, Proof, ScheduleSpec,
    Verdict, Volume,
};
use units::{Moment, Seq, Span, Timing, WallTime};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const MINUTE_NS: u64 = 60 * SECOND_NS;
const HOUR_NS: u64 = 60 * MINUTE_NS;

fn rig() -> (Rig, Arc<Pool>, Arc<Volume>) {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, HOUR_NS);
    (rig, pool, volume)
}

fn spec(every_ns: u64, keep: KeepRules) -> ScheduleSpec {
    ScheduleSpec {
        timing: Timing::Every(Span(every_ns)),
        keep,
        label: "auto".to_owned(),
        hook: None,
        prove: None,
    }
}

fn step(pool: &Pool) {
    while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
}

/// Lets time pass a minute at a time, with background work.
fn minutes(rig: &Rig, pool: &Pool, count: u64) {
    for _ in 0..count {
        rig.clock.advance(MINUTE_NS);
        step(pool);
    }
}

fn numbers(volume: &Volume) -> Vec<u64> {
    volume.versions().expect("listed").iter().map(|version| version.number).collect()
}

fn explained(volume: &Volume) -> Vec<Explained> {
    volume.explain_retention(0, 100).expect("explained").0
}

#[test]
fn versions_are_captured_when_they_are_due_and_pruned_by_the_rules() {
    let (rig, pool, volume) = rig();
    let by_hand = volume.create_version("by hand").expect("captured").number;
    let keep = KeepRules { last: 3, ..KeepRules::default() };
    volume.set_schedule(&spec(5 * MINUTE_NS, keep)).expect("set");
    for round in 0..12_u8 {
        put(&volume, 0, round + 1);
        minutes(&rig, &pool, 5);
    }
    let kept = numbers(&volume);
    assert_eq!(kept, [by_hand, 10, 11, 12], "three of the schedule, and what a person made");
    for (number, byte) in [(10, 10), (11, 11), (12, 12)] {
        let view = volume.view(&Moment::Version(number)).expect("opened");
        let mut bytes = [0];
        view.read(0, &mut bytes).expect("read");
        assert_eq!(bytes[0], byte, "version {number}");
    }
    let info = volume.schedule_info().expect("read").expect("there is one");
    assert_eq!((info.captures, info.pruned, info.failures), (12, 9, 0));
    let audit = pool.audit(0, 1000).expect("read");
    let pruned: Vec<_> = audit.iter().filter(|r| r.action == "version-prune").collect();
    assert_eq!(pruned.len(), 9);
    assert!(pruned[0].detail.ends_with("none of last 3 keeps it"), "{}", pruned[0].detail);
    assert!(audit.iter().any(|r| r.action == "schedule-set"));
}

#[test]
fn what_was_missed_while_the_pool_was_closed_is_one_capture() {
    let (rig, pool, volume) = rig();
    volume.set_schedule(&spec(MINUTE_NS, KeepRules::default())).expect("set");
    minutes(&rig, &pool, 3);
    assert_eq!(numbers(&volume), [0, 1, 2]);
    drop(volume);
    let pool = rig.kill(pool);
    rig.clock.advance(100 * MINUTE_NS);
    step(&pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(numbers(&volume), [0, 1, 2, 3]);
    minutes(&rig, &pool, 1);
    assert_eq!(numbers(&volume), [0, 1, 2, 3, 4]);
    let info = volume.schedule_info().expect("read").expect("it is still there");
    assert_eq!((info.spec.label.as_str(), info.captures), ("auto", 2));
    volume.remove_schedule().expect("removed");
    minutes(&rig, &pool, 3);
    assert_eq!(numbers(&volume).len(), 5, "nothing is captured, and what there is stays");
    let error = volume.remove_schedule().expect_err("there is none");
    assert_eq!(error.kind, ErrorKind::NotFound);
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(volume.schedule_info().expect("read"), None);
}

#[test]
fn every_version_is_explained() {
    let (rig, pool, volume) = rig();
    volume.create_version("by hand").expect("captured");
    volume.set_schedule(&spec(MINUTE_NS, KeepRules::default())).expect("set");
    minutes(&rig, &pool, 1);
    volume.remove_schedule().expect("removed");
    let keep = KeepRules { last: 2, hourly: 2, ..KeepRules::default() };
    volume.set_schedule(&spec(30 * MINUTE_NS, keep)).expect("set anew");
    // 10:30 (it began at 10:00), 11:00, 11:30, 12:00; all before the clock is trusted to prune by.
    minutes(&rig, &pool, 9);
    for _ in 0..4 {
        rig.clock.advance(30 * MINUTE_NS);
        pool.step(Budget { bytes: 0 }).expect("stepped");
    }
    let told = explained(&volume);
    assert_eq!((told[0].made_by, told[0].stays), (MadeBy::People, true));
    assert_eq!((told[1].made_by, told[1].stays), (MadeBy::RemovedSchedule, true));
    assert_eq!((&told[0].rules, told[0].goes), (&vec![], None));
    let newest = told.last().expect("some");
    assert_eq!(newest.rules, ["last 1/2", "hourly 1/2"]);
    let before = &told[told.len() - 2];
    assert!(before.stays && before.goes.is_some(), "{before:?}");
    let doomed = volume.apply_retention(true).expect("told");
    let goes: Vec<u64> = told.iter().filter(|e| !e.stays).map(|e| e.number).collect();
    assert_eq!(doomed, goes);
    let count = numbers(&volume).len();
    assert_eq!(volume.apply_retention(false).expect("applied"), goes);
    assert_eq!(numbers(&volume).len(), count - goes.len());
    assert!(explained(&volume).iter().all(|e| e.stays));
    let error = {
        volume.remove_schedule().expect("removed");
        volume.apply_retention(true).expect_err("no schedule, no rules")
    };
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[test]
fn a_clock_that_jumps_deletes_nothing_that_the_rules_would_keep() {
    let (rig, pool, volume) = rig();
    let within = KeepRules { within_ns: 2 * HOUR_NS, ..KeepRules::default() };
    volume.set_schedule(&spec(10 * MINUTE_NS, within)).expect("set");
    minutes(&rig, &pool, 60);
    assert_eq!(numbers(&volume).len(), 6);
    // Ten years ahead: one capture is due, and is made; nothing else may happen.
    let right = rig.clock_now();
    rig.clock.set_wall(WallTime::from_nanos(right + 10 * 365 * 24 * HOUR_NS));
    step(&pool);
    minutes(&rig, &pool, 5);
    assert_eq!(numbers(&volume).len(), 7);
    // Back again. The schedule goes on, though it was done up to a time ten years from now.
    rig.clock.set_wall(WallTime::from_nanos(right + 5 * MINUTE_NS));
    step(&pool);
    minutes(&rig, &pool, 15);
    assert_eq!(numbers(&volume).len(), 9);
    minutes(&rig, &pool, 240);
    let kept = numbers(&volume);
    assert!(kept.contains(&6), "the one from the future stays until its time: {kept:?}");
    assert_eq!(kept.len(), 13 + 1, "two hours, and that one: {kept:?}");
}

#[test]
fn a_start_in_a_wrong_future_prunes_nothing_before_the_clock_is_put_right() {
    let (rig, pool, volume) = rig();
    let within = KeepRules { within_ns: HOUR_NS, ..KeepRules::default() };
    volume.set_schedule(&spec(10 * MINUTE_NS, within)).expect("set");
    minutes(&rig, &pool, 50);
    let before = numbers(&volume);
    drop(volume);
    let right = rig.clock_now();
    rig.clock.set_wall(WallTime::from_nanos(right + 365 * 24 * HOUR_NS));
    let pool = rig.kill(pool);
    minutes(&rig, &pool, 9);
    rig.clock.set_wall(WallTime::from_nanos(right + 9 * MINUTE_NS));
    minutes(&rig, &pool, 10);
    let volume = pool.volume("v").expect("there");
    let now = numbers(&volume);
    assert!(before.iter().all(|number| now.contains(number)), "{before:?} {now:?}");
}

#[test]
fn a_capture_that_fails_is_told_and_made_when_it_can_be() {
    let (rig, pool, volume) = rig();
    let spec = spec(MINUTE_NS, KeepRules::default());
    volume.set_schedule(&spec).expect("set");
    minutes(&rig, &pool, 1);
    rig.media.fail(sim::Failure::once(sim::Op::Sync));
    rig.clock.advance(MINUTE_NS);
    pool.step(Budget { bytes: 1 << 20 }).expect("other work goes on, or is refused");
    let info = volume.schedule_info().expect("read").expect("there is one");
    assert_eq!((info.captures, info.failures), (1, 1));
    assert!(info.error.is_some());
    drop(volume);
    // A failed sync is not trusted later: only another opening is.
    let pool = rig.kill(pool);
    step(&pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(numbers(&volume).len(), 2);
    assert_eq!(get(&volume, 0), 0);
}

#[test]
fn what_cannot_be_a_schedule_is_refused_and_goes_with_the_volume() {
    let (rig, pool, volume) = rig();
    for every in [0, 1, SECOND_NS - 1] {
        let error = volume.set_schedule(&spec(every, KeepRules::default())).expect_err("too often");
        assert_eq!(error.kind, ErrorKind::Invalid);
    }
    let label = ScheduleSpec { label: "a\nb".to_owned(), ..spec(SECOND_NS, KeepRules::default()) };
    assert_eq!(volume.set_schedule(&label).expect_err("two lines").kind, ErrorKind::Invalid);
    let cron = Timing::Cron("0 3 * * *".parse().expect("a line"));
    let spec = ScheduleSpec { timing: cron, ..spec(SECOND_NS, KeepRules::default()) };
    let info = volume.set_schedule(&spec).expect("set");
    assert_eq!(info.next, Some("2026-11-22T03:00:00Z".parse().expect("a time")));
    drop(volume);
    pool.delete_volume("v").expect("deleted");
    let volume = make(&pool, Granularity::OnDemand, HOUR_NS);
    assert_eq!(volume.schedule_info().expect("read"), None);
    minutes(&rig, &pool, 2);
}

#[test]
fn the_newest_version_of_a_schedule_with_a_check_is_due_until_it_has_a_verdict_of_it() {
    let (rig, pool, volume) = rig();
    let keep = KeepRules { last: 2, ..KeepRules::default() };
    let prove = |hook: Option<&str>| {
        let prove = hook.map(str::to_owned);
        ScheduleSpec { prove, ..spec(5 * MINUTE_NS, keep) }
    };
    let due = |pool: &Pool| -> Vec<(String, u64, String)> {
        let all = pool.due_proofs().into_iter();
        all.map(|(of, at, hook)| (of.name().to_owned(), at.seq.0, hook)).collect()
    };
    let judge = |volume: &Volume, seq: u64, hook: &str| {
        let at = volume.resolve(&Moment::Seq(Seq(seq))).expect("kept");
        let hook = hook.to_owned();
        let (verdict, said) = (Verdict::Unknown, String::new());
        let (seq, time_ns) = (at.seq.0, at.time.as_nanos());
        let proof = Proof { seq, time_ns, hook, verdict, proved_ns: 1, took_ns: 1, said };
        volume.add_proof(proof).expect("kept");
    };
    volume.set_schedule(&prove(Some("boots"))).expect("set");
    assert_eq!(due(&pool), [], "it has made none yet");
    volume.create_version("by hand").expect("captured");
    assert_eq!(due(&pool), [], "that is not its own");
    put(&volume, 0, 1);
    minutes(&rig, &pool, 5);
    let first = due(&pool);
    assert_eq!(first.len(), 1);
    assert_eq!((&*first[0].0, &*first[0].2), ("v", "boots"));
    judge(&volume, first[0].1, "other");
    assert_eq!(due(&pool), first, "of another check");
    judge(&volume, first[0].1, "boots");
    assert_eq!(due(&pool), []);
    put(&volume, 0, 2);
    minutes(&rig, &pool, 5);
    put(&volume, 0, 3);
    minutes(&rig, &pool, 5);
    let last = due(&pool);
    assert_eq!(last.len(), 1, "what came before it is not made up for: {last:?}");
    assert!(last[0].1 > first[0].1 + 1);
    drop((pool, volume));
    let pool = rig.open();
    assert_eq!(due(&pool), last, "over a restart");
    pool.volume("v").expect("there").set_schedule(&prove(None)).expect("set");
    assert_eq!(due(&pool), []);
}
