//! The promises of the scheduler, on a clock of which each look takes a millisecond.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, MediaDevice, Purpose};
use env::Clock;
use sim::{SimClock, SimEntropy, SimMedia};
use units::WallTime;

use super::{AFTER_FAILURE_NS, NAP_NS, REST_NS_MAX, Rest, STEP_BYTES};
use crate::jobs::flushes::full_maps;
use crate::jobs::job::{EachVolume, Job, Left, Turn};
use crate::jobs::parts::Parts;
use crate::types::{Budget, VolumeSpec, WriteOp};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Machine, Pool, PoolFormat, PoolOptions, Result, ScrubState};

const MS: u64 = 1_000_000;
const NAP: Duration = Duration::from_nanos(NAP_NS);
/// Blocks of a map that take a full merge many steps.
const MANY: u64 = 24_000;

struct Ticking(SimClock);

impl Ticking {
    /// The time, without a look.
    fn peek_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }
}

impl Clock for Ticking {
    fn wall(&self) -> WallTime {
        self.0.wall()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.advance(MS);
        self.0.monotonic_ns()
    }
}

struct Rig {
    clock: Arc<Ticking>,
    pool: Arc<Pool>,
}

impl Rig {
    fn new(memory_bytes: u64) -> Rig {
        let start = WallTime::from_nanos(1_795_255_200_000 * MS);
        let clock = Arc::new(Ticking(SimClock::new(start)));
        let machine =
            || Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(SimEntropy::new(1)) };
        let media = Arc::new(SimMedia::new(512 << 20, 1));
        let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(media));
        Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
        let pool = Pool::open(device, machine(), PoolOptions { memory_bytes }).expect("opened");
        Rig { clock, pool }
    }

    fn volume(&self, name: &str) -> Arc<Volume> {
        let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new(name, 128 << 20) };
        self.pool.create_volume(&spec).expect("made")
    }

    fn is_full(&self, volume: &Volume) -> bool {
        full_maps(&self.pool).iter().any(|full| full.id == volume.id)
    }

    /// Turns until there is nothing to do.
    fn settle(&self) {
        while self.pool.step(Budget { bytes: STEP_BYTES }).expect("stepped") {}
        self.clock.0.advance(1000 * MS);
        assert!(!self.pool.step(Budget { bytes: STEP_BYTES }).expect("stepped"));
    }

    /// Has the first job do this with each volume.
    fn set_first(&self, step: fn(&Volume, &Parts, u64) -> Result<bool>) {
        let mut work = self.pool.work.lock();
        let first =
            work.jobs.iter_mut().find(|job| job.name() == "trash expiry").expect("there is one");
        *first = Box::new(EachVolume("trash expiry", Left::NOTHING, step));
    }

    /// A turn, and the rest after it; whether any work was done, and how long both took.
    fn turn_and_rest(&self) -> (u64, u64) {
        let began_ns = self.clock.peek_ns();
        let mut rest = self.pool.turn();
        let mut rested = Duration::ZERO;
        let worked_ns = self.clock.peek_ns() - began_ns;
        while !rest.is_zero() {
            assert!(rest <= NAP, "it is seen soon whether it still rests");
            self.clock.0.advance(u64::try_from(rest.as_nanos()).expect("short"));
            rested += rest;
            if self.pool.work.lock().rest.1 <= self.clock.peek_ns() + MS {
                break;
            }
            rest = self.pool.turn();
        }
        (worked_ns, u64::try_from(rested.as_nanos()).expect("short"))
    }
}

fn put(volume: &Volume, block: u64, blocks: usize) {
    let bytes = vec![7; blocks * 4096];
    let op = WriteOp::Data { offset: block * 4096, bytes: &bytes };
    volume.write_batch(&[op]).expect("written");
}

thread_local! {
    static TRIES: Cell<u64> = const { Cell::new(0) };
}

fn fails(_: &Volume, _: &Parts, _: u64) -> Result<bool> {
    TRIES.set(TRIES.get() + 1);
    Err(Error::full("broken on purpose"))
}

/// Fails for one volume, and counts the others.
fn fails_for_one(volume: &Volume, _: &Parts, _: u64) -> Result<bool> {
    if volume.name() == "one" {
        return Err(Error::full("broken on purpose"));
    }
    TRIES.set(TRIES.get() + 1);
    Ok(false)
}

/// Waits for a time.
struct Waits(u64);

impl Job for Waits {
    fn name(&self) -> &'static str {
        "resync"
    }

    fn step(&mut self, _: &Parts, turn: &mut Turn) -> Result<Left> {
        Ok(Left::Until(turn.now_ns + self.0))
    }
}

/// A pool with a full merge to be done that can wait.
fn with_a_long_merge(memory_bytes: u64) -> (Rig, Arc<Volume>) {
    let rig = Rig::new(memory_bytes);
    let volume = rig.volume("v");
    (0..MANY).step_by(64).for_each(|block| put(&volume, block, 64));
    rig.clock.0.advance(10_000 * MS);
    rig.settle();
    volume.reclamation().want();
    (rig, volume)
}

fn is_merging(rig: &Rig) -> bool {
    rig.pool.work.lock().parts.merging().is_any()
}

#[test]
fn work_that_can_wait_has_an_eighth_of_the_time_while_clients_write_and_is_done_in_the_end() {
    let (rig, volume) = with_a_long_merge(64 << 20);
    let (mut worked, mut rested, mut turns) = (0, 0, 0);
    put(&volume, 0, 1);
    rig.pool.turn();
    while volume.reclamation().is_wanted() || is_merging(&rig) {
        put(&volume, turns % 100, 1);
        let (work_ns, rest_ns) = rig.turn_and_rest();
        (worked, rested, turns) = (worked + work_ns, rested + rest_ns, turns + 1);
        assert!(turns < 1000, "it is never done");
    }
    assert!(turns > 3 && worked * 4 < rested, "{worked} ns of work, {rested} of rest, {turns}");
    assert!(worked * 10 > rested, "{worked} ns of work, {rested} of rest: it waits for ever");
}

#[test]
fn work_that_can_wait_does_not_rest_while_nobody_writes_or_when_it_is_pressed() {
    let (rig, volume) = with_a_long_merge(4 << 20);
    while !is_merging(&rig) {
        rig.pool.turn();
    }
    assert_eq!(rig.pool.turn(), Duration::ZERO, "nobody writes");
    put(&volume, 0, 1);
    let nap = rig.pool.turn();
    assert!(!nap.is_zero(), "somebody writes");
    while !rig.is_full(&volume) {
        put(&volume, 0, 64);
    }
    assert_eq!(rig.pool.work.lock().rest.0, Rest::MakesWay);
    let mut work = rig.pool.work.lock();
    work.turn();
    assert!(!rig.is_full(&volume), "what cannot wait is done at once");
}

#[test]
fn a_failing_job_stops_no_other_and_is_told_as_long_as_it_fails() {
    let rig = Rig::new(64 << 20);
    let (one, other) = (rig.volume("one"), rig.volume("other"));
    rig.settle();
    rig.set_first(fails);
    put(&one, 0, 1);
    put(&other, 0, 1);
    let pending = || rig.pool.status().pending_entries;
    let is_more = rig.pool.step(Budget { bytes: STEP_BYTES });
    is_more.expect_err("nothing else is to be done, so it is told");
    rig.clock.0.advance(6_000 * MS);
    assert!(rig.pool.step(Budget { bytes: STEP_BYTES }).expect("a map goes out"), "there is more");
    let failures = rig.pool.failures();
    assert_eq!(failures, [("trash expiry", ErrorKind::Full, "broken on purpose".to_owned())]);
    rig.pool.step(Budget { bytes: STEP_BYTES }).expect("another one goes out");
    assert_eq!(pending(), 0, "the flushes go on");
    rig.set_first(|_, _, _| Ok(false));
    rig.settle();
    assert_eq!(rig.pool.failures().len(), 1, "it may fail again");
    rig.clock.0.advance(5_000 * MS);
    rig.settle();
    assert!(rig.pool.failures().is_empty(), "it does not fail any more");
}

#[test]
fn what_has_failed_rests_for_seconds_unless_others_have_more_to_do() {
    let rig = Rig::new(1 << 20);
    let volume = rig.volume("v");
    rig.settle();
    rig.set_first(fails);
    assert_eq!(rig.pool.turn(), NAP);
    let (rest, until_ns) = rig.pool.work.lock().rest;
    assert_eq!(rest, Rest::Failed { full_maps: 0, is_pressed: false });
    assert!(until_ns - rig.clock.peek_ns() > AFTER_FAILURE_NS - 100 * MS);
    assert_eq!((rig.pool.turn(), TRIES.get()), (NAP, 1), "it is not tried again");
    while !rig.is_full(&volume) {
        put(&volume, 0, 64);
    }
    rig.pool.turn();
    assert!(!rig.is_full(&volume), "another job is not kept waiting for that");
}

#[test]
fn a_failure_for_one_volume_keeps_no_other_from_its_turn() {
    let rig = Rig::new(64 << 20);
    let _volumes = ["one", "other", "third"].map(|name| rig.volume(name));
    rig.settle();
    rig.set_first(fails_for_one);
    rig.pool.step(Budget { bytes: STEP_BYTES }).expect_err("it is told");
    assert_eq!(TRIES.get(), 2);
}

#[test]
fn a_failure_delays_no_job_that_waits_for_a_time_and_no_work_that_is_pressed_for() {
    let rig = Rig::new(64 << 20);
    let _volume = rig.volume("v");
    rig.settle();
    rig.set_first(fails);
    {
        let mut work = rig.pool.work.lock();
        let resync = work.jobs.iter_mut().find(|job| job.name() == "resync").expect("there is one");
        *resync = Box::new(Waits(100 * MS));
    }
    rig.pool.turn();
    let (rest, until_ns) = rig.pool.work.lock().rest;
    assert_eq!(rest, Rest::Failed { full_maps: 0, is_pressed: false });
    assert!(until_ns < rig.clock.peek_ns() + 110 * MS, "it is the resync's turn then");
    let zones = || rig.pool.core.store.allocate_zone(Purpose::Data);
    while zones().is_ok() {}
    let tried = TRIES.get();
    rig.pool.turn();
    assert_eq!(TRIES.get(), tried + 1, "room is short: nothing rests");
}

#[test]
fn a_scrub_has_little_of_the_time_beside_clients_and_all_of_it_without_them() {
    let rig = Rig::new(64 << 20);
    let volume = rig.volume("v");
    (0..8192).step_by(64).for_each(|block| put(&volume, block, 64));
    rig.clock.0.advance(10_000 * MS);
    rig.settle();
    let info = || rig.pool.scrubs().info().expect("one runs");
    let read = || info().record.read_bytes;
    rig.pool.scrubs().start().expect("started");
    put(&volume, 0, 1);
    let rest = rig.pool.turn();
    let once = read();
    assert!((1 << 20..3 << 20).contains(&once), "{once} bytes beside a client");
    assert!(rest > Duration::from_millis(15), "{rest:?}: nineteen times what it took");
    put(&volume, 0, 1);
    rig.pool.turn();
    assert_eq!(read(), once, "it rests");
    rig.clock.0.advance(1000 * MS);
    assert_eq!(rig.pool.turn(), Duration::ZERO, "nobody asks for anything");
    assert!(read() - once > 6 << 20, "{} bytes alone", read() - once);
    while info().state == ScrubState::Running {
        assert_eq!(rig.pool.turn(), Duration::ZERO, "without a rest");
    }
}

#[test]
fn a_rest_is_so_many_times_what_was_done_and_no_longer_than_half_a_second() {
    for (left, took_ns, rest_ns) in [
        (Left::CAN_WAIT, 10 * MS, 70 * MS),
        (Left::More(2), 10 * MS, 10 * MS),
        (Left::NOW, 10 * MS, 0),
        (Left::CAN_WAIT, 1000 * MS, REST_NS_MAX),
    ] {
        assert_eq!(
            super::rest_after(left, 5, 5 + took_ns),
            (Rest::MakesWay, 5 + took_ns + rest_ns)
        );
    }
    let soon = Left::Until(20 * MS);
    assert_eq!(super::rest_after(soon, 0, 10 * MS), (Rest::Idle, 20 * MS));
    assert_eq!(super::rest_after(Left::NOTHING, 0, 10 * MS), (Rest::Idle, 10 * MS + NAP_NS));
}

#[test]
fn what_waits_in_memory_is_bounded_for_all_volumes_together() {
    let rig = Rig::new(1 << 20);
    let volumes: Vec<_> = (0..8).map(|number| rig.volume(&format!("v{number}"))).collect();
    rig.settle();
    let max = rig.pool.core.pending_max;
    for (blocks, volume) in (150..).step_by(10).zip(&volumes) {
        put(volume, 0, blocks);
    }
    let pending = || rig.pool.status().pending_entries;
    let of = |volume: &Volume| volume.own_timelines().iter().map(|t| t.pending_counts().0).sum();
    let counts = || -> Vec<usize> { volumes.iter().map(|volume| of(volume)).collect() };
    let before = counts();
    assert!(before.iter().sum::<usize>() >= max && before.iter().all(|&of| of < max), "{before:?}");
    rig.pool.step(Budget { bytes: STEP_BYTES }).expect("stepped");
    let after = counts();
    let kept = after.iter().take_while(|&&of| of > 0).count();
    assert_eq!(after[..kept], before[..kept], "those with less wait on");
    assert!(after[kept..].iter().all(|&of| of == 0), "those with the most do not: {after:?}");
    assert!((max / 4..=max / 2).contains(&(pending() as usize)), "{after:?}");
    put(&volumes[0], 0, 1024);
    put(&volumes[1], 0, 1024);
    rig.pool.step(Budget { bytes: STEP_BYTES }).expect("stepped");
    assert!((pending() as usize) <= max / 2, "as many are written out as that takes");
}

#[test]
fn a_volume_whose_map_cannot_be_written_out_makes_no_other_be_written_out() {
    let rig = Rig::new(1 << 20);
    let max = rig.pool.core.pending_max;
    let (damaged, sound) = (rig.volume("damaged"), rig.volume("sound"));
    rig.settle();
    put(&damaged, 0, max - 1);
    put(&sound, 0, 64);
    assert!(rig.is_full(&damaged), "it has the most of too much");
    damaged.pending().note_flush(true);
    assert!(!rig.is_full(&damaged) && !rig.is_full(&sound));
    put(&damaged, 0, 1);
    assert!(rig.is_full(&damaged) && !rig.is_full(&sound), "it is tried again, as it is full");
}

#[test]
fn writers_that_are_far_ahead_of_the_background_are_held_back_together() {
    let rig = Rig::new(1 << 20);
    let max = rig.pool.core.pending_max;
    // Each has few by itself.
    let volumes: Vec<_> = (0..24).map(|number| rig.volume(&format!("v{number}"))).collect();
    rig.settle();
    for volume in &volumes {
        (0..max as u64 / 2).step_by(64).for_each(|block| put(volume, block, 64));
    }
    let pending = rig.pool.status().pending_entries as usize;
    let most = 3 * max + volumes.len() * (max / 4 + 64);
    assert!(pending < most, "{pending}: nobody did anything but the writers");
    assert!(pending > 2 * max, "{pending}");
}
