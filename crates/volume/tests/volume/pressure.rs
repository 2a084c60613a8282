//! Many writers and little room: what they wrote over is room, and they wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Error, ErrorKind, Granularity, Lack, Machine, Pool, PoolFormat, PoolOptions, RoomWait,
    Volume, VolumeSpec, WriteOp, Written,
};
use sim::Random;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const SIZE_BYTES: u64 = 16 * MIB;
/// So much at a time that a segment is soon full, and whoever comes next wants another.
const REQUEST_BYTES: u64 = 64 << 10;

/// A pool in memory with room for a volume so many times.
fn pool(times: u64) -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(times * SIZE_BYTES));
    let clock = Arc::new(RealClock::new());
    let machine = Machine { clock, entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: MIB / 2 }).expect("made");
    Pool::open(device, machine, PoolOptions::default()).expect("opened")
}

fn volume(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 0,
        ..VolumeSpec::new("v", SIZE_BYTES)
    };
    pool.create_volume(&spec).expect("made")
}

/// Writes until so many requests were made by all, or one write fails.
fn write(volume: &Volume, random: &mut Random, left: &AtomicU64) -> Result<(), Error> {
    let blocks = (SIZE_BYTES - REQUEST_BYTES) / BLOCK;
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        let offset = random.below(blocks) * BLOCK;
        let bytes = [random.below(256) as u8; REQUEST_BYTES as usize];
        volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }])?;
    }
    Ok(())
}

#[test]
fn writers_wait_for_what_they_wrote_over_and_are_not_told_that_the_pool_is_full() {
    for writers in [1, 4, 64] {
        let pool = pool(4);
        let volume = volume(&pool);
        let left = AtomicU64::new(12_000);
        let is_over = AtomicBool::new(false);
        let failed: Vec<Error> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match pool.step(Budget { bytes: 8 * MIB }) {
                        Ok(true) => {}
                        Err(e) if e.kind != ErrorKind::Full => panic!("background work: {e}"),
                        Ok(false) | Err(_) => std::thread::yield_now(),
                    }
                }
            });
            let one = |seed: u64| {
                let (volume, left) = (&volume, &left);
                scope.spawn(move || write(volume, &mut Random::new(seed), left).err())
            };
            let all: Vec<_> = (0..writers).map(one).collect();
            let failed = all.into_iter().filter_map(|one| one.join().expect("no panic"));
            let failed = failed.collect();
            is_over.store(true, Ordering::Relaxed);
            failed
        });
        assert!(failed.is_empty(), "{} of {writers} writers: {}", failed.len(), failed[0]);
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn a_full_pool_goes_on_while_versions_come_and_go() {
    const REQUESTS: u64 = 1500;
    let pool = pool(2);
    let volume = volume(&pool);
    let is_over = Arc::new(AtomicBool::new(false));
    let (ended, ends) = channel();
    // Not joined before they have said that they ended: threads that wait for each other never do.
    let versions = std::thread::spawn({
        let (volume, is_over, ended) = (Arc::clone(&volume), Arc::clone(&is_over), ended.clone());
        move || {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                match volume.create_version("") {
                    Ok(made) => volume.delete_version(made.number).expect("it is there"),
                    Err(e) => assert_eq!(e.kind, ErrorKind::Full, "{e}"),
                }
                count += 1;
            }
            ended.send(()).expect("somebody waits");
            count
        }
    });
    let writer = std::thread::spawn(move || {
        let mut random = Random::new(1);
        for _ in 0..REQUESTS {
            let written = write(&volume, &mut random, &AtomicU64::new(1));
            assert!(
                written.as_ref().err().is_none_or(|e| e.kind == ErrorKind::Full),
                "{written:?}"
            );
        }
        is_over.store(true, Ordering::Relaxed);
        ended.send(()).expect("somebody waits");
    });
    let have_ended = (0..2).all(|_| ends.recv_timeout(Duration::from_secs(60)).is_ok());
    if !have_ended {
        // Nor is the pool dropped: that would wait for them.
        std::mem::forget(pool);
        panic!("threads wait for each other for ever");
    }
    writer.join().expect("no panic");
    assert!(versions.join().expect("no panic") > 10, "versions came and went");
}

#[test]
fn a_writer_finds_room_in_a_pool_full_of_history_that_is_given_up_beside_it() {
    let pool = pool(12);
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", SIZE_BYTES) };
    let volume = pool.create_volume(&spec).expect("made");
    let mut random = Random::new(1);
    // The pool several times over.
    for request in 0..20_000_u64 {
        let offset = request * REQUEST_BYTES % SIZE_BYTES;
        let bytes = [random.below(256) as u8; REQUEST_BYTES as usize];
        let ops = [WriteOp::Data { offset, bytes: &bytes }];
        let (mut done, mut may_wait) = (0, false);
        while let Written::Part { bytes, lacks } =
            volume.write_some(&ops, done, may_wait).expect("written")
        {
            assert_ne!(lacks, Lack::Room, "request {request}");
            volume.wait_for(lacks, &mut RoomWait::default(), &|| true).expect("an instant");
            (done, may_wait) = (bytes, true);
        }
        pool.step(Budget { bytes: MIB }).expect("background work");
        // It is given up a little at a time.
        let info = volume.info().expect("open");
        let retained = info.latest.seq.0 - info.oldest.seq.0;
        assert!(
            request < 4000 || retained * REQUEST_BYTES > 4 * SIZE_BYTES,
            "{request}: {retained} seqs"
        );
    }
    pool.verify_invariants().expect("sound");
}
