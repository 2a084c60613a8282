//! Reading the bytes of a file or symbolic link.
//!
//! 1. Bytes that were never written are zeros, and so are those beyond inline content.

use format::share::inode::{Content, InodeBlock};
use format::share::place::{BLOCK_BYTES, LEVELS, first_of_level, level_of, slab_blocks};

use crate::error::{Error, Result};
use crate::source::Source;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads bytes from an offset on; how many there are before the end of the file.
///
/// # Errors
/// Those of reading.
pub fn read(
    source: &dyn Source,
    inode: &InodeBlock,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let left = inode.size.saturating_sub(offset);
    let count = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    let buffer = &mut buffer[..count];
    match &inode.content {
        Content::Inline(inline) => {
            let start = usize::try_from(offset).map_or(inline.len(), |at| at.min(inline.len()));
            let inline = &inline[start..];
            let there = inline.len().min(count);
            buffer[..there].copy_from_slice(&inline[..there]);
            buffer[there..].fill(0);
        }
        Content::Slabs(slabs) => read_slabs(source, slabs, offset, buffer)?,
        _ => return Err(Error::damage(0, "no file, and read as one")),
    }
    Ok(count)
}

/// Reads bytes that may lie in several slabs.
fn read_slabs(
    source: &dyn Source,
    slabs: &[u64; LEVELS],
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let level = level_of(at / BLOCK);
        let end = slab_blocks(level) * BLOCK;
        let count = usize::try_from(end - at).map_or(rest.len(), |left| left.min(rest.len()));
        let (part, after) = rest.split_at_mut(count);
        match slabs[level] {
            0 => part.fill(0),
            slab => read_bytes(source, slab, at, part)?,
        }
        at += count as u64;
        rest = after;
    }
    Ok(())
}

/// Reads bytes of one slab, of which some blocks may be wanted in part.
fn read_bytes(source: &dyn Source, slab: u64, at: u64, buffer: &mut [u8]) -> Result<()> {
    let skipped = (at % BLOCK) as usize;
    let mut block = slab + at / BLOCK;
    let mut rest = buffer;
    if skipped > 0 {
        let (part, after) = rest.split_at_mut(rest.len().min(BLOCK_BYTES - skipped));
        let mut whole = [0; BLOCK_BYTES];
        source.data(block, &mut whole)?;
        part.copy_from_slice(&whole[skipped..skipped + part.len()]);
        block += 1;
        rest = after;
    }
    let (whole, tail) = rest.split_at_mut(rest.len() / BLOCK_BYTES * BLOCK_BYTES);
    if !whole.is_empty() {
        source.data(block, whole)?;
        block += (whole.len() / BLOCK_BYTES) as u64;
    }
    if !tail.is_empty() {
        let mut last = [0; BLOCK_BYTES];
        source.data(block, &mut last)?;
        tail.copy_from_slice(&last[..tail.len()]);
    }
    Ok(())
}

/// How many of a file's blocks are no holes; content in the inode is one, unless it is zeros.
///
/// # Errors
/// Those of reading.
pub(crate) fn count_data(
    source: &dyn Source,
    inode: &InodeBlock,
    first: u64,
    count: u64,
) -> Result<u64> {
    let slabs = match &inode.content {
        Content::Slabs(slabs) => slabs,
        Content::Inline(inline) => {
            let is_data = first == 0 && inline.iter().any(|byte| *byte != 0);
            return Ok(u64::from(is_data));
        }
        _ => return Ok(0),
    };
    let mut data = 0;
    for (level, from, count) in by_level(first, count) {
        if slabs[level] != 0 {
            data += source.count_data(slabs[level] + from, count)?;
        }
    }
    Ok(data)
}

/// The parts of a run of a file's blocks by level: level, first block, how many.
pub fn by_level(first: u64, count: u64) -> impl Iterator<Item = (usize, u64, u64)> {
    let end = first + count;
    (0..LEVELS).filter_map(move |level| {
        let from = first.max(first_of_level(level));
        let to = end.min(slab_blocks(level));
        (from < to).then(|| (level, from, to - from))
    })
}
