//! Parts of a file that are to be another, and how they are written.

use format::share::place::BLOCK_BYTES;
use units::FileId;

use crate::blocks::Present;
use crate::error::Result;
use crate::transaction::{Caller, Transaction};

/// Bytes that are compared at a time, and written in one transaction.
const CHUNK_BYTES_MAX: usize = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A part of a file that is to be another.
#[derive(Debug)]
pub(crate) enum Part<B> {
    /// Bytes.
    Bytes {
        /// Where they begin.
        offset: u64,
        /// They.
        bytes: B,
    },
    /// A hole.
    Hole {
        /// Its first block.
        first_block: u64,
        /// How long it is.
        blocks: u64,
    },
}

impl<B: AsRef<[u8]>> Part<B> {
    /// Bytes that are written for it.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Part::Bytes { bytes, .. } => bytes.as_ref().len() as u64,
            Part::Hole { .. } => 0,
        }
    }

    pub(crate) fn to_owned(&self) -> Part<Vec<u8>> {
        match self {
            Part::Bytes { offset, bytes } => {
                Part::Bytes { offset: *offset, bytes: bytes.as_ref().to_vec() }
            }
            Part::Hole { first_block, blocks } => {
                Part::Hole { first_block: *first_block, blocks: *blocks }
            }
        }
    }
}

/// Bytes that are compared at a time, if a WRITE has at most so many: half of them, so that they
/// and what belongs to them are one transaction.
pub(crate) fn chunk_bytes(write_bytes_max: usize) -> usize {
    let half = (write_bytes_max / 2).min(CHUNK_BYTES_MAX);
    (half / BLOCK_BYTES).max(1) * BLOCK_BYTES
}

/// Runs of blocks that differ, from a multiple of a block on.
pub(crate) fn differences<'b>(offset: u64, then: &'b [u8], now: &[u8]) -> Vec<Part<&'b [u8]>> {
    let mut parts: Vec<Part<&[u8]>> = Vec::new();
    let blocks = then.chunks(BLOCK_BYTES).zip(now.chunks(BLOCK_BYTES));
    for (index, (old, _)) in blocks.enumerate().filter(|(_, (old, new))| old != new) {
        let (start, end) = (index * BLOCK_BYTES, index * BLOCK_BYTES + old.len());
        let at = offset + start as u64;
        let is_hole = old.iter().all(|byte| *byte == 0);
        match parts.last_mut() {
            Some(Part::Bytes { offset: first, bytes })
                if !is_hole && *first + bytes.len() as u64 == at =>
            {
                *bytes = &then[(*first - offset) as usize..end];
            }
            Some(Part::Hole { first_block, blocks })
                if is_hole && *first_block + *blocks == at / BLOCK =>
            {
                *blocks += 1;
            }
            _ if is_hole => parts.push(Part::Hole { first_block: at / BLOCK, blocks: 1 }),
            _ => parts.push(Part::Bytes { offset: at, bytes: &then[start..end] }),
        }
    }
    parts
}

/// Writes a part.
pub(crate) fn write_part<'d, P: Present, B: AsRef<[u8]>>(
    transaction: &mut Transaction<'_, 'd, P>,
    caller: &Caller<'_>,
    id: FileId,
    part: &'d Part<B>,
) -> Result<()> {
    match part {
        Part::Bytes { offset, bytes } => {
            transaction.write(caller, id, *offset, bytes.as_ref()).map(drop)
        }
        Part::Hole { first_block, blocks } => {
            transaction.make_hole(caller, id, *first_block, *blocks).map(drop)
        }
    }
}
