//! A volume's current store: its present in place, directly addressed and thin.
//!
//! Blocks lie in slabs, zones of the pool that are filled in the order of the blocks. A slab is
//! taken when something is first written into it; the catalogue names it before.
//!
//! Invariants
//! 1. A place is read only while it is *trusted*: it holds the newest version of its block that the
//!    map has. Otherwise the log answers. The checksum in the map only guards against rot.
//! 2. The writer of a block takes the *pen* for it before the write gets its seq, which ends the
//!    trust, and lets it go after the bytes are in place. Only who held it alone brings trust back.
//! 3. A reader notes the generations before it looks the map up and compares them after it has the
//!    bytes: a pen taken or let go in between shows.
//! 4. Trust outlives the process only through a clean close. After anything else nothing is trusted
//!    until it was written again from the log.
//! 5. While another moment becomes the present all places are closed: nothing is trusted, and no
//!    trust comes back.
//! 6. A slab's zone is given back when nobody can write in it (pens hold the slab) or read it (the
//!    epochs of readers) any more.
//!
//! Deliberately unaware of the map, of checksums and of the catalogue.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Rank, RankedMutex, RankedRwLock};
use history::Store;
use parking_lot::Mutex;
use units::BLOCK_BYTES;

/// Blocks whose trust is kept together, unless a slab is smaller.
const GROUP_BLOCKS_MAX: u64 = 512;

/// The writers in a group.
#[derive(Debug)]
struct Writing {
    pen: u64,
    blocks: Range<u16>,
    /// Someone else wrote some of these blocks at the same time.
    spoiled: bool,
}

/// The known places of a group of blocks.
#[derive(Debug)]
struct Group {
    /// Rises when trust in any of its places begins or ends.
    generation: u64,
    trusted: [u64; GROUP_BLOCKS_MAX as usize / 64],
    writing: Vec<Writing>,
    /// Places that are not trusted should be looked after.
    unsettled: bool,
    /// Some could not be put right when they were.
    missing: bool,
    /// Writes of an earlier process may be there, whose sync may have failed and left them in the
    /// cache alone. They are written again, not compared.
    alien: bool,
    /// No pen is given any more: the pool is closing.
    sealed: bool,
}

impl Group {
    fn new(placed: bool) -> Group {
        Group {
            generation: 0,
            trusted: [if placed { u64::MAX } else { 0 }; 8],
            writing: Vec::new(),
            unsettled: !placed,
            missing: false,
            alien: !placed,
            sealed: false,
        }
    }

    fn is_trusted(&self, block: u16) -> bool {
        self.trusted[usize::from(block / 64)] >> (block % 64) & 1 == 1
    }

    fn trust(&mut self, blocks: Range<u16>, trusted: bool) {
        for block in blocks {
            let word = &mut self.trusted[usize::from(block / 64)];
            let bit = 1 << (block % 64);
            *word = if trusted { *word | bit } else { *word & !bit };
        }
        self.generation += 1;
    }
}

/// A zone of blocks in place.
struct Slab {
    store: Arc<Store>,
    zone: u32,
    groups: Vec<Mutex<Group>>,
    /// Its volume is gone: the zone goes with the last who holds this.
    retired: AtomicBool,
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Acquire) {
            self.store.retire_zones(&[self.zone]);
        }
    }
}

/// Where a volume's present is in place.
pub struct CurrentStore {
    store: Arc<Store>,
    group_blocks: u64,
    slabs: RankedRwLock<BTreeMap<u64, Arc<Slab>>>,
    /// The right to add slabs.
    pub growing: RankedMutex<()>,
    closed: AtomicBool,
    pens: AtomicU64,
    unsettled: AtomicU64,
    /// Where the search for unsettled groups goes on.
    hand: AtomicU64,
    rot: AtomicU64,
}

/// Blocks of one group that a pen is for.
struct Part {
    slab: Arc<Slab>,
    index: usize,
    first: u64,
    blocks: Range<u16>,
}

/// The right to write some blocks in place.
pub struct Pen {
    current: Arc<CurrentStore>,
    number: u64,
    parts: Vec<Part>,
    end: PenEnd,
}

/// How it ended with a pen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PenEnd {
    /// Half way.
    Broken,
    /// All of it was written.
    Written,
    /// There is nothing right to be written.
    GivenUp,
}

/// Generations of groups, noted before the map was looked up.
#[derive(Debug)]
pub struct Noted {
    first: u64,
    generations: Vec<Option<u64>>,
}

impl CurrentStore {
    /// A current store with these slabs (slab, zone), in some of which all is in place.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        slabs: &BTreeMap<u64, u32>,
        placed: impl Fn(u64) -> bool,
    ) -> CurrentStore {
        let group_blocks = GROUP_BLOCKS_MAX.min(store.zone_bytes / BLOCK_BYTES);
        let current = CurrentStore {
            store,
            group_blocks,
            slabs: RankedRwLock::new(Rank::CurrentSlabs, BTreeMap::new()),
            growing: RankedMutex::new(Rank::Growing, ()),
            closed: AtomicBool::new(false),
            pens: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            rot: AtomicU64::new(0),
        };
        for (&slab, &zone) in slabs {
            current.add_slab(slab, zone, placed(slab));
        }
        current
    }

    fn slab_blocks(&self) -> u64 {
        self.store.zone_bytes / BLOCK_BYTES
    }

    /// The slab of a block.
    #[must_use]
    pub fn slab_of(&self, block: u64) -> u64 {
        block / self.slab_blocks()
    }

    /// The blocks that lie in a slab.
    #[must_use]
    pub fn blocks_of(&self, slab: u64) -> Range<u64> {
        slab * self.slab_blocks()..(slab + 1) * self.slab_blocks()
    }

    /// Whether a slab is there.
    #[must_use]
    pub fn has_slab(&self, slab: u64) -> bool {
        self.slabs.read().contains_key(&slab)
    }

    /// Whether a slab is there, in which blocks can be written without waiting for anything else on
    /// the device.
    #[must_use]
    pub fn is_ready(&self, slab: u64, blocks: &Range<u64>) -> bool {
        let within = self.blocks_of(slab);
        let first = blocks.start.max(within.start);
        let bytes = (blocks.end.min(within.end) - first) * BLOCK_BYTES;
        let device = &self.store.device;
        self.slab(slab).is_some_and(|slab| device.is_ready(self.offset(slab.zone, first), bytes))
    }

    /// How many slabs there are.
    #[must_use]
    pub fn slab_count(&self) -> usize {
        self.slabs.read().len()
    }

    /// Adds a slab that the catalogue names.
    pub fn add_slab(&self, slab: u64, zone: u32, placed: bool) {
        let count = self.slab_blocks() / self.group_blocks;
        let groups = (0..count).map(|_| Mutex::new(Group::new(placed))).collect();
        let store = Arc::clone(&self.store);
        let new = Slab { store, zone, groups, retired: AtomicBool::new(false) };
        let before = self.slabs.write().insert(slab, Arc::new(new));
        assert!(before.is_none(), "slab {slab} added twice");
        if !placed {
            self.unsettled.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// Gives all slabs back, which the catalogue no longer names.
    pub fn retire(&self) {
        let slabs = std::mem::take(&mut *self.slabs.write());
        slabs.values().for_each(|slab| slab.retired.store(true, Ordering::Release));
        self.unsettled.store(0, Ordering::Release);
    }

    fn slab(&self, slab: u64) -> Option<Arc<Slab>> {
        self.slabs.read().get(&slab).cloned()
    }

    /// The slab of a group, and the group's place among the slab's.
    fn group(&self, group: u64) -> Option<(Arc<Slab>, usize)> {
        let per_slab = self.slab_blocks() / self.group_blocks;
        let index = usize::try_from(group % per_slab).expect("a slab has few groups");
        Some((self.slab(group / per_slab)?, index))
    }

    /// Asserts that blocks begin with a group: what follows is about all of it.
    fn assert_group(&self, blocks: &Range<u64>) {
        assert!(blocks.start.is_multiple_of(self.group_blocks), "{blocks:?} begin a group");
        assert!(blocks.end - blocks.start <= self.group_blocks, "{blocks:?} are of one group");
    }

    fn offset(&self, zone: u32, block: u64) -> u64 {
        self.store.zone_offset(zone) + block % self.slab_blocks() * BLOCK_BYTES
    }

    /// The groups that a range touches, each with the part of the range in it.
    fn parts_of(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let size = self.group_blocks;
        (blocks.start / size..blocks.end.div_ceil(size)).map(move |group| {
            (group, blocks.start.max(group * size)..blocks.end.min((group + 1) * size))
        })
    }

    fn within(&self, blocks: &Range<u64>) -> Range<u16> {
        let at = |block: u64| u16::try_from(block % self.group_blocks).expect("a group is small");
        let count = u16::try_from(blocks.end - blocks.start).expect("a group is small");
        let within = at(blocks.start)..at(blocks.start) + count;
        assert!(u64::from(within.end) <= self.group_blocks, "{blocks:?} are of one group");
        within
    }

    fn unsettle(&self, group: &mut Group) {
        if !group.unsettled {
            group.unsettled = true;
            self.unsettled.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes the pen for some ranges of blocks, as far as slabs are there; `None` when the pool is
    /// closing.
    pub fn take_pen(self: &Arc<Self>, ranges: impl Iterator<Item = Range<u64>>) -> Option<Pen> {
        let number = self.pens.fetch_add(1, Ordering::Relaxed);
        let current = Arc::clone(self);
        let mut pen = Pen { current, number, parts: Vec::new(), end: PenEnd::Broken };
        for (group, blocks) in ranges.flat_map(|range| self.parts_of(range)) {
            let Some((slab, index)) = self.group(group) else { continue };
            let within = self.within(&blocks);
            {
                let mut group = slab.groups[index].lock();
                if group.sealed {
                    return None;
                }
                let mut spoiled = false;
                for other in &mut group.writing {
                    if other.blocks.start < within.end && within.start < other.blocks.end {
                        (other.spoiled, spoiled) = (true, true);
                    }
                }
                group.trust(within.clone(), false);
                group.writing.push(Writing { pen: number, blocks: within.clone(), spoiled });
            }
            pen.parts.push(Part { slab, index, first: blocks.start, blocks: within });
        }
        Some(pen)
    }

    /// Notes the generations of the groups of some blocks, before the map is looked up.
    #[must_use]
    pub fn note(&self, blocks: Range<u64>) -> Noted {
        let first = blocks.start / self.group_blocks;
        let generation = |group| {
            let (slab, index) = self.group(group)?;
            let generation = slab.groups[index].lock().generation;
            Some(generation)
        };
        let generations = self.parts_of(blocks).map(|(group, _)| generation(group)).collect();
        Noted { first, generations }
    }

    /// Where a block and what follows it can be read, and how many of `count` blocks that is true
    /// for; `None`: in the log.
    #[must_use]
    pub fn look_up(&self, noted: &Noted, block: u64, count: usize) -> (Option<u64>, usize) {
        let number = block / self.group_blocks;
        let end = (number + 1) * self.group_blocks;
        let count = count.min(usize::try_from(end - block).expect("a group is small"));
        let Some((slab, index)) = self.group(number) else { return (None, count) };
        let group = slab.groups[index].lock();
        let closed = self.closed.load(Ordering::SeqCst);
        if closed || noted.of(number) != Some(group.generation) {
            return (None, count);
        }
        let start = self.within(&(block..block + 1)).start;
        let trusted = group.is_trusted(start);
        let same = |i: &usize| group.is_trusted(start + *i as u16) == trusted;
        let count = (0..count).take_while(same).count();
        (trusted.then(|| self.offset(slab.zone, block)), count)
    }

    /// Whether no pen was taken for the block's group since the generations were noted.
    #[must_use]
    pub fn is_unchanged(&self, noted: &Noted, block: u64) -> bool {
        let number = block / self.group_blocks;
        let Some((slab, index)) = self.group(number) else { return false };
        let generation = slab.groups[index].lock().generation;
        noted.of(number) == Some(generation)
    }

    /// A block in place has rotted: the log answers until it is put right.
    pub fn distrust(&self, block: u64) {
        self.rot.fetch_add(1, Ordering::Relaxed);
        self.displace(block..block + 1);
    }

    /// Blocks are in the map now that were not: what their places have is not them.
    pub fn displace(&self, blocks: Range<u64>) {
        for (group, blocks) in self.parts_of(blocks) {
            let Some((slab, index)) = self.group(group) else { continue };
            let mut group = slab.groups[index].lock();
            group.trust(self.within(&blocks), false);
            self.unsettle(&mut group);
        }
    }

    /// How many blocks in place were found rotten.
    #[must_use]
    pub fn rotten(&self) -> u64 {
        self.rot.load(Ordering::Relaxed)
    }

    /// Closes all places: another moment is about to become the present.
    pub fn close_places(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Another moment became the present, which may differ from the one before in these ranges of
    /// blocks (ascending and apart; `None`: anywhere). Writes in place that are under way are for
    /// the one before. The places are open again afterwards.
    pub fn distrust_after_revert(&self, differ: Option<&[Range<u64>]>) {
        let slabs: Vec<_> = self.slabs.read().iter().map(|(&k, v)| (k, Arc::clone(v))).collect();
        for (number, slab) in slabs {
            let first = number * self.slab_blocks();
            for (group, start) in slab.groups.iter().zip((first..).step_by(self.step())) {
                let all = start..start + self.group_blocks;
                let mut group = group.lock();
                group.writing.iter_mut().for_each(|writing| writing.spoiled = true);
                let wanted = differ.unwrap_or(std::slice::from_ref(&all));
                let first = wanted.partition_point(|range| range.end <= all.start);
                for range in wanted[first..].iter().take_while(|range| range.start < all.end) {
                    let part = range.start.max(all.start)..range.end.min(all.end);
                    group.trust(self.within(&part), false);
                    self.unsettle(&mut group);
                }
            }
        }
        self.closed.store(false, Ordering::SeqCst);
    }

    fn step(&self) -> usize {
        usize::try_from(self.group_blocks).expect("a group is small")
    }

    /// Ranges of trusted places, for those who check: of those that are wanted, which is asked with
    /// where they are on the device and how many bytes they have.
    #[must_use]
    pub fn trusted(&self, wants: &dyn Fn(u64, u64) -> bool) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (&number, slab) in self.slabs.read().iter() {
            if !wants(self.store.zone_offset(slab.zone), self.store.zone_bytes) {
                continue;
            }
            let first = number * self.slab_blocks();
            for (group, start) in slab.groups.iter().zip((first..).step_by(self.step())) {
                let group = group.lock();
                for block in start..start + self.group_blocks {
                    let is_trusted = group.is_trusted((block - start) as u16);
                    if !is_trusted || !wants(self.offset(slab.zone, block), BLOCK_BYTES) {
                        continue;
                    }
                    match found.last_mut() {
                        Some(open) if open.end == block && block != start => open.end += 1,
                        _ => found.push(block..block + 1),
                    }
                }
            }
        }
        found
    }

    /// Blocks of which some may not be in place, at most.
    #[must_use]
    pub fn unsettled_blocks(&self) -> u64 {
        self.unsettled.load(Ordering::Acquire) * self.group_blocks
    }

    /// The blocks of the next group to be looked after.
    #[must_use]
    pub fn next_unsettled(&self) -> Option<Range<u64>> {
        if self.unsettled.load(Ordering::Acquire) == 0 {
            return None;
        }
        let hand = self.hand.load(Ordering::Relaxed);
        let found = self.unsettled_from(hand).or_else(|| self.unsettled_from(0))?;
        self.hand.store(found.end, Ordering::Relaxed);
        Some(found)
    }

    fn unsettled_from(&self, block: u64) -> Option<Range<u64>> {
        let slabs = self.slabs.read();
        for (&number, slab) in slabs.range(self.slab_of(block)..) {
            let first = number * self.slab_blocks();
            for (group, start) in slab.groups.iter().zip((first..).step_by(self.step())) {
                let blocks = start..start + self.group_blocks;
                if block < blocks.end && group.lock().unsettled {
                    return Some(blocks);
                }
            }
        }
        None
    }

    /// Begins to look after a group: what becomes untrusted from now on unsettles it again. Which
    /// of its places are not trusted, and whether what is there may be another process's.
    #[must_use]
    pub fn look_after(&self, blocks: &Range<u64>) -> (Vec<bool>, bool) {
        self.assert_group(blocks);
        let number = blocks.start / self.group_blocks;
        let Some((slab, index)) = self.group(number) else { return (Vec::new(), false) };
        let mut group = slab.groups[index].lock();
        if group.unsettled {
            group.unsettled = false;
            self.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
        group.missing = false;
        let count = u16::try_from(blocks.end - blocks.start).expect("a group is small");
        ((0..count).map(|i| !group.is_trusted(i)).collect(), group.alien)
    }

    /// All places of a group that were not trusted were written by this process.
    pub fn made_own(&self, blocks: &Range<u64>) {
        self.assert_group(blocks);
        if let Some((slab, index)) = self.group(blocks.start / self.group_blocks) {
            let mut group = slab.groups[index].lock();
            group.alien = group.missing;
        }
    }

    /// Gives no pen any more, and says in which ranges of slabs everything is in place.
    #[must_use]
    pub fn seal(&self) -> Vec<(u64, u64)> {
        let mut placed: Vec<(u64, u64)> = Vec::new();
        for (&number, slab) in self.slabs.read().iter() {
            let mut whole = true;
            for group in &slab.groups {
                let mut group = group.lock();
                group.sealed = true;
                whole &= group.writing.is_empty() && !group.unsettled && !group.missing;
            }
            match placed.last_mut() {
                _ if !whole => {}
                Some(open) if open.1 == number => open.1 += 1,
                _ => placed.push((number, number + 1)),
            }
        }
        placed
    }
}

impl Noted {
    fn of(&self, group: u64) -> Option<u64> {
        let index = usize::try_from(group.checked_sub(self.first)?).ok()?;
        *self.generations.get(index)?
    }
}

impl Pen {
    /// Whether it is of this store.
    #[must_use]
    pub fn is_of(&self, current: Option<&Arc<CurrentStore>>) -> bool {
        current.is_some_and(|current| Arc::ptr_eq(current, &self.current))
    }

    /// Where some blocks that this pen was taken for are, as far as slabs were there then: block,
    /// how many, device offset; ascending, each block once.
    pub fn places(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, usize, u64)> + '_ {
        self.current.parts_of(blocks).filter_map(|(_, wanted)| {
            // Another part of the same pen may overlap with it: only one that has all of it is it.
            let part = self.parts.iter().find(|part| {
                let end = part.first + u64::from(part.blocks.end - part.blocks.start);
                part.first <= wanted.start && wanted.end <= end
            })?;
            let count = usize::try_from(wanted.end - wanted.start).expect("a group is small");
            Some((wanted.start, count, self.current.offset(part.slab.zone, wanted.start)))
        })
    }

    /// All of it is in place: it is trusted, unless others wrote there meanwhile.
    pub fn let_go(mut self) {
        self.end = PenEnd::Written;
    }

    /// The block that should be in place is not to be had: the log answers, as well as it can.
    pub fn give_up(mut self) {
        self.end = PenEnd::GivenUp;
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        for part in &self.parts {
            let mut group = part.slab.groups[part.index].lock();
            let closed = self.current.closed.load(Ordering::SeqCst);
            let is_mine = |w: &Writing| w.pen == self.number && w.blocks == part.blocks;
            let mine = group.writing.iter().position(is_mine).expect("held until now");
            let writing = group.writing.swap_remove(mine);
            match self.end {
                PenEnd::Written if !writing.spoiled && !closed => group.trust(writing.blocks, true),
                PenEnd::GivenUp => group.missing = true,
                PenEnd::Written | PenEnd::Broken => self.current.unsettle(&mut group),
            }
        }
    }
}
