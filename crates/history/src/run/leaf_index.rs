//! Where each leaf of a run begins, packed to 12 bytes a leaf.
//!
//! 1. The bytes of an item order as entries do: ascending keys, descending seqs.

use std::cmp::Ordering;

use format::map::Key;
use format::run::IndexEntry;
use units::Seq;

/// Level (1), index (5), complement of seq (6): big-endian, so that comparing bytes compares all.
type Packed = [u8; 12];

/// The first key and seq of every leaf.
#[derive(Debug, Default)]
pub(super) struct LeafIndex(Vec<Packed>);

fn pack(key: Key, seq: Seq) -> Packed {
    // A search may ask beyond the last block or seq; order is all that counts here.
    let index = key.index.min((1 << 40) - 1);
    let descending = Seq::MAX.0 - seq.0.min(Seq::MAX.0);
    let mut packed = [0; 12];
    packed[0] = key.level;
    packed[1..6].copy_from_slice(&index.to_be_bytes()[3..]);
    packed[6..].copy_from_slice(&descending.to_be_bytes()[2..]);
    packed
}

impl LeafIndex {
    pub(super) fn with_capacity(leaves: usize) -> LeafIndex {
        LeafIndex(Vec::with_capacity(leaves))
    }

    pub(super) fn push(&mut self, first: IndexEntry) {
        self.0.push(pack(first.key, first.seq));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, leaf: usize) -> IndexEntry {
        let packed = self.0[leaf];
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        IndexEntry {
            key: Key { level: packed[0], index: number(&packed[1..6]) },
            seq: Seq(Seq::MAX.0 - number(&packed[6..])),
        }
    }

    /// The leaf that holds the place (`key`, `seq`): the last that begins at or before it, or the
    /// first. Leaves before `from` are known to be before it.
    pub(super) fn leaf_of(&self, from: usize, key: Key, seq: Seq) -> usize {
        let place = pack(key, seq);
        let after = self.0[from..].partition_point(|first| first.cmp(&place) != Ordering::Greater);
        from + after.saturating_sub(1)
    }
}
