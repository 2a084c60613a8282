//! A fast hash for page numbers and block addresses: keys our own maps make up, never a client's
//! choice of collisions worth defending against (at worst a volume slows itself down).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map from small integers.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<IntegerHasher>>;

/// A set of integers that nobody chooses to make them collide.
pub type FastSet<K> = HashSet<K, BuildHasherDefault<IntegerHasher>>;

/// Multiply and fold.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerHasher(u64);

impl Hasher for IntegerHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xf39c_c060_5ced_c835;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
