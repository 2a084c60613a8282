//! The copy units in which a write begins and ends, and what is written of them.

use std::ops::Range;

use units::BLOCK_BYTES;

use crate::types::WriteOp;
use crate::{Error, ErrorKind};

const BLOCK: usize = BLOCK_BYTES as usize;

/// Whether a write may have failed for what it would have taken along.
pub fn may_be_for_others(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::OutOfBounds)
}

/// Blocks of the units in which a range of blocks begins and ends, as far as the volume goes.
pub fn units_at_edges(
    blocks: &Range<u64>,
    unit_blocks: u64,
    size_bytes: u64,
) -> (Range<u64>, Range<u64>) {
    let end = size_bytes.div_ceil(BLOCK_BYTES).max(blocks.end);
    let unit_of = |block: u64| {
        let first = block / unit_blocks * unit_blocks;
        first..(first + unit_blocks).min(end)
    };
    (unit_of(blocks.start), unit_of(blocks.end - 1))
}

/// The blocks to write of the unit in which a write begins or ends, where they are more than the
/// client's whole blocks: these merged with the present.
pub struct Edge {
    first: u64,
    bytes: Vec<u8>,
    /// The blocks to write, a bit each.
    chosen: u32,
}

impl Edge {
    /// Blocks from one on with their bytes, of which those with a bit are written.
    pub fn new(first: u64, bytes: Vec<u8>, chosen: u32) -> Edge {
        Edge { first, bytes, chosen }
    }

    /// Its blocks that follow one another, each as a write.
    pub fn parts(&self) -> impl Iterator<Item = WriteOp<'_>> {
        let (mut at, chosen) = (0, u64::from(self.chosen));
        std::iter::from_fn(move || {
            at += (chosen >> at).trailing_zeros().min(32 - at);
            let count = (!(chosen >> at)).trailing_zeros();
            let (start, end) = (at as usize * BLOCK, (at + count) as usize * BLOCK);
            at += count;
            (count > 0).then(|| WriteOp::Data {
                offset: self.first * BLOCK_BYTES + start as u64,
                bytes: &self.bytes[start..end],
            })
        })
    }

    /// How many of its blocks are written that come before one.
    pub fn blocks_before(&self, block: u64) -> u64 {
        let count = block.saturating_sub(self.first).min(31);
        u64::from((self.chosen & ((1 << count) - 1)).count_ones())
    }

    /// The end of the last block that is written.
    pub fn end(&self) -> u64 {
        self.first + u64::from(32 - self.chosen.leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Edge, units_at_edges};
    use crate::write::ops::span;

    fn parts(first: u64, chosen: u32) -> Vec<(u64, u64)> {
        let edge = Edge { first, bytes: vec![0; 16 * BLOCK], chosen };
        let blocks = |(offset, bytes): (u64, u64)| (offset / 4096, bytes / 4096);
        edge.parts().map(|part| blocks(span(&part))).collect()
    }

    #[test]
    fn blocks_that_follow_one_another_are_written_together() {
        assert_eq!(parts(16, 0xffff), [(16, 16)]);
        assert_eq!(parts(16, 1), [(16, 1)]);
        assert_eq!(parts(3, 0b1011_0001), [(3, 1), (7, 2), (10, 1)]);
        let edge = Edge { first: 3, bytes: Vec::new(), chosen: 0b1011_0001 };
        assert_eq!((edge.blocks_before(3), edge.blocks_before(8), edge.end()), (0, 2, 11));
        assert_eq!((edge.blocks_before(0), edge.blocks_before(99)), (0, 4));
    }

    #[test]
    fn units_end_with_the_volume_at_the_latest() {
        let size = 37 * 4096 + 512;
        assert_eq!(units_at_edges(&(3..4), 16, size), (0..16, 0..16));
        assert_eq!(units_at_edges(&(3..33), 16, size), (0..16, 32..38));
        assert_eq!(units_at_edges(&(3..33), 1, size), (3..4, 32..33));
    }
}
