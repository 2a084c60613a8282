//! Verified leaves of all runs, within a bound of memory.
//!
//! 1. Leaves were verified when they were read. Runs are immutable and their numbers are never used
//!    again, so nothing here is ever out of date.
//! 2. A leaf that was used since the hand came by stays for another round (CLOCK).

use std::collections::VecDeque;
use std::sync::Arc;

use format::map::LeafPage;
use parking_lot::Mutex;

use crate::hash::FastMap;

/// Locks; leaves are dealt over them.
const SHARDS: usize = 16;
/// Memory of one leaf's bookkeeping, in bytes.
const BOOKKEEPING_BYTES: usize = 128;
/// Memory of one leaf that is not grouped, in bytes.
const LEAF_COST_BYTES: usize = format::PAGE_BYTES + BOOKKEEPING_BYTES;

/// A run and the number of one of its leaves.
type LeafKey = (u64, u64);

struct Held {
    page: Arc<LeafPage>,
    used: bool,
}

#[derive(Default)]
struct Shard {
    leaves: FastMap<LeafKey, Held>,
    /// Every held leaf once, in the order in which the hand comes by.
    ring: VecDeque<LeafKey>,
    /// Memory of all held leaves.
    bytes: usize,
}

/// Verified leaves, shared by all runs and threads.
pub struct LeafCache {
    shards: Vec<Mutex<Shard>>,
    bytes_per_shard: usize,
}

impl LeafCache {
    /// A cache of at most so many bytes (never less than one leaf for each of its 16 locks).
    pub fn new(bytes_max: usize) -> LeafCache {
        let bytes_per_shard = (bytes_max / SHARDS).max(LEAF_COST_BYTES);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        LeafCache { shards, bytes_per_shard }
    }

    pub(super) fn look_up(&self, run: u64, leaf: u32) -> Option<Arc<LeafPage>> {
        let key = (run, u64::from(leaf));
        let mut shard = self.shard(key).lock();
        let held = shard.leaves.get_mut(&key)?;
        held.used = true;
        Some(Arc::clone(&held.page))
    }

    pub(super) fn insert(&self, run: u64, leaf: u32, page: Arc<LeafPage>) {
        let key = (run, u64::from(leaf));
        let mut shard = self.shard(key).lock();
        if shard.leaves.contains_key(&key) {
            return;
        }
        let bytes = cost_bytes(&page);
        while !shard.leaves.is_empty() && shard.bytes + bytes > self.bytes_per_shard {
            shard.evict_one();
        }
        shard.bytes += bytes;
        shard.leaves.insert(key, Held { page, used: false });
        shard.ring.push_back(key);
    }

    fn shard(&self, (run, leaf): LeafKey) -> &Mutex<Shard> {
        let mixed = run.wrapping_mul(7) ^ leaf;
        &self.shards[usize::try_from(mixed % SHARDS as u64).expect("below 16")]
    }
}

impl Shard {
    fn evict_one(&mut self) {
        while let Some(key) = self.ring.pop_front() {
            let held = self.leaves.get_mut(&key).expect("the ring has what is held");
            if !held.used {
                let gone = self.leaves.remove(&key).expect("it was there");
                self.bytes -= cost_bytes(&gone.page);
                return;
            }
            held.used = false;
            self.ring.push_back(key);
        }
    }
}

fn cost_bytes(page: &LeafPage) -> usize {
    page.memory_bytes() + BOOKKEEPING_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use format::PageAddress;
    use format::map::{Entry, Key, LeafPage};
    use units::Seq;

    use super::{LEAF_COST_BYTES, LeafCache};

    fn leaf() -> Arc<LeafPage> {
        let address = PageAddress { pool_tag: 0, run: 0, page: 0 };
        let bytes = LeafPage::encode(address, &[Entry::hole(Key::default(), Seq(1))]);
        Arc::new(LeafPage::decode(bytes, address).expect("sound"))
    }

    fn bytes(cache: &LeafCache) -> usize {
        cache.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    #[test]
    fn it_never_holds_more_than_its_bound_and_keeps_what_is_used() {
        let cache = LeafCache::new(64 * LEAF_COST_BYTES);
        let leaf = leaf();
        for page in 0..10_000 {
            cache.insert(1, page, Arc::clone(&leaf));
            assert!(cache.look_up(1, 0).is_some(), "page 0 is used all the time");
            assert!(bytes(&cache) <= 64 * LEAF_COST_BYTES);
        }
        assert!(cache.look_up(1, 1).is_none());
        assert!(cache.look_up(2, 9999).is_none());
        assert_eq!(bytes(&cache), 64 * LEAF_COST_BYTES);
    }
}
