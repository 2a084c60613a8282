//! A smaller window or history limit takes nothing before its grace period is over.

use hindsight_volume::{Budget, ErrorKind, Granularity, KeptFor, Pool, Volume, VolumeChange};
use units::{Moment, Seq};

use crate::hook::{Rig, SECOND_NS, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };
const HOUR_NS: u64 = 3600 * SECOND_NS;

fn step_all(pool: &Pool) {
    for _ in 0..10_000 {
        if !pool.step(ALL).expect("stepped") {
            return;
        }
    }
    panic!("background work never ends");
}

fn window(window_ns: u64, grace_ns: Option<u64>) -> VolumeChange {
    VolumeChange { window_ns: Some(window_ns), grace_ns, ..VolumeChange::default() }
}

fn opens(volume: &Volume, seq: u64) -> bool {
    match volume.resolve(&Moment::Seq(Seq(seq))) {
        Ok(resolved) => resolved.exact,
        Err(e) => {
            assert!(matches!(e.kind, ErrorKind::OutsideWindow { .. }), "{e}");
            false
        }
    }
}

fn actions(pool: &Pool) -> Vec<String> {
    pool.audit(0, 1000).expect("read").into_iter().map(|record| record.action).collect()
}

#[test]
fn a_smaller_window_takes_nothing_before_its_grace_is_over() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 48 * HOUR_NS);
    for block in 0..20 {
        put(&volume, block % 3, block as u8);
        rig.clock.advance(HOUR_NS);
    }
    volume.change(&window(HOUR_NS, None)).expect("changed");
    let info = volume.info().expect("told");
    let grace = info.grace.expect("a grace period");
    assert_eq!((info.window_ns, grace.window_ns), (HOUR_NS, 48 * HOUR_NS));
    rig.clock.advance(23 * HOUR_NS);
    step_all(&pool);
    assert!(opens(&volume, 1), "the grace is a day");
    // Through a restart, and the pool forgets nothing.
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert!(volume.info().expect("told").grace.is_some());
    rig.clock.advance(2 * HOUR_NS);
    put(&volume, 5, 5);
    step_all(&pool);
    assert!(!opens(&volume, 1), "the grace is over");
    assert_eq!(volume.info().expect("told").grace, None);
    let told = actions(&pool);
    for action in ["grace-begin", "grace-end", "expire"] {
        assert!(told.iter().any(|a| a == action), "{action} is missing of {told:?}");
    }
    pool.verify_invariants().expect("sound");
}

#[test]
fn what_held_before_can_be_set_back_with_nothing_lost() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 48 * HOUR_NS);
    for block in 0..10 {
        put(&volume, block % 3, block as u8);
        rig.clock.advance(HOUR_NS);
    }
    volume.change(&window(HOUR_NS, Some(5 * HOUR_NS))).expect("changed");
    rig.clock.advance(4 * HOUR_NS);
    step_all(&pool);
    volume.change(&window(48 * HOUR_NS, None)).expect("set back");
    assert_eq!(volume.info().expect("told").grace, None);
    rig.clock.advance(20 * HOUR_NS);
    step_all(&pool);
    assert!((1..=10).all(|seq| opens(&volume, seq)), "nothing was lost");
    assert!(actions(&pool).iter().any(|a| a == "grace-cancel"));
}

#[test]
fn a_grace_can_be_skipped_and_ended() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 48 * HOUR_NS);
    for block in 0..10 {
        put(&volume, block % 3, block as u8);
        rig.clock.advance(HOUR_NS);
    }
    volume.change(&window(9 * HOUR_NS, Some(0))).expect("changed");
    step_all(&pool);
    assert!(!opens(&volume, 1), "at once");
    volume.change(&window(3 * HOUR_NS, None)).expect("changed");
    step_all(&pool);
    assert!(opens(&volume, 4), "a day later");
    let end = VolumeChange { grace_ns: Some(0), ..VolumeChange::default() };
    volume.change(&end).expect("ended");
    step_all(&pool);
    assert!(!opens(&volume, 4), "at once");
    assert_eq!(volume.info().expect("told").grace, None);
}

#[test]
fn a_smaller_limit_takes_nothing_before_its_grace_is_over() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for turn in 0..1000 {
        put(&volume, turn % 64, turn as u8);
        rig.clock.advance(SECOND_NS);
    }
    let change = VolumeChange {
        history_limit_bytes: Some(Some(1 << 20)),
        grace_ns: Some(HOUR_NS),
        ..VolumeChange::default()
    };
    volume.change(&change).expect("limited");
    let info = volume.info().expect("told");
    let held = info.grace.map(|grace| grace.history_limit_bytes);
    assert_eq!((info.history_limit_bytes, held), (Some(1 << 20), Some(None)));
    step_all(&pool);
    assert!(opens(&volume, 1), "the grace is an hour");
    rig.clock.advance(HOUR_NS);
    step_all(&pool);
    assert!(!opens(&volume, 1), "the grace is over");
}

#[test]
fn a_full_pool_gives_up_first_what_is_kept_only_for_a_grace() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let graced = make(&pool, Granularity::EveryWrite, 1 << 60);
    for turn in 0..600 {
        put(&graced, turn % 64, turn as u8);
        rig.clock.advance(SECOND_NS);
    }
    graced.change(&window(100 * SECOND_NS, None)).expect("changed");
    let next = pool.next_sacrifice().expect("told").expect("something");
    assert_eq!((&next.volume[..], next.kept_for), ("v", KeptFor::Grace), "{next:?}");
    let spec = hindsight_volume::VolumeSpec {
        window_ns: 1 << 60,
        ..hindsight_volume::VolumeSpec::new("w", 64 << 20)
    };
    // Many more seqs than the other has.
    let other = pool.create_volume(&spec).expect("made");
    let mut turn = 0;
    while !actions(&pool).iter().any(|action| action == "sacrifice") {
        put(&other, turn % 64, turn as u8);
        turn += 1;
    }
    let records = pool.audit(0, 1000).expect("read");
    let first = records.iter().find(|record| record.action == "sacrifice").expect("one");
    assert_eq!(first.volume, "v", "{first:?}");
    assert!(first.detail.ends_with("kept only for a grace period"), "{first:?}");
    assert!(!opens(&graced, 1) && opens(&graced, 550), "what is within the new window stays");
    assert!(opens(&other, 1) || records.iter().any(|r| r.action == "sacrifice" && r.volume == "w"));
    pool.verify_invariants().expect("sound");
}
