//! Where blocks and pages of checksums are: `docs/format/integrity.md`.

use std::ops::Range;

use format::PAGE_BYTES;
use format::integrity::{BLOCK_BYTES, BLOCKS_MAX, GROUP_BLOCKS, GROUPS_OFFSET, SECTOR_BLOCKS};

/// Bytes of a block, as offsets count.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
const GROUP_BYTES: u64 = (PAGE_BYTES + GROUP_BLOCKS * BLOCK_BYTES) as u64;
const PER_GROUP: u64 = GROUP_BLOCKS as u64;

/// Blocks of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The group.
    pub group: u64,
    /// Their numbers in it.
    pub blocks: Range<usize>,
}

/// Blocks of data that a device of this length has room for.
pub(super) fn blocks_within(below_bytes: u64) -> u64 {
    let room = below_bytes.saturating_sub(GROUPS_OFFSET);
    let rest = (room % GROUP_BYTES / BLOCK).saturating_sub(1);
    (room / GROUP_BYTES * PER_GROUP + rest).min(BLOCKS_MAX)
}

/// Bytes of the device below for this many blocks of data.
pub(super) fn bytes_for(blocks: u64) -> u64 {
    GROUPS_OFFSET + (blocks + blocks.div_ceil(PER_GROUP)) * BLOCK
}

/// Where a group's page is on the device below.
pub(super) fn page_offset(group: u64) -> u64 {
    GROUPS_OFFSET + group * GROUP_BYTES
}

/// Where a block of a group is on the device below.
pub(super) fn block_offset(group: u64, block: usize) -> u64 {
    page_offset(group) + (1 + block as u64) * BLOCK
}

/// The number of a block of a group among all.
pub(super) fn block_number(group: u64, block: usize) -> u64 {
    group * PER_GROUP + block as u64
}

/// The blocks that a range of bytes touches.
pub(super) fn blocks_of(offset: u64, length_bytes: u64) -> Range<u64> {
    offset / BLOCK..(offset + length_bytes).div_ceil(BLOCK)
}

/// Blocks, group by group.
pub(super) fn spans(blocks: Range<u64>) -> impl Iterator<Item = Span> {
    let mut next = blocks.start;
    std::iter::from_fn(move || {
        if next >= blocks.end {
            return None;
        }
        let group = next / PER_GROUP;
        let end = blocks.end.min((group + 1) * PER_GROUP);
        let within = |block: u64| (block - group * PER_GROUP) as usize;
        let span = Span { group, blocks: within(next)..within(end) };
        next = end;
        Some(span)
    })
}

/// The range of the device below in which a range of data lies, pages of checksums included.
pub(super) fn below(offset: u64, length_bytes: u64) -> Range<u64> {
    let place = |at: u64| {
        let (group, within) = (at / BLOCK / PER_GROUP, at % (PER_GROUP * BLOCK));
        page_offset(group) + BLOCK + within
    };
    if length_bytes == 0 {
        return place(offset)..place(offset);
    }
    place(offset)..place(offset + length_bytes - 1) + 1
}

impl Span {
    /// The range of bytes of the device that the span has of a request.
    pub(super) fn bytes(&self, offset: u64, length_bytes: u64) -> Range<u64> {
        let start = block_number(self.group, self.blocks.start) * BLOCK;
        let end = block_number(self.group, self.blocks.end) * BLOCK;
        start.max(offset)..end.min(offset + length_bytes)
    }

    /// The numbers of its blocks among all.
    pub(super) fn numbers(&self) -> Range<u64> {
        block_number(self.group, self.blocks.start)..block_number(self.group, self.blocks.end)
    }

    /// Where its first block is on the device below.
    pub(super) fn offset(&self) -> u64 {
        block_offset(self.group, self.blocks.start)
    }

    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }
}

/// The sector of its page that a block has its checksum in, and the bit there.
pub(super) fn sector_of(block: usize) -> (usize, u128) {
    (block / SECTOR_BLOCKS, 1 << (block % SECTOR_BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Span, below, block_offset, blocks_within, bytes_for, page_offset, spans};

    #[test]
    fn lengths_above_and_below_are_inverse() {
        for blocks in [1, 2, 959, 960, 961, 1920, 1921, 100_000] {
            assert_eq!(blocks_within(bytes_for(blocks)), blocks);
            assert_eq!(blocks_within(bytes_for(blocks) + BLOCK - 1), blocks);
            assert_eq!(blocks_within(bytes_for(blocks) - 1), blocks - 1);
        }
        assert_eq!(blocks_within(4096), 0);
    }

    #[test]
    fn blocks_come_group_by_group_and_pages_lie_between() {
        let found: Vec<Span> = spans(958..1921).collect();
        let expected = [(0, 958..960), (1, 0..960), (2, 0..1)];
        let expected = expected.map(|(group, blocks)| Span { group, blocks });
        assert_eq!(found, expected);
        assert_eq!(block_offset(0, 959) + BLOCK, page_offset(1));
        let range = below(959 * BLOCK + 5, BLOCK);
        assert_eq!(range, block_offset(0, 959) + 5..block_offset(1, 0) + 5);
        assert_eq!(below(959 * BLOCK, BLOCK).end, page_offset(1));
    }
}
