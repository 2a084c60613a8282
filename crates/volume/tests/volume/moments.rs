//! What is said of moments holds: the oldest one opens, a range that is stated opens at both ends,
//! what a revert says undoes it, and what meets a delete is told so.

use std::sync::Arc;
use std::thread;

use block::Operation;
use hindsight_volume::{Budget, ErrorKind, Granularity, Pool, Volume, WriteOp};
use parking_lot::Mutex;
use units::{Moment, Seq, WallTime};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const INTERVAL: Granularity = Granularity::Interval(10 * SECOND_NS);

fn opens(volume: &Arc<Volume>, (seq, time): (Seq, WallTime), what: &str) {
    for moment in [Moment::Seq(seq), Moment::At(time)] {
        let opened = volume.view(&moment);
        assert!(opened.is_ok(), "{what}: {moment:?}: {}", opened.err().expect("an error"));
    }
}

/// What `info` and errors say can be opened.
fn all_told_opens(volume: &Arc<Volume>, what: &str) {
    let info = volume.info().expect("told");
    opens(volume, (info.oldest.seq, info.oldest.time), what);
    for moment in [Moment::Seq(Seq(u64::MAX >> 8)), Moment::At(WallTime::from_nanos(1))] {
        let error = volume.resolve(&moment).expect_err("no such moment");
        let ErrorKind::OutsideWindow { oldest, latest } = error.kind else { panic!("{error}") };
        opens(volume, oldest, &format!("{what}: the oldest of {moment:?}"));
        opens(volume, latest, &format!("{what}: the latest of {moment:?}"));
    }
}

#[test]
fn what_is_told_to_be_the_oldest_moment_opens() {
    for granularity in [Granularity::EveryWrite, Granularity::OnDemand, INTERVAL] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let pool = rig.open();
        let volume = make(&pool, granularity, 3600 * SECOND_NS);
        all_told_opens(&volume, "nothing written");
        for turn in 0..30 {
            put(&volume, turn % 4, turn as u8);
            all_told_opens(&volume, &format!("{granularity:?}, turn {turn}"));
            rig.clock.advance(if turn < 3 { 1 } else { 3 * SECOND_NS });
        }
    }
}

#[test]
fn a_moment_before_a_volume_says_when_it_was_created() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let pool = rig.open();
    let created = rig.clock_now();
    let volume = make(&pool, Granularity::EveryWrite, 3600 * SECOND_NS);
    let before = Moment::At(WallTime::from_nanos(created - 1));
    let told = |volume: &Volume, moment: &Moment| {
        let error = volume.resolve(moment).expect_err("nothing was there");
        assert!(matches!(error.kind, ErrorKind::OutsideWindow { .. }), "{error}");
        (error.message, error.hint.expect("a hint"))
    };
    let (text, hint) = told(&volume, &before);
    let at = WallTime::from_nanos(created);
    assert!(text.starts_with(&format!("v was created at {at} (seq 0), after ")), "{text}");
    assert!(text.contains(": v can be opened from "), "{text}");
    assert!(hint.contains("no moment before"), "{hint}");
    let seq = put(&volume, 0, 1);
    rig.clock.advance(SECOND_NS);
    let clone = pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let at = WallTime::from_nanos(rig.clock_now());
    for moment in [before, Moment::Ago(units::Span(SECOND_NS / 2)), Moment::Seq(Seq::ZERO)] {
        let (text, hint) = told(&clone, &moment);
        assert!(text.starts_with(&format!("c was created at {at} (seq {seq}), after ")), "{text}");
        assert!(hint.contains("cloned from v at seq 1") && hint.contains("v@MOMENT"), "{hint}");
    }
    // What has expired was there once.
    rig.clock.advance(7200 * SECOND_NS);
    put(&volume, 0, 2);
    while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
    let (text, _) = told(&volume, &Moment::At(WallTime::from_nanos(created)));
    assert!(text.contains("has left the window"), "{text}");
}

#[test]
fn a_range_that_is_told_opens_after_a_clock_went_ahead_and_back() {
    for granularity in [Granularity::EveryWrite, Granularity::OnDemand, INTERVAL] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let pool = rig.open();
        let volume = make(&pool, granularity, 3600 * SECOND_NS);
        (0..4).for_each(|turn| assert!(put(&volume, turn, 1) > Seq::ZERO));
        let now = rig.clock_now();
        rig.clock.set_wall(WallTime::from_nanos(now + 365 * 86_400 * SECOND_NS));
        while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
        rig.clock.set_wall(WallTime::from_nanos(now + SECOND_NS));
        put(&volume, 5, 2);
        all_told_opens(&volume, &format!("{granularity:?}"));
    }
}

#[test]
fn a_revert_to_the_present_is_undone_to_the_byte() {
    for granularity in [Granularity::EveryWrite, Granularity::OnDemand, INTERVAL] {
        let rig = Rig::new(64 << 20, 1 << 20);
        let pool = rig.open();
        let volume = make(&pool, granularity, 3600 * SECOND_NS);
        put(&volume, 0, 1);
        let report = volume.revert(&Moment::Latest, false).expect("reverted");
        put(&volume, 0, 2);
        volume.revert(&Moment::Seq(report.from.seq), false).expect("undone");
        assert_eq!(get(&volume, 0), 1, "{granularity:?}");
    }
}

/// Deletes the volume in the middle of something that is done to it.
fn beside_a_delete(act: impl Fn(&Pool, &Volume) -> Option<ErrorKind>) -> Option<ErrorKind> {
    let rig = Rig::new(64 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 3600 * SECOND_NS);
    (0..4).for_each(|turn| assert!(put(&volume, turn, 1) > Seq::ZERO));
    let (device, beside) = (Arc::downgrade(&rig.device), Arc::clone(&pool));
    rig.device.hook(move |operation, _| {
        if operation == Operation::Flush {
            device.upgrade().expect("there").unhook();
            beside.delete_volume("v").expect("deleted");
        }
    });
    let failed = act(&pool, &volume);
    assert!(pool.volume("v").is_err(), "it was deleted meanwhile");
    failed
}

#[test]
fn what_meets_a_delete_says_that_the_volume_is_not_there() {
    for to in [Moment::Latest, Moment::Seq(Seq(2))] {
        let cloned =
            beside_a_delete(|pool, _| pool.clone_volume("v", &to, "c").err().map(|e| e.kind));
        assert_eq!(cloned, Some(ErrorKind::NotFound), "a clone of {to:?}");
        let reverted = beside_a_delete(|_, volume| volume.revert(&to, false).err().map(|e| e.kind));
        assert_eq!(reverted, Some(ErrorKind::NotFound), "a revert to {to:?}");
    }
}

/// A clock that goes on at every write to the device: what two of them have of a request could be
/// told apart by time.
#[test]
fn a_time_has_all_of_a_request_or_none_of_it() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 3600 * SECOND_NS);
    let clock = Arc::clone(&rig.clock);
    rig.device.hook(move |operation, _| {
        if operation == Operation::Write {
            clock.advance(SECOND_NS);
        }
    });
    let begun = rig.clock_now();
    let bytes_of = |turn: u8| vec![turn; 640 << 10];
    for turn in 1..=8 {
        let op = WriteOp::Data { offset: 0, bytes: &bytes_of(turn) };
        volume.write_batch(&[op]).expect("written");
    }
    rig.device.unhook();
    let mut met = Vec::new();
    for time in (begun..rig.clock_now()).step_by(SECOND_NS as usize / 4) {
        let view = volume.view(&Moment::At(WallTime::from_nanos(time + 2))).expect("opened");
        let mut bytes = bytes_of(0);
        view.read(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{met:?}, then {} parts", bytes[0]);
        met.push(bytes[0]);
    }
    met.dedup();
    assert_eq!(met, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

/// The rest of a request that has to wait for a segment gets a time of its own where somebody has
/// opened a time in between.
#[test]
fn a_time_that_was_opened_in_the_middle_of_a_request_goes_on_meaning_the_same() {
    let rig = Rig::new(64 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 3600 * SECOND_NS);
    let met: Arc<Mutex<Vec<(Moment, Seq)>>> = Arc::default();
    let (clock, looked, looks) = (Arc::clone(&rig.clock), Arc::clone(&volume), Arc::clone(&met));
    // Segments are made ready by a commit, which flushes, while no batch is in flight.
    rig.device.hook(move |operation, _| {
        if operation != Operation::Flush {
            return;
        }
        clock.advance(SECOND_NS);
        let now_ns = env::Clock::wall(&*clock).as_nanos();
        let moment = Moment::At(WallTime::from_nanos(now_ns - SECOND_NS / 2));
        let (volume, looks) = (Arc::clone(&looked), Arc::clone(&looks));
        let look = thread::spawn(move || {
            let seq = volume.view(&moment).expect("opened").resolved().seq;
            looks.lock().push((moment, seq));
        });
        look.join().expect("it looks");
    });
    let mut ends = vec![Seq::ZERO];
    for turn in 1..=60 {
        let bytes = vec![turn; (300 + 36 * usize::from(turn % 16)) << 10];
        let op = WriteOp::Data { offset: 0, bytes: &bytes };
        ends.push(volume.write_batch(&[op]).expect("written"));
    }
    rig.device.unhook();
    let met = met.lock();
    assert!(met.iter().any(|(_, seq)| !ends.contains(seq)), "none was in the middle");
    for (moment, seq) in &*met {
        let again = volume.resolve(moment).expect("in the window").seq;
        assert_eq!(again, *seq, "{moment:?}");
    }
}
