//! A million versions: what a capture, a page of the list and the deletion of a range cost, beside
//! what they cost with a thousand. What versions cost writers is `cargo x bench p11`.
//!
//! They take minutes, and mean something only in release on a quiet machine:
//! `cargo run --release -p hindsight-volume --example million -- 1000000`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};
use units::Moment;

const FEW: u64 = 1_000;
/// How often each thing is done to be measured.
const TIMES: u64 = 200;

fn volume(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 0,
        extent: units::MapExtent::default(),
        copy_unit: units::MapExtent::default(),
        ..VolumeSpec::new("v", 1 << 30)
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

/// Does what the background does until there is no more; says how often.
fn rest(pool: &Pool) -> u64 {
    let mut steps = 0;
    while pool.step(Budget { bytes: 8 << 20 }).expect("stepped") {
        steps += 1;
    }
    steps
}

/// What each thing costs with as many versions as there are.
fn costs(pool: &Pool, volume: &Arc<Volume>, count: u64) -> [(&'static str, Duration); 6] {
    let middle = count / 2;
    let capture = median(TIMES, |_| {
        put(volume, 1);
        volume.create_version("").expect("captured");
    });
    let page = median(TIMES, |time| {
        let page = volume.versions_page(middle + time, 100).expect("listed");
        assert_eq!(page.versions.len(), 100);
    });
    let view = median(TIMES, |time| {
        volume.view(&Moment::Version(middle + time)).expect("opened");
    });
    let range = median(10, |time| {
        let first = middle / 2 + time * 10;
        assert_eq!(volume.delete_versions(first..=first + 9, false).expect("deleted"), 10);
    });
    let show = median(10, |_| {
        put(volume, 2);
        volume.info().expect("read");
    });
    rest(pool);
    let step = median(TIMES, |_| _ = pool.step(Budget { bytes: 8 << 20 }).expect("stepped"));
    [
        ("write and capture", capture),
        ("page of 100", page),
        ("view", view),
        ("delete 10", range),
        ("write and show", show),
        ("step without work", step),
    ]
}

/// What flushing the map of 300 blocks costs.
fn flush_map(pool: &Pool, volume: &Volume) -> Duration {
    median(20, |_| {
        (0..300).for_each(|block| put(volume, block));
        pool.step(Budget { bytes: 8 << 20 }).expect("stepped");
    })
}

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn reopen(device: &Arc<dyn BlockDevice>, pool: Arc<Pool>) -> (Arc<Pool>, Duration) {
    pool.close().expect("closed");
    drop(pool);
    let began = Instant::now();
    // So little memory that 300 blocks are enough for a flush.
    let pool = Pool::open(Arc::clone(device), machine(), PoolOptions { memory_bytes: 0 });
    (pool.expect("opened"), began.elapsed())
}

fn main() {
    let many = std::env::args().nth(1).map_or(1_000_000, |many| many.parse().expect("a number"));
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8 << 30));
    Pool::create(&device, &machine(), &PoolFormat::default()).expect("made");
    let options = PoolOptions { memory_bytes: 0 };
    let mut pool = Pool::open(Arc::clone(&device), machine(), options).expect("opened");
    drop(volume(&pool));
    let mut found = Vec::new();
    let mut from = 0;
    for count in [FEW, many] {
        let volume = pool.volume("v").expect("there");
        let began = Instant::now();
        for number in from..count {
            if number % 64 == 0 {
                put(&volume, number % 1024);
            }
            volume.create_version("").expect("captured");
        }
        println!("{count} versions; {} captures took {:?}", count - from, began.elapsed());
        from = count;
        let began = Instant::now();
        let steps = rest(&pool);
        println!("  {steps} steps of background work took {:?}", began.elapsed());
        let mut costs = costs(&pool, &volume, count).to_vec();
        costs.push(("map flush of 300 blocks", flush_map(&pool, &volume)));
        drop(volume);
        let opening;
        (pool, opening) = reopen(&device, pool);
        costs.iter().for_each(|(what, took)| println!("  {what}: {took:?}"));
        println!("  opening: {opening:?}");
        found.push(costs);
    }
    let volume = pool.volume("v").expect("there");
    let began = Instant::now();
    let gone = volume.delete_versions(many / 2 + 1000..=many * 6 / 10, false).expect("gone");
    println!("deleting {gone} took {:?}", began.elapsed());
    for (&(what, few), &(_, many)) in found[0].iter().zip(&found[1]) {
        // Trees are a level or two deeper; nothing may be linear, which would be a thousandfold.
        assert!(many < few * 5 + Duration::from_millis(1), "{what}: {few:?} and {many:?}");
    }
}
