//! Changing the bytes of a file: writing, cutting, growing, freeing.
//!
//! 1. Beyond the end of a file all blocks of its slabs are holes, and the bytes in its last block
//!    zeros: so what grows finds zeros.
//! 2. `used` counts the blocks that are no holes. It is exact, but for a file with holes that is
//!    cut: then it may count holes, as many as it has blocks at most.

use format::share::inode::{Content, INLINE_BYTES_MAX, InodeBlock};
use format::share::place::{BLOCK_BYTES, FILE_BYTES_MAX, LEVELS, first_of_level, slab_blocks};

use crate::allocation::{allocate_slab, free_slab};
use crate::content::by_level;
use crate::error::{Error, ErrorKind, Result, require};
use crate::extents::Piece;
use crate::layered::Layered;
use crate::source::Source;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Writes bytes at an offset.
///
/// # Errors
/// `FileTooLarge`, `NoSpace`; those of reading.
pub fn write<'d>(
    layer: &mut Layered<'_, 'd>,
    inode: &mut InodeBlock,
    offset: u64,
    bytes: &'d [u8],
) -> Result<()> {
    let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::from(ErrorKind::FileTooLarge))?;
    if bytes.is_empty() {
        return Ok(());
    }
    if let Content::Inline(inline) = &mut inode.content
        && end <= INLINE_BYTES_MAX as u64
    {
        let (offset, end) = (offset as usize, end as usize);
        inline.resize(inline.len().max(end), 0);
        inline[offset..end].copy_from_slice(bytes);
        inode.size = inode.size.max(end as u64);
        return Ok(());
    }
    move_to_slabs(layer, inode)?;
    let blocks_before = inode.size.div_ceil(BLOCK);
    let first = offset / BLOCK;
    let count = end.div_ceil(BLOCK) - first;
    let mut added = 0;
    for (level, from, count) in by_level(first, count) {
        let is_dense = inode.used == blocks_before;
        let slab = match slabs(inode)?[level] {
            0 => allocate_slab(layer, level)?,
            slab => slab,
        };
        slabs(inode)?[level] = slab;
        let old = blocks_before.clamp(from, from + count) - from;
        let there = match old {
            0 => 0,
            _ if is_dense => old,
            _ => layer.count_data(slab + from, old)?,
        };
        added += count - there;
        let range = (from * BLOCK).max(offset)..((from + count) * BLOCK).min(end);
        let part = &bytes[(range.start - offset) as usize..(range.end - offset) as usize];
        put_bytes(layer, slab, range.start, part, blocks_before)?;
    }
    inode.size = inode.size.max(end);
    set_used(layer, inode, inode.used + added);
    Ok(())
}

/// Gives a file another size.
///
/// # Errors
/// `FileTooLarge`, `NoSpace`; those of reading.
pub fn resize(layer: &mut Layered<'_, '_>, inode: &mut InodeBlock, size: u64) -> Result<()> {
    require(size <= FILE_BYTES_MAX, ErrorKind::FileTooLarge)?;
    if let Content::Inline(inline) = &mut inode.content
        && size <= INLINE_BYTES_MAX as u64
    {
        inline.truncate(size as usize);
        inode.size = size;
        return Ok(());
    }
    if size == 0 {
        free(layer, inode)?;
        inode.content = Content::Inline(Vec::new());
    } else if size >= inode.size {
        move_to_slabs(layer, inode)?;
    } else {
        cut(layer, inode, size)?;
    }
    inode.size = size;
    set_used(layer, inode, inode.used);
    Ok(())
}

/// Blocks of a file become holes; those beyond its end are.
///
/// # Errors
/// Those of reading.
pub fn make_hole(
    layer: &mut Layered<'_, '_>,
    inode: &mut InodeBlock,
    first: u64,
    count: u64,
) -> Result<()> {
    if let Content::Inline(inline) = &mut inode.content {
        if first == 0 && count > 0 {
            // Zeros follow.
            inline.clear();
        }
        return Ok(());
    }
    let blocks = inode.size.div_ceil(BLOCK);
    let is_dense = inode.used == blocks;
    let end = first.saturating_add(count).min(blocks);
    let mut removed = 0;
    for (level, from, count) in by_level(first.min(end), end - first.min(end)) {
        let slab = slabs(inode)?[level];
        if slab != 0 {
            removed += if is_dense { count } else { layer.count_data(slab + from, count)? };
            layer.zero(slab + from, count);
        }
    }
    let used = inode.used.saturating_sub(removed);
    set_used(layer, inode, used);
    Ok(())
}

/// Frees all slabs of an object.
///
/// # Errors
/// Those of reading.
pub fn free(layer: &mut Layered<'_, '_>, inode: &mut InodeBlock) -> Result<()> {
    if let Content::Slabs(slabs) = inode.content {
        for (level, slab) in slabs.into_iter().enumerate().filter(|(_, slab)| *slab != 0) {
            free_slab(layer, level, slab)?;
        }
        inode.content = Content::Slabs([0; LEVELS]);
    }
    inode.size = 0;
    set_used(layer, inode, 0);
    Ok(())
}

/// Takes away what is beyond a size, which is neither 0 nor beyond the end.
fn cut(layer: &mut Layered<'_, '_>, inode: &mut InodeBlock, size: u64) -> Result<()> {
    let blocks_before = inode.size.div_ceil(BLOCK);
    let blocks = size.div_ceil(BLOCK);
    for level in 0..LEVELS {
        let slab = slabs(inode)?[level];
        if slab == 0 {
            continue;
        }
        if first_of_level(level) >= blocks {
            free_slab(layer, level, slab)?;
            slabs(inode)?[level] = 0;
            continue;
        }
        let end = blocks_before.min(slab_blocks(level));
        if blocks < end {
            layer.zero(slab + blocks, end - blocks);
        }
        let (last, kept) = (blocks - 1, (size % BLOCK) as usize);
        let is_here = (first_of_level(level)..slab_blocks(level)).contains(&last);
        if is_here && kept > 0 && layer.count_data(slab + last, 1)? > 0 {
            let mut bytes = Box::new([0; BLOCK_BYTES]);
            layer.data(slab + last, &mut bytes[..])?;
            bytes[kept..].fill(0);
            layer.put_data(slab + last, Piece::Owned(bytes));
        }
    }
    if slabs(inode)?.iter().all(|slab| *slab == 0) {
        set_used(layer, inode, 0);
    }
    inode.size = size;
    Ok(())
}

/// Puts inline content into the first slab.
fn move_to_slabs(layer: &mut Layered<'_, '_>, inode: &mut InodeBlock) -> Result<()> {
    let Content::Inline(inline) = &mut inode.content else { return Ok(()) };
    let inline = std::mem::take(inline);
    let mut slabs = [0; LEVELS];
    if !inline.is_empty() {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        bytes[..inline.len()].copy_from_slice(&inline);
        slabs[0] = allocate_slab(layer, 0)?;
        layer.put_data(slabs[0], Piece::Owned(bytes));
    }
    inode.content = Content::Slabs(slabs);
    let used = u64::from(slabs[0] != 0);
    layer.changes.state.used += used;
    inode.used = used;
    Ok(())
}

/// Writes bytes into one slab; blocks that are written in part keep the rest.
fn put_bytes<'d>(
    layer: &mut Layered<'_, 'd>,
    slab: u64,
    offset: u64,
    bytes: &'d [u8],
    blocks_before: u64,
) -> Result<()> {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let block = at / BLOCK;
        let skipped = (at % BLOCK) as usize;
        let whole = rest.len() / BLOCK_BYTES * BLOCK_BYTES;
        let count = if skipped == 0 && whole > 0 {
            layer.put_data(slab + block, Piece::Borrowed(&rest[..whole]));
            whole
        } else {
            let count = rest.len().min(BLOCK_BYTES - skipped);
            let mut merged = Box::new([0; BLOCK_BYTES]);
            if block < blocks_before {
                layer.data(slab + block, &mut merged[..])?;
            }
            merged[skipped..skipped + count].copy_from_slice(&rest[..count]);
            layer.put_data(slab + block, Piece::Owned(merged));
            count
        };
        at += count as u64;
        rest = &rest[count..];
    }
    Ok(())
}

/// Counts the blocks of a file, as many as its size has at most.
fn set_used(layer: &mut Layered<'_, '_>, inode: &mut InodeBlock, used: u64) {
    let used = used.min(inode.size.div_ceil(BLOCK));
    let state = &mut layer.changes.state;
    state.used = (state.used + used).saturating_sub(inode.used);
    inode.used = used;
}

fn slabs(inode: &mut InodeBlock) -> Result<&mut [u64; LEVELS]> {
    match &mut inode.content {
        Content::Slabs(slabs) => Ok(slabs),
        _ => Err(Error::damage(0, "no file, and changed as one")),
    }
}
