//! A volume's life from creation to reopening.

use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use env::{FileMedia, RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};
use units::{Moment, Seq};

const DAY_NS: u64 = 86_400_000_000_000;

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn create(path: &Path) -> Arc<Pool> {
    let media = FileMedia::create(path, 256 << 20).expect("a fresh file");
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    Pool::open(device, machine(), PoolOptions::default()).expect("opened")
}

fn reopen(path: &Path) -> Arc<Pool> {
    let media = FileMedia::open(path).expect("the file is there");
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    Pool::open(device, machine(), PoolOptions::default()).expect("opened")
}

fn make(pool: &Pool, name: &str, size_bytes: u64) -> Arc<Volume> {
    let spec = VolumeSpec { window_ns: DAY_NS, ..VolumeSpec::new(name, size_bytes) };
    pool.create_volume(&spec).expect("made")
}

fn put(volume: &Volume, offset: u64, byte: u8, length: usize) -> Seq {
    let bytes = vec![byte; length];
    volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]).expect("written")
}

fn get(volume: &Volume, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    volume.read(offset, &mut bytes).expect("read");
    bytes
}

fn get_at(volume: &Arc<Volume>, moment: &Moment, offset: u64, length: usize) -> Vec<u8> {
    let view = volume.view(moment).expect("opened");
    let mut bytes = vec![0xee; length];
    view.read(offset, &mut bytes).expect("read");
    bytes
}

#[test]
fn a_volume_remembers_every_write_and_survives_reopening() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool.img");
    let pool = create(&path);
    let volume = make(&pool, "v", 64 << 20);
    assert_eq!(get(&volume, 0, 8192), vec![0; 8192]);
    let first = put(&volume, 0, 1, 8192);
    let second = put(&volume, 4000, 2, 200);
    let third = volume
        .write_batch(&[WriteOp::Zero { offset: 0, length_bytes: 64 << 20 }])
        .expect("trimmed");
    assert_eq!(get(&volume, 0, 8192), vec![0; 8192]);
    assert_eq!(get_at(&volume, &Moment::Seq(first), 0, 8192), vec![1; 8192]);
    let mut expected = vec![1; 8192];
    expected[4000..4200].fill(2);
    assert_eq!(get_at(&volume, &Moment::Seq(second), 0, 8192), expected);
    let version = volume.create_version("empty again").expect("captured");
    assert_eq!(version.stamp.seq, third);
    let report = volume.revert(&Moment::Seq(second), false).expect("reverted");
    assert_eq!(get(&volume, 0, 8192), expected);
    assert_eq!(report.from.seq, third);
    volume.revert(&Moment::Seq(third), false).expect("undone");
    assert_eq!(get(&volume, 0, 8192), vec![0; 8192]);
    let clone = pool.clone_volume("v", &Moment::Seq(second), "c").expect("cloned");
    put(&clone, 0, 9, 4096);
    drop((clone, volume));
    pool.delete_volume("v").expect("deleted");
    drop(pool);
    let pool = reopen(&path);
    let clone = pool.volume("c").expect("there");
    assert_eq!(get(&clone, 0, 4096), vec![9; 4096]);
    assert_eq!(get(&clone, 4096, 4096), expected[4096..]);
    pool.verify_invariants().expect("sound");
}

#[test]
fn merging_and_reclaiming_change_no_view() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool.img");
    let media = FileMedia::create(&path, 256 << 20).expect("a fresh file");
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    let small = PoolOptions { memory_bytes: 1 << 20 };
    let pool = Pool::open(device, machine(), small).expect("opened");
    let volume = make(&pool, "v", 8 << 20);
    let mut random = 12345u64;
    let mut model = vec![0u8; 8 << 20];
    let mut moments: Vec<(Seq, Vec<u8>)> = Vec::new();
    for round in 0..60 {
        for _ in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (random >> 33) % (8 << 20) / 512 * 512;
            let length = (1 + (random >> 20) % 16) * 512;
            let length = length.min((8 << 20) - offset) as usize;
            let byte = (random >> 50) as u8;
            model[offset as usize..offset as usize + length].fill(byte);
            put(&volume, offset, byte, length);
        }
        if round % 7 == 0 {
            let version = volume.create_version("v").expect("captured");
            moments.push((version.stamp.seq, model.clone()));
        }
        while pool.step(Budget { bytes: 1 << 16 }).expect("stepped") {}
        pool.verify_invariants().expect("sound");
    }
    assert_eq!(get(&volume, 0, 8 << 20), model);
    for (seq, expected) in &moments {
        assert_eq!(get_at(&volume, &Moment::Seq(*seq), 0, 8 << 20), *expected);
    }
    drop(volume);
    drop(pool);
    let pool = reopen(&path);
    let volume = pool.volume("v").expect("there");
    assert_eq!(get(&volume, 0, 8 << 20), model);
    for (seq, expected) in &moments {
        assert_eq!(get_at(&volume, &Moment::Seq(*seq), 0, 8 << 20), *expected);
    }
    drop((volume, pool));
    let media = FileMedia::open(&path).expect("the file is there");
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    Pool::rebuild(device, machine()).expect("rebuilt");
    let pool = reopen(&path);
    pool.verify_invariants().expect("sound");
    let volume = pool.volume("v").expect("there");
    assert_eq!(get(&volume, 0, 8 << 20), model);
    for (seq, expected) in &moments {
        assert_eq!(get_at(&volume, &Moment::Seq(*seq), 0, 8 << 20), *expected);
    }
}
