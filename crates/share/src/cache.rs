//! Decoded blocks that were used lately, so many at most.
//!
//! 1. A block that is here is as it is on the volume: whoever changes the volume changes it here
//!    before anybody can read, and nobody fills it in while the volume is changed.

use std::collections::{HashMap, VecDeque};

use env::{Rank, RankedMutex};

use crate::source::Meta;

/// A cache of decoded blocks.
#[derive(Debug)]
pub struct Cache {
    blocks: RankedMutex<Blocks>,
    blocks_max: usize,
}

#[derive(Debug, Default)]
struct Blocks {
    by_number: HashMap<u64, Held>,
    /// Candidates to go, the next one first: one that was used since goes to the end instead.
    order: VecDeque<u64>,
}

#[derive(Debug)]
struct Held {
    meta: Meta,
    was_used: bool,
}

impl Cache {
    /// An empty cache of at most so many blocks.
    pub fn new(blocks_max: usize) -> Cache {
        Cache { blocks: RankedMutex::new(Rank::Leaf, Blocks::default()), blocks_max }
    }

    /// A block, if it is here.
    pub fn get(&self, block: u64) -> Option<Meta> {
        let mut blocks = self.blocks.lock();
        let held = blocks.by_number.get_mut(&block)?;
        held.was_used = true;
        Some(held.meta.clone())
    }

    /// Takes a block up.
    pub fn insert(&self, block: u64, meta: Meta) {
        let mut blocks = self.blocks.lock();
        let held = Held { meta, was_used: false };
        if blocks.by_number.insert(block, held).is_none() {
            blocks.order.push_back(block);
        }
        while blocks.by_number.len() > self.blocks_max {
            blocks.drop_one();
        }
    }

    /// Forgets a block.
    pub fn forget(&self, block: u64) {
        let mut blocks = self.blocks.lock();
        blocks.by_number.remove(&block);
        if blocks.by_number.len() * 2 < blocks.order.len() {
            let Blocks { by_number, order } = &mut *blocks;
            order.retain(|block| by_number.contains_key(block));
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.blocks.lock() = Blocks::default();
    }
}

impl Blocks {
    fn drop_one(&mut self) {
        while let Some(block) = self.order.pop_front() {
            match self.by_number.get_mut(&block) {
                Some(held) if held.was_used => {
                    held.was_used = false;
                    self.order.push_back(block);
                }
                Some(_) => {
                    self.by_number.remove(&block);
                    return;
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use format::share::stack::StackBlock;

    use super::Cache;
    use crate::source::Meta;

    fn stack() -> Meta {
        Meta::Stack(Arc::new(StackBlock::default()))
    }

    #[test]
    fn a_cache_keeps_its_bound_and_what_is_used() {
        let cache = Cache::new(3);
        for block in 0..100 {
            cache.insert(block, stack());
            assert!(cache.get(0).is_some(), "block 0 is used all the time");
        }
        assert_eq!((0..100).filter(|block| cache.get(*block).is_some()).count(), 3);
        for block in 0..1000 {
            cache.insert(block, stack());
            cache.forget(block);
        }
        assert!(cache.blocks.lock().order.len() < 8, "what is forgotten leaves the order");
    }
}
