//! What deduplication saves and costs: `dedup_cost POOL-FILE MIB` makes a pool in a file (which
//! must not exist, and is removed at the end) and a volume of MIB of random blocks, of which the
//! second half repeats the first; shares them; and looks once more when a seventh was written anew.
//! One JSON object a line; times are of this process with nothing else to do.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use block::MediaDevice;
use env::{Entropy, FileMedia, RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeChange, VolumeSpec,
    WriteOp,
};

const BLOCK: usize = 4096;
const PIECE: usize = 64 * BLOCK;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Random bytes of a place: the same each time.
fn content(place: u64, seed: u64) -> Vec<u8> {
    let mut state = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..PIECE / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn write(
    volume: &Volume,
    pieces: std::ops::Range<u64>,
    of: impl Fn(u64) -> Vec<u8>,
) -> Outcome<()> {
    for piece in pieces {
        let bytes = of(piece);
        volume.write_batch(&[WriteOp::Data { offset: piece * PIECE as u64, bytes: &bytes }])?;
    }
    Ok(volume.flush()?)
}

/// Does what there is to do; says for how many seconds, and how long the longest step took.
fn settle(pool: &Arc<Pool>) -> Outcome<(f64, f64)> {
    let (start, mut longest) = (Instant::now(), 0_f64);
    loop {
        let step = Instant::now();
        let more = pool.step(Budget { bytes: 1 << 20 })?;
        longest = longest.max(step.elapsed().as_secs_f64());
        if !more {
            return Ok((start.elapsed().as_secs_f64(), longest));
        }
    }
}

fn read_all(volume: &Volume, pieces: u64) -> Outcome<f64> {
    let start = Instant::now();
    let mut bytes = vec![0; PIECE];
    for piece in 0..pieces {
        volume.read(piece * PIECE as u64, &mut bytes)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn run(path: &Path, mib: u64) -> Outcome<()> {
    let media = Arc::new(FileMedia::create(path, (mib * 4) << 20)?);
    let device: Arc<dyn block::BlockDevice> = Arc::new(MediaDevice::new(media));
    let machine = Machine {
        clock: Arc::new(RealClock::new()),
        entropy: Arc::new(RealEntropy::default()) as Arc<dyn Entropy>,
    };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 32 << 20 })?;
    let pool = Pool::open(device, machine, PoolOptions { memory_bytes: 16 << 20 })?;
    let volume = pool.create_volume(&VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 0,
        ..VolumeSpec::new("v", mib << 20)
    })?;
    let pieces = (mib << 20) / PIECE as u64;
    write(&volume, 0..pieces, |piece| content(piece % (pieces / 2), 1))?;
    settle(&pool)?;
    let stored = || pool.space().map(|space| space.stored_bytes);
    println!(
        r#"{{"stored_bytes": {}, "read_seconds": {:.2}}}"#,
        stored()?,
        read_all(&volume, pieces)?
    );
    volume.change(&VolumeChange { dedup: Some(true), ..VolumeChange::default() })?;
    // Whether a search is due is looked at once a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (seconds, longest) = settle(&pool)?;
    let step = format!(r#""seconds": {seconds:.2}, "longest_step": {longest:.3}"#);
    let (bytes, read) = (stored()?, read_all(&volume, pieces)?);
    println!(
        r#"{{"what": "half is equal", {step}, "stored_bytes": {bytes}, "read_seconds": {read:.2}}}"#
    );
    // A search that finds nothing new.
    write(&volume, 0..pieces / 7, |piece| content(piece, 2))?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (seconds, longest) = settle(&pool)?;
    let step = format!(r#""seconds": {seconds:.2}, "longest_step": {longest:.3}"#);
    println!(r#"{{"what": "a seventh is new, and equal to nothing", {step}}}"#);
    Ok(pool.close()?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, mib] = &arguments[..] else {
        return Err("usage: dedup_cost POOL-FILE MIB".into());
    };
    let outcome = run(Path::new(path), mib.parse()?);
    std::fs::remove_file(path)?;
    outcome
}
