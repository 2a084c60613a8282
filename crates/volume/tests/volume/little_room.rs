//! Pools that are full of live data and of what is pinned: how much fits, what makes room, and what
//! needs none (promise 7).

use std::sync::Arc;

use block::{BlockDevice, MediaDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Architecture, CacheChange, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions,
    Volume, VolumeSpec, WriteOp,
};
use sim::{Random, SimMedia};
use units::Moment;

pub const MIB: u64 = 1 << 20;
const REQUEST_BYTES: u64 = 64 << 10;

fn pool_on(device: Arc<dyn BlockDevice>, zone_bytes: u64) -> Arc<Pool> {
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes }).expect("made");
    Pool::open(device, machine, PoolOptions { memory_bytes: 64 << 20 }).expect("opened")
}

/// A pool as it is made on so small a device.
fn small_pool() -> Arc<Pool> {
    pool_on(Arc::new(MemoryDevice::new(320 * MIB)), 2 * MIB)
}

/// Of which nothing leaves the window, and nothing in it is retained but versions.
pub fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 1 << 60,
        ..VolumeSpec::new(name, size_bytes)
    }
}

fn put(volume: &Volume, request: u64, byte: u8) -> Result<(), ErrorKind> {
    let bytes = [byte; REQUEST_BYTES as usize];
    let op = WriteOp::Data { offset: request * REQUEST_BYTES, bytes: &bytes };
    volume.write_batch(&[op]).map(|_| ()).map_err(|e| e.kind)
}

/// Bytes of live data that always fit, by `docs/operations.md`: three quarters of the zones that
/// are left beside the reserve, the catalogue, the maps, and two zones for each volume.
pub fn fitting_bytes(pool: &Pool, zone_bytes: u64, volumes: u64) -> u64 {
    let status = pool.status();
    let reserve = (status.free_bytes - status.available_bytes) / zone_bytes;
    let catalogue = status.catalogue_bytes / zone_bytes;
    let zones = status.size_bytes / zone_bytes - reserve - catalogue;
    let map = 2 + (2 * 22 * status.size_bytes / 4096).div_ceil(zone_bytes);
    (zones - map - 2 * volumes) * zone_bytes / 4 * 3
}

/// Fills volumes with as much as fits together, and writes it over at random, so many times.
fn live_data_fits(pool: &Pool, (zone_bytes, volumes): (u64, u64), times: u64) {
    let requests = fitting_bytes(pool, zone_bytes, volumes) / volumes / REQUEST_BYTES;
    let size_bytes = requests * REQUEST_BYTES;
    let make = |n| pool.create_volume(&spec(&format!("v{n}"), size_bytes)).expect("made");
    let all: Vec<_> = (0..volumes).map(make).collect();
    for request in 0..requests {
        for volume in &all {
            put(volume, request, 1).unwrap_or_else(|e| panic!("request {request}: {e:?}"));
        }
    }
    let mut random = Random::new(1);
    for turn in 0..requests * volumes * times {
        let volume = &all[random.below(volumes) as usize];
        let done = put(volume, random.below(requests), turn as u8);
        assert_eq!(done, Ok(()), "{volumes} volumes of {size_bytes} bytes, written over: {turn}");
    }
    pool.verify_invariants().expect("sound");
}

#[test]
fn places_of_blocks_that_are_far_apart_leave_room_to_the_log() {
    for architecture in
        [Architecture::SplitStream, Architecture::SplitDownstream, Architecture::Hybrid]
    {
        let pool = small_pool();
        let cache = CacheChange { bytes: Some(4 << 20), dirty_percent: None };
        let spec = VolumeSpec { architecture, cache, ..spec("v", 300 * MIB) };
        let volume = pool.create_volume(&spec).expect("made");
        let mut random = Random::new(3);
        // 40 MiB of a pool of 320, and one or more of them in each zone's worth of the volume.
        for turn in 0..10_240 {
            let offset = random.below(300 * MIB / 4096) * 4096;
            let op = WriteOp::Data { offset, bytes: &[turn as u8; 4096] };
            let done = volume.write_batch(&[op]).map(|_| ()).map_err(|e| e.kind);
            assert_eq!(done, Ok(()), "{architecture:?}: write {turn}");
        }
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn live_data_up_to_the_stated_share_is_written_over_without_end() {
    for volumes in [1, 4] {
        live_data_fits(&small_pool(), (2 * MIB, volumes), 2);
    }
}

#[test]
fn live_data_up_to_the_stated_share_fits_few_large_zones() {
    let pool = pool_on(Arc::new(MemoryDevice::new(1536 * MIB)), 32 * MIB);
    live_data_fits(&pool, (32 * MIB, 4), 1);
}

/// Captures a volume and writes it over until there is no room, deletes all that was captured, and
/// writes on.
fn history_gives_way(pool: &Pool, size_bytes: u64) {
    let volume = pool.create_volume(&spec("v", size_bytes)).expect("made");
    let requests = size_bytes / REQUEST_BYTES;
    let mut random = Random::new(3);
    let mut captured = Vec::new();
    let mut fill = || {
        for _ in 0..requests / 4 {
            put(&volume, random.below(requests), 1)?;
        }
        captured.push(volume.create_version("").expect("captured").number);
        Ok(())
    };
    let full = (0..1000).find_map(|_| fill().err());
    assert_eq!(full, Some(ErrorKind::Full));
    for number in captured {
        volume.delete_version(number).expect("deletes work");
    }
    for turn in 0..requests * 3 {
        let done = put(&volume, random.below(requests), 2);
        assert_eq!(done, Ok(()), "write {turn}, and nothing is pinned");
    }
}

#[test]
fn what_versions_held_makes_room_once_they_are_deleted() {
    history_gives_way(&small_pool(), 160 * MIB);
}

#[test]
fn what_versions_held_makes_room_on_a_full_file_system() {
    let media = Arc::new(SimMedia::new(1 << 30, 1));
    media.set_space_limit(Some(320 << 20));
    history_gives_way(&pool_on(Arc::new(MediaDevice::new(media)), 4 * MIB), 176 * MIB);
}

/// Writes all of a volume over until there is no room, with versions that hold what was there.
fn fill_and_pin(volume: &Volume) {
    let requests = volume.size_bytes() / REQUEST_BYTES;
    let fill = || -> Result<(), ErrorKind> {
        (0..requests).try_for_each(|request| put(volume, request, 1))?;
        volume.create_version("").map(drop).map_err(|e| e.kind)
    };
    let full = (0..100).find_map(|_| fill().err());
    assert_eq!(full, Some(ErrorKind::Full));
}

fn cached(bytes: u64, dirty_percent: u8) -> CacheChange {
    CacheChange { bytes: Some(bytes), dirty_percent: Some(dirty_percent) }
}

#[test]
fn trims_need_no_room_and_make_some() {
    for cache in [CacheChange::default(), cached(8 * MIB, 25)] {
        let pool = small_pool();
        let spec = VolumeSpec { cache, ..spec("v", 80 * MIB) };
        let volume = pool.create_volume(&spec).expect("made");
        fill_and_pin(&volume);
        volume.create_version("").expect("captures need no room");
        // More than what was open has room for, and nothing is freed: versions hold all of it.
        for block in 0..4000 {
            let op = WriteOp::Zero { offset: block * 8192, length_bytes: 4096 };
            let done = volume.write_batch(&[op]);
            assert!(done.is_ok(), "{cache:?}: trim {block}: {}", done.unwrap_err());
        }
        volume.flush().expect("flushed");
        assert_eq!(put(&volume, 0, 3), Err(ErrorKind::Full), "what trims took is not for writes");
        for version in volume.versions().expect("listed") {
            volume.delete_version(version.number).expect("deletes work");
        }
        (0..1280).for_each(|request| put(&volume, request, 4).expect("there is room"));
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn a_version_of_a_cached_volume_is_opened_in_a_full_pool() {
    let pool = small_pool();
    let spec = VolumeSpec { cache: cached(32 * MIB, 90), ..spec("v", 80 * MIB) };
    let volume = pool.create_volume(&spec).expect("made");
    fill_and_pin(&volume);
    // What waits takes as much of the reserve as it may, and there is more.
    assert_eq!(volume.flush().map_err(|e| e.kind), Err(ErrorKind::Full));
    let view = volume.view(&Moment::Version(0)).expect("opened");
    let mut block = [0; 4096];
    view.read(0, &mut block).expect("read");
    assert_eq!(block, [1; 4096]);
}
