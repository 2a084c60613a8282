//! How many blocks the pending entries of a timeline leave as the newest: counted on from the last
//! time whenever it is asked for, so that writers have nothing to do with it.
//!
//! Invariants
//! 1. The count is that of a run of the entries that were looked at, in whatever order batches
//!    arrived.
//! 2. Each entry is looked at once before it is in a run.

use std::collections::BTreeMap;

use format::map::{Entry, Key, LEVEL_MAX};
use units::Seq;

use crate::hash::FastMap;
use crate::pending::Pending;
use crate::slot::BLOCKS_PER_PAGE;

/// Entries of blocks that are looked at while writers wait to add theirs.
const LOOKED_AT: usize = 512;

/// Where among the pending entries somebody has got to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Parts before this one are done; the active one comes after the frozen ones.
    pub part: usize,
    /// Entries of it that are done.
    pub entries: usize,
    /// Trims over whole pages of it that are done.
    pub nodes: usize,
}

impl Place {
    /// Copies the entries of a part that come next, and tells the trims over whole pages.
    pub fn take_next(&mut self, part: &Pending, entries: &mut Vec<Entry>) -> Vec<Entry> {
        let rest = &part.block_entries()[self.entries..];
        entries.extend_from_slice(&rest[..rest.len().min(LOOKED_AT)]);
        let nodes = part.nodes()[self.nodes..].to_vec();
        self.entries += entries.len();
        self.nodes += nodes.len();
        nodes
    }
}

/// The newest entry of each block, of those that were looked at.
#[derive(Debug, Default)]
pub struct Newest {
    /// Up to where that is.
    pub place: Place,
    /// Twice the seq, and one more if there is data, by block.
    blocks: FastMap<u64, u64>,
    /// How many have data.
    data: u64,
    /// The last trim of each larger range.
    trims: BTreeMap<Key, Seq>,
}

impl Newest {
    /// Blocks whose newest entry has data.
    pub fn blocks(&self) -> u64 {
        self.data
    }

    /// Looks at entries that come next: those of blocks, and trims over whole pages.
    pub fn add(&mut self, entries: &[Entry], nodes: &[Entry]) {
        for entry in entries {
            let (block, seq) = (entry.key.index, entry.seq);
            if self.is_trimmed_after(entry.key, seq) {
                continue;
            }
            let newest = seq.0 << 1 | u64::from(!entry.location.is_hole());
            let known = self.blocks.entry(block).or_default();
            if newest >> 1 > *known >> 1 {
                self.data -= *known & 1;
                self.data += newest & 1;
                *known = newest;
            }
        }
        self.trim(nodes);
    }

    fn trim(&mut self, nodes: &[Entry]) {
        let mut covered: u64 = 0;
        for node in nodes {
            let last = self.trims.entry(node.key).or_default();
            *last = node.seq.max(*last);
            let blocks = (BLOCKS_PER_PAGE as u64).saturating_pow(u32::from(node.key.level));
            covered = covered.saturating_add(blocks);
        }
        // The lesser of two: the blocks that they cover, or all that are known.
        if covered > self.blocks.len() as u64 {
            let mut blocks = std::mem::take(&mut self.blocks);
            blocks.retain(|&block, newest| {
                let is_trimmed =
                    self.is_trimmed_after(Key { level: 0, index: block }, Seq(*newest >> 1));
                self.data -= *newest & u64::from(is_trimmed);
                !is_trimmed
            });
            self.blocks = blocks;
            return;
        }
        for node in nodes {
            let first = node.key.first_block().0;
            let blocks = (BLOCKS_PER_PAGE as u64).pow(u32::from(node.key.level));
            for block in first..first + blocks {
                let known = self.blocks.get(&block).copied();
                if let Some(newest) = known.filter(|newest| newest >> 1 < node.seq.0) {
                    self.data -= newest & 1;
                    self.blocks.remove(&block);
                }
            }
        }
    }

    fn is_trimmed_after(&self, key: Key, seq: Seq) -> bool {
        !self.trims.is_empty()
            && (1..=LEVEL_MAX)
                .filter_map(|level| self.trims.get(&Key::covering(key.first_block(), level)))
                .any(|trim| *trim > seq)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use format::location::Location;
    use format::map::{Entry, Key};
    use units::{Lba, MapExtent, Seq};

    use crate::timeline::Timeline;

    const BLOCKS: u64 = 2048;

    /// Data, a hole, or a trim of whole pages, in no order but that of chance.
    fn entry(seq: u64, chance: u64) -> Entry {
        let block = (chance >> 8) % BLOCKS;
        let hole = |level, index| Entry::hole(Key { level, index }, Seq(seq));
        match chance % 100 {
            0 => hole(2, 0),
            1..=4 => hole(1, block / 512),
            5..=20 => hole(0, block),
            _ => Entry::data(Lba(block), Seq(seq), Location::new(1, 4096), 7),
        }
    }

    /// Blocks with data, by looking at every entry.
    fn by_all(entries: &[Entry]) -> u64 {
        let mut newest: BTreeMap<u64, (Seq, bool)> = BTreeMap::new();
        for entry in entries {
            let first = entry.key.first_block().0;
            let end = first + 512_u64.pow(u32::from(entry.key.level));
            for block in first..end.min(BLOCKS) {
                let known = newest.entry(block).or_default();
                *known = (*known).max((entry.seq, !entry.location.is_hole()));
            }
        }
        newest.values().filter(|(_, is_data)| *is_data).count() as u64
    }

    #[test]
    fn pending_blocks_are_counted_on_through_freezes_trims_and_batches_out_of_order() {
        let timeline = Timeline::new(1, (1, MapExtent::BLOCK), None, Vec::new());
        let mut chance = 88_172_645_463_325_252_u64;
        let mut next = || {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance
        };
        let mut all: Vec<Entry> = Vec::new();
        let mut frozen = 0;
        for turn in 0..200_u64 {
            // Two batches whose seqs are the other way round.
            let seqs = [turn * 40 + 21..turn * 40 + 41, turn * 40 + 1..turn * 40 + 21];
            for seqs in seqs {
                let batch: Vec<Entry> = seqs.map(|seq| entry(seq, next())).collect();
                timeline.insert(&batch);
                all.extend(batch);
                if next() % 3 == 0 {
                    assert_eq!(timeline.pending_newest(), by_all(&all), "turn {turn}");
                }
            }
            match next() % 40 {
                0 => {
                    timeline.freeze();
                    frozen = all.len();
                }
                1 if frozen > 0 => {
                    timeline.install_flushed(timeline.frozen().len(), None);
                    all.drain(..frozen);
                    frozen = 0;
                    assert_eq!(timeline.pending_newest(), by_all(&all), "turn {turn}");
                }
                _ => {}
            }
        }
    }
}
