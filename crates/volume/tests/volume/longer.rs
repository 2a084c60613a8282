//! Pools on one file that become longer while they are used.

use std::sync::Arc;

use block::MediaDevice;
use env::Media;
use hindsight_volume::{
    Error, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, VolumeSpec, WriteOp,
};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::WallTime;

const MIB: u64 = 1 << 20;
const START_BYTES: u64 = 64 * MIB;

fn machine() -> Machine {
    let clock = Arc::new(SimClock::new(WallTime::from_nanos(1 << 60)));
    Machine { clock, entropy: Arc::new(SimEntropy::new(5)) }
}

fn open(media: &Arc<SimMedia>) -> Result<Arc<Pool>, Error> {
    let device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)));
    Pool::open(device, machine(), PoolOptions { memory_bytes: 64 << 20 })
}

/// A pool with a volume that has room for more than that.
fn made(seed: u64) -> (Arc<SimMedia>, Arc<Pool>) {
    let media = Arc::new(SimMedia::new(START_BYTES, seed));
    let device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&media))) as _;
    Pool::create(&device, &machine(), &PoolFormat { zone_bytes: MIB }).expect("made");
    drop(device);
    let pool = open(&media).expect("opened");
    let spec = VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 0,
        ..VolumeSpec::new("v", 256 * MIB)
    };
    pool.create_volume(&spec).expect("a volume");
    (media, pool)
}

fn put(pool: &Pool, number: u64) -> Result<(), Error> {
    let bytes = vec![number as u8 | 1; MIB as usize];
    let op = WriteOp::Data { offset: number * MIB, bytes: &bytes };
    pool.volume("v").expect("it is there").write_batch(&[op]).map(drop)
}

fn check(pool: &Pool, count: u64, what: &str) {
    let volume = pool.volume("v").expect("there");
    let mut there = vec![0; MIB as usize];
    for number in 0..count {
        volume.read(number * MIB, &mut there).expect("read");
        assert!(there.iter().all(|&byte| byte == number as u8 | 1), "{what}: {number}");
    }
}

#[test]
fn a_full_pool_on_one_file_is_made_longer_and_goes_on() {
    let (media, pool) = made(1);
    let mut count = 0;
    let error = loop {
        match put(&pool, count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(error.kind == ErrorKind::Full && count > 20, "{count}: {error}");
    let before = pool.status();
    assert_eq!(before.size_bytes, START_BYTES);
    // Less than a zone more is nothing, and nothing becomes shorter.
    for bytes in [Some(START_BYTES + MIB / 2), Some(MIB), None] {
        assert_eq!(pool.lengthen(bytes).expect("as it is"), (START_BYTES, START_BYTES));
    }
    let grown = pool.lengthen(Some(160 * MIB)).expect("longer");
    assert_eq!(grown, (START_BYTES, 160 * MIB));
    assert_eq!((media.len_bytes(), pool.status().size_bytes), (160 * MIB, 160 * MIB));
    for number in count..2 * count {
        put(&pool, number).expect("there is room");
    }
    let records = pool.audit(0, 1000).expect("the audit log");
    assert!(records.iter().any(|record| record.action == "pool-grow"), "{records:?}");
    check(&pool, 2 * count, "beside");
    pool.close().expect("closed");
    drop(pool);
    let pool = open(&media).expect("opened");
    assert_eq!(pool.status().size_bytes, 160 * MIB);
    check(&pool, 2 * count, "after");
}

#[test]
fn whenever_the_power_fails_the_pool_has_the_one_length_or_the_other() {
    let (mut old, mut new) = (0, 0);
    for changes in 0.. {
        let (media, pool) = made(2);
        (0..5).for_each(|number| put(&pool, number).expect("room"));
        pool.volume("v").expect("there").flush().expect("flushed");
        media.halt_after(changes);
        let outcome = pool.lengthen(Some(96 * MIB));
        let is_over = !media.is_halted();
        assert!(is_over || outcome.is_err() || changes > 3, "{changes}: it was answered");
        media.halt_now();
        drop(pool);
        media.crash(&mut Random::new(changes));
        media.calm();
        let pool = open(&media).expect("opened");
        match pool.status().size_bytes {
            START_BYTES => old += 1,
            bytes if bytes == 96 * MIB => new += 1,
            other => panic!("{other} bytes"),
        }
        assert!(outcome.is_err() || pool.status().size_bytes == 96 * MIB, "{changes}");
        check(&pool, 5, "after a crash");
        pool.lengthen(Some(96 * MIB)).expect("the same again");
        assert_eq!(pool.status().size_bytes, 96 * MIB);
        (5..40).for_each(|number| put(&pool, number).expect("room"));
        check(&pool, 40, "longer");
        if is_over {
            break;
        }
    }
    assert!(old > 0 && new > 1, "{old} times the old length, {new} times the new one");
}
