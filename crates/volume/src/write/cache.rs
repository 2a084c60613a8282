//! A volume's write-back cache: what waits to be written, in the order of its last writes, and what
//! was read or has been written, the least recently used first out.
//!
//! Invariants
//! 1. *Versions* of blocks wait. Their order is that in which they were written last; it rises in
//!    time. They leave from its head only, and only once log and map have them.
//! 2. A version is replaced by a newer one only while no moment can need it: both are of one
//!    generation and one window of the granularity, and it is not on its way to the device.
//! 3. While writes are held back nothing comes to wait.
//! 4. The newest version of a block answers its reads; there is no clean block beside it.
//! 5. A reader's block comes in only if nobody wrote it since the reader found it missing.
//! 6. Waiting and clean blocks together are within the limit, but for one group of writes.
//!
//! Deliberately unaware of the log, the map and the device.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{HeldRange, Ranges, Rank, RankedGuard, RankedMutex};
use history::{Behind, BlockOp, FastSet, Stance, Store};
use parking_lot::Condvar;
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::types::{CacheUse, Granularity, Stamp};

mod destaging;
mod extents;
mod pages;
mod rewrites;
mod run;

pub use run::Run;

use pages::{Pages, Version, Window};
use rewrites::{Leaving, Rewrites};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Counters by block: a reader's block is kept out when another of the same counter was written.
const WRITTEN_COUNTERS: usize = 256;

/// How much a cache may hold, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub blocks: usize,
    /// Of versions that wait.
    pub dirty: usize,
    /// In one group of writes.
    pub group: usize,
}

/// The content of a cache, and its locks.
#[derive(Debug, Default)]
pub struct State {
    limits: Option<Limits>,
    granularity: Granularity,
    pages: Pages,
    next_write: u64,
    /// Writes below this are on their way to the device.
    going: u64,
    generation: u64,
    last_time: WallTime,
    /// When the clock was found to be behind that.
    behind: Option<Behind>,
    /// Where the log stands without what waits.
    logged: Seq,
    /// Ops that wait, if none was replaced.
    ops: u64,
    held: usize,
    /// Blocks that are merged with what is there.
    locked: Ranges,
    /// How blocks are written again, if somebody wants to know.
    rewrites: Option<Rewrites>,
    written: Vec<u64>,
    replaced: u64,
    destaged: u64,
    hits: u64,
    misses: u64,
}

/// A cache, on or off.
#[derive(Debug)]
pub struct Cache {
    state: RankedMutex<State>,
    changed: Condvar,
    /// How often it was switched on and off: odd while it is on.
    switches: AtomicU64,
    /// The right to destage: one at a time, so that the log gets the order. With it, room for what
    /// is on its way.
    pub destaging: RankedMutex<Run>,
    /// Something was destaged into the pool's reserve: no new write before there is room.
    pub short: AtomicBool,
    /// When a write was offered last, by a clock that nobody sets.
    pub offered_ns: AtomicU64,
}

/// The outcome of writes that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// So many ops are in; the seq of the last if nothing may be replaced.
    Taken(usize, Option<Seq>),
    /// There is no cache.
    Off,
    /// They may not be made any more.
    Moved,
    /// They would have had to wait for others.
    WouldWait,
}

/// Blocks that a reader found missing, and when.
#[derive(Debug)]
pub struct Missing {
    /// First block and count of each run of blocks.
    pub runs: Vec<(u64, usize)>,
    written: Vec<u64>,
    /// Blocks that were not missing, counted once the others have been read.
    hits: u64,
}

fn counter(block: u64) -> usize {
    (block % WRITTEN_COUNTERS as u64) as usize
}

fn count_of(op: &BlockOp<'_>) -> usize {
    let blocks = op.range();
    (blocks.end - blocks.start) as usize
}

impl Cache {
    /// A cache that is off.
    #[must_use]
    pub fn new(granularity: Granularity) -> Cache {
        let (next_write, written) = (1, vec![0; WRITTEN_COUNTERS]);
        let state = State { granularity, next_write, written, ..State::default() };
        Cache {
            state: RankedMutex::new(Rank::Cache, state),
            changed: Condvar::new(),
            switches: AtomicU64::new(0),
            destaging: RankedMutex::new(Rank::Destaging, Run::default()),
            short: AtomicBool::new(false),
            offered_ns: AtomicU64::new(0),
        }
    }

    /// Whether writes go to it.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.switches() % 2 == 1
    }

    /// How often it was switched on and off: odd while it is on. Writers lock ranges of the cache
    /// or of the log; a lock holds as long as this stays the same.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Acquire)
    }

    /// Sets its size, or switches it off. Switched on or off nothing may wait, and nobody write.
    pub fn set(&self, limits: Option<Limits>) {
        let mut state = self.state.lock();
        let switches = limits.is_some() != state.limits.is_some();
        assert!(!switches || state.pages.waiting_len() == 0, "nothing waits");
        state.limits = limits;
        state.shrink();
        if limits.is_none() {
            // Their room, too.
            state.pages = Pages::default();
        }
        self.switches.fetch_add(u64::from(switches), Ordering::Release);
    }

    /// How many blocks it may hold.
    #[must_use]
    pub fn blocks_max(&self) -> usize {
        self.state.lock().limits.map_or(0, |limits| limits.blocks)
    }

    /// Another granularity holds from now on. Nothing waits.
    pub fn set_granularity(&self, granularity: Granularity) {
        let mut state = self.state.lock();
        assert!(state.pages.waiting_len() == 0, "nothing waits");
        state.granularity = granularity;
    }

    /// Whether it is to remember how blocks are written again, if it is on.
    pub fn remember_rewrites(&self, wanted: bool) {
        let mut state = self.state.lock();
        let limits = state.limits.filter(|_| wanted);
        if limits.is_some() != state.rewrites.is_some() {
            state.rewrites = limits.map(|limits| Rewrites::new(limits.blocks));
        }
    }

    /// Which blocks of a run will rather be written again before their windows are over, by their
    /// newest versions in it. Asked once for each run.
    pub fn waits(&self, run: &Run, window_ns: u64, now_ns: u64) -> FastSet<u64> {
        let mut waiting = FastSet::default();
        let mut state = self.state.lock();
        let Some(rewrites) = &mut state.rewrites else { return waiting };
        for (block, time) in run.data_versions() {
            let window = time.as_nanos() / window_ns;
            let ends_ns = window.saturating_add(1).saturating_mul(window_ns);
            let left_ns = ends_ns.checked_sub(now_ns).filter(|&left_ns| left_ns > 0);
            match rewrites.waits(Leaving { block, window, left_ns }) {
                true => waiting.insert(block),
                false => waiting.remove(&block),
            };
        }
        waiting
    }

    /// Forgets all clean blocks while `change` makes something else the present: whoever finds that
    /// finds nothing here of what was before.
    pub fn forget_while(&self, change: impl FnOnce()) {
        let mut state = self.state.lock();
        change();
        state.pages.shrink_clean_to(0);
        state.written.iter_mut().for_each(|count| *count += 1);
    }

    /// Forgets the clean blocks from `first` to before `end`, which were trimmed past it.
    pub fn forget_range(&self, first: u64, end: u64) {
        let mut state = self.state.lock();
        state.pages.remove_clean(first..end);
        state.written.iter_mut().for_each(|count| *count += 1);
    }

    /// Forgets everything, also what waits: the volume is gone.
    pub fn discard(&self) {
        let mut state = self.state.lock();
        state.pages = Pages::default();
        state.ops = 0;
        drop(state);
        self.changed.notify_all();
    }

    /// Takes as many ops as there is room for, if `may` says that they may be made: none is in
    /// order to make room first. `time` says the time after another.
    pub fn offer(
        &self,
        ops: &[BlockOp<'_>],
        stance: Stance,
        may: impl Fn() -> bool,
        time: impl Fn(WallTime, &mut Option<Behind>) -> WallTime,
    ) -> Offered {
        let mut state = self.state.lock();
        let meets = |held: &Ranges| held.meet(ops.iter().map(BlockOp::range));
        while state.held > 0 || (!stance.holds_lock && meets(&state.locked)) {
            if !stance.may_wait {
                return Offered::WouldWait;
            }
            RankedGuard::wait(&mut state, &self.changed);
        }
        let Some(limits) = state.limits else { return Offered::Off };
        if !may() {
            return Offered::Moved;
        }
        let mut taken = 0;
        let has_room = |waiting: usize| waiting < limits.dirty.max(1);
        while taken < ops.len() && has_room(state.pages.waiting_len()) {
            let mut blocks = count_of(&ops[taken]);
            let more = ops[taken + 1..].iter().take_while(|op| {
                blocks += count_of(op);
                blocks <= limits.group
            });
            let count = 1 + more.count();
            let last = state.last_time;
            let now = time(last, &mut state.behind);
            state.take_group(&ops[taken..taken + count], now);
            taken += count;
        }
        let exact = state.granularity == Granularity::EveryWrite;
        let seq = Seq(state.logged.0 + state.ops);
        Offered::Taken(taken, exact.then_some(seq))
    }

    /// Copies out what is here of the blocks from `first` on; `take` gets index and bytes of each.
    pub fn look_up(&self, first: u64, count: usize, mut take: impl FnMut(usize, &[u8])) -> Missing {
        let zeros = [0; BLOCK];
        let mut state = self.state.lock();
        let mut missing = Missing { runs: Vec::new(), written: Vec::new(), hits: 0 };
        let mut last_missed = None;
        for (index, block) in (first..first + count as u64).enumerate() {
            if let Some(bytes) = state.pages.read(block) {
                take(index, bytes.unwrap_or(&zeros));
                missing.hits += 1;
            } else {
                missing.written.push(state.written[counter(block)]);
                match missing.runs.last_mut() {
                    Some(open) if last_missed == Some(block - 1) => open.1 += 1,
                    _ => missing.runs.push((block, 1)),
                }
                last_missed = Some(block);
            }
        }
        if missing.runs.is_empty() {
            state.hits += missing.hits;
        }
        missing
    }

    /// Takes blocks that were found missing and have been read, unless they were written since:
    /// `skip` of the missing ones come before them.
    pub fn keep(&self, missing: &Missing, skip: usize, first: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.misses += (bytes.len() / BLOCK) as u64;
        if skip == 0 {
            state.hits += missing.hits;
        }
        if state.limits.is_none() {
            return;
        }
        for (index, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
            let block = first + index as u64;
            if state.written[counter(block)] == missing.written[skip + index] {
                state.pages.put_clean(block, bytes);
            }
        }
        state.shrink();
    }

    /// Counts missing blocks that were read and are not taken: `skip` of the missing ones come
    /// before them.
    pub fn passed(&self, missing: &Missing, skip: usize, count: usize) {
        let mut state = self.state.lock();
        state.misses += count as u64;
        if skip == 0 {
            state.hits += missing.hits;
        }
    }

    /// Locks blocks `first..end` against other writes while a partial block is merged.
    pub fn lock_blocks(&self, first: u64, end: u64) -> HeldRange<'_, State> {
        let lock = (&self.state, &self.changed);
        let Ok((_, locked)) = HeldRange::wait(lock, first..end, false, || Ok::<_, Infallible>(()));
        locked
    }

    /// Holds writes back until [`Cache::release`].
    pub fn hold(&self) {
        let mut state = self.state.lock();
        state.held += 1;
        state.generation += 1;
    }

    /// Lets writes go on, after what the log has now.
    pub fn release(&self, logged: Seq, last_time: WallTime) {
        let mut state = self.state.lock();
        state.held = state.held.checked_sub(1).expect("held until now");
        if state.pages.waiting_len() == 0 {
            state.logged = state.logged.max(logged);
            state.last_time = state.last_time.max(last_time);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the generation, and says which is the last write that waits; none when none does.
    pub fn end_generation(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.generation += 1;
        state.pages.last_waiting().map(|page| page.write)
    }

    /// Whether a write up to this one waits.
    pub fn has_waiting(&self, upto: u64) -> bool {
        self.state.lock().pages.first_waiting().is_some_and(|page| page.write <= upto)
    }

    /// When the oldest of what waits was accepted.
    pub fn first_waiting(&self) -> Option<WallTime> {
        self.state.lock().pages.first_waiting().map(|page| page.time)
    }

    /// The stamp that the last write will have which waits. Nothing that waits is replaced from
    /// now on, so that it is right.
    pub fn latest(&self) -> Option<Stamp> {
        let mut state = self.state.lock();
        let time = state.pages.last_waiting()?.time;
        state.generation += 1;
        let seq = Seq(state.logged.0 + state.count_ops());
        Some(Stamp { seq, time })
    }

    /// Time of the last write that was taken.
    pub fn last_time(&self) -> WallTime {
        self.state.lock().last_time
    }

    /// The time so long ago, as its writes have it.
    pub fn time_ago(&self, store: &Store, span_ns: u64) -> WallTime {
        let mut state = self.state.lock();
        store.time_ago(state.last_time, &mut state.behind, span_ns)
    }

    /// How many versions are to be destaged in the background: those beyond `keep` sixteenths of
    /// the limit.
    pub fn excess(&self, keep: usize) -> usize {
        let state = self.state.lock();
        let Some(limits) = state.limits else { return 0 };
        state.pages.waiting_len().saturating_sub(limits.dirty * keep / 16)
    }

    /// How many versions a writer destages that finds no room.
    pub fn portion(&self) -> usize {
        self.state.lock().limits.map_or(1, |limits| (limits.dirty / 16).max(1))
    }

    /// Its content and its work so far.
    pub fn told(&self) -> CacheUse {
        let state = self.state.lock();
        CacheUse {
            dirty_limit_bytes: state.limits.map_or(0, |l| l.dirty as u64 * BLOCK_BYTES),
            dirty_bytes: state.pages.waiting_len() as u64 * BLOCK_BYTES,
            clean_bytes: state.pages.clean_len() as u64 * BLOCK_BYTES,
            hits: state.hits,
            misses: state.misses,
            absorbed: state.replaced,
            destaged: state.destaged,
        }
    }

    /// Fails where its parts disagree.
    pub fn verify(&self) {
        let state = self.state.lock();
        state.pages.verify();
        let mut times = state.pages.waiting().map(|page| page.time);
        let mut before = times.next();
        for time in times {
            assert!(before <= Some(time), "time rises with the order");
            before = Some(time);
        }
        let waiting = state.pages.waiting_len();
        assert!(state.limits.is_some() || waiting == 0, "nothing waits without it");
    }

    fn lock(&self) -> RankedGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn take_group(&mut self, ops: &[BlockOp<'_>], time: WallTime) {
        assert!(time > self.last_time, "time rises");
        assert!(self.held == 0, "nothing comes to wait while writes are held back");
        self.last_time = time;
        let number = match self.granularity {
            Granularity::EveryWrite => None,
            Granularity::Interval(nanos) => Some(time.as_nanos() / nanos.max(1)),
            Granularity::OnDemand => Some(0),
        };
        let window = Window { generation: self.generation, number };
        for op in ops {
            let write = self.next_write;
            self.next_write += 1;
            self.ops += 1;
            for (index, block) in op.range().enumerate() {
                let (bytes, crc) = match *op {
                    BlockOp::Data { bytes, crcs, .. } => {
                        (Some(&bytes[index * BLOCK..(index + 1) * BLOCK]), crcs[index])
                    }
                    BlockOp::Zero { .. } => (None, 0),
                };
                let version = Version { write, time, window, bytes, crc };
                self.take(block, version);
            }
        }
        self.shrink();
    }

    fn take(&mut self, block: u64, version: Version<'_>) {
        let (going, window) = (self.going, version.window);
        let replaced = self.pages.wait(block, version, |there| {
            there.write >= going && window.number.is_some() && there.window == window
        });
        self.replaced += u64::from(replaced);
        if let Some(rewrites) = &mut self.rewrites {
            rewrites.met(block, version.time.as_nanos());
        }
        self.written[counter(block)] += 1;
    }

    /// Lets clean blocks go until all is within the limit.
    fn shrink(&mut self) {
        let most = self.limits.map_or(0, |limits| limits.blocks);
        self.pages.shrink_clean_to(most.saturating_sub(self.pages.waiting_len()));
    }

    /// How many ops what waits will be in the log.
    fn count_ops(&self) -> u64 {
        let mut before: Option<(u64, u64, bool)> = None;
        let mut count = 0;
        for page in self.pages.waiting() {
            let (write, block, hole) = (page.write, page.block, page.bytes().is_none());
            count += u64::from(before != Some((write, block.wrapping_sub(1), hole)));
            before = Some((write, block, hole));
        }
        count
    }
}

impl AsMut<Ranges> for State {
    fn as_mut(&mut self) -> &mut Ranges {
        &mut self.locked
    }
}
