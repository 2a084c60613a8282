//! A pool whose device fills up before its zones do: a sparse file beside other files (promise 7).

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Budget, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec,
    WriteOp,
};
use sim::{Op, SimMedia};
use units::Moment;

use crate::hook;

const MIB: usize = 1 << 20;
const LIVE_MIB: usize = 8;

fn open(media: &Arc<SimMedia>) -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::clone(media) as _));
    let clock = Arc::new(RealClock::new());
    let machine = Machine { clock, entropy: Arc::new(RealEntropy::default()) };
    if Pool::open(Arc::clone(&device), machine.clone(), PoolOptions::default()).is_err() {
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: MIB as u64 }).expect("made");
    }
    Pool::open(device, machine, PoolOptions::default()).expect("opened")
}

fn volume(pool: &Pool, name: &str) -> Arc<Volume> {
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new(name, 1 << 30) };
    pool.create_volume(&spec).expect("made")
}

fn put(volume: &Volume, place: usize, byte: u8) -> Result<(), ErrorKind> {
    let bytes = vec![byte; MIB];
    let offset = (place * MIB) as u64;
    match volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.kind),
    }
}

fn holds(volume: &Volume, place: usize, byte: u8) -> bool {
    let mut bytes = vec![0; MIB];
    volume.read((place * MIB) as u64, &mut bytes).expect("read");
    bytes == vec![byte; MIB]
}

#[test]
fn history_gives_way_when_the_device_is_full_though_zones_are_free() {
    let media = Arc::new(SimMedia::new(1 << 30, 1));
    media.set_space_limit(Some(96 << 20));
    let mut pool = open(&media);
    let mut kept = volume(&pool, "v");
    for place in 0..LIVE_MIB {
        put(&kept, place, 1).expect("there is room");
    }
    kept.create_mark("first", &Moment::Latest, true).expect("marked");
    for turn in 2..60u8 {
        for place in 0..LIVE_MIB {
            let done = put(&kept, place, turn);
            assert!(done.is_ok(), "turn {turn}: {done:?} though history is left to give up");
        }
        if turn % 20 == 0 {
            drop((kept, pool));
            pool = open(&media);
            kept = pool.volume("v").expect("it is there");
        }
    }
    assert!((0..LIVE_MIB).all(|place| holds(&kept, place, 59)));
    let first = kept.view(&Moment::Mark("first".to_owned())).expect("pinned");
    let mut bytes = vec![0; LIVE_MIB * MIB];
    first.read(0, &mut bytes).expect("read");
    assert!(bytes == vec![1; LIVE_MIB * MIB], "what is pinned stays");
    let status = pool.status();
    assert_eq!(status.state, "online");
    assert!(status.free_bytes < 96 << 20, "{} bytes are not free", status.free_bytes);
}

#[test]
fn deletes_work_on_a_full_device_and_make_room() {
    let media = Arc::new(SimMedia::new(1 << 30, 2));
    media.set_space_limit(Some(96 << 20));
    let mut pool = open(&media);
    let large = volume(&pool, "large");
    let small = volume(&pool, "small");
    put(&small, 0, 7).expect("there is room");
    let full = (0..200).find_map(|place| put(&large, place, 1).err().map(|kind| (place, kind)));
    let (place, kind) = full.expect("live data does not fit");
    assert_eq!(kind, ErrorKind::Full);
    assert!(place > 40, "only {place} MiB of 96 were had");
    drop((large, small, pool));
    pool = open(&media);
    let small = pool.volume("small").expect("it is there");
    assert!(put(&small, 1, 8).is_err(), "still full");
    pool.delete_volume("large").expect("deleted");
    for place in 1..20 {
        put(&small, place, 8).expect("there is room again");
    }
    assert!(holds(&small, 0, 7) && holds(&small, 19, 8));
}

/// Offsets of the discards and allocations that were asked for, and their lengths.
fn asked(media: &SimMedia, op: Op) -> Vec<(u64, u64)> {
    let asked = media.take_log().into_iter().filter(|record| record.op == op);
    asked.map(|record| (record.offset, record.length_bytes)).collect()
}

fn settle(pool: &Pool) {
    while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
}

/// Work that empties some zones and fills others, again and again, asks the device for nothing:
/// each time it would keep writers of the same file waiting.
#[test]
fn zones_that_were_freed_are_used_again_and_neither_given_back_nor_reserved() {
    let rig = hook::Rig::new(1 << 30, MIB as u64);
    let pool = rig.open();
    let volume = hook::make(&pool, Granularity::EveryWrite, hook::SECOND_NS);
    let turn = |turn: u8| {
        for block in 0..2048 {
            hook::put(&volume, block, turn);
        }
        rig.clock.advance(2 * hook::SECOND_NS);
        settle(&pool);
    };
    (0..4).for_each(turn);
    for op in [Op::Discard, Op::Allocate] {
        rig.media.start_log();
        (0..10).for_each(turn);
        assert_eq!(asked(&rig.media, op), []);
    }
    assert!((0..2048).all(|block| hook::get(&volume, block) == 9));
}

/// A write buffer takes only what it knows to have its space, and knows nothing of what an earlier
/// opening reserved.
#[test]
fn zones_that_an_earlier_opening_used_are_reserved_once_more_before_they_are_used_again() {
    let rig = hook::Rig::new(128 << 20, MIB as u64);
    let pool = rig.open();
    drop(hook::make(&pool, Granularity::EveryWrite, hook::SECOND_NS));
    let turn = |pool: &Pool, turn: u8| {
        let volume = pool.volume("v").expect("made");
        (0..2048).for_each(|block| _ = hook::put(&volume, block, turn));
        rig.clock.advance(2 * hook::SECOND_NS);
        settle(pool);
    };
    (0..8).for_each(|n| turn(&pool, n));
    pool.close().expect("closed");
    drop(pool);
    rig.media.start_log();
    let pool = rig.open();
    (0..32).for_each(|n| turn(&pool, n));
    let (mut reserved, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for record in rig.media.take_log() {
        let zone = record.offset / MIB as u64;
        match record.op {
            Op::Allocate => assert!(reserved.insert(zone), "zone {zone} twice"),
            Op::Discard => _ = reserved.remove(&zone),
            Op::Write if !reserved.contains(&zone) => _ = unknown.insert(zone),
            _ => {}
        }
    }
    // The superblock, the catalogue, and what was made ready before.
    assert!(reserved.len() >= 30 && unknown.len() <= 8, "{reserved:?}, not reserved: {unknown:?}");
}

#[test]
fn more_free_space_than_is_soon_used_goes_back_to_the_device_a_piece_at_a_time() {
    let media = Arc::new(SimMedia::new(1 << 30, 4));
    let pool = open(&media);
    let volumes = ["small", "large"].map(|name| volume(&pool, name));
    put(&volumes[0], 0, 7).expect("there is room");
    settle(&pool);
    let before = media.allocated_bytes();
    (0..200).for_each(|place| put(&volumes[1], place, 1).expect("there is room"));
    settle(&pool);
    assert!(media.allocated_bytes() >= before + (190 << 20));
    drop(volumes);
    pool.delete_volume("large").expect("deleted");
    media.start_log();
    assert!(pool.step(Budget { bytes: 1 << 20 }).expect("a step"), "not all of it at once");
    assert!(asked(&media, Op::Discard).len() <= 4);
    settle(&pool);
    let spared = media.allocated_bytes() - before;
    assert!(spared <= 40 << 20, "{spared} bytes are spared");
    assert!(holds(&pool.volume("small").expect("there"), 0, 7));
    pool.close().expect("closed");
    // But for a zone of times, and one of maps, that may be new.
    assert!(media.allocated_bytes() + (14 << 20) <= before + spared, "nor are they when it ends");
    drop(pool);
    assert!(holds(&open(&media).volume("small").expect("there"), 0, 7));
}
