//! The parts of a file that differ between then and now.
//!
//! Holes are asked for, not read: in steps of a GiB, and where there is something, of a chunk.

use format::share::place::BLOCK_BYTES;
use units::FileId;

use crate::attributes::Attributes;
use crate::blocks::{Present, Wait};
use crate::content::count_data;
use crate::error::Result;
use crate::part::{Part, differences};
use crate::permission::Credentials;
use crate::share::Share;
use crate::source::Source;
use crate::tree::Tree;

/// Blocks of which is asked whether all are holes.
const STEP_BLOCKS: u64 = 1 << 18;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Takes the parts of a chunk; whether to go on.
pub(super) type Tell<'t> = dyn FnMut(&[Part<&[u8]>]) -> Result<bool> + 't;

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
