//! Clocks that jump, and what they must not do: expire what the window holds, and take away the
//! moments of writes that come after.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use env::Clock;
use hindsight_volume::{
    Architecture, CacheChange, ErrorKind, Granularity, GroupMoment, Machine, Pool, PoolFormat,
    PoolOptions, Volume, VolumeChange, VolumeSpec,
};
use sim::{SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, Span, WallTime};

use crate::base::{past, put};
use crate::settling::{DAY_NS, MIB, Rig, SECOND_NS};

const HOUR_NS: u64 = 3600 * SECOND_NS;
const YEAR_NS: u64 = 365 * DAY_NS;

/// A volume that retains every write for an hour, and writes to it, some seconds apart.
fn written(rig: &Rig) -> (Arc<Volume>, Vec<Seq>) {
    let volume = rig.make(Architecture::Logging, Granularity::EveryWrite, HOUR_NS, 4 * MIB);
    let seqs = (1..=10).map(|byte| {
        rig.rest(5);
        put(&volume, 0, byte, 1)
    });
    let seqs = seqs.collect();
    rig.rest(20);
    (volume, seqs)
}

fn set_wall(rig: &Rig, change: impl Fn(u64) -> u64) {
    rig.clock.set_wall(WallTime::from_nanos(change(rig.clock.wall().as_nanos())));
}

fn check(volume: &Arc<Volume>, seqs: &[Seq], what: &str) {
    for (seq, byte) in seqs.iter().zip(1..) {
        volume.view(&Moment::Seq(*seq)).unwrap_or_else(|e| panic!("{what}, seq {seq}: {e}"));
        assert_eq!(past(volume, *seq)[0], byte, "{what}, seq {seq}");
    }
}

#[test]
fn a_clock_that_jumps_ahead_expires_nothing_before_it_has_gone_evenly() {
    let rig = Rig::new();
    let (volume, seqs) = written(&rig);
    for seconds in [4, 590] {
        set_wall(&rig, |now| now + YEAR_NS);
        rig.rest(seconds);
        check(&volume, &seqs, "in the wrong year");
        set_wall(&rig, |now| now - YEAR_NS);
        rig.rest(5);
        check(&volume, &seqs, "in the right one");
    }
    // The window goes on, as time does.
    rig.rest(3700);
    let oldest = volume.info().expect("info").oldest.seq;
    assert_eq!(oldest, seqs[9], "an hour has passed");
    // A clock that stays where it is counts.
    let last = put(&volume, 0, 11, 1);
    put(&volume, 0, 12, 1);
    set_wall(&rig, |now| now + YEAR_NS);
    rig.rest(590);
    volume.view(&Moment::Seq(last)).expect("not yet");
    rig.rest(20);
    let error = volume.resolve(&Moment::Seq(last)).expect_err("a year has passed");
    assert!(matches!(error.kind, ErrorKind::OutsideWindow { .. }), "{error}");
}

#[test]
fn an_opening_in_a_wrong_year_expires_nothing() {
    let rig = Rig::new();
    let (volume, seqs) = written(&rig);
    drop(volume);
    set_wall(&rig, |now| now + YEAR_NS);
    let rig = rig.restart();
    rig.rest(300);
    let volume = rig.pool.volume("logging").expect("there");
    check(&volume, &seqs, "in the wrong year");
    // What is written now has the times of that year, and there is an opening again.
    put(&volume, 1, 9, 1);
    drop(volume);
    let rig = rig.restart();
    rig.rest(300);
    set_wall(&rig, |now| now - YEAR_NS);
    rig.rest(20);
    let volume = rig.pool.volume("logging").expect("there");
    check(&volume, &seqs, "in the right one");
}

#[test]
fn a_clock_that_jumps_ahead_ends_no_grace_period() {
    let rig = Rig::new();
    let (volume, seqs) = written(&rig);
    let change = VolumeChange { window_ns: Some(SECOND_NS), ..VolumeChange::default() };
    volume.change(&change).expect("announced");
    set_wall(&rig, |now| now + YEAR_NS);
    rig.rest(60);
    set_wall(&rig, |now| now - YEAR_NS);
    rig.rest(60);
    check(&volume, &seqs, "in the grace period");
    assert!(volume.info().expect("info").grace.is_some());
}

#[test]
fn a_full_pool_gives_up_history_whatever_the_clock_says() {
    let rig = Rig::of(64 * MIB);
    let (volume, _) = written(&rig);
    set_wall(&rig, |now| now + YEAR_NS);
    for n in 0..128_u64 {
        put(&volume, n % 4 * 256, 3, 256);
    }
    assert!(volume.info().expect("info").oldest.seq > Seq(10), "history gave way");
}

/// Writes one every five seconds; says which of them can be opened.
fn opened_each(rig: &Rig, volume: &Arc<Volume>) -> usize {
    let seqs: Vec<Seq> = (1..=12)
        .map(|byte| {
            rig.rest(5);
            put(volume, 0, byte, 1);
            volume.flush().expect("flushed");
            volume.resolve(&Moment::Latest).expect("now").seq
        })
        .collect();
    rig.rest(5);
    let is_exact = |seq: &&Seq| volume.resolve(&Moment::Seq(**seq)).is_ok_and(|r| r.exact);
    seqs.iter().filter(is_exact).count()
}

#[test]
fn intervals_stay_as_long_as_they_are_after_the_clock_went_ahead_and_back() {
    for cache_bytes in [0, MIB] {
        let rig = Rig::new();
        let interval = Granularity::Interval(SECOND_NS);
        let volume = rig.make(Architecture::Logging, interval, DAY_NS, 4 * MIB);
        let cache = CacheChange { bytes: Some(cache_bytes), dirty_percent: None };
        volume.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
        put(&volume, 0, 1, 1);
        set_wall(&rig, |now| now + HOUR_NS);
        put(&volume, 0, 2, 1);
        set_wall(&rig, |now| now - HOUR_NS);
        assert_eq!(opened_each(&rig, &volume), 12, "a cache of {cache_bytes}");
        drop(volume);
        let rig = rig.restart();
        let volume = rig.pool.volume("logging").expect("there");
        assert_eq!(opened_each(&rig, &volume), 12, "opened again, a cache of {cache_bytes}");
        // The clock catches up.
        let ahead = |volume: &Volume| volume.info().expect("info").time_ahead_ns;
        put(&volume, 0, 1, 1);
        let before = ahead(&volume);
        assert!(before > HOUR_NS - 60 * SECOND_NS, "{before}");
        for hours in [8, 9] {
            rig.clock.advance(hours * HOUR_NS);
            put(&volume, 0, 2, 1);
            volume.flush().expect("flushed");
        }
        assert_eq!(ahead(&volume), 0);
    }
}

#[test]
fn so_long_ago_is_counted_from_now_also_while_the_clock_is_behind() {
    for cache_bytes in [0, MIB] {
        let rig = Rig::new();
        let volume = rig.make(Architecture::Logging, Granularity::EveryWrite, DAY_NS, 4 * MIB);
        let cache = CacheChange { bytes: Some(cache_bytes), dirty_percent: None };
        volume.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
        let before = put(&volume, 0, 1, 1);
        rig.rest(60);
        set_wall(&rig, |now| now - HOUR_NS);
        let mut last = [before; 2];
        for (seq, byte) in last.iter_mut().zip(2..) {
            *seq = put(&volume, 0, byte, 1);
            rig.rest(10);
        }
        rig.rest(10);
        volume.flush().expect("flushed");
        let ago = |seconds| {
            let moment = Moment::Ago(Span(seconds * SECOND_NS));
            volume.resolve(&moment).unwrap_or_else(|e| panic!("{seconds} s: {e}")).seq
        };
        // Written 30 and 20 s ago; the one before, 90 s.
        for (seconds, expected) in
            [(1, last[1]), (19, last[1]), (22, last[0]), (29, last[0]), (33, before), (80, before)]
        {
            assert_eq!(ago(seconds), expected, "{seconds} s ago, a cache of {cache_bytes}");
        }
    }
}

#[test]
fn so_long_ago_of_a_group_is_counted_from_now_also_while_the_clock_is_behind_a_volume() {
    let rig = Rig::new();
    let ahead = rig.make(Architecture::Logging, Granularity::EveryWrite, DAY_NS, 4 * MIB);
    let first = put(&ahead, 0, 1, 1);
    rig.rest(60);
    set_wall(&rig, |now| now - HOUR_NS);
    let even = rig.pool.clone_volume("logging", &Moment::Latest, "even").expect("cloned");
    rig.pool.create_group("g", &["logging".to_owned(), "even".to_owned()]).expect("grouped");
    rig.rest(30);
    let of_even = put(&even, 0, 1, 1);
    let second = put(&ahead, 0, 2, 1);
    rig.rest(30);
    for volume in [&ahead, &even] {
        volume.flush().expect("flushed");
    }
    assert!(ahead.time_ahead_ns() > 0 && even.time_ahead_ns() == 0);
    let ago = |seconds| {
        let moment = GroupMoment::Of(Moment::Ago(Span(seconds * SECOND_NS)));
        let resolved = rig.pool.resolve_group("g", &moment);
        let mut seqs: Vec<(String, Seq)> = resolved
            .unwrap_or_else(|e| panic!("{seconds} s: {e}"))
            .into_iter()
            .map(|(name, resolved)| (name, resolved.seq))
            .collect();
        seqs.sort();
        seqs
    };
    let both = |of_ahead| vec![("even".to_owned(), of_even), ("logging".to_owned(), of_ahead)];
    assert_eq!(ago(1), both(second));
    assert_eq!(ago(29), both(second), "written 30 s ago");
    assert_eq!(ago(33)[1].1, first, "and not 33 s ago");
}

/// A clock that goes on by a millisecond whenever somebody asks it.
struct Ticking(SimClock);

impl Clock for Ticking {
    fn wall(&self) -> WallTime {
        self.0.advance(1_000_000);
        self.0.wall()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }
}

#[test]
fn so_long_ago_of_a_group_is_one_instant() {
    let media = Arc::new(SimMedia::new(256 * MIB, 5));
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&media)));
    let clock = Arc::new(Ticking(SimClock::new(WallTime::from_nanos(1 << 60))));
    let entropy = Arc::new(SimEntropy::new(media.changes()));
    let machine = Machine { clock: Arc::<Ticking>::clone(&clock), entropy };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: MIB }).expect("made");
    let pool = Pool::open(device, machine, PoolOptions::default()).expect("opened");
    let make = |name: &str| {
        let spec = VolumeSpec { window_ns: DAY_NS, ..VolumeSpec::new(name, MIB) };
        pool.create_volume(&spec).expect("made")
    };
    let volumes = ["a", "b", "c", "d"].map(make);
    pool.create_group("g", &volumes.each_ref().map(|v| v.name().to_owned())).expect("grouped");
    for byte in 1..=50 {
        for volume in &volumes {
            put(volume, 0, byte, 1);
        }
    }
    let written_ns = clock.0.wall().as_nanos();
    let mut earliest = u64::MAX;
    for before_ms in 0..400 {
        // Time goes on by the asking.
        let passed_ns = clock.0.wall().as_nanos() - written_ns;
        let ago = Moment::Ago(Span(passed_ns + before_ms * 1_000_000));
        // Before the last of them was made there is nothing to open.
        let Ok(resolved) = pool.resolve_group("g", &GroupMoment::Of(ago)) else { break };
        let seqs: Vec<u64> = resolved.iter().map(|(_, resolved)| resolved.seq.0).collect();
        // They were written one after the other.
        let is_instant = seqs.is_sorted_by(|one, next| one >= next) && seqs[0] <= seqs[3] + 1;
        assert!(is_instant, "{before_ms} ms before: {seqs:?}");
        earliest = earliest.min(seqs[0]);
    }
    assert!(earliest < 10, "all of the past was asked for, from {earliest} on");
}

/// What was written in the year 2200 keeps its times; a clone has the clock's again.
#[test]
fn a_clone_of_a_volume_that_is_ahead_of_the_clock_has_the_clocks_times() {
    let rig = Rig::new();
    let (volume, _) = written(&rig);
    set_wall(&rig, |now| now + 170 * YEAR_NS);
    put(&volume, 0, 20, 1);
    set_wall(&rig, |now| now - 170 * YEAR_NS);
    put(&volume, 0, 21, 1);
    assert!(volume.info().expect("info").time_ahead_ns > 169 * YEAR_NS);
    let clone = rig.pool.clone_volume("logging", &Moment::Latest, "c").expect("cloned");
    rig.rest(5);
    let before = rig.clock.wall();
    rig.rest(5);
    let seq = put(&clone, 0, 22, 1);
    rig.rest(5);
    assert_eq!(clone.info().expect("info").time_ahead_ns, 0);
    assert_eq!(past(&clone, seq)[0], 22);
    let then = clone.view(&Moment::At(before)).expect("opened");
    let mut bytes = [0];
    then.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [21]);
}

/// What is written after the clock went back has earlier times than pool time had.
#[test]
fn a_clock_that_goes_back_expires_nothing_that_is_written_then() {
    let rig = Rig::new();
    rig.rest(700);
    set_wall(&rig, |now| now - 2 * HOUR_NS);
    let (volume, seqs) = written(&rig);
    check(&volume, &seqs, "after the clock went back");
}
