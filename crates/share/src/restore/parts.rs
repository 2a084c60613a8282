//! The parts of a file that differ between then and now.
//!
//! Holes are asked for, not read: in steps of a GiB, and where there is something, of a chunk.

use format::share::place::BLOCK_BYTES;
use units::FileId;

use crate::attributes::Attributes;
use crate::blocks::{Present, Wait};
use crate::content::count_data;
use crate::error::Result;
use crate::permission::Credentials;
use crate::share::Share;
use crate::source::Source;
use crate::tree::Tree;

/// Bytes that are compared at a time, and written in one transaction.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Blocks of which is asked whether all are holes.
const STEP_BLOCKS: u64 = 1 << 18;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A part of a file that is to be another.
#[derive(Debug)]
pub(super) enum Part<B> {
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
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Part::Bytes { bytes, .. } => bytes.as_ref().len() as u64,
            Part::Hole { .. } => 0,
        }
    }

    pub(super) fn to_owned(&self) -> Part<Vec<u8>> {
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

/// Takes the parts of a chunk; whether to go on.
pub(super) type Tell<'t> = dyn FnMut(&[Part<&[u8]>]) -> Result<bool> + 't;

/// Bytes that are compared at a time, if a WRITE has at most so many: half of them, so that they
/// and what belongs to them are one transaction.
pub(super) fn chunk_bytes(write_bytes_max: usize) -> usize {
    let half = (write_bytes_max / 2).min(CHUNK_BYTES_MAX);
    (half / BLOCK_BYTES).max(1) * BLOCK_BYTES
}

/// Tells the parts of a file of then that one of now (none: all holes) has otherwise, within the
/// size of then, by chunks, until `tell` says to stop.
///
/// # Errors
/// Those of reading, and of `tell`.
pub(super) fn each_difference<T: Tree, P: Present>(
    past: &T,
    share: &Share<P>,
    (then, now): (&Attributes, Option<FileId>),
    chunk_bytes: usize,
    tell: &mut Tell<'_>,
) -> Result<()> {
    let inode = past.object(then.id)?;
    let count_now = |first, count| -> Result<u64> {
        let Some(id) = now else { return Ok(0) };
        let tree = share.tree(Wait::May)?;
        count_data(&tree, &*tree.object(id)?, first, count)
    };
    let blocks = then.size.div_ceil(BLOCK);
    let chunk_blocks = (chunk_bytes / BLOCK_BYTES) as u64;
    let mut buffers = (vec![0; chunk_bytes], vec![0; chunk_bytes]);
    for step in (0..blocks).step_by(STEP_BLOCKS as usize) {
        let count = STEP_BLOCKS.min(blocks - step);
        let data = count_data(past, &inode, step, count)?;
        let data_now = count_now(step, count)?;
        if data == 0 {
            let hole = Part::Hole { first_block: step, blocks: count };
            if data_now > 0 && !tell(&[hole])? {
                return Ok(());
            }
            continue;
        }
        for first in (step..step + count).step_by(chunk_blocks as usize) {
            let chunk = chunk_blocks.min(step + count - first);
            let are_holes = data.max(data_now) < count
                && count_data(past, &inode, first, chunk)? == 0
                && count_now(first, chunk)? == 0;
            if are_holes {
                continue;
            }
            let offset = first * BLOCK;
            let bytes = (chunk * BLOCK).min(then.size - offset) as usize;
            let (old, new) = (&mut buffers.0[..bytes], &mut buffers.1[..bytes]);
            past.read(&Credentials::root(), then.id, offset, old)?;
            let read = match now {
                Some(id) => share.read(&Credentials::root(), id, offset, new, Wait::May)?.count,
                None => 0,
            };
            new[read..].fill(0);
            let parts = differences(offset, old, new);
            if !parts.is_empty() && !tell(&parts)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Runs of blocks that differ, from a multiple of a block on.
fn differences<'b>(offset: u64, then: &'b [u8], now: &[u8]) -> Vec<Part<&'b [u8]>> {
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
