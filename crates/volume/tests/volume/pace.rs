//! Writes that go as far as they get without waiting, and wait with nothing in their hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use block::{BlockDevice, MemoryDevice, Operation};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Architecture, Budget, CacheChange, Error, ErrorKind, Granularity, Lack, Machine, Pool,
    PoolFormat, PoolOptions, RoomWait, Volume, VolumeSpec, WriteOp, Written,
};
use parking_lot::Mutex;
use sim::Random;
use units::Moment;

use crate::full::spec;
use crate::hook::{self, Rig, put};

const MIB: u64 = 1 << 20;
const SIZE_BYTES: u64 = 2 * MIB;
const CACHED: CacheChange = CacheChange { bytes: Some(512 << 10), dirty_percent: Some(50) };

fn pool(bytes: u64) -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes));
    let clock = Arc::new(RealClock::new());
    let machine = Machine { clock, entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: MIB / 4 }).expect("made");
    Pool::open(device, machine, PoolOptions::default()).expect("opened")
}

fn volume(pool: &Pool, architecture: Architecture, cache: CacheChange) -> Arc<Volume> {
    let spec = VolumeSpec { size_bytes: SIZE_BYTES, ..spec("v", architecture, cache) };
    pool.create_volume(&spec).expect("made")
}

/// What was met on the way of writes.
#[derive(Debug, Default)]
struct Met {
    lacked_room: u64,
    /// Parts that ended within an op.
    parts: u64,
}

/// Writes as a front end does that must not wait: some, then for what is lacking, and the rest.
fn write(volume: &Volume, ops: &[WriteOp<'_>], met: &mut Met) -> Result<(), Error> {
    let (mut done, mut wait) = (0, RoomWait::default());
    let mut may_wait = false;
    loop {
        let Written::Part { bytes, lacks } = volume.write_some(ops, done, may_wait)? else {
            return Ok(());
        };
        assert!(bytes >= done, "what is done stays done");
        if bytes > done {
            wait = RoomWait::default();
            met.parts += 1;
        }
        (done, may_wait) = (bytes, true);
        met.lacked_room += u64::from(lacks == Lack::Room);
        volume.wait_for(lacks, &mut wait, &|| true)?;
    }
}

/// Writes as a thread does that serves others too: what it would have to wait for, and the rest, is
/// another's. Says whether that was so.
fn write_beside(volume: &Volume, ops: &[WriteOp<'_>]) -> bool {
    let Written::Part { mut bytes, mut lacks } = volume.write_some(ops, 0, false).expect("tried")
    else {
        return false;
    };
    let patiently = || {
        loop {
            let mut wait = RoomWait::default();
            volume.wait_for(lacks, &mut wait, &|| true).expect("had");
            match volume.write_some(ops, bytes, true).expect("written") {
                Written::All => return,
                Written::Part { bytes: done, lacks: other } => (bytes, lacks) = (done, other),
            }
        }
    };
    thread::scope(|scope| scope.spawn(patiently).join().expect("it is written"));
    true
}

fn random_ops<'b>(random: &mut Random, bytes: &'b [u8]) -> Vec<WriteOp<'b>> {
    let op = |random: &mut Random| {
        let unit = if random.chance(300) { 1 } else { 4096 };
        let most = if random.chance(100) { 700 << 10 } else { 40_000 };
        let length = (random.between(1, most) / unit).max(1) * unit;
        let offset = random.below((SIZE_BYTES - length) / unit) * unit;
        match random.chance(100) {
            true => WriteOp::Zero { offset, length_bytes: length },
            false => {
                let from = random.below(bytes.len() as u64 - length) as usize;
                WriteOp::Data { offset, bytes: &bytes[from..from + length as usize] }
            }
        }
    };
    let count = random.between(1, 6);
    (0..count).map(|_| op(random)).collect()
}

fn lay(model: &mut [u8], op: &WriteOp<'_>) {
    match *op {
        WriteOp::Data { offset, bytes } => {
            model[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        WriteOp::Zero { offset, length_bytes } => {
            model[offset as usize..][..length_bytes as usize].fill(0);
        }
    }
}

#[test]
fn what_is_written_in_parts_is_what_was_to_be_written() {
    for (number, architecture) in Architecture::ALL.into_iter().enumerate() {
        for cache in [CacheChange::default(), CACHED] {
            if architecture.needs_cache() && cache == CacheChange::default() {
                continue;
            }
            let pool = pool(14 * MIB);
            let volume = volume(&pool, architecture, cache);
            let mut random = Random::new(number as u64);
            let mut bytes = vec![0; MIB as usize];
            random.fill(&mut bytes);
            let mut model = vec![0; SIZE_BYTES as usize];
            let mut met = Met::default();
            for turn in 0..600 {
                let ops = random_ops(&mut random, &bytes);
                if let Err(e) = write(&volume, &ops, &mut met) {
                    panic!("{architecture:?}, {cache:?}, turn {turn}: {e} ({:?})", met);
                }
                ops.iter().for_each(|op| lay(&mut model, op));
            }
            let mut there = vec![0; SIZE_BYTES as usize];
            volume.read(0, &mut there).expect("it reads");
            assert!(there == model, "{architecture:?}, {cache:?}");
            assert!(met.lacked_room > 0, "{architecture:?}, {cache:?}: {met:?}");
            pool.verify_invariants().expect("sound");
        }
    }
}

#[test]
fn who_must_not_wait_neither_flushes_nor_reads_nor_reserves_space() {
    for (number, architecture) in Architecture::ALL.into_iter().enumerate() {
        for cache in [CacheChange::default(), CACHED] {
            if architecture.needs_cache() && cache == CacheChange::default() {
                continue;
            }
            for stack in ["a", "mirror(a, b)", "parity(a, b, c)"] {
                let spec = VolumeSpec { size_bytes: 16 * MIB, ..spec("v", architecture, cache) };
                must_not_wait(stack, &spec, number as u64);
            }
        }
    }
}

fn must_not_wait(stack: &str, spec: &VolumeSpec, seed: u64) {
    let what = format!("{stack}, {:?}, {:?}", spec.architecture, spec.cache);
    let has_parity = stack.starts_with("parity");
    let (devices, pool) = hook::members(stack, 256 * MIB);
    let volume = pool.create_volume(spec).expect("made");
    let waits: Arc<Mutex<Vec<Operation>>> = Arc::default();
    for device in &devices {
        let (seen, me) = (Arc::clone(&waits), thread::current().id());
        device.hook(move |operation, _| {
            // A parity reads what a small write replaces, whoever writes.
            let is_its = has_parity && operation == Operation::Read;
            if operation != Operation::Write && !is_its && thread::current().id() == me {
                seen.lock().push(operation);
            }
        });
    }
    let mut random = Random::new(seed);
    let mut bytes = vec![0; spec.size_bytes as usize];
    random.fill(&mut bytes);
    let mut model = bytes.clone();
    let mut handed_over = 0;
    for (offset, bytes) in (0..).step_by(64 << 10).zip(bytes.chunks(64 << 10)) {
        let op = [WriteOp::Data { offset, bytes }];
        handed_over += u64::from(write_beside(&volume, &op));
    }
    for turn in 0..400 {
        let length = 4096 * random.between(1, 32);
        let offset = random.below((spec.size_bytes - length) / 4096) * 4096;
        let from = random.below(spec.size_bytes - length) as usize;
        let data = &bytes[from..from + length as usize];
        let op = match random.chance(100) {
            true => WriteOp::Zero { offset, length_bytes: length },
            false => WriteOp::Data { offset, bytes: data },
        };
        if turn % 40 == 0 {
            // Marks are taken back where it was quiet meanwhile.
            let tidy = || (0..2).for_each(|_| pool.tidy_members().expect("tidied"));
            thread::scope(|scope| scope.spawn(tidy).join().expect("done"));
        }
        write_beside(&volume, &[op]);
        lay(&mut model, &op);
        volume.try_read(offset, &mut vec![0; length as usize]).expect("tried");
    }
    devices.iter().for_each(|device| device.unhook());
    assert_eq!(*waits.lock(), [], "{what}");
    assert!(handed_over > 0, "{what}: there is no background");
    let mut there = vec![0; spec.size_bytes as usize];
    volume.read(0, &mut there).expect("it reads");
    assert!(there == model, "{what}");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_part_of_a_block_lets_go_of_its_lock_when_it_lacks_room() {
    let pool = pool(14 * MIB);
    let volume = volume(&pool, Architecture::Logging, CacheChange::default());
    let bytes = vec![7; 100_000];
    let op = [WriteOp::Data { offset: 100, bytes: &bytes }];
    let lacks = (0..500).find_map(|_| match volume.write_some(&op, 0, true).expect("written") {
        Written::All => None,
        Written::Part { bytes, lacks } => Some((bytes, lacks)),
    });
    let (done, lacks) = lacks.expect("history fills the pool");
    assert_eq!(lacks, Lack::Room);
    volume.wait_for(lacks, &mut RoomWait::default(), &|| true).expect("history makes room");
    pool.step(Budget { bytes: 0 }).expect("segments are ready");
    // Whoever held the lock would keep this from being done.
    let same = [WriteOp::Data { offset: 0, bytes: &[1; 4096] }];
    assert_eq!(volume.write_some(&same, 0, false).expect("tried"), Written::All);
    assert_eq!(volume.write_some(&op, done, true).expect("written"), Written::All);
    let mut there = vec![0; 100_000];
    volume.read(100, &mut there).expect("it reads");
    assert!(there[4096..] == bytes[4096..]);
}

#[test]
fn who_waits_for_room_gives_up_when_it_is_told() {
    let rig = Rig::new(24 * MIB, MIB / 4);
    let pool = rig.open();
    let volume = hook::make(&pool, Granularity::EveryWrite, 1 << 60);
    let bytes = vec![1; 64 << 10];
    let op = [WriteOp::Data { offset: 0, bytes: &bytes }];
    let lacks_room = |_: &u32| match volume.write_some(&op, 0, true).expect("tried") {
        Written::Part { lacks: Lack::Map, .. } => {
            volume.wait_for(Lack::Map, &mut RoomWait::default(), &|| true).expect("written out");
            false
        }
        written => written != Written::All,
    };
    (0..1000).find(lacks_room).expect("history fills the pool");
    // Making room reads: from then on nobody wants it.
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&reads);
    rig.device.hook(move |operation, _| {
        if operation == Operation::Read {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    let goes_on = || reads.load(Ordering::SeqCst) == 0;
    let outcome = volume.wait_for(Lack::Room, &mut RoomWait::default(), &goes_on);
    assert_eq!(outcome.expect_err("given up").kind, ErrorKind::Full);
    let until_then = reads.load(Ordering::SeqCst);
    assert!(until_then > 0, "it had begun");
    volume
        .wait_for(Lack::Room, &mut RoomWait::default(), &|| false)
        .expect_err("it does not even begin");
    assert_eq!(reads.load(Ordering::SeqCst), until_then);
    // What was begun harms nothing.
    volume.wait_for(Lack::Room, &mut RoomWait::default(), &|| true).expect("there is history");
    assert!(!lacks_room(&0), "there is some");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_long_trim_of_a_cached_volume_makes_no_room_with_its_blocks_locked() {
    let rig = Rig::new(24 * MIB, MIB / 4);
    let pool = rig.open_with(16 << 20);
    let volume = volume(&pool, Architecture::Logging, CACHED);
    let bytes = vec![1; 64 << 10];
    let op = [WriteOp::Data { offset: 0, bytes: &bytes }];
    let lacks_room = |_: &u32| match volume.write_some(&op, 0, true).expect("tried") {
        Written::Part { lacks: Lack::Map, .. } => {
            volume.wait_for(Lack::Map, &mut RoomWait::default(), &|| true).expect("written out");
            false
        }
        written => written != Written::All,
    };
    (0..2000).find(lacks_room).expect("history fills the pool");
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&reads);
    rig.device.hook(move |operation, _| {
        if operation == Operation::Read {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    let trim = [WriteOp::Zero { offset: 0, length_bytes: MIB }];
    let written = volume.write_some(&trim, 0, true).expect("as far as it gets");
    assert!(matches!(written, Written::All | Written::Part { bytes: 0, lacks: Lack::Room }));
    assert_eq!(reads.load(Ordering::SeqCst), 0, "making room reads");
    rig.device.unhook();
    write(&volume, &trim, &mut Met::default()).expect("there is history");
    let mut there = vec![7; MIB as usize];
    volume.read(0, &mut there).expect("it reads");
    assert!(there.iter().all(|&byte| byte == 0));
    write(&volume, &op, &mut Met::default()).expect("there is history");
    volume.flush().expect("flushed");
    pool.verify_invariants().expect("sound");
}

#[test]
fn whoever_destages_is_not_waited_for() {
    let rig = Rig::new(64 * MIB, MIB / 4);
    let pool = rig.open_with(16 << 20);
    let volume = volume(&pool, Architecture::Logging, CACHED);
    let fill = || {
        for block in 0..64 {
            put(&volume, block, 1);
        }
    };
    // Spare segments, so that the first write of the next run is one.
    fill();
    volume.flush().expect("flushed");
    fill();
    let met: Arc<Mutex<Vec<Written>>> = Arc::default();
    let (seen, writer) = (Arc::clone(&met), Arc::clone(&volume));
    let is_acting = AtomicBool::new(false);
    rig.device.hook(move |operation, _| {
        if operation == Operation::Write && !is_acting.swap(true, Ordering::SeqCst) {
            let op = [WriteOp::Data { offset: 0, bytes: &[2; 4096] }];
            seen.lock().push(writer.write_some(&op, 0, false).expect("tried"));
            is_acting.store(false, Ordering::SeqCst);
        }
    });
    put(&volume, 100, 3);
    rig.device.unhook();
    let stopped = Written::Part { bytes: 0, lacks: Lack::Turn };
    assert_eq!(met.lock().first(), Some(&stopped));
    let op = [WriteOp::Data { offset: 0, bytes: &[2; 4096] }];
    assert_eq!(volume.write_some(&op, 0, true).expect("an instant"), Written::All);
}

#[test]
fn a_volume_that_stands_still_is_not_waited_for() {
    let rig = Rig::new(64 * MIB, MIB / 4);
    let pool = rig.open();
    let volume = hook::make(&pool, Granularity::EveryWrite, 1 << 60);
    let before = put(&volume, 1, 1);
    put(&volume, 1, 2);
    let met: Arc<Mutex<Vec<Written>>> = Arc::default();
    let (seen, writer) = (Arc::clone(&met), Arc::clone(&volume));
    let is_acting = AtomicBool::new(false);
    rig.device.hook(move |operation, _| {
        if operation == Operation::Flush && !is_acting.swap(true, Ordering::SeqCst) {
            let op = [WriteOp::Data { offset: 8192, bytes: &[2; 4096] }];
            let written = writer.write_some(&op, 0, false).expect("tried");
            seen.lock().push(written);
            is_acting.store(false, Ordering::SeqCst);
        }
    });
    volume.revert(&Moment::Seq(before), false).expect("reverted");
    rig.device.unhook();
    let stopped = Written::Part { bytes: 0, lacks: Lack::Turn };
    assert!(met.lock().contains(&stopped), "{:?}", met.lock());
    volume.wait_for(Lack::Turn, &mut RoomWait::default(), &|| true).expect("an instant");
}

#[test]
fn a_segment_that_is_made_ready_is_not_waited_for() {
    let rig = Rig::new(64 * MIB, MIB);
    let pool = rig.open_with(16 << 20);
    let volume = hook::make(&pool, Granularity::EveryWrite, 1 << 60);
    put(&volume, 0, 1);
    let met: Arc<Mutex<Vec<Written>>> = Arc::default();
    let (seen, writer) = (Arc::clone(&met), Arc::clone(&volume));
    rig.device.hook(move |operation, _| {
        if operation == Operation::Flush {
            let op = [WriteOp::Data { offset: 4096, bytes: &[2; 4096] }];
            let other = || writer.write_some(&op, 0, false).expect("tried");
            let written = thread::scope(|scope| scope.spawn(other).join().expect("it returns"));
            seen.lock().push(written);
        }
    });
    // Four of these do not fit a segment, but three of them and some single blocks do.
    let large = vec![3; 256 << 10];
    let op = [WriteOp::Data { offset: MIB, bytes: &large }];
    for _ in 0..3 * 7 {
        assert_eq!(volume.write_some(&op, 0, true).expect("written"), Written::All);
    }
    rig.device.unhook();
    let met = std::mem::take(&mut *met.lock());
    assert!(!met.is_empty() && met.iter().all(|one| *one == Written::All), "{met:?}");
    assert_eq!(hook::get(&volume, 1), 2);
}

#[test]
fn blocks_that_are_being_merged_are_not_waited_for() {
    for cache in [CacheChange::default(), CACHED] {
        let rig = Rig::new(64 * MIB, MIB / 4);
        let pool = rig.open_with(16 << 20);
        let volume = volume(&pool, Architecture::Logging, cache);
        put(&volume, 1, 1);
        volume.flush().expect("flushed");
        drop(volume);
        // Nothing is cached any more.
        let pool = rig.kill(pool);
        let volume = pool.volume("v").expect("it is there");
        put(&volume, 9, 9);
        let met: Arc<Mutex<Vec<Written>>> = Arc::default();
        let (seen, writer) = (Arc::clone(&met), Arc::clone(&volume));
        let is_acting = AtomicBool::new(false);
        rig.device.hook(move |operation, _| {
            if operation == Operation::Read && !is_acting.swap(true, Ordering::SeqCst) {
                let op = [WriteOp::Data { offset: 4096, bytes: &[2; 4096] }];
                let written = writer.write_some(&op, 0, false).expect("tried");
                seen.lock().push(written);
                is_acting.store(false, Ordering::SeqCst);
            }
        });
        let part = [WriteOp::Data { offset: 5000, bytes: &[3; 10] }];
        assert_eq!(volume.write_some(&part, 0, true).expect("written"), Written::All);
        rig.device.unhook();
        let stopped = Written::Part { bytes: 0, lacks: Lack::Turn };
        let met = std::mem::take(&mut *met.lock());
        assert!(!met.is_empty() && met.iter().all(|one| *one == stopped), "{met:?}, {cache:?}");
        let op = [WriteOp::Data { offset: 4096, bytes: &[2; 4096] }];
        assert_eq!(volume.write_some(&op, 0, false).expect("written"), Written::All);
    }
}

#[test]
fn a_writer_ahead_of_the_map_is_held_back_once() {
    let rig = Rig::new(256 * MIB, MIB);
    let pool = rig.open();
    let volume = hook::make(&pool, Granularity::EveryWrite, 1 << 60);
    let bytes = vec![1; 256 << 10];
    let op = [WriteOp::Data { offset: 0, bytes: &bytes }];
    let held = (0..800).find_map(|_| match volume.write_some(&op, 0, true).expect("written") {
        Written::All => None,
        Written::Part { bytes, lacks } => Some((bytes, lacks)),
    });
    assert_eq!(held, Some((bytes.len() as u64, Lack::Map)), "all of it is written");
    volume.wait_for(Lack::Map, &mut RoomWait::default(), &|| true).expect("written out");
    let before = volume.info().expect("told").latest.seq;
    assert_eq!(volume.write_some(&op, bytes.len() as u64, true).expect("ended"), Written::All);
    assert_eq!(volume.info().expect("told").latest.seq, before, "nothing is written again");
    assert_eq!(volume.write_some(&op, 0, true).expect("written"), Written::All);
}
