//! A range of blocks as aligned keys: single blocks at the edges, larger and larger ranges inside.

use units::{BlockCount, Lba};

use super::entry::{BLOCK_BITS, Key, LEVEL_BITS, LEVEL_MAX};

/// The keys that together cover a range of blocks, each block once, in the order of blocks.
#[derive(Clone, Debug)]
pub struct Cover {
    next: u64,
    end: u64,
}

/// Covers `blocks` blocks from `first` on with as few keys as there can be: at most 1022 of any
/// level (16 of level 4). Asserts that the range ends within 2^40 blocks.
pub fn cover(first: Lba, blocks: BlockCount) -> Cover {
    let end = first.0.checked_add(blocks.0).filter(|end| *end <= 1 << BLOCK_BITS);
    Cover { next: first.0, end: end.expect("a range within 2^40 blocks") }
}

impl Iterator for Cover {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        if self.next == self.end {
            return None;
        }
        let fits = |level: &u8| {
            let blocks = 1 << (LEVEL_BITS * u32::from(*level));
            self.next.is_multiple_of(blocks) && blocks <= self.end - self.next
        };
        let level = (0..=LEVEL_MAX).rev().find(fits).expect("one block always fits");
        let key = Key::covering(Lba(self.next), level);
        self.next += key.blocks();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
    use units::{BlockCount, Lba};

    use super::{Key, cover};

    fn assert_covers(first: u64, blocks: u64) {
        let mut next = first;
        let mut per_level = [0; 5];
        for key in cover(Lba(first), BlockCount(blocks)) {
            assert!(key.is_valid());
            assert_eq!(key.first_block(), Lba(next), "keys follow one another");
            next += key.blocks();
            per_level[usize::from(key.level)] += 1;
        }
        assert_eq!(next, first + blocks);
        assert!(per_level.iter().all(|count| *count <= 1022), "{per_level:?}");
    }

    #[test]
    fn every_short_range_near_a_boundary_is_covered_by_single_blocks_or_one_page() {
        for first in 0..600 {
            for blocks in 0..1100 {
                let keys: Vec<Key> = cover(Lba(first), BlockCount(blocks)).collect();
                let pages = (first..first + blocks)
                    .filter(|block| block % 512 == 0 && block + 512 <= first + blocks)
                    .count();
                assert_eq!(keys.iter().filter(|key| key.level == 1).count(), pages);
                let singles = blocks as usize - pages * 512;
                assert_eq!(keys.iter().filter(|key| key.level == 0).count(), singles);
            }
        }
    }

    #[test]
    fn the_whole_address_space_is_sixteen_keys() {
        let keys: Vec<Key> = cover(Lba(0), BlockCount(1 << 40)).collect();
        assert_eq!(keys.len(), 16);
        assert!(keys.iter().all(|key| key.level == 4));
        assert_covers(1, (1 << 40) - 2);
    }

    #[test]
    #[should_panic(expected = "a range within 2^40 blocks")]
    fn a_range_beyond_the_address_space_is_our_mistake() {
        let _ = cover(Lba(u64::MAX), BlockCount(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_range_is_covered_once_and_in_order(
            first in 0..1_u64 << 40, bits in 0_u32..40, length in any::<u64>(),
        ) {
            let blocks = (length >> (64 - bits - 1)).min((1 << 40) - first);
            assert_covers(first, blocks);
        }

        #[test]
        fn no_two_neighbours_could_be_one_larger_key(
            first in 0..1_u64 << 20, blocks in 0..1_u64 << 21,
        ) {
            let keys: Vec<Key> = cover(Lba(first), BlockCount(blocks)).collect();
            for run in keys.windows(512) {
                let same = run.iter().all(|key| key.level == run[0].level);
                prop_assert!(!(same && run[0].index % 512 == 0 && run[0].level < 4));
            }
            prop_assert_eq!(keys.iter().map(|key| key.blocks()).sum::<u64>(), blocks);
        }
    }
}
