//! Trims over everything: one entry changes more blocks than anyone can count one by one.
//!
//! Without care these tests do not fail, they never end: a petabyte has 2^38 blocks.

use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp};
use units::{Moment, Seq};

const BLOCK: u64 = 4096;
const SIZE_BYTES: u64 = 4 << 50;

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn open(device: &Arc<dyn BlockDevice>) -> Arc<Pool> {
    Pool::open(Arc::clone(device), machine(), PoolOptions::default()).expect("opened")
}

fn volume(size_bytes: u64) -> (Arc<dyn BlockDevice>, Arc<Pool>, Arc<Volume>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 30));
    Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    let pool = open(&device);
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", size_bytes) };
    let volume = pool.create_volume(&spec).expect("made");
    (device, pool, volume)
}

fn put(volume: &Volume, offset: u64) -> Seq {
    let bytes = [7; BLOCK as usize];
    volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]).expect("written")
}

/// Data here and there, all of it trimmed away but for what was written after.
fn trimmed() -> (Arc<dyn BlockDevice>, Arc<Pool>, Arc<Volume>, Seq) {
    let (device, pool, volume) = volume(SIZE_BYTES);
    put(&volume, 0);
    put(&volume, 1 << 40);
    let before = put(&volume, SIZE_BYTES - BLOCK);
    volume.write_batch(&[WriteOp::Zero { offset: 0, length_bytes: SIZE_BYTES }]).expect("trimmed");
    put(&volume, 1 << 30);
    (device, pool, volume, before)
}

fn differing(volume: &Arc<Volume>, since: Seq, offset: u64, length_bytes: u64) -> Vec<(u64, u64)> {
    let page = volume
        .diff(&Moment::Seq(since), &Moment::Latest, offset, length_bytes, 10)
        .expect("compared");
    page.ranges.iter().map(|r| (r.offset, r.length_bytes)).collect()
}

#[test]
fn what_differs_across_a_trim_of_everything_is_found() {
    let (device, pool, volume, before) = trimmed();
    let all = [0, 1 << 30, 1 << 40, SIZE_BYTES - BLOCK].map(|offset| (offset, BLOCK));
    assert_eq!(differing(&volume, before, 0, SIZE_BYTES), all);
    assert_eq!(differing(&volume, before, 1 << 35, 1 << 41), all[2..3], "only within the range");
    volume.create_version("").expect("captured");
    drop((pool, volume));
    let pool = open(&device);
    let volume = pool.volume("v").expect("it is there");
    assert_eq!(differing(&volume, before, 0, SIZE_BYTES), all, "also when the map is in runs");
    let report = volume.revert(&Moment::Seq(before), true).expect("counted");
    assert_eq!((report.changed_bytes, report.changed_exact), (4 * BLOCK, true));
    volume.revert(&Moment::Seq(before), false).expect("reverted");
    let info = volume.info().expect("told");
    assert_eq!(info.live_bytes, 3 * BLOCK);
}

#[test]
fn a_long_hole_is_told_in_parts() {
    let (_device, _pool, volume, _) = trimmed();
    let extents = volume.extents(0, SIZE_BYTES, 100).expect("told");
    assert_eq!(extents[0].length_bytes, 1 << 30);
    assert!(extents[0].hole && !extents[1].hole && extents[2].hole);
    let told: u64 = extents.iter().map(|e| e.length_bytes).sum();
    assert!((1 << 30..SIZE_BYTES).contains(&told), "{told} bytes told");
}

#[test]
fn cutting_off_a_petabyte_is_no_history_worth_mentioning() {
    let (_device, _pool, volume) = volume(8 << 20);
    volume.resize(SIZE_BYTES).expect("grown");
    volume.resize(8 << 20).expect("cut off");
    let info = volume.info().expect("told");
    assert_eq!(info.live_bytes, 0);
    assert!(info.history_bytes < 1 << 20, "{} bytes of history", info.history_bytes);
}
