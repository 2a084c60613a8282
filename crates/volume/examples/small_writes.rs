//! What writes of 512 bytes cost a volume whose blocks have 4 KiB: device requests and bytes from
//! the engine's own counters, and what the history keeps, for one write.
//! `cargo run --release -p hindsight-volume --example small_writes`
//!
//! A volume of 64 MiB is filled, then written again: `random` anywhere, sector by sector or block
//! by block; `in order` from its beginning on, sector by sector. Background work is done as on a
//! server that keeps up; a flush ends it.

use std::error::Error;
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use hindsight_volume::{
    Budget, CacheChange, Granularity, IoKind, Machine, Pool, PoolFormat, PoolOptions, Volume,
    VolumeSpec, WriteOp,
};
use sim::{Random, SimClock, SimEntropy};
use units::WallTime;

const SIZE_BYTES: u64 = 64 << 20;
const WRITES: u64 = 8192;
const MIB: u64 = 1 << 20;
/// Between two writes.
const PAUSE_NS: u64 = 1_000_000;

struct Case {
    name: &'static str,
    length_bytes: u64,
    is_random: bool,
}

const CASES: [Case; 3] = [
    Case { name: "512 B, random", length_bytes: 512, is_random: true },
    Case { name: "512 B, in order", length_bytes: 512, is_random: false },
    Case { name: "4 KiB, random", length_bytes: 4096, is_random: true },
];

/// Device reads, device writes, bytes read and bytes written so far; the map left out.
fn device_io(volume: &Volume) -> [u64; 4] {
    let mut all = [0; 4];
    for count in volume.device_io() {
        let is_read = count.kind.name().ends_with("-read");
        if matches!(count.kind, IoKind::MapRead | IoKind::MapWrite | IoKind::Other) {
            continue;
        }
        all[usize::from(!is_read)] += count.requests;
        all[2 + usize::from(!is_read)] += count.bytes;
    }
    all
}

fn run(case: &Case, granularity: Granularity, cache_bytes: u64) -> Result<(), Box<dyn Error>> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4 << 30));
    let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200_000_000_000)));
    let machine =
        Machine { clock: Arc::<SimClock>::clone(&clock), entropy: Arc::new(SimEntropy::new(1)) };
    Pool::create(&device, &machine, &PoolFormat::default())?;
    let pool = Pool::open(device, machine, PoolOptions { memory_bytes: 256 * MIB })?;
    let volume = pool.create_volume(&VolumeSpec {
        granularity,
        window_ns: u64::MAX / 4,
        cache: CacheChange { bytes: Some(cache_bytes), dirty_percent: None },
        ..VolumeSpec::new("v", SIZE_BYTES)
    })?;
    for offset in (0..SIZE_BYTES).step_by(MIB as usize) {
        volume.write_batch(&[WriteOp::Data { offset, bytes: &vec![1; MIB as usize] }])?;
    }
    volume.flush()?;
    while pool.step(Budget { bytes: MIB })? {}
    let (before, kept) = (device_io(&volume), volume.info()?.history_bytes);
    let mut random = Random::new(7);
    let bytes = vec![2; case.length_bytes as usize];
    for write in 0..WRITES {
        let places = SIZE_BYTES / case.length_bytes;
        let place = if case.is_random { random.below(places) } else { write };
        clock.advance(PAUSE_NS);
        volume
            .write_batch(&[WriteOp::Data { offset: place * case.length_bytes, bytes: &bytes }])?;
        if write % 256 == 0 {
            while pool.step(Budget { bytes: MIB })? {}
        }
    }
    volume.flush()?;
    while pool.step(Budget { bytes: MIB })? {}
    let after = device_io(&volume);
    let [reads, writes, read_bytes, written_bytes] =
        [0, 1, 2, 3].map(|i| (after[i] - before[i]) as f64 / WRITES as f64);
    let kept = (volume.info()?.history_bytes - kept) as f64 / WRITES as f64;
    let cache =
        if cache_bytes == 0 { "none".to_owned() } else { format!("{} MiB", cache_bytes / MIB) };
    println!(
        "{:16} {:12} cache {cache:7} reads {reads:.3} ({read_bytes:.0} B), writes {writes:.3} \
         ({written_bytes:.0} B), history {kept:.0} B",
        case.name,
        granularity_name(granularity),
    );
    pool.verify_invariants()?;
    Ok(())
}

fn granularity_name(granularity: Granularity) -> String {
    match granularity {
        Granularity::EveryWrite => "every-write".to_owned(),
        Granularity::Interval(nanos) => format!("{} s", nanos / 1_000_000_000),
        Granularity::OnDemand => "on-demand".to_owned(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let granularities = [Granularity::EveryWrite, Granularity::Interval(10_000_000_000)];
    for granularity in granularities {
        for cache_bytes in [0, 16 * MIB, 128 * MIB] {
            for case in &CASES {
                run(case, granularity, cache_bytes)?;
            }
        }
    }
    Ok(())
}
