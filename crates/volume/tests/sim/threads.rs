//! Many threads on one volume: what the simulator, which has one thread, cannot show.
//!
//! Each writer owns a byte range whose ends lie within blocks, so that neighbours merge into the
//! same blocks; its range must hold its last bytes whatever the others do. Views must not change
//! under anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Architecture, Budget, CacheChange, Machine, Pool, PoolFormat, PoolOptions, Volume,
    VolumeChange, VolumeSpec, WriteOp,
};
use sim::Random;
use units::Moment;

use crate::check::content_of;

const WRITERS: u64 = 4;
/// Bytes of a writer's range: no multiple of a block.
const RANGE_BYTES: u64 = 300_123;
const WRITES: u64 = 400;

fn volume(architecture: Architecture, cache: CacheChange) -> (Arc<Pool>, Arc<Volume>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 30));
    let clock = Arc::new(RealClock::new());
    let machine = Machine { clock, entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("a pool");
    let pool = Pool::open(device, machine, PoolOptions { memory_bytes: 2 << 20 }).expect("opens");
    let spec =
        VolumeSpec { architecture, window_ns: 1 << 60, cache, ..VolumeSpec::new("v", 2 << 20) };
    let volume = pool.create_volume(&spec).expect("a volume");
    (pool, volume)
}

/// Writes in its own range, reads back, and returns what the range must hold.
fn write_and_read(volume: &Volume, writer: u64) -> Vec<u8> {
    let mut random = Random::new(writer);
    let start = 1000 + writer * RANGE_BYTES;
    let mut mine = vec![0; RANGE_BYTES as usize];
    for turn in 0..WRITES {
        let offset = random.below(RANGE_BYTES);
        let length = random.between(1, 30_000).min(RANGE_BYTES - offset);
        let range = offset as usize..(offset + length) as usize;
        if random.chance(100) {
            mine[range].fill(0);
            let op = WriteOp::Zero { offset: start + offset, length_bytes: length };
            volume.write_batch(&[op]).expect("a write");
        } else {
            random.fill(&mut mine[range.clone()]);
            let op = WriteOp::Data { offset: start + offset, bytes: &mine[range] };
            volume.write_batch(&[op]).expect("a write");
        }
        if turn % 16 == 0 {
            volume.flush().expect("a flush");
            let mut seen = vec![0; RANGE_BYTES as usize];
            volume.read(start, &mut seen).expect("a read");
            assert!(seen == mine, "writer {writer} turn {turn}: its range changed under it");
        }
    }
    mine
}

/// Opens the present and past moments again and again; each shows the same bytes twice.
fn look_back(volume: &Arc<Volume>, done: &AtomicBool) {
    let mut random = Random::new(99);
    while !done.load(Ordering::SeqCst) {
        let latest = volume.resolve(&Moment::Latest).expect("the present").seq;
        let past = units::Seq(random.between(0, latest.0));
        let view = volume.view(&Moment::Seq(past)).expect("all of it is in the window");
        assert_eq!(view.resolved().seq, past);
        let first = content_of(&view).expect("a read");
        std::thread::yield_now();
        let again = volume.view(&Moment::Seq(past)).expect("still in the window");
        assert!(content_of(&view).expect("a read") == first, "seq {past}: a view changed");
        assert!(
            content_of(&again).expect("a read") == first,
            "seq {past}: opened twice, two pasts"
        );
    }
}

fn disturb(architecture: Architecture, cache: CacheChange) {
    let (pool, volume) = volume(architecture, cache);
    let done = AtomicBool::new(false);
    let ranges = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || write_and_read(volume, writer))
            })
            .collect();
        scope.spawn(|| look_back(&volume, &done));
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                if !pool.step(Budget { bytes: 1 << 20 }).expect("background work") {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let number = volume.create_version("").expect("a version").number;
                volume.delete_version(number).expect("the same version");
            }
        });
        let ranges: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        ranges
    });
    for (writer, mine) in (0..).zip(ranges) {
        let mine = mine.expect("the writer found nothing wrong");
        let mut seen = vec![0; mine.len()];
        volume.read(1000 + writer * RANGE_BYTES, &mut seen).expect("a read");
        assert!(seen == mine, "range of writer {writer} at the end");
    }
    pool.verify_invariants().expect("the invariants");
    pool.close().expect("a clean end");
}

#[test]
fn neighbours_in_one_block_and_readers_of_the_past_do_not_disturb_each_other() {
    disturb(Architecture::Logging, CacheChange::default());
}

#[test]
fn neither_do_they_when_the_present_lies_in_place_as_well() {
    disturb(Architecture::SplitStream, CacheChange::default());
}

/// Small, so that it is always full.
const SMALL: CacheChange = CacheChange { bytes: Some(512 << 10), dirty_percent: Some(50) };

#[test]
fn neither_do_they_through_a_cache() {
    disturb(Architecture::Logging, SMALL);
}

#[test]
fn neither_do_they_when_log_and_present_are_written_behind_a_cache() {
    disturb(Architecture::SplitDownstream, SMALL);
    disturb(Architecture::Hybrid, SMALL);
    disturb(Architecture::SplitStream, SMALL);
}

#[test]
fn a_cache_is_switched_on_and_off_under_writers() {
    let (pool, volume) = volume(Architecture::Logging, CacheChange::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || write_and_read(volume, writer))
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                for cache in [SMALL, CacheChange { bytes: Some(0), dirty_percent: None }] {
                    let change = VolumeChange { cache, ..VolumeChange::default() };
                    volume.change(&change).expect("switched");
                    std::thread::yield_now();
                }
            }
        });
        let ranges: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        for (writer, mine) in (0..).zip(ranges) {
            let mine = mine.expect("the writer found nothing wrong");
            let mut seen = vec![0; mine.len()];
            volume.read(1000 + writer * RANGE_BYTES, &mut seen).expect("a read");
            assert!(seen == mine, "range of writer {writer} at the end");
        }
    });
    pool.close().expect("a clean end");
}

#[test]
fn neither_do_they_where_blocks_come_home_meanwhile() {
    disturb(Architecture::Redirect, CacheChange::default());
    disturb(Architecture::Checkpointing, CacheChange::default());
}
