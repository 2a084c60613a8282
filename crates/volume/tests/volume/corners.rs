//! Where two things meet that are seldom met together: a cache and a revert, a cache and a full
//! pool, one volume's history and another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use block::BlockDevice;
use hindsight_volume::{
    Architecture, Budget, CacheChange, Encoding, EncodingChange, ErrorKind, Granularity, IoCount,
    IoKind, Pool, Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::{Op, Random};
use units::Moment;

use crate::hook::{Rig, SECOND_NS, get, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };

fn step_all(pool: &Pool) {
    while pool.step(ALL).expect("stepped") {}
}

fn named(name: &str, size_bytes: u64, granularity: Granularity, cache: CacheChange) -> VolumeSpec {
    VolumeSpec { granularity, window_ns: 1 << 60, cache, ..VolumeSpec::new(name, size_bytes) }
}

#[test]
fn part_of_a_block_written_beside_a_revert_keeps_nothing_that_a_cache_held() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open_with(16 << 20);
    let cache = CacheChange { bytes: Some(1 << 20), dirty_percent: None };
    let mut spec = named("v", 8 << 20, Granularity::EveryWrite, cache);
    spec.architecture = Architecture::SplitStream;
    let volume = pool.create_volume(&spec).expect("made");
    put(&volume, 5, 1);
    let past = Moment::Seq(volume.resolve(&Moment::Latest).expect("the present").seq);
    let turns = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (volume, turns) = (&volume, &turns);
        let (ask, asked) = channel::<Duration>();
        scope.spawn(move || {
            while let Ok(delay) = asked.recv() {
                // Now and then in the very middle of the revert.
                let began = Instant::now();
                while began.elapsed() < delay {
                    std::hint::spin_loop();
                }
                let op = WriteOp::Data { offset: 5 * 4096 + 100, bytes: &[3; 100] };
                volume.write_batch(&[op]).expect("written");
                turns.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut took = Duration::ZERO;
        for turn in 0..600 {
            put(volume, 5, 2);
            volume.flush().expect("flushed");
            ask.send(took * (turn as u32 % 67) / 64).expect("heard");
            let began = Instant::now();
            volume.revert(&past, false).expect("reverted");
            took = began.elapsed().min(Duration::from_millis(20));
            while turns.load(Ordering::SeqCst) <= turn {
                std::thread::yield_now();
            }
            let mut found = [0; 4096];
            volume.read(5 * 4096, &mut found).expect("read");
            let seen = (found[0], found[4095]);
            assert_eq!(seen, (1, 1), "turn {turn}: of the moment gone back to");
        }
    });
}

#[test]
fn a_cache_that_was_switched_off_stays_off() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open_with(16 << 20);
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let set = |bytes| {
        let cache = CacheChange { bytes: Some(bytes), dirty_percent: None };
        volume.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                put(&volume, 1, 1);
            }
        });
        let others = [1 << 20, 2 << 20, 0].map(|bytes| {
            let set = &set;
            scope.spawn(move || (0..300).for_each(|_| set(bytes)))
        });
        for other in others {
            other.join().expect("changed");
        }
        done.store(true, Ordering::SeqCst);
    });
    set(0);
    put(&volume, 7, 9);
    assert_eq!(volume.info().expect("told").cache, None);
    drop(volume);
    let pool = rig.kill(pool);
    assert_eq!(
        get(&pool.volume("v").expect("there"), 7),
        9,
        "without a cache a kill takes nothing"
    );
}

#[test]
fn volumes_without_any_past_to_give_up_do_not_stand_before_one_that_has() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let none = CacheChange::default();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let other = pool.create_volume(&named(name, 8 << 20, Granularity::OnDemand, none));
        let other = other.expect("made");
        // Many seqs, and nothing of them is kept.
        let zero = |block: u64| WriteOp::Zero { offset: block * 4096, length_bytes: 4096 };
        let ops: Vec<WriteOp<'_>> = (0..1000).map(zero).collect();
        for turn in 0..100 {
            other.write_batch(&ops).expect("trimmed");
            if turn % 10 == 0 {
                step_all(&pool);
            }
        }
    }
    let volume = pool.create_volume(&named("v", 8 << 20, Granularity::EveryWrite, none));
    let volume = volume.expect("made");
    for turn in 0..2000 {
        let op = WriteOp::Data { offset: turn % 128 * 65_536, bytes: &[7; 65_536] };
        let outcome = volume.write_batch(&[op]);
        assert!(outcome.is_ok(), "turn {turn}: {outcome:?} though there is history to give up");
    }
    let given_up = pool.audit(0, 1000).expect("told").into_iter();
    let mut given_up = given_up.filter(|record| record.action == "sacrifice");
    assert!(given_up.all(|record| record.volume == "v"), "the others have nothing to give up");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_large_write_gets_as_much_room_as_history_can_give_up() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let spec = named("v", 32 << 20, Granularity::EveryWrite, CacheChange::default());
    let volume = pool.create_volume(&spec).expect("made");
    let bytes = vec![7; 32 << 20];
    for turn in 0..4 {
        let op = WriteOp::Data { offset: 0, bytes: &bytes };
        let outcome = volume.write_batch(&[op]);
        assert!(outcome.is_ok(), "turn {turn}: {outcome:?} though there is history to give up");
    }
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_write_that_finds_no_room_does_not_go_through_everything_once_more() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let none = CacheChange::default();
    let volume = pool.create_volume(&named("v", 64 << 20, Granularity::OnDemand, none));
    let volume = volume.expect("made");
    let try_put = |block: u64| {
        let op = WriteOp::Data { offset: block * 4096, bytes: &[5; 4096] };
        volume.write_batch(&[op]).map_err(|e| e.kind)
    };
    let full = (0..16_000).find(|&block| try_put(block).is_err()).expect("full");
    let map_bytes = || {
        let io = volume.info().expect("told").device_io;
        let is_map = |count: &&IoCount| matches!(count.kind, IoKind::MapRead | IoKind::MapWrite);
        io.iter().filter(is_map).map(|count| count.bytes).sum::<u64>()
    };
    let before = map_bytes();
    for _ in 0..20 {
        assert_eq!(try_put(full), Err(ErrorKind::Full));
    }
    assert_eq!(map_bytes(), before, "nothing has changed");
    // What is trimmed makes room again.
    let op = WriteOp::Zero { offset: 0, length_bytes: 8 << 20 };
    volume.write_batch(&[op]).expect("a trim takes next to nothing");
    for block in full..full + 500 {
        try_put(block).expect("there is room again");
    }
}

#[test]
fn what_waits_in_a_cache_leaves_room_for_deletes_when_the_pool_is_full() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(64 << 20);
    let cache = CacheChange { bytes: Some(32 << 20), dirty_percent: Some(100) };
    let cached = named("cached", 64 << 20, Granularity::OnDemand, cache);
    let cached = pool.create_volume(&cached).expect("made");
    for block in 0..8000 {
        put(&cached, block, 4);
    }
    let none = CacheChange::default();
    let volume = pool.create_volume(&named("v", 64 << 20, Granularity::OnDemand, none));
    let volume = volume.expect("made");
    let try_put = |volume: &Arc<Volume>, block: u64| {
        let op = WriteOp::Data { offset: block * 4096, bytes: &[5; 4096] };
        volume.write_batch(&[op]).map_err(|e| e.kind)
    };
    for block in 0..4000 {
        put(&volume, block, 1);
    }
    let number = volume.create_version("").expect("captured").number;
    for block in (0..4000).step_by(2) {
        put(&volume, block, 2);
    }
    let full = (4000..16_000).find_map(|block| try_put(&volume, block).err());
    assert_eq!(full, Some(ErrorKind::Full));
    let outcome = cached.flush().map_err(|e| e.kind);
    assert_eq!(outcome, Err(ErrorKind::Full), "there is not so much room");
    volume.delete_version(number).expect("deleted");
    for block in 0..500 {
        try_put(&volume, block).expect("there is room again");
    }
    for block in 0..8000 {
        assert_eq!(get(&cached, block), 4, "block {block}");
    }
    pool.verify_invariants().expect("sound");
}

#[test]
fn damage_in_the_map_of_one_volume_does_not_keep_others_from_making_room() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let none = CacheChange::default();
    let spec = |name| named(name, 8 << 20, Granularity::EveryWrite, none);
    let damaged = pool.create_volume(&spec("a")).expect("made");
    for block in 0..200 {
        put(&damaged, block, 1);
    }
    rig.media.start_log();
    for block in 0..200 {
        put(&damaged, block, 2);
    }
    step_all(&pool);
    drop(damaged);
    let written = rig.media.take_log();
    let written = written.iter().filter(|one| one.op == Op::Write);
    let mut leaves = 0;
    for at in written.flat_map(|one| (one.offset..one.offset + one.length_bytes).step_by(4096)) {
        let mut page = [0; 4096];
        rig.device.read_at(at, &mut page).expect("read");
        if page.starts_with(b"HLEF") {
            rig.media.rot(at + 100, 3);
            leaves += 1;
        }
    }
    assert!(leaves > 0, "there is a map");
    let pool = rig.kill(pool);
    let volume = pool.create_volume(&spec("v")).expect("made");
    let bytes = vec![7; 1 << 20];
    for turn in 0..160 {
        let op = WriteOp::Data { offset: (turn % 8) << 20, bytes: &bytes };
        let outcome = volume.write_batch(&[op]);
        assert!(outcome.is_ok(), "turn {turn}: {outcome:?} though there is history to give up");
    }
    let given_up = pool.audit(0, 1000).expect("told").into_iter();
    let mut given_up = given_up.filter(|record| record.action == "sacrifice");
    assert!(given_up.all(|record| record.volume == "v"), "nothing of what is damaged");
}

#[test]
fn deletes_make_room_among_packs_when_the_pool_is_full() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let none = CacheChange::default();
    let mut spec = named("v", 8 << 20, Granularity::OnDemand, none);
    spec.encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(1) };
    let volume = pool.create_volume(&spec).expect("made");
    let mut random = Random::new(3);
    let mut block = vec![0; 4096];
    let mut numbers = Vec::new();
    for _ in 0..12 {
        for number in 0..1000 {
            // A part of each block is new.
            random.fill(&mut block[..1500]);
            let op = WriteOp::Data { offset: number * 4096, bytes: &block };
            volume.write_batch(&[op]).expect("written");
        }
        numbers.push(volume.create_version("").expect("captured").number);
        rig.clock.advance(100 * SECOND_NS);
        step_all(&pool);
    }
    let packed = volume.info().expect("told").encoding;
    assert!(packed.packed_bytes > 4 << 20, "{packed:?}");
    let other = pool.create_volume(&named("w", 64 << 20, Granularity::OnDemand, none));
    let other = other.expect("made");
    let try_put = |block: u64| {
        let op = WriteOp::Data { offset: block * 4096, bytes: &[5; 4096] };
        other.write_batch(&[op]).map_err(|e| e.kind)
    };
    let full = (0..16_000).find(|&block| try_put(block).is_err()).expect("full");
    for number in &numbers[1..10] {
        volume.delete_version(*number).expect("deleted");
    }
    let more = (full..16_000).find(|&block| try_put(block).is_err()).expect("full");
    let freed = (more - full) * 4096;
    println!("{} bytes of packs, {freed} freed", packed.packed_bytes);
    assert!(freed > packed.packed_bytes / 3, "{freed} bytes of {packed:?}");
    pool.verify_invariants().expect("sound");
}
