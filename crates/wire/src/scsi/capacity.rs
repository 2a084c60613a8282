//! The answers to READ CAPACITY.

use crate::fields::{be16, be32, be64, put};

/// Size and kind of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of the unit; at least one.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Logical blocks of a physical one, as a power of two.
    pub physical_exponent: u8,
    /// Thin: unmapped blocks take no room, and read as zeros.
    pub is_thin: bool,
}

/// Bytes of the answer to READ CAPACITY(10).
pub const SHORT_BYTES: usize = 8;
/// Bytes of the answer to READ CAPACITY(16).
pub const LONG_BYTES: usize = 32;

impl Capacity {
    /// The answer to READ CAPACITY(10); the last address is `0xffffffff` where it does not fit.
    ///
    /// # Panics
    /// Without blocks.
    #[must_use]
    pub fn short(&self) -> [u8; SHORT_BYTES] {
        let last = u32::try_from(self.last()).unwrap_or(u32::MAX);
        let mut answer = [0; SHORT_BYTES];
        put(&mut answer, 0, &last.to_be_bytes());
        put(&mut answer, 4, &self.block_bytes.to_be_bytes());
        answer
    }

    /// The answer to READ CAPACITY(16).
    ///
    /// # Panics
    /// Without blocks.
    #[must_use]
    pub fn long(&self) -> [u8; LONG_BYTES] {
        let mut answer = [0; LONG_BYTES];
        put(&mut answer, 0, &self.last().to_be_bytes());
        put(&mut answer, 8, &self.block_bytes.to_be_bytes());
        answer[13] = self.physical_exponent & 0xf;
        // LBPME and LBPRZ.
        answer[14] = if self.is_thin { 0xc0 } else { 0 };
        answer
    }

    fn last(&self) -> u64 {
        self.blocks.checked_sub(1).expect("a unit has blocks")
    }

    /// Reads the answer to READ CAPACITY(16); `None` when it is cut short or makes no sense.
    #[must_use]
    pub fn decode_long(answer: &[u8]) -> Option<Capacity> {
        let answer = answer.first_chunk::<LONG_BYTES>()?;
        Some(Capacity {
            blocks: be64(answer, 0).checked_add(1)?,
            block_bytes: be32(answer, 8),
            physical_exponent: answer[13] & 0xf,
            is_thin: be16(answer, 14) & 0xc000 == 0xc000,
        })
    }
}
