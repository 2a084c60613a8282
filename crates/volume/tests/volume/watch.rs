//! Which marks of alarms hold their moments, and for how long.

use hindsight_volume::{AlarmKind, ErrorKind, Granularity, Volume};
use units::{Moment, Sensitivity};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const HOUR_NS: u64 = 3600 * SECOND_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// The alarms that hold their moments, by the order in which they were given.
fn held(volume: &Volume, given: &[String]) -> Vec<usize> {
    let alarms = volume.watch().expect("watched").alarms;
    let is_held = |mark: &String| alarms.iter().any(|one| one.mark == *mark && one.is_held);
    (0..given.len()).filter(|&number| is_held(&given[number])).collect()
}

#[test]
fn the_oldest_and_the_newest_alarms_hold_their_moments_for_a_week() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    volume.set_watch(Some(Sensitivity::Normal)).expect("set");
    let mut given = Vec::new();
    for number in 0..20_u8 {
        put(&volume, 0, number);
        let view = volume.view(&Moment::Latest).expect("opened");
        let alarm = volume.give_alarm(view.resolved(), AlarmKind::Wiped, 1).expect("given");
        assert!(alarm.is_held && !given.contains(&alarm.mark), "{alarm:?}");
        given.push(alarm.mark);
        rig.clock.advance(HOUR_NS / 2);
        volume.let_go_of_alarms().expect("done");
    }
    let newest = [0, 13, 14, 15, 16, 17, 18, 19];
    assert_eq!(held(&volume, &given), newest);
    assert_eq!(volume.watch().expect("watched").alarms.len(), 16);
    // What the window has left is there by them, also after a kill.
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(held(&volume, &given), newest);
    for number in newest {
        let clone = format!("c{number}");
        pool.clone_volume("v", &Moment::Mark(given[number].clone()), &clone).expect("cloned");
        assert_eq!(usize::from(get(&pool.volume(&clone).expect("there"), 0)), number);
    }
    rig.clock.advance(7 * DAY_NS - 11 * HOUR_NS);
    volume.let_go_of_alarms().expect("done");
    assert_eq!(held(&volume, &given), newest);
    rig.clock.advance(2 * HOUR_NS);
    volume.let_go_of_alarms().expect("done");
    assert_eq!(held(&volume, &given), newest[1..]);
    rig.clock.advance(DAY_NS);
    volume.let_go_of_alarms().expect("done");
    assert!(held(&volume, &given).is_empty() && volume.marks().expect("listed").is_empty());
}

#[test]
fn marks_of_somebody_elses_are_left_alone_and_shares_are_not_watched() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, DAY_NS);
    volume.set_watch(Some(Sensitivity::High)).expect("set");
    put(&volume, 0, 1);
    let view = volume.view(&Moment::Latest).expect("opened");
    let alarm = volume.give_alarm(view.resolved(), AlarmKind::Scrambled, 9).expect("given");
    // Deleted, and made again at another moment: it is the user's now.
    volume.delete_mark(&alarm.mark).expect("deleted");
    put(&volume, 0, 2);
    volume.create_mark(&alarm.mark, &Moment::Latest, true).expect("made");
    assert!(!volume.watch().expect("watched").alarms[0].is_held);
    rig.clock.advance(30 * DAY_NS);
    volume.let_go_of_alarms().expect("done");
    assert!(volume.has_mark(&alarm.mark));
    volume.set_watch(None).expect("set");
    let refused = volume.give_alarm(view.resolved(), AlarmKind::Wiped, 1).expect_err("unwatched");
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert_eq!(volume.marks().expect("listed").len(), 1, "no mark is left of a refused alarm");
}
