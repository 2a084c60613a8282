//! Which numbers are free: of inodes, and of slabs of each level.
//!
//! A number that was freed stands on the stack of its kind and is given out first, unless the same
//! transaction freed it. Else the next of
//! a run is, which costs nothing but the state that every transaction writes; a run of slabs is one
//! slab five levels above. Slabs are not joined again: a level keeps the room of its largest use.
//!
//! 1. Every slab of the data area below the run of the highest level is in one of: an object, a
//!    stack, the rest of a run, or a smaller level by way of these. (`check` tiles the area so.)

use format::share::log::RUN_LEVELS;
use format::share::place::{DATA_FIRST, LEVELS, VOLUME_BLOCKS, inode_block, is_slab, slab_blocks};
use format::share::stack::StackBlock;
use format::share::stack::{STACK_HEIGHT_MAX, stack_place};
use units::Inode;

use crate::error::{Error, ErrorKind, Result, require};
use crate::layered::Layered;
use crate::source::Source;

/// Gives out the number of an inode.
///
/// # Errors
/// `NoSpace`; those of reading.
pub fn allocate_inode(layer: &mut Layered<'_, '_>) -> Result<Inode> {
    let inode = match pop(layer, 0, is_free_inode)? {
        Some(number) => Inode(number),
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

/// Whether a number from the stack is free. Where it is not, the share is damaged, and goes on from
/// the next number that never was given out.
fn is_free_inode(layer: &Layered<'_, '_>, number: u64) -> Result<bool> {
    let was_given_out = (Inode::ROOT.0..layer.changes.state.free[0].next).contains(&number);
    match layer.inode(Inode(number)) {
        Ok(found) => Ok(was_given_out && found.is_none()),
        Err(error) if error.kind == ErrorKind::Corrupt => Ok(false),
        Err(error) => Err(error),
    }
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

/// Slabs of these levels are given out of half of the area only: a few bytes far out in a file take
/// one, and smaller files are to find theirs.
const LARGE_LEVELS: std::ops::Range<usize> = LEVELS - 1 - RUN_LEVELS..LEVELS;
const LARGE_END: u64 = DATA_FIRST + (VOLUME_BLOCKS - DATA_FIRST) / 2;

/// Gives out a slab.
///
/// # Errors
/// `NoSpace`; those of reading.
pub fn allocate_slab(layer: &mut Layered<'_, '_>, level: usize) -> Result<u64> {
    allocate(layer, level, if LARGE_LEVELS.contains(&level) { LARGE_END } else { VOLUME_BLOCKS })
}

/// Gives out a slab, one of the highest level only before `end`.
fn allocate(layer: &mut Layered<'_, '_>, level: usize, end: u64) -> Result<u64> {
    if let Some(slab) = pop(layer, 1 + level, |_, slab| Ok(is_slab(level, slab)))? {
        return Ok(slab);
    }
    if level + 1 == LEVELS {
        require(layer.changes.state.free[LEVELS].next < end, ErrorKind::NoSpace)?;
    } else if layer.changes.state.is_run_over(level) {
        let run = allocate(layer, (level + RUN_LEVELS).min(LEVELS - 1), end)?;
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

/// Takes a number off a stack that this transaction did not free; none if there is none, or it is
/// not sound. Those that it did free are above the floor of the stack, and stay.
fn pop(
    layer: &mut Layered<'_, '_>,
    stack: usize,
    is_sound: impl FnOnce(&Layered<'_, '_>, u64) -> Result<bool>,
) -> Result<Option<u64>> {
    let Some(floor) = layer.changes.floors[stack].checked_sub(1) else { return Ok(None) };
    let (block, index) = stack_place(stack, floor);
    let mut numbers = read(layer, block)?;
    let number = numbers.numbers[index];
    if !is_sound(layer, number)? {
        return Ok(None);
    }
    let top = layer.changes.state.free[stack].height - 1;
    if top > floor {
        let (last, at) = stack_place(stack, top);
        numbers.numbers[index] = read(layer, last)?.numbers[at];
        layer.put_stack(block, numbers);
    }
    layer.changes.state.free[stack].height = top;
    layer.changes.floors[stack] = floor;
    Ok(Some(number))
}

fn push(layer: &mut Layered<'_, '_>, stack: usize, number: u64) -> Result<()> {
    let height = layer.changes.state.free[stack].height;
    require(height < STACK_HEIGHT_MAX, ErrorKind::NoSpace)?;
    let (block, index) = stack_place(stack, height);
    let mut numbers = if index == 0 { StackBlock::default() } else { read(layer, block)? };
    numbers.numbers[index] = number;
    layer.put_stack(block, numbers);
    layer.changes.state.free[stack].height = height + 1;
    Ok(())
}

/// A block of a stack with a number below its height.
fn read(layer: &Layered<'_, '_>, block: u64) -> Result<StackBlock> {
    layer.stack(block)?.ok_or_else(|| Error::damage(block, "a block of a stack is missing"))
}
