//! Clotho's compacted versions: versions of a volume on a real file, one of which is compacted and
//! read at random, in real time, in turns with one that is not.
//!
//! Nothing that is read is in the operating system's cache when a turn begins, as in the paper.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use block::{BlockDevice, MediaDevice};
use env::{Clock, FileMedia, RealClock, RealEntropy};
use lab::experiment::{Compacted, CompactionAsked, VersionReads};
use rustix::fs::{Advice, fadvise};
use units::Moment;
use volume::{
    Budget, Compaction, CompactionState, Machine, Pool, PoolFormat, PoolOptions, Volume, WriteOp,
};

use crate::counted::{CountedDevice, Counters};
use crate::rig::volume_spec;
use crate::{LoadError, Result};

const BLOCK_BYTES: u64 = 4096;
/// Of a page that is alike in both versions so many bytes differ: one in a hundred.
const CHANGED_BYTES: u64 = 40;
/// Pages that are alike come in runs, as those of a file.
const RUN_PAGES: u64 = 64;
/// A pool has room for so many times the volume: three versions, and what compacting takes.
const ROOM: u64 = 8;
const ZONE_BYTES: u64 = 1 << 20;
const STEP_BYTES: u64 = 8 << 20;
/// How often all reads are made.
const ROUNDS: usize = 5;
/// The version that is compacted, and the one after it, which is not.
const VERSION: u64 = 1;
const RAW: u64 = 2;

/// Makes versions in a file under `dir`, compacts one, and reads it and another.
///
/// # Errors
/// The errors of the file and the engine.
pub fn compact(dir: &Path, asked: CompactionAsked) -> Result<Compacted> {
    let path = dir.join(format!("hindsight-clotho-{}", std::process::id()));
    let bench = Bench::new(&path, asked.pages * BLOCK_BYTES)?;
    bench.measure(asked)
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Fills bytes, a multiple of eight.
    fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_exact_mut(8) {
            eight.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

/// A pool in a file, which goes with it.
struct Bench {
    path: PathBuf,
    pool: Arc<Pool>,
    volume: Arc<Volume>,
    counters: Arc<Counters>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A directory of results that has it still shows that something went wrong.
        _ = std::fs::remove_file(&self.path);
    }
}

impl Bench {
    fn new(path: &Path, volume_bytes: u64) -> Result<Bench> {
        let at = |error| LoadError::at(path, error);
        let media = FileMedia::create(path, volume_bytes * ROOM + 64 * ZONE_BYTES).map_err(at)?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let counters = Arc::<Counters>::default();
        let below = MediaDevice::new(Arc::new(media));
        let device = CountedDevice { below, counters: Arc::clone(&counters) };
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let machine = Machine { clock, entropy: Arc::new(RealEntropy::default()) };
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: ZONE_BYTES })?;
        let pool = Pool::open(device, machine, PoolOptions::default())?;
        let volume = pool.create_volume(&volume_spec("clotho", volume_bytes))?;
        Ok(Bench { path: path.to_owned(), pool, volume, counters })
    }

    fn measure(&self, asked: CompactionAsked) -> Result<Compacted> {
        let mut random = Random(asked.seed);
        self.write(asked, &mut random)?;
        self.settle()?;
        let raw_bytes = self.volume.info()?.history_bytes;
        self.volume.compact_version(VERSION, Compaction::Compacted)?;
        self.settle()?;
        let done = self.volume.compaction(VERSION)?;
        let Some(done) = done.filter(|info| info.state == CompactionState::Done) else {
            return Err(LoadError::Unexpected("the version was not compacted".to_owned()));
        };
        let bytes = self.volume.info()?.history_bytes;
        let [raw_reads, reads] = self.reads(asked, &mut random)?;
        self.pool.close()?;
        let (packed, raw) = (done.packed, done.raw);
        Ok(Compacted { packed, raw, raw_bytes, bytes, raw_reads, reads })
    }

    /// Version 0 of random pages; version 1, of which a share is alike; version 2 of others; and
    /// nothing after them.
    fn write(&self, asked: CompactionAsked, random: &mut Random) -> Result<()> {
        let mut pages = vec![0; (asked.pages * BLOCK_BYTES) as usize];
        random.fill(&mut pages);
        self.write_whole(&pages)?;
        self.volume.create_version("")?;
        for (number, page) in pages.chunks_exact_mut(BLOCK_BYTES as usize).enumerate() {
            // A step that is prime to 100 spreads the runs that are alike.
            let run = number as u64 / RUN_PAGES;
            if run * 37 % 100 < asked.share_percent {
                let at = random.below(BLOCK_BYTES - CHANGED_BYTES) as usize;
                random.fill(&mut page[at..at + CHANGED_BYTES as usize]);
            } else {
                random.fill(page);
            }
        }
        self.write_whole(&pages)?;
        self.volume.create_version("")?;
        random.fill(&mut pages);
        self.write_whole(&pages)?;
        self.volume.create_version("")?;
        let length_bytes = asked.pages * BLOCK_BYTES;
        self.volume.write_batch(&[WriteOp::Zero { offset: 0, length_bytes }])?;
        Ok(self.volume.flush()?)
    }

    fn write_whole(&self, pages: &[u8]) -> Result<()> {
        for (number, bytes) in pages.chunks(1 << 20).enumerate() {
            let offset = number as u64 * (1 << 20);
            self.volume.write_batch(&[WriteOp::Data { offset, bytes }])?;
        }
        Ok(())
    }

    /// Background work, all there is.
    fn settle(&self) -> Result<()> {
        while self.pool.step(Budget { bytes: STEP_BYTES })? {}
        Ok(())
    }

    /// Afterwards everything written is on the device, and nothing of it in memory.
    fn empty_cache(&self) -> Result<()> {
        let file = File::open(&self.path).map_err(|e| LoadError::at(&self.path, e))?;
        file.sync_all().map_err(|e| LoadError::at(&self.path, e))?;
        let advised = fadvise(&file, 0, None, Advice::DontNeed);
        advised.map_err(|e| LoadError::at(&self.path, e.into()))
    }

    /// Reads pages of both versions at random, in turns: of the raw one, and of the other.
    fn reads(&self, asked: CompactionAsked, random: &mut Random) -> Result<[VersionReads; 2]> {
        let mut sums = [RAW, VERSION].map(|number| Sum { number, ..Sum::default() });
        for _ in 0..ROUNDS {
            sums.iter_mut().try_for_each(|sum| self.round(asked, random, sum))?;
        }
        Ok(sums.map(|sum| sum.told(asked)))
    }

    /// Requests and bytes.
    fn read_so_far(&self) -> (u64, u64) {
        let Counters { reads, read_bytes, .. } = &*self.counters;
        (reads.load(Ordering::Relaxed), read_bytes.load(Ordering::Relaxed))
    }

    fn round(&self, asked: CompactionAsked, random: &mut Random, sum: &mut Sum) -> Result<()> {
        let view = self.volume.view(&Moment::Version(sum.number))?;
        let mut page = vec![0; BLOCK_BYTES as usize];
        self.empty_cache()?;
        let before = self.read_so_far();
        let began = Instant::now();
        for _ in 0..asked.reads {
            view.read(random.below(asked.pages) * BLOCK_BYTES, &mut page)?;
        }
        sum.times.push(began.elapsed().as_secs_f64());
        let after = self.read_so_far();
        sum.requests += after.0 - before.0;
        sum.bytes += after.1 - before.1;
        Ok(())
    }
}

/// All rounds of a version.
#[derive(Default)]
struct Sum {
    number: u64,
    requests: u64,
    bytes: u64,
    times: Vec<f64>,
}

impl Sum {
    /// For one read; the middle one of the times.
    fn told(mut self, asked: CompactionAsked) -> VersionReads {
        self.times.sort_by(f64::total_cmp);
        let reads = asked.reads as f64;
        VersionReads {
            device_reads: self.requests as f64 / reads / ROUNDS as f64,
            device_bytes: self.bytes as f64 / reads / ROUNDS as f64,
            seconds: self.times[ROUNDS / 2] / reads,
        }
    }
}
