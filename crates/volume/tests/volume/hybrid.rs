//! Volumes that choose when a block goes in place: what it costs, and that nothing else depends on
//! it.

use hindsight_volume::{Architecture, Budget, CacheChange, Granularity, IoKind, Volume, WriteOp};
use units::{Moment, WallTime};

use crate::cached::Rig;

const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
const WINDOW_NS: u64 = 60 * SECOND;
const CACHE: CacheChange = CacheChange { bytes: Some(1 << 20), dirty_percent: Some(10) };

fn put(rig: &Rig, volume: &Volume, block: u64, byte: u8) {
    rig.clock.advance(SECOND / 10);
    let bytes = vec![byte; BLOCK as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written");
}

fn blocks(volume: &Volume, kind: IoKind) -> u64 {
    let io = volume.device_io();
    io.iter().find(|count| count.kind == kind).expect("every kind is told").bytes / BLOCK
}

fn deferred(volume: &Volume) -> u64 {
    volume.info().expect("info").deferred_bytes / BLOCK
}

fn settle(rig: &Rig) {
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("step") {}
}

/// Reads blocks; says how many device reads in place and in the log that took.
fn read(volume: &Volume, blocks: std::ops::Range<u64>, byte: u8) -> (u64, u64) {
    let reads = || {
        let io = volume.device_io();
        let of = |kind| io.iter().find(|count| count.kind == kind).expect("told").requests;
        (of(IoKind::CurrentRead), of(IoKind::HistoryRead))
    };
    let before = reads();
    for block in blocks {
        let mut bytes = vec![0; BLOCK as usize];
        volume.read(block * BLOCK, &mut bytes).expect("read");
        assert!(bytes.iter().all(|b| *b == byte), "block {block} is {}, not {byte}", bytes[0]);
    }
    let after = reads();
    (after.0 - before.0, after.1 - before.1)
}

/// A volume whose first ten blocks are written all the time, and ten others once a window.
fn warm(rig: &Rig, granularity: Granularity) -> std::sync::Arc<Volume> {
    let volume = rig.make("v", (Architecture::Hybrid, granularity, CACHE));
    for _ in 0..4 {
        for turn in 0..500_u64 {
            put(rig, &volume, turn % 10, 1);
            if turn % 50 == 0 {
                put(rig, &volume, 1000 + turn / 50, 1);
            }
            if turn % 20 == 0 {
                volume.flush().expect("flushed");
                settle(rig);
            }
        }
        let now_ns = volume.now().as_nanos();
        let next = (now_ns / WINDOW_NS + 1) * WINDOW_NS;
        rig.clock.set_wall(WallTime::from_nanos(next));
        settle(rig);
    }
    volume
}

#[test]
fn what_is_written_again_waits_for_its_place_and_what_is_not_goes_there_at_once() {
    let rig = Rig::new();
    let volume = warm(&rig, Granularity::Interval(WINDOW_NS));
    assert_eq!(deferred(&volume), 0, "a window has just begun");
    let placed = blocks(&volume, IoKind::CurrentWrite);
    let late = blocks(&volume, IoKind::DeferredWrite);
    assert_eq!(blocks(&volume, IoKind::DeferredRead), late);
    (0..10).for_each(|block| put(&rig, &volume, block, 2));
    (2000..2010).for_each(|block| put(&rig, &volume, block, 3));
    volume.flush().expect("flushed");
    assert_eq!(deferred(&volume), 10, "the hot ones");
    assert_eq!(blocks(&volume, IoKind::CurrentWrite) - placed, 10, "the new ones");
    settle(&rig);
    assert_eq!(deferred(&volume), 10, "the window is not over");
    // Past the cache.
    let view = volume.view(&Moment::Latest).expect("now");
    let mut bytes = vec![0; BLOCK as usize];
    view.read(0, &mut bytes).expect("read");
    assert_eq!(bytes[0], 2);
    // One is written again in time, and in place at once in the next window.
    put(&rig, &volume, 5, 4);
    rig.clock.advance(60 * SECOND);
    volume.flush().expect("flushed");
    settle(&rig);
    assert_eq!(deferred(&volume), 0);
    assert_eq!(blocks(&volume, IoKind::DeferredWrite) - late, 9);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn on_demand_places_wait_ten_minutes_at_most() {
    let rig = Rig::new();
    let volume = warm(&rig, Granularity::OnDemand);
    (0..10).for_each(|block| put(&rig, &volume, block, 2));
    volume.flush().expect("flushed");
    assert!(deferred(&volume) >= 10);
    rig.clock.advance(600 * SECOND);
    settle(&rig);
    assert_eq!(deferred(&volume), 0);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn a_place_that_waits_is_read_from_the_log_and_then_in_place() {
    let mut rig = Rig::new();
    let volume = warm(&rig, Granularity::Interval(WINDOW_NS));
    (0..10).for_each(|block| put(&rig, &volume, block, 2));
    volume.flush().expect("flushed");
    assert_eq!(deferred(&volume), 10);
    drop(volume);
    let volume = rig.kill();
    assert_eq!(deferred(&volume), 0, "nothing in place is trusted, and all of it is put there");
    assert_eq!(read(&volume, 0..10, 2).0, 0);
    settle(&rig);
    drop(volume);
    let volume = rig.kill();
    settle(&rig);
    let (placed, logged) = read(&volume, 0..10, 2);
    assert_eq!((placed, logged), (10, 0));
    assert_eq!(read(&volume, 1000..1010, 1).1, 0);
}

#[test]
fn what_waited_is_put_in_place_when_the_architecture_changes() {
    let rig = Rig::new();
    let volume = warm(&rig, Granularity::Interval(WINDOW_NS));
    (0..10).for_each(|block| put(&rig, &volume, block, 2));
    volume.flush().expect("flushed");
    assert_eq!(deferred(&volume), 10);
    let to = |architecture| hindsight_volume::VolumeChange {
        architecture: Some(architecture),
        ..Default::default()
    };
    let late = blocks(&volume, IoKind::DeferredWrite);
    volume.change(&to(Architecture::SplitStream)).expect("changed");
    settle(&rig);
    assert_eq!(deferred(&volume), 0);
    assert_eq!(blocks(&volume, IoKind::DeferredWrite) - late, 10);
    volume.change(&to(Architecture::Hybrid)).expect("and back");
    (0..10).for_each(|block| put(&rig, &volume, block, 3));
    volume.change(&to(Architecture::Logging)).expect("away from places");
    settle(&rig);
    assert_eq!(deferred(&volume), 0);
    read(&volume, 0..10, 3);
}

#[test]
fn with_every_write_it_is_split_stream_behind_a_cache() {
    let placed = |architecture| {
        let rig = Rig::new();
        let volume = rig.make("v", (architecture, Granularity::EveryWrite, CACHE));
        for turn in 0..300 {
            put(&rig, &volume, turn % 7, turn as u8);
        }
        volume.flush().expect("flushed");
        assert_eq!(deferred(&volume), 0);
        blocks(&volume, IoKind::CurrentWrite)
    };
    assert_eq!(placed(Architecture::Hybrid), placed(Architecture::SplitStream));
}
