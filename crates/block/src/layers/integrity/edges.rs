//! Blocks of which somebody heals a part: the layer has a checksum of the whole.
//!
//! Without this the part that is written over a copy would make its block one that no checksum
//! matches, and the next write to the rest of it an error.

use std::io::IoSlice;

use format::checksum::block_crc;
use format::integrity::BLOCK_BYTES;

use super::IntegrityDevice;
use super::geometry::{BLOCK, Span, block_number, block_offset, blocks_of, spans};
use super::group::Known;
use crate::{BlockDevice, Result};

/// A block of which a part is to be healed, as its checksum vouches for it.
pub(super) struct Edge {
    group: u64,
    block: usize,
    bytes: Box<[u8; BLOCK_BYTES]>,
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// The blocks, of a range that is held, that reach out of it, as far as a copy of them matches
    /// their checksum.
    pub(super) fn vouched_edges(&self, offset: u64, length_bytes: u64) -> Result<Vec<Edge>> {
        let mut edges = Vec::new();
        for span in spans(blocks_of(offset, length_bytes)) {
            for block in span.blocks {
                let start = block_number(span.group, block) * BLOCK;
                if offset <= start && start + BLOCK <= offset + length_bytes {
                    continue;
                }
                edges.extend(self.vouched(span.group, block)?);
            }
        }
        Ok(edges)
    }

    fn vouched(&self, group: u64, block: usize) -> Result<Option<Edge>> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        let known = || self.with_group(group, |g| Ok(g.known(block)));
        if matches!(known()?, Known::InFlight(_)) {
            // Settled, or not to be had.
            let _ = self.read_held(group, block, &mut bytes[..]);
        }
        let Known::Checksum(stored) = known()? else { return Ok(None) };
        let at = block_offset(group, block);
        let matches = (0..self.below.copies(at, BLOCK)).any(|copy| {
            let read = self.below.read_copy(copy, at, &mut bytes[..]);
            read.is_ok() && block_crc(&bytes[..]) == stored
        });
        Ok(matches.then_some(Edge { group, block, bytes }))
    }

    /// Writes a block whose part in a range, which is held, was healed to these bytes; the rest is
    /// what it was.
    pub(super) fn mend_edge(&self, edge: Edge, offset: u64, healed: &[u8]) -> Result<()> {
        let Edge { group, block, mut bytes } = edge;
        let span = Span { group, blocks: block..block + 1 };
        let part = span.bytes(offset, healed.len() as u64);
        let start = block_number(group, block) * BLOCK;
        let within = (part.start - start) as usize..(part.end - start) as usize;
        let right = &healed[(part.start - offset) as usize..(part.end - offset) as usize];
        if bytes[within.clone()] == *right {
            return Ok(());
        }
        bytes[within].copy_from_slice(right);
        self.write_span(&span, start, &[IoSlice::new(&bytes[..])], true)
    }
}
