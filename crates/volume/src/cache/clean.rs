//! Blocks that are the same in memory and on the device, the least recently used first out.

use std::collections::BTreeMap;
use std::ops::Range;

use history::FastMap;

/// Clean blocks.
#[derive(Debug, Default)]
pub struct Clean {
    blocks: FastMap<u64, (u64, Box<[u8]>)>,
    /// Blocks by when they were last used.
    used: BTreeMap<u64, u64>,
    clock: u64,
}

impl Clean {
    /// How many.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A block's bytes, which are used by this.
    pub fn get(&mut self, block: u64) -> Option<&[u8]> {
        let (stamp, bytes) = self.blocks.get_mut(&block)?;
        self.used.remove(stamp);
        self.clock += 1;
        *stamp = self.clock;
        self.used.insert(self.clock, block);
        Some(bytes)
    }

    /// Adds or replaces a block.
    pub fn put(&mut self, block: u64, bytes: Box<[u8]>) {
        self.remove(block);
        self.clock += 1;
        self.blocks.insert(block, (self.clock, bytes));
        self.used.insert(self.clock, block);
    }

    /// Forgets a block.
    pub fn remove(&mut self, block: u64) {
        if let Some((stamp, _)) = self.blocks.remove(&block) {
            self.used.remove(&stamp);
        }
    }

    /// Forgets a range of blocks.
    pub fn remove_range(&mut self, range: Range<u64>) {
        let gone: Vec<u64> =
            self.blocks.keys().copied().filter(|block| range.contains(block)).collect();
        gone.into_iter().for_each(|block| self.remove(block));
    }

    /// Forgets the least recently used until there are at most so many.
    pub fn shrink_to(&mut self, count: usize) {
        while self.blocks.len() > count {
            let (_, block) = self.used.pop_first().expect("as many as blocks");
            self.blocks.remove(&block);
        }
    }
}
