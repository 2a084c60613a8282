//! A million versions: what a capture, a page of the list and the deletion of a range cost, beside
//! what they cost with a thousand. What versions cost writers is `cargo x bench p11`.
//!
//! They take minutes, and mean something only in release on a quiet machine:
//! `cargo run --release -p hindsight-volume --example million`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Architecture, Budget, CacheChange, EncodingChange, Granularity, Machine, Pool, PoolFormat,
    PoolOptions, Volume, VolumeSpec, WriteOp,
};
use units::Moment;

const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// How often each thing is done to be measured.
const TIMES: u64 = 200;

fn pool(device: &Arc<dyn BlockDevice>) -> Arc<Pool> {
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(device, &machine, &PoolFormat::default()).expect("made");
    Pool::open(Arc::clone(device), machine, PoolOptions::default()).expect("opened")
}

fn volume(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: "v".to_owned(),
        size_bytes: 1 << 30,
        architecture: Architecture::Logging,
        granularity: Granularity::EveryWrite,
        window_ns: 3_600_000_000_000,
        history_limit_bytes: None,
        cache: CacheChange::default(),
        extent: units::MapExtent::default(),
        encoding: EncodingChange::default(),
    };
    pool.create_volume(&spec).expect("made")
}

fn put(volume: &Volume, block: u64) {
    let op = WriteOp::Data { offset: block * 4096, bytes: &[7; 4096] };
    volume.write_batch(&[op]).expect("written");
}

/// The median time of `act`.
fn median(times: u64, mut act: impl FnMut(u64)) -> Duration {
    let mut took: Vec<Duration> = (0..times)
        .map(|time| {
            let began = Instant::now();
            act(time);
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 2]
}

/// What each thing costs with as many versions as there are.
fn costs(pool: &Pool, volume: &Arc<Volume>, count: u64) -> [Duration; 5] {
    let middle = count / 2;
    let capture = median(TIMES, |_| {
        put(volume, 1);
        volume.create_version("").expect("captured");
    });
    let page = median(TIMES, |time| {
        let page = volume.versions_page(middle + time, 100).expect("listed");
        assert_eq!(page.versions.len(), 100);
    });
    let resolve = median(TIMES, |time| {
        volume.view(&Moment::Version(middle + time)).expect("opened");
    });
    let range = median(10, |time| {
        let first = middle / 2 + time * 10;
        assert_eq!(volume.delete_versions(first..=first + 9, false).expect("deleted"), 10);
    });
    let show = median(TIMES, |_| _ = volume.info().expect("read"));
    while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") && count == FEW {}
    let all = [capture, page, resolve, range, show];
    println!("{count}: capture, page of 100, view, delete 10, show: {all:?}");
    all
}

fn main() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8 << 30));
    let pool = pool(&device);
    let volume = volume(&pool);
    let fill = |from: u64, to: u64| {
        for number in from..to {
            if number % 16 == 0 {
                put(&volume, number % 1024);
            }
            volume.create_version("").expect("captured");
        }
    };
    fill(0, FEW);
    let few = costs(&pool, &volume, FEW);
    let began = Instant::now();
    fill(FEW, MANY);
    println!("{} captures took {:?}", MANY - FEW, began.elapsed());
    let many = costs(&pool, &volume, MANY);
    let began = Instant::now();
    let gone = volume.delete_versions(MANY / 2 + 1000..=MANY / 2 + 100_999, false).expect("gone");
    println!("deleting {gone} took {:?}", began.elapsed());
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let began = Instant::now();
    drop(Pool::open(device, machine, PoolOptions::default()).expect("opened"));
    println!("opening took {:?}", began.elapsed());
    for (few, many) in few.into_iter().zip(many) {
        // Trees are a level or two deeper; nothing may be linear, which would be a thousandfold.
        assert!(many < few * 5 + Duration::from_millis(1), "{few:?} and {many:?}");
    }
}
