//! Stacks of free numbers: of inodes, and of the slabs of each level. How high each stands is in
//! the [state](crate::share::log::State); what is above that is left over.

use crate::error::Result;
use crate::share::place::{BLOCK_BYTES, STACK_BLOCKS, STACKS, STACKS_FIRST, ShareAddress};

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, tile};

    /// The whole structure.
    pub const BYTES: usize = 4096;
    pub(crate) const BEGIN: Field = Field::new("begin", 0, 16);
    pub(crate) const NUMBERS: Field = Field::new("numbers", 16, 4080);
    /// In order.
    pub const FIELDS: &[Field] = &[BEGIN, NUMBERS];
    const _: () = assert!(tile(FIELDS, BYTES));
}

const MAGIC: &[u8; 4] = b"HSFR";
/// Numbers in a block.
pub const STACK_NUMBERS: usize = 510;
/// How high a stack can stand.
pub const STACK_HEIGHT_MAX: u64 = STACK_BLOCKS * STACK_NUMBERS as u64;

/// A block of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackBlock {
    /// Free numbers, and what is left over above the height.
    pub numbers: Box<[u64; STACK_NUMBERS]>,
}

/// Where the number at a height of a stack is: its block, and its index there.
pub fn stack_place(stack: usize, height: u64) -> (u64, usize) {
    assert!(stack < STACKS && height < STACK_HEIGHT_MAX);
    let first = STACKS_FIRST + stack as u64 * STACK_BLOCKS;
    let numbers = STACK_NUMBERS as u64;
    (first + height / numbers, (height % numbers) as usize)
}

impl Default for StackBlock {
    fn default() -> StackBlock {
        StackBlock { numbers: Box::new([0; STACK_NUMBERS]) }
    }
}

impl StackBlock {
    /// Its block.
    pub fn encode(&self, address: ShareAddress) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = address.begin(MAGIC);
        let slots = bytes[layout::NUMBERS.offset..].chunks_exact_mut(8);
        for (slot, number) in slots.zip(&self.numbers[..]) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a block of a stack.
    ///
    /// # Errors
    /// `NotThis` or `Invalid`.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], address: ShareAddress) -> Result<StackBlock> {
        address.verify(address.place("free stack"), MAGIC, bytes)?;
        let mut block = StackBlock::default();
        let slots = bytes[layout::NUMBERS.offset..].chunks_exact(8);
        for (slot, number) in slots.zip(&mut block.numbers[..]) {
            *number = u64::from_le_bytes(slot.try_into().expect("a chunk of 8 bytes"));
        }
        Ok(block)
    }
}
