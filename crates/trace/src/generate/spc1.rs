//! A workload like SPC-1, after the published facts (notes in `docs/design`): three stores (45, 45
//! and 10 % of the space), eight streams a business scaling unit (BSU), 50 requests a second each
//! BSU, in blocks of 4 KiB.
//!
//! Streams of one kind share the regions they walk in; each walks by itself. It is not the
//! benchmark, and nothing measured with it may be called a result of it.

use super::random::{Arrivals, Random, bounds};
use super::step::{Step, check_capacity};
use crate::error::{Error, Result};
use crate::{Request, RequestKind};

const BLOCK_BYTES: u64 = 4096;
/// Blocks that the walk takes as one place.
const LEAF_BLOCKS: u64 = 8;
/// What a BSU asks for in a second.
const BSU_RATE: f64 = 50.0;
const BSU_MAX: u32 = 100_000;
/// The smallest region has a tree as high as the lowest step.
const CAPACITY_BLOCKS_MIN: u64 = (256 << 20) / BLOCK_BYTES;

/// Variants of the hierarchical re-use random walk, as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// As first implemented: each stream has its tree somewhere in the region.
    #[default]
    Classic,
    /// The same with what is known of each place shared between streams.
    Fixed,
    /// One tree over the region, and another try for what falls beyond it.
    V2,
}

/// Where a stream goes.
#[derive(Clone, Copy)]
enum Place {
    /// Anywhere.
    Anywhere,
    /// In a region, which is the place's number.
    Walk(usize),
    /// One after the other: start somewhere in the first `start` percent after `from` percent, go
    /// on for `run` percent.
    Sequence { from: u64, start: u64, run: u64 },
}

struct Stream {
    asu: u32,
    intensity: f64,
    read_percent: u64,
    place: Place,
}

const fn stream(asu: u32, intensity: f64, read_percent: u64, place: Place) -> Stream {
    Stream { asu, intensity, read_percent, place }
}

const STREAMS: [Stream; 8] = [
    stream(0, 0.035, 50, Place::Anywhere),
    stream(0, 0.281, 50, Place::Walk(0)),
    stream(0, 0.070, 100, Place::Sequence { from: 20, start: 40, run: 10 }),
    stream(0, 0.210, 50, Place::Walk(1)),
    stream(1, 0.018, 30, Place::Anywhere),
    stream(1, 0.070, 30, Place::Walk(2)),
    stream(1, 0.035, 100, Place::Sequence { from: 20, start: 40, run: 10 }),
    stream(2, 0.281, 0, Place::Sequence { from: 0, start: 70, run: 30 }),
];
/// The store, and the percent of it where the region begins; each is 5 % long.
const REGIONS: [(u32, u64); 3] = [(0, 15), (0, 70), (1, 47)];

/// Blocks of a sequential request, and in how many percent of them.
const MIX: [(u64, f64); 5] = [(1, 40.0), (2, 24.0), (4, 20.0), (8, 8.0), (16, 8.0)];

/// A region with its tree of leaves.
struct Region {
    first_block: u64,
    leaves: u64,
    /// Leaves of a stream's tree: a power of two for the first two walks.
    tree_leaves: u64,
    levels: u32,
    /// Of each leaf: which of its blocks is read next.
    next_read: Vec<u8>,
}

/// What one stream of one BSU remembers.
#[derive(Clone, Copy, Default)]
struct State {
    /// Where its walk or sequence is.
    block: u64,
    /// Where its sequence ends; where its tree begins.
    bound: u64,
    /// What it writes next, again.
    again: Option<u64>,
}

pub(super) struct Spc1 {
    walk: Walk,
    bsu: u64,
    asu_blocks: [u64; 3],
    regions: Vec<Region>,
    /// Eight for each BSU.
    states: Vec<State>,
    stream_bounds: Vec<u64>,
    mix_bounds: Vec<u64>,
    arrivals: Arrivals,
}

impl Spc1 {
    pub(super) fn new(
        bsu: u32,
        capacity_bytes: u64,
        has_log: bool,
        walk: Walk,
        random: &mut Random,
    ) -> Result<Spc1> {
        if !(1..=BSU_MAX).contains(&bsu) {
            return Err(Error::setting(format!("{bsu} business scaling units"))
                .with_hint(format!("give 1 to {BSU_MAX}")));
        }
        let blocks = check_capacity(capacity_bytes, BLOCK_BYTES, CAPACITY_BLOCKS_MIN)?;
        let asu_blocks = [blocks * 45 / 100, blocks * 45 / 100, blocks / 10];
        let regions = REGIONS.iter().map(|(asu, percent)| {
            let asu_blocks = asu_blocks[*asu as usize];
            Region::new(asu_blocks * percent / 100, asu_blocks / 20, walk)
        });
        let regions: Vec<Region> = regions.collect();
        let kept = if has_log { STREAMS.len() } else { STREAMS.len() - 1 };
        let weights: Vec<f64> = STREAMS[..kept].iter().map(|stream| stream.intensity).collect();
        let rate = BSU_RATE * f64::from(bsu) * weights.iter().sum::<f64>();
        let mut states = vec![State::default(); bsu as usize * STREAMS.len()];
        for (index, state) in states.iter_mut().enumerate() {
            if let Place::Walk(region) = STREAMS[index % STREAMS.len()].place {
                regions[region].enter(walk, state, random);
            }
        }
        let mix: Vec<f64> = MIX.iter().map(|(_, percent)| *percent).collect();
        Ok(Spc1 {
            walk,
            bsu: u64::from(bsu),
            asu_blocks,
            regions,
            states,
            stream_bounds: bounds(&weights),
            mix_bounds: bounds(&mix),
            arrivals: Arrivals::new(rate),
        })
    }
}

impl Step for Spc1 {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        let index = random.pick(&self.stream_bounds);
        let stream = &STREAMS[index];
        let bsu = random.below(self.bsu) as usize;
        let state = &mut self.states[bsu * STREAMS.len() + index];
        let asu_blocks = self.asu_blocks[stream.asu as usize];
        let is_read = random.percent(stream.read_percent);
        let (block, blocks) = match stream.place {
            Place::Anywhere => (random.below(asu_blocks), 1),
            Place::Walk(region) => {
                (self.regions[region].step(self.walk, state, is_read, random), 1)
            }
            Place::Sequence { from, start, run } => {
                let blocks = MIX[random.pick(&self.mix_bounds)].0;
                if state.block + blocks >= state.bound {
                    let first = random.below(asu_blocks * start / 100);
                    state.block = (asu_blocks * from / 100 + first) & !0xf;
                    state.bound = state.block + asu_blocks * run / 100;
                }
                let block = state.block.min(asu_blocks - blocks);
                state.block += blocks;
                (block, blocks)
            }
        };
        let kind = if is_read { RequestKind::Read } else { RequestKind::Write };
        Request {
            time_ns,
            device: stream.asu,
            kind,
            is_fua: false,
            offset_bytes: block * BLOCK_BYTES,
            length_bytes: blocks * BLOCK_BYTES,
        }
    }
}

impl Region {
    fn new(first_block: u64, blocks: u64, walk: Walk) -> Region {
        let leaves = blocks / LEAF_BLOCKS;
        let below = leaves.ilog2();
        let is_power = leaves.is_power_of_two();
        let (levels, tree_leaves) = match walk {
            Walk::Classic | Walk::Fixed => (below, 1 << below),
            Walk::V2 => (below + u32::from(!is_power), leaves),
        };
        let next_read = vec![0; leaves as usize];
        Region { first_block, leaves, tree_leaves, levels, next_read }
    }

    /// Gives a stream its tree, and a place in it.
    fn enter(&self, walk: Walk, state: &mut State, random: &mut Random) {
        let slack = self.leaves - self.tree_leaves;
        let first_leaf = if walk == Walk::V2 { 0 } else { random.below(slack + 1) };
        state.bound = self.first_block + first_leaf * LEAF_BLOCKS;
        state.block = state.bound + random.below(self.tree_leaves * LEAF_BLOCKS);
    }

    /// One step of a stream's walk; the block it comes to.
    fn step(&mut self, walk: Walk, state: &mut State, is_read: bool, random: &mut Random) -> u64 {
        if !is_read && let Some(block) = state.again.take() {
            state.block = block;
            return block;
        }
        let old_leaf = (state.block - state.bound) / LEAF_BLOCKS;
        let leaf = self.choose(walk, old_leaf, is_read, random);
        // What is known of a leaf is kept by its place in the tree, or in the region.
        let shift =
            if walk == Walk::Fixed { (state.bound - self.first_block) / LEAF_BLOCKS } else { 0 };
        let next = &mut self.next_read[(leaf + shift) as usize];
        let within = u64::from(*next);
        let within = if is_read {
            *next = ((within + 1) % LEAF_BLOCKS) as u8;
            within
        } else if random.percent(50) {
            random.below(LEAF_BLOCKS)
        } else if walk == Walk::Classic {
            within
        } else {
            (within + LEAF_BLOCKS - 1) % LEAF_BLOCKS
        };
        let block = state.bound + leaf * LEAF_BLOCKS + within;
        if !is_read && random.percent(15) {
            state.again = Some(block);
        }
        state.block = block;
        block
    }

    /// The next leaf of a tree: anywhere in a subtree around the old one, which is the higher the
    /// rarer. Writes only go to every eighth leaf of a tree.
    fn choose(&self, walk: Walk, mut old_leaf: u64, is_read: bool, random: &mut Random) -> u64 {
        const TRIES: u32 = 100;
        let lowest = if walk == Walk::Classic { 7 } else { 6 };
        for _ in 0..TRIES {
            let mut height = lowest;
            while height < self.levels && random.percent(44) {
                height += 1;
            }
            let width = 1 << height;
            let leaf = old_leaf / width * width + random.below(width);
            let leaf = if is_read { leaf } else { leaf / 8 * 8 };
            if leaf < self.tree_leaves {
                return leaf;
            }
            old_leaf = leaf;
        }
        random.below(self.tree_leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY_BLOCKS_MIN, Place, REGIONS, STREAMS};

    #[test]
    fn the_streams_add_up() {
        let sum = |asu: u32| -> f64 {
            STREAMS.iter().filter(|s| s.asu == asu).map(|s| s.intensity).sum()
        };
        for (asu, share) in [(0, 0.596), (1, 0.123), (2, 0.281)] {
            assert!((sum(asu) - share).abs() < 1e-9, "ASU {asu}: {}", sum(asu));
        }
        let walks = STREAMS.iter().filter(|s| matches!(s.place, Place::Walk(_))).count();
        assert_eq!(walks, REGIONS.len());
    }

    #[test]
    fn the_smallest_region_is_as_high_as_the_lowest_step() {
        let leaves = CAPACITY_BLOCKS_MIN * 45 / 100 / 20 / super::LEAF_BLOCKS;
        assert!(leaves >= 1 << 7, "{leaves} leaves");
    }
}
