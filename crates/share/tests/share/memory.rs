//! Blocks in memory that keep all versions: the present of a share, and every moment of its past.
//!
//! 1. Moment `n` is what the first `n` calls of `write_whole` left.
//! 2. Writes of one call may not overlap, and not be more than the contract says.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::share::{
    BlockWrite, Blocks, Error, ErrorKind, Present, Result, VOLUME_BLOCKS, Wait, hole_parts,
};
use format::share::place::DATA_FIRST;
use units::Seq;

const BLOCK: usize = 4096;
/// Blocks of data and parts of holes that one call may have.
const WHOLE_BLOCKS_MAX: usize = 8000;

type Block = Arc<[u8; BLOCK]>;
/// The versions of a block: since which moment, and its bytes; none of a hole.
type Versions = Vec<(usize, Option<Block>)>;

#[derive(Clone, Default)]
struct Kept {
    blocks: BTreeMap<u64, Versions>,
    moments: usize,
    seq: u64,
    /// The seq before each moment.
    seqs: Vec<u64>,
}

thread_local! {
    /// Reads of data by this thread.
    static DATA_READS: Cell<usize> = const { Cell::new(0) };
}

/// The present.
#[derive(Default)]
pub struct Memory {
    kept: RwLock<Kept>,
    /// Whether the next write fails.
    pub fails: AtomicBool,
    /// Whether what is read would have to be waited for.
    pub is_slow: AtomicBool,
    /// Blocks that one call may have; 0 for as many as the largest zones have.
    pub whole_blocks_max: AtomicUsize,
    /// The read that fails, counted down, and how.
    fails_read: Mutex<Option<(usize, ErrorKind)>>,
    /// The next read of data waits there, for others to come, and once more, for them to go on.
    pause: Mutex<Option<Arc<Barrier>>>,
    /// Blocks read so far.
    pub reads: AtomicUsize,
}

impl Clone for Memory {
    fn clone(&self) -> Memory {
        Memory { kept: RwLock::new(self.kept().clone()), ..Memory::default() }
    }
}

impl Kept {
    fn begin_moment(&mut self) {
        self.moments += 1;
        self.seqs.push(self.seq);
    }
}

impl Memory {
    /// Lets a read fail: the next one is the first; 0 for none.
    pub fn fail_read(&self, nth: usize, kind: ErrorKind) {
        *self.fails_read.lock().expect("no panic") = (nth > 0).then_some((nth, kind));
    }

    /// Whether a read failed that was to.
    pub fn has_failed(&self) -> bool {
        self.fails_read.lock().expect("no panic").is_none_or(|(left, _)| left == 0)
    }

    fn count_down(&self) -> Result<()> {
        let mut fails = self.fails_read.lock().expect("no panic");
        let Some((left, kind)) = fails.as_mut().filter(|(left, _)| *left > 0) else {
            return Ok(());
        };
        *left -= 1;
        if *left == 0 { Err(Error::from(*kind)) } else { Ok(()) }
    }

    /// Reads in a thread, and changes something at its first read of data; the outcome, and by how
    /// many reads of data.
    pub fn read_beside<T: Send>(
        &self,
        change: impl FnOnce(),
        read: impl FnOnce() -> T + Send,
    ) -> (T, usize) {
        let barrier = Arc::new(Barrier::new(2));
        *self.pause.lock().expect("no panic") = Some(Arc::clone(&barrier));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (read(), DATA_READS.get()));
            barrier.wait();
            change();
            barrier.wait();
            reader.join().expect("no panic")
        })
    }

    /// Loses the last moments, with their seqs, as a power cut does.
    pub fn lose(&self, moments: usize) {
        let mut kept = self.kept_mut();
        kept.moments -= moments;
        let now = kept.moments;
        kept.seq = kept.seqs.get(now).copied().unwrap_or(kept.seq);
        kept.seqs.truncate(now);
        for versions in kept.blocks.values_mut() {
            versions.retain(|(since, _)| *since <= now);
        }
    }

    fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().expect("no test goes on after a panic")
    }

    fn kept_mut(&self) -> RwLockWriteGuard<'_, Kept> {
        self.kept.write().expect("no test goes on after a panic")
    }

    /// How many moments there are.
    pub fn moments(&self) -> usize {
        self.kept().moments
    }

    /// A moment of the past.
    pub fn at(&self, moment: usize) -> View<'_> {
        assert!(moment <= self.moments());
        View { memory: self, moment }
    }

    /// The moment after the write with a number.
    pub fn moment_of(&self, seq: Seq) -> usize {
        self.kept().seqs.partition_point(|before| *before < seq.0)
    }

    /// Makes a moment the present again, as a revert does.
    pub fn revert(&self, moment: usize) {
        let mut kept = self.kept_mut();
        kept.begin_moment();
        kept.seq += 1;
        let now = kept.moments;
        for versions in kept.blocks.values_mut() {
            let old = version_at(versions, moment).cloned();
            versions.push((now, old));
        }
    }

    /// Overwrites a block behind the share's back.
    pub fn damage(&self, block: u64, change: impl FnOnce(&mut [u8; BLOCK])) {
        let mut bytes = [0; BLOCK];
        self.read(block, &mut bytes, Wait::May).expect("it is read");
        change(&mut bytes);
        self.write_whole(&[BlockWrite::Data { block, bytes: &bytes }], Wait::May)
            .expect("it is written");
    }

    /// Blocks that had bytes at any moment.
    pub fn all_blocks(&self) -> Vec<u64> {
        self.kept().blocks.keys().copied().collect()
    }

    /// Every block that is no hole.
    pub fn data_blocks(&self) -> Vec<u64> {
        let kept = self.kept();
        let is_data = |v: &Versions| v.last().is_some_and(|(_, block)| block.is_some());
        kept.blocks.iter().filter(|(_, v)| is_data(v)).map(|(block, _)| *block).collect()
    }

    fn read_at(&self, moment: usize, first: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        if wait == Wait::MayNot && self.is_slow.load(Ordering::Relaxed) {
            return Err(Error::from(ErrorKind::WouldWait));
        }
        self.count_down()?;
        if first >= DATA_FIRST {
            DATA_READS.set(DATA_READS.get() + 1);
            let pause = self.pause.lock().expect("no panic").take();
            if let Some(barrier) = pause {
                barrier.wait();
                barrier.wait();
            }
        }
        let kept = self.kept();
        assert_eq!(buffer.len() % BLOCK, 0);
        for (block, bytes) in (first..).zip(buffer.chunks_exact_mut(BLOCK)) {
            assert!(block < VOLUME_BLOCKS);
            self.reads.fetch_add(1, Ordering::Relaxed);
            match kept.blocks.get(&block).and_then(|versions| version_at(versions, moment)) {
                Some(found) => bytes.copy_from_slice(&found[..]),
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn count_at(&self, moment: usize, first: u64, count: u64) -> u64 {
        let kept = self.kept();
        let versions = kept.blocks.range(first..first + count);
        versions.filter(|(_, v)| version_at(v, moment).is_some()).count() as u64
    }
}

fn version_at(versions: &Versions, moment: usize) -> Option<&Block> {
    let after = versions.partition_point(|(since, _)| *since <= moment);
    versions[..after].last()?.1.as_ref()
}

impl Blocks for Memory {
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        self.read_at(usize::MAX, first_block, buffer, wait)
    }

    fn count_data(&self, first_block: u64, blocks: u64, _: Wait) -> Result<u64> {
        Ok(self.count_at(usize::MAX, first_block, blocks))
    }
}

impl Present for Memory {
    fn seq(&self) -> Seq {
        Seq(self.kept().seq)
    }

    fn whole_blocks_max(&self) -> usize {
        match self.whole_blocks_max.load(Ordering::Relaxed) {
            0 => WHOLE_BLOCKS_MAX,
            most => most,
        }
    }

    fn write_whole(&self, writes: &[BlockWrite<'_>], _: Wait) -> Result<Seq> {
        if self.fails.swap(false, Ordering::Relaxed) {
            return Err(Error::with_source(ErrorKind::Storage, std::fmt::Error));
        }
        let mut kept = self.kept_mut();
        kept.begin_moment();
        kept.seq += writes.len() as u64;
        let now = kept.moments;
        let (mut ranges, mut blocks) = (Vec::new(), 0);
        for write in writes {
            match *write {
                BlockWrite::Data { block, bytes } => {
                    assert!(!bytes.is_empty() && bytes.len() % BLOCK == 0);
                    ranges.push(block..block + (bytes.len() / BLOCK) as u64);
                    blocks += bytes.len() / BLOCK;
                    for (block, bytes) in (block..).zip(bytes.chunks_exact(BLOCK)) {
                        let bytes: [u8; BLOCK] = bytes.try_into().expect("a block");
                        kept.blocks.entry(block).or_default().push((now, Some(Arc::new(bytes))));
                    }
                }
                BlockWrite::Zero { block, count } => {
                    assert!(count > 0 && count <= 1 << 32);
                    ranges.push(block..block + count);
                    blocks += hole_parts(block, count) as usize;
                    for (_, versions) in kept.blocks.range_mut(block..block + count) {
                        versions.push((now, None));
                    }
                }
            }
        }
        assert!(blocks <= self.whole_blocks_max());
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
        assert!(ranges.last().is_some_and(|last| last.end <= VOLUME_BLOCKS));
        Ok(Seq(kept.seq))
    }
}

/// A moment of the past.
pub struct View<'m> {
    memory: &'m Memory,
    moment: usize,
}

impl Blocks for View<'_> {
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        self.memory.read_at(self.moment, first_block, buffer, wait)
    }

    fn count_data(&self, first_block: u64, blocks: u64, _: Wait) -> Result<u64> {
        Ok(self.memory.count_at(self.moment, first_block, blocks))
    }
}
