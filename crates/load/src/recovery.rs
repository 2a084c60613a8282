//! DARC's Table 4: bytes are overwritten in the members' files and read, and what recovery took is
//! counted.
//!
//! A block is found in the files by its content, so nothing here knows where layers put it. Files
//! are written past the pool, through the same page cache.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use block::stack::Stack;
use block::{Array, BlockDevice, Materials};
use env::{NoFiles, RealClock, RealEntropy};
use lab::experiment::darc::{Case, Ended, Finder, Layout, Recovery};
use volume::{Machine, Pool, PoolFormat, PoolOptions, Volume, WriteOp};

use crate::checked::CheckedDevice;
use crate::rig::{candidates, create_array, stack_of, volume_spec};
use crate::{LoadError, Result};

const BLOCK_BYTES: usize = 4096;
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 32 << 20;
const VOLUME_BYTES: u64 = 1 << 20;
/// Blocks that are written; of those that lie whole in one pair some are overwritten.
const BLOCKS: u64 = 16;
/// Where in a block it is overwritten.
const WRONG: std::ops::Range<usize> = 1024..1088;
/// Blocks of the log lie at multiples of this.
const ALIGNMENT: usize = 64;

/// Overwrites blocks in files under `dir`, a directory that is made, and reads them.
///
/// # Errors
/// When files cannot be written, the engine refuses, or a block is not found where it has to be.
pub fn recoveries(dir: &Path) -> Result<Vec<Recovery>> {
    let mut found = Vec::new();
    for by in Finder::ALL {
        let bench = Bench::new(dir.join(by.name()), by)?;
        for (number, case) in Case::ALL.into_iter().enumerate() {
            found.push(bench.case(case, number)?);
        }
        bench.end()?;
    }
    Ok(found)
}

/// What has the blocks.
enum Top {
    Checked(CheckedDevice),
    Volume(Arc<Pool>, Arc<Volume>),
}

/// A stack or volume with blocks that are known.
struct Bench {
    dir: PathBuf,
    by: Finder,
    paths: Vec<PathBuf>,
    array: Arc<Array>,
    top: Top,
    /// Blocks that lie whole on both sides of a pair, and where: file and offset.
    blocks: Vec<(u64, [(usize, u64); 2])>,
}

/// A block of which each is another.
fn content(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    while bytes.len() < BLOCK_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend((state ^ state >> 31).to_le_bytes());
    }
    bytes
}

impl Bench {
    fn new(dir: PathBuf, by: Finder) -> Result<Bench> {
        fs::create_dir_all(&dir).map_err(|e| LoadError::at(&dir, e))?;
        let text = stack_of(Layout::Raid10, MEMBERS);
        let stack: Stack =
            text.parse().map_err(|e| LoadError::Unexpected(format!("the stack {text}: {e}")))?;
        let paths: Vec<PathBuf> = stack.members().into_iter().map(|name| dir.join(name)).collect();
        for path in &paths {
            env::FileMedia::create(path, MEMBER_BYTES).map_err(|e| LoadError::at(path, e))?;
        }
        create_array(&stack, &paths, &RealClock::new())?;
        let array = Arc::new(Array::open(candidates(&paths, None)?, &Materials::none())?);
        let top = match by {
            Finder::Layer => {
                let below = Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>;
                Top::Checked(CheckedDevice::new(below))
            }
            Finder::Map => make_volume(&array)?,
        };
        let mut bench = Bench { dir, by, paths, array, top, blocks: Vec::new() };
        for number in 0..BLOCKS {
            bench.write(number)?;
        }
        bench.array.flush()?;
        bench.find()?;
        Ok(bench)
    }

    fn write(&self, number: u64) -> Result<()> {
        let (offset, bytes) = (number * BLOCK_BYTES as u64, content(number));
        match &self.top {
            Top::Volume(_, volume) => {
                volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }])?;
            }
            Top::Checked(device) => device.write_at(offset, &[std::io::IoSlice::new(&bytes)])?,
        }
        Ok(())
    }

    /// Reads a block; an error is an answer here.
    fn read(&self, number: u64, buffer: &mut [u8]) -> bool {
        let offset = number * BLOCK_BYTES as u64;
        match &self.top {
            Top::Volume(_, volume) => volume.read(offset, buffer).is_ok(),
            Top::Checked(device) => device.read_at(offset, buffer).is_ok(),
        }
    }

    /// What recoveries took so far: data I/Os, checksum I/Os, checksums.
    fn counts(&self) -> [u64; 3] {
        let ledger = self.array.ledger();
        let written = match &self.top {
            Top::Checked(device) => device.checksums_recovered(),
            Top::Volume(..) => 0,
        };
        [ledger.data_ios.load(Relaxed), written, ledger.checksums.load(Relaxed)]
    }

    /// Looks for the blocks in the files.
    fn find(&mut self) -> Result<()> {
        let mut places: Vec<Vec<(usize, u64)>> = vec![Vec::new(); BLOCKS as usize];
        let wanted: Vec<Vec<u8>> = (0..BLOCKS).map(content).collect();
        for (file, path) in self.paths.iter().enumerate() {
            let bytes = fs::read(path).map_err(|e| LoadError::at(path, e))?;
            for at in (0..bytes.len() - BLOCK_BYTES + 1).step_by(ALIGNMENT) {
                let here = &bytes[at..at + BLOCK_BYTES];
                let which =
                    wanted.iter().position(|block| block[..8] == here[..8] && block == here);
                if let Some(number) = which {
                    places[number].push((file, at as u64));
                }
            }
        }
        let pairs = places.into_iter().zip(0..).filter_map(|(places, number)| {
            Some((number, <[(usize, u64); 2]>::try_from(places).ok()?))
        });
        self.blocks = pairs.collect();
        if self.blocks.len() < Case::ALL.len() {
            let text = format!("{} of {BLOCKS} blocks are on two members", self.blocks.len());
            return Err(LoadError::Unexpected(text));
        }
        Ok(())
    }

    fn put(&self, (file, offset): (usize, u64), bytes: &[u8]) -> Result<()> {
        let path = &self.paths[file];
        let opened = OpenOptions::new().write(true).open(path);
        opened.and_then(|file| file.write_all_at(bytes, offset)).map_err(|e| LoadError::at(path, e))
    }

    fn on_member(&self, (file, offset): (usize, u64)) -> Result<Vec<u8>> {
        let (path, mut bytes) = (&self.paths[file], vec![0; BLOCK_BYTES]);
        let opened = fs::File::open(path);
        let read = opened.and_then(|file| file.read_exact_at(&mut bytes, offset));
        read.map(|()| bytes).map_err(|e| LoadError::at(path, e))
    }

    /// One case on a block of its own.
    fn case(&self, case: Case, number: usize) -> Result<Recovery> {
        let (number, places) = self.blocks[number];
        let right = content(number);
        let wrong = |with: u8| {
            let mut bytes = right.clone();
            bytes[WRONG].fill(with);
            bytes
        };
        let mut buffer = vec![0; BLOCK_BYTES];
        let began = Instant::now();
        if !self.read(number, &mut buffer) || buffer != right {
            return Err(LoadError::Unexpected(format!("block {number} is wrong before its time")));
        }
        let clean = began.elapsed();
        match case {
            Case::OneWrong => self.put(self.side_read(number, places)?, &wrong(1))?,
            Case::BothTheSame => {
                self.put(places[0], &wrong(1))?;
                self.put(places[1], &wrong(1))?;
            }
            Case::BothWrong => {
                self.put(places[0], &wrong(1))?;
                self.put(places[1], &wrong(2))?;
            }
        }
        let before = self.counts();
        buffer.fill(0);
        let began = Instant::now();
        let answered = self.read(number, &mut buffer);
        let took = began.elapsed();
        let after = self.counts();
        let [data_ios, checksum_ios, checksums] = [0, 1, 2].map(|i| after[i] - before[i]);
        let on_members = [self.on_member(places[0])?, self.on_member(places[1])?];
        let ended = match answered {
            false => Ended::Refused,
            true if buffer == right && on_members.iter().all(|bytes| *bytes == right) => {
                Ended::DataRecovered
            }
            true if case == Case::BothTheSame && buffer == wrong(1) => {
                // What was answered once is answered again, and nothing is recovered for it.
                let again = self.read(number, &mut buffer) && buffer == wrong(1);
                if !again || self.counts() != after {
                    return Err(LoadError::Unexpected("the checksum was not written".to_owned()));
                }
                Ended::ChecksumRecovered
            }
            true => {
                let text = format!("{case:?}: bytes were answered that nobody wrote");
                return Err(LoadError::Unexpected(text));
            }
        };
        Ok(Recovery {
            case,
            by: self.by,
            data_ios,
            checksum_ios,
            checksums,
            ended,
            took_us: took.as_nanos() as f64 / 1e3,
            clean_us: clean.as_nanos() as f64 / 1e3,
        })
    }

    /// The copy that a read of a block takes: what is wrong on the other is not seen.
    fn side_read(&self, number: u64, places: [(usize, u64); 2]) -> Result<(usize, u64)> {
        let right = content(number);
        let mut wrong = right.clone();
        wrong[WRONG].fill(3);
        let before = self.counts();
        self.put(places[0], &wrong)?;
        let mut buffer = vec![0; BLOCK_BYTES];
        let answered = self.read(number, &mut buffer);
        if !answered || buffer != right {
            return Err(LoadError::Unexpected(format!("block {number} is not recovered")));
        }
        let was_seen = self.counts() != before;
        self.put(places[0], &right)?;
        Ok(places[usize::from(!was_seen)])
    }

    fn end(self) -> Result<()> {
        match &self.top {
            Top::Volume(pool, _) => pool.close()?,
            Top::Checked(device) => device.flush()?,
        }
        self.array.close()?;
        fs::remove_dir_all(&self.dir).map_err(|e| LoadError::at(&self.dir, e))
    }
}

fn make_volume(array: &Arc<Array>) -> Result<Top> {
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    let device = Arc::<Array>::clone(array) as Arc<dyn BlockDevice>;
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 })?;
    // The array stays in hand: its ledger is what is asked about.
    let options = PoolOptions { memory_bytes: 16 << 20 };
    let pool = Pool::open_with(device, machine, options, Arc::new(NoFiles))?;
    let volume = pool.create_volume(&volume_spec("v", VOLUME_BYTES))?;
    Ok(Top::Volume(pool, volume))
}
