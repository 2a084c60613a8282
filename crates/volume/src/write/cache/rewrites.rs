//! How blocks are written again: what `hybrid` chooses by which blocks go in place at once, and
//! which wait until their window is over.
//!
//! A block's own mean distance between writes, against what is left of its window, puts it into one
//! of a few classes. Of each class is counted how many were written again before their window was
//! over. Until a window has ended, writes are taken to come at random with the block's mean.
//!
//! Blocks are remembered in a table of fixed size, those forgotten first that were not written for
//! longest. Forgotten blocks go in place at once. Nothing but the number of device requests depends
//! on any of it.

/// The class of blocks that were written only once, or are not remembered.
const UNKNOWN: u8 = 0;
const CLASSES: usize = 34;
/// No class: the window was over, or nothing was destaged yet.
const NONE: u8 = u8::MAX;
/// Classes for each doubling of the ratio.
const PER_OCTAVE: f64 = 2.0;
/// Fewer in a class say nothing.
const ENOUGH: f64 = 16.0;
/// Blocks of which one is forgotten for another.
const WAYS: usize = 4;
/// Blocks remembered for each that the cache may hold.
const BLOCKS_PER_PAGE: usize = 8;
/// Blocks remembered at most: 40 MiB.
const BLOCKS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    decided: f64,
    rewritten: f64,
}

/// The memory of one block.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its number and one; 0 for none.
    block: u64,
    last_ns: u64,
    /// A running mean of the time between its writes; 0 if there was only one.
    distance_ns: u64,
    /// The window of the version that was destaged last, and its class.
    window: u64,
    class: u8,
}

const NOTHING: Known = Known { block: 0, last_ns: 0, distance_ns: 0, window: 0, class: NONE };

/// A version that leaves the cache.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Of which block.
    pub block: u64,
    /// The window in which it was written.
    pub window: u64,
    /// How much is left of that; none when it is over.
    pub left_ns: Option<u64>,
}

/// The known writes of a volume.
#[derive(Debug)]
pub struct Rewrites {
    known: Vec<[Known; WAYS]>,
    window: u64,
    past: [Class; CLASSES],
    now: [Class; CLASSES],
}

impl Rewrites {
    /// Nothing is known; for a cache of so many blocks.
    #[must_use]
    pub fn new(cache_blocks: usize) -> Rewrites {
        let blocks = cache_blocks.saturating_mul(BLOCKS_PER_PAGE).clamp(WAYS, BLOCKS_MAX);
        let sets = (blocks / WAYS).next_power_of_two();
        let none = [Class::default(); CLASSES];
        Rewrites { known: vec![[NOTHING; WAYS]; sets], window: 0, past: none, now: none }
    }

    fn set(&mut self, block: u64) -> &mut [Known; WAYS] {
        let mixed = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mask = self.known.len() - 1;
        &mut self.known[mixed as usize & mask]
    }

    fn known(&mut self, block: u64) -> Option<&mut Known> {
        self.set(block).iter_mut().find(|known| known.block == block + 1)
    }

    /// A client wrote a block.
    pub fn met(&mut self, block: u64, now_ns: u64) {
        if let Some(known) = self.known(block) {
            let distance_ns = now_ns.saturating_sub(known.last_ns);
            known.distance_ns = match known.distance_ns {
                0 => distance_ns.max(1),
                before => before.midpoint(distance_ns).max(1),
            };
            known.last_ns = now_ns;
            return;
        }
        let oldest = self.set(block).iter_mut().min_by_key(|known| known.last_ns);
        let oldest = oldest.expect("a set has places");
        *oldest = Known { block: block + 1, last_ns: now_ns, ..NOTHING };
    }

    /// Whether a version that leaves the cache will rather be written again within its window than
    /// not, so that its place can wait.
    pub fn waits(&mut self, leaving: Leaving) -> bool {
        let Leaving { block, window, left_ns } = leaving;
        let Some(known) = self.known(block).copied() else { return false };
        if known.class != NONE && known.window == window {
            self.now[usize::from(known.class)].rewritten += 1.0;
        }
        let class = left_ns.map_or(NONE, |left_ns| class_of(known.distance_ns, left_ns));
        if class != NONE {
            self.decided(class, window);
        }
        if let Some(known) = self.known(block) {
            (known.window, known.class) = (window, class);
        }
        class != NONE && !self.is_retained(class)
    }

    /// Whether a version of this class is the last of its window more likely than not.
    fn is_retained(&self, class: u8) -> bool {
        let Class { decided, rewritten } = self.past[usize::from(class)];
        if decided < ENOUGH {
            // In half of the cases none comes for this part of the mean.
            let half = std::f64::consts::LN_2.log2() * PER_OCTAVE + (CLASSES / 2) as f64;
            return class == UNKNOWN || f64::from(class) < half;
        }
        rewritten < decided / 2.0
    }

    fn decided(&mut self, class: u8, window: u64) {
        if window != self.window {
            self.window = window;
            for (past, now) in self.past.iter_mut().zip(&mut self.now) {
                // Workloads change: a window counts half as much as the next one.
                past.decided = past.decided / 2.0 + now.decided;
                past.rewritten = past.rewritten / 2.0 + now.rewritten;
                *now = Class::default();
            }
        }
        self.now[usize::from(class)].decided += 1.0;
    }
}

/// The class of a block with a mean distance (0: not known) and so much left of its window.
fn class_of(distance_ns: u64, left_ns: u64) -> u8 {
    if distance_ns == 0 {
        return UNKNOWN;
    }
    let ratio = left_ns.max(1) as f64 / distance_ns as f64;
    let middle = (CLASSES / 2) as f64;
    (ratio.log2() * PER_OCTAVE + middle).clamp(1.0, (CLASSES - 1) as f64) as u8
}

#[cfg(test)]
mod tests {
    use super::{Leaving, Rewrites};

    fn leaving(block: u64, window: u64, left_ns: Option<u64>) -> Leaving {
        Leaving { block, window, left_ns }
    }

    #[test]
    fn what_is_written_often_waits_until_the_counts_say_otherwise() {
        let mut rewrites = Rewrites::new(256);
        for time in 0..10 {
            rewrites.met(1, time * 10);
            rewrites.met(2, time * 100_000);
        }
        assert!(rewrites.waits(leaving(1, 0, Some(1000))));
        assert!(!rewrites.waits(leaving(2, 0, Some(1000))), "it is seldom written");
        assert!(!rewrites.waits(leaving(1, 0, None)), "its window is over");
        assert!(!rewrites.waits(leaving(3, 0, Some(1000))), "it is not known");
        for window in 1..4 {
            for block in 10..50 {
                (0..10).for_each(|time| rewrites.met(block, window * 100 + time * 10));
                rewrites.waits(leaving(block, window, Some(1000)));
            }
        }
        assert!(!rewrites.waits(leaving(1, 4, Some(1000))), "others were the last each time");
        for window in 5..9 {
            for block in 10..50 {
                (0..3).for_each(|_| _ = rewrites.waits(leaving(block, window, Some(1000))));
            }
        }
        assert!(rewrites.waits(leaving(1, 9, Some(1000))));
    }

    #[test]
    fn those_that_were_not_written_for_longest_are_forgotten() {
        let mut rewrites = Rewrites::new(1);
        let places = 8;
        for block in 0..100 {
            rewrites.met(block, 1000 + block);
        }
        let known = (0..100).filter(|&block| rewrites.known(block).is_some()).count();
        assert!((1..=places).contains(&known), "{known}");
    }
}
