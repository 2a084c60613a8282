//! A synthetic load through the engine, for goals P5 and P6: how much memory a long history takes,
//! and how long it takes to open a view, to revert and to clone anywhere in it.
//!
//! `load POOL-FILE WRITES ROUNDS` makes a pool in a sparse file (which must not exist, and is
//! removed at the end), writes WRITES blocks at random addresses of a 1 TiB volume, every one
//! retained, while a second thread does the background work, as the server's does. It prints one
//! JSON object a line.
//!
//! What is real: everything the engine does; all checksums; every byte of headers, map runs and
//! catalogue goes to the file. What is not: the payload. Every block written holds zeros, and
//! [`HollowDevice`] does not write slices of whole blocks of zeros to segments: the file has a hole
//! there, which reads as zeros, so reads and checksums are still checked against what was written.
//! 10^8 writes would else take 400 GB. So no figure of this load says anything of a disk's speed
//! with payload, nor of the page cache that payload would compete for.
//!
//! Memory is that of this process, which has no sockets and no NBD sessions.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use block::{BlockDevice, MediaDevice, Result as DeviceResult};
use env::{Entropy, FileMedia, RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};
use parking_lot::Mutex;
use units::{Moment, Seq};

const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 1 << 40;
/// Writes that go to the engine together, as a session with many requests waiting hands them over.
const BATCH: u64 = 64;
/// Writes between two flushes.
const FLUSH_EVERY: u64 = 1 << 20;
const STEP_BYTES: u64 = 8 << 20;

/// How a segment begins (docs/format/segment.md).
const SEGMENT_MAGIC: &[u8] = b"HSEGMENT";

/// A device that leaves holes where blocks of zeros are written to segments.
struct HollowDevice {
    inner: MediaDevice,
    /// The zones in which segments are.
    segments: Mutex<BTreeSet<u64>>,
}

fn is_hollow(slice: &[u8]) -> bool {
    slice.len() >= BLOCK as usize && slice.iter().all(|&byte| byte == 0)
}

impl BlockDevice for HollowDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buffer)
    }
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult<bool> {
        self.inner.try_read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> DeviceResult<()> {
        let zone_bytes = PoolFormat::default().zone_bytes;
        let zone = offset / zone_bytes;
        if offset.is_multiple_of(zone_bytes) {
            let is_segment = slices.first().is_some_and(|slice| slice.starts_with(SEGMENT_MAGIC));
            if is_segment {
                // Perhaps where another was.
                self.inner.discard(offset, zone_bytes)?;
                self.segments.lock().insert(zone);
            } else {
                self.segments.lock().remove(&zone);
            }
        }
        let is_segment = self.segments.lock().contains(&zone);
        let mut at = offset;
        for slice in slices {
            if !(is_segment && is_hollow(slice)) {
                self.inner.write_at(at, &[IoSlice::new(slice)])?;
            }
            at += slice.len() as u64;
        }
        Ok(())
    }
    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
    /// Nothing is reserved: the holes are the point.
    fn allocate(&self, _offset: u64, _length_bytes: u64) -> DeviceResult<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> DeviceResult<()> {
        self.inner.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        format!("hollow({})", self.inner.describe())
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, writes, rounds] = &arguments[..] else {
        return Err("load POOL-FILE WRITES ROUNDS".into());
    };
    let path = Path::new(path);
    let outcome = run(path, writes.parse()?, rounds.parse()?);
    std::fs::remove_file(path)?;
    outcome
}

fn run(path: &Path, writes: u64, rounds: u64) -> Outcome<()> {
    // Payload, a tenth for headers and map, and some zones for the beginning.
    let pool_bytes = (writes * BLOCK / 10 * 11 + (4 << 30)).next_multiple_of(32 << 20);
    let media = FileMedia::create(path, pool_bytes)?;
    let inner = MediaDevice::new(Arc::new(media));
    let device: Arc<dyn BlockDevice> = Arc::new(HollowDevice { inner, segments: Mutex::default() });
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat::default())?;
    let options = PoolOptions::default();
    let pool = Pool::open(Arc::clone(&device), machine, options)?;
    let volume = pool.create_volume(&VolumeSpec {
        window_ns: 30 * 24 * 3600 * 1_000_000_000,
        ..VolumeSpec::new("long", VOLUME_BYTES)
    })?;
    note(&format!(
        "{writes} retained writes of 4 KiB at random addresses of a volume of 1 TiB; memory option \
         {} MiB; payload left out as crates/volume/examples/load.rs describes.",
        options.memory_bytes >> 20
    ));
    let random = RealEntropy::default();
    load(&pool, &volume, writes, &random)?;
    memory("after the load")?;
    openings(&pool, &volume, writes, rounds, &random)?;
    memory("after views, reverts and clones")?;
    let status = pool.status();
    value("map runs (bytes)", 0, status.map_bytes as f64);
    value("log (bytes)", 0, status.log_bytes as f64);
    let began = Instant::now();
    pool.close()?;
    value("close (ms)", 0, ms(began));
    Ok(())
}

/// Writes, with the background work beside it, and then lets that come to rest.
fn load(pool: &Arc<Pool>, volume: &Volume, writes: u64, random: &RealEntropy) -> Outcome<()> {
    let done = AtomicBool::new(false);
    let blocks = VOLUME_BYTES / BLOCK;
    let began = Instant::now();
    std::thread::scope(|scope| -> Outcome<()> {
        let worker = scope.spawn(|| -> hindsight_volume::Result<()> {
            while !done.load(Ordering::Acquire) {
                if !pool.step(Budget { bytes: STEP_BYTES })? {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            Ok(())
        });
        let wrote = write_all(volume, writes, || random.next_u64() % blocks * BLOCK);
        done.store(true, Ordering::Release);
        worker.join().map_err(|_| "the background work panicked")??;
        wrote
    })?;
    value("writes (per second)", 0, writes as f64 / began.elapsed().as_secs_f64());
    memory("while writing")?;
    let began = Instant::now();
    while pool.step(Budget { bytes: STEP_BYTES })? {}
    value("background work left after the writes (s)", 0, began.elapsed().as_secs_f64());
    Ok(())
}

fn write_all(volume: &Volume, writes: u64, mut address: impl FnMut() -> u64) -> Outcome<()> {
    let zeros = [0; BLOCK as usize];
    let mut written = 0;
    while written < writes {
        let count = BATCH.min(writes - written);
        let ops: Vec<WriteOp<'_>> =
            (0..count).map(|_| WriteOp::Data { offset: address(), bytes: &zeros }).collect();
        volume.write_batch(&ops)?;
        written += count;
        if written.is_multiple_of(FLUSH_EVERY) {
            volume.flush()?;
        }
    }
    volume.flush()?;
    Ok(())
}

/// Opens moments all over the history.
fn openings(
    pool: &Pool,
    volume: &Arc<Volume>,
    writes: u64,
    rounds: u64,
    random: &RealEntropy,
) -> Outcome<()> {
    let mut block = [0; BLOCK as usize];
    for round in 0..rounds {
        let at = Moment::Seq(Seq(1 + random.next_u64() % writes));
        let began = Instant::now();
        let view = volume.view(&at)?;
        value("open a view (ms)", round, ms(began));
        let address = random.next_u64() % (VOLUME_BYTES / BLOCK) * BLOCK;
        let began = Instant::now();
        view.read(address, &mut block)?;
        value("first read of the view, 4 KiB (ms)", round, ms(began));
        drop(view);

        let name = format!("clone-{round}");
        let began = Instant::now();
        let clone = pool.clone_volume("long", &at, &name)?;
        value("clone (ms)", round, ms(began));
        let began = Instant::now();
        clone.read(address, &mut block)?;
        value("first read of the clone, 4 KiB (ms)", round, ms(began));

        let began = Instant::now();
        let report = volume.revert(&at, false)?;
        value("revert (ms)", round, ms(began));
        let began = Instant::now();
        volume.revert(&Moment::Seq(report.from.seq), false)?;
        value("undo of the revert (ms)", round, ms(began));
    }
    Ok(())
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1000.0
}

/// Memory of this process: now, and the most it ever was.
fn memory(when: &str) -> Outcome<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    for (field, name) in [("VmRSS:", "resident"), ("VmHWM:", "most ever resident")] {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        let kib: String = line.chars().filter(char::is_ascii_digit).collect();
        let mib = kib.parse::<f64>()? / 1024.0;
        value(&format!("{name} {when} (MiB)"), 0, mib);
    }
    Ok(())
}

fn value(case: &str, round: u64, value: f64) {
    println!("{{\"case\": \"{case}\", \"round\": {round}, \"value\": {value:.4}}}");
}

fn note(text: &str) {
    println!("{{\"note\": \"{text}\"}}");
}
