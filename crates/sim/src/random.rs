//! Random numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014), which any 64-bit seed starts
//! well.

use std::sync::atomic::{AtomicU64, Ordering};

use env::Entropy;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random { state: mix(seed.wrapping_add(STEP)) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number from 0 to `bound` - 1.
    ///
    /// The remainder favours small numbers by less than `bound` / 2^64, which no test can see.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below zero");
        self.next_u64() % bound
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.below(high - low + 1)
    }

    /// True `per_thousand` times in 1,000.
    pub fn chance(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A stream of its own, for a part that may draw more or less without moving the others.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }
}

/// Entropy from a seed.
#[derive(Debug)]
pub struct SimEntropy {
    state: AtomicU64,
}

impl SimEntropy {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SimEntropy {
        SimEntropy { state: AtomicU64::new(mix(seed)) }
    }
}

impl Entropy for SimEntropy {
    fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP))
    }
}
