//! The file outside of the pool that a volume began as, as far as it was not copied yet.
//!
//! It hangs at a timeline without a parent, and is that timeline's state of `OUTSIDE_SEQ`. Copied
//! blocks are entries of that seq; where there is no entry at all, the file has the block.

use format::location::Location;
use units::Seq;

use crate::Result;
use crate::slot::Slot;

/// The seq of everything that was in a file when its volume began.
pub const OUTSIDE_SEQ: Seq = Seq(1);
/// The location of what lies outside: in no segment, and so refused by whoever would look there.
pub const OUTSIDE: Location = Location(1);

/// A file of which blocks are read until they are copied.
pub trait Outside: Send + Sync {
    /// Blocks that it has, from block 0 on.
    fn blocks(&self) -> u64;

    /// Fills `out` (whole blocks) from a block on; `Ok(false)` when that would have had to wait
    /// and may not.
    ///
    /// # Errors
    /// `Corrupt` when the file is not what it was; `Io` when it cannot be read.
    fn read(&self, first_block: u64, out: &mut [u8], may_wait: bool) -> Result<bool>;
}

impl Slot {
    /// A block that is in the file and not in the pool.
    pub const OUTSIDE: Slot = Slot { seq: OUTSIDE_SEQ, location: OUTSIDE, crc: 0, known: true };

    /// Whether the block is in the file and not in the pool: then it has no checksum.
    pub fn is_outside(&self) -> bool {
        self.location == OUTSIDE
    }
}

#[cfg(test)]
mod tests {
    use super::OUTSIDE;
    use crate::slot::Slot;

    #[test]
    fn outside_is_no_hole_and_in_no_segment() {
        assert!(Slot::OUTSIDE.is_outside() && !Slot::OUTSIDE.is_hole() && Slot::OUTSIDE.known);
        assert!(!OUTSIDE.is_valid() && OUTSIDE.segment() == 0);
        assert!(!Slot::default().is_outside());
    }
}
