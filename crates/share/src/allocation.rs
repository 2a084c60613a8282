//! Which numbers are free: of inodes, and of slabs of each level.
//!
//! A number that was freed stands on the stack of its kind and is given out first. Else the next of
//! a run is, which costs nothing but the state that every transaction writes; a run of slabs is one
//! slab five levels above. Slabs are not joined again: a level keeps the room of its largest use.
//!
//! 1. Every slab of the data area below the run of the highest level is in one of: an object, a
//!    stack, the rest of a run, or a smaller level by way of these. (`check` tiles the area so.)

use format::share::log::RUN_LEVELS;
use format::share::place::{LEVELS, inode_block, is_slab, slab_blocks};
use format::share::stack::{STACK_HEIGHT_MAX, stack_place};
use units::Inode;

use crate::error::{Error, ErrorKind, Result, require};
use crate::layered::Layered;

/// Gives out the number of an inode.
///
/// # Errors
/// `NoSpace`; those of reading.
pub fn allocate_inode(layer: &mut Layered<'_, '_>) -> Result<Inode> {
    let inode = match pop(layer, 0)? {
        Some((block, number)) if number == 0 || number >= Inode::END.0 => {
            return Err(Error::damage(block, "no inode on the stack of free ones"));
        }
        Some((_, number)) => Inode(number),
        None => {
            let next = &mut layer.changes.state.free[0].next;
            require(*next < Inode::END.0, ErrorKind::NoSpace)?;
            *next += 1;
            Inode(*next - 1)
        }
    };
    layer.changes.state.inodes += 1;
    Ok(inode)
}

/// Takes back the number of an inode, and its block.
///
/// # Errors
/// Those of reading.
pub fn free_inode(layer: &mut Layered<'_, '_>, inode: Inode) -> Result<()> {
    layer.zero(inode_block(inode), 1);
    let inodes = &mut layer.changes.state.inodes;
    let fewer = inodes.checked_sub(1);
    *inodes = fewer.ok_or_else(|| Error::damage(inode_block(inode), "more inodes than counted"))?;
    push(layer, 0, inode.0)
}

/// Gives out a slab.
///
/// # Errors
/// `NoSpace`; those of reading.
pub fn allocate_slab(layer: &mut Layered<'_, '_>, level: usize) -> Result<u64> {
    if let Some((block, slab)) = pop(layer, 1 + level)? {
        let is_one = is_slab(level, slab);
        return if is_one { Ok(slab) } else { Err(Error::damage(block, "no slab on the stack")) };
    }
    if layer.changes.state.is_run_over(level) {
        require(level + 1 < LEVELS, ErrorKind::NoSpace)?;
        let run = allocate_slab(layer, (level + RUN_LEVELS).min(LEVELS - 1))?;
        layer.changes.state.free[1 + level].next = run;
    }
    let next = &mut layer.changes.state.free[1 + level].next;
    let slab = *next;
    *next += slab_blocks(level);
    Ok(slab)
}

/// Takes back a slab, and all blocks in it.
///
/// # Errors
/// `NoSpace`, if more are free than a stack holds; those of reading.
pub fn free_slab(layer: &mut Layered<'_, '_>, level: usize, slab: u64) -> Result<()> {
    layer.zero(slab, slab_blocks(level));
    push(layer, 1 + level, slab)
}

/// Takes the top of a stack, with the block that it was in; none if the stack is empty, or what is
/// on it was freed by the same changes.
fn pop(layer: &mut Layered<'_, '_>, stack: usize) -> Result<Option<(u64, u64)>> {
    let height = layer.changes.state.free[stack].height;
    if height == 0 || height > layer.changes.floors[stack] {
        return Ok(None);
    }
    let (block, index) = stack_place(stack, height - 1);
    let number = layer.stack(block)?.numbers[index];
    layer.changes.state.free[stack].height = height - 1;
    layer.changes.floors[stack] = height - 1;
    Ok(Some((block, number)))
}

fn push(layer: &mut Layered<'_, '_>, stack: usize, number: u64) -> Result<()> {
    let height = layer.changes.state.free[stack].height;
    require(height < STACK_HEIGHT_MAX, ErrorKind::NoSpace)?;
    let (block, index) = stack_place(stack, height);
    let mut numbers = layer.stack(block)?;
    numbers.numbers[index] = number;
    layer.put_stack(block, numbers);
    layer.changes.state.free[stack].height = height + 1;
    Ok(())
}
