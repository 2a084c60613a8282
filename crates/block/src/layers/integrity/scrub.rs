//! Scrubbing: every copy of every block is held against its checksum, before somebody needs it.

use format::checksum::block_crc;
use format::integrity::BLOCK_BYTES;

use super::IntegrityDevice;
use super::geometry::{BLOCK, block_number, block_offset, blocks_of, spans};
use super::group::Known;
use crate::{BlockDevice, DeviceErrorKind, Operation, Result};

/// What a scrub found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blocks that were written, and so have a checksum.
    pub blocks: u64,
    /// Those of which a copy was wrong, and is right now.
    pub healed: u64,
    /// Those that cannot be had.
    pub damaged: u64,
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Checks all copies of the blocks that a range touches, and heals those that are wrong. Others
    /// read and write meanwhile; who scrubs a device does it range by range.
    ///
    /// # Errors
    /// Those of the device below. Damage is none: it is counted, here and in the ledger.
    pub fn scrub(&self, offset: u64, length_bytes: u64) -> Result<Scrubbed> {
        self.check(Operation::Read, offset, length_bytes)?;
        let mut scrubbed = Scrubbed::default();
        for span in spans(blocks_of(offset, length_bytes)) {
            for block in span.blocks.clone() {
                self.scrub_block(span.group, block, &mut scrubbed)?;
            }
        }
        Ok(scrubbed)
    }

    fn scrub_block(&self, group: u64, block: usize, scrubbed: &mut Scrubbed) -> Result<()> {
        let number = block_number(group, block);
        let _held = self.ranges.hold(number..number + 1);
        let mut bytes = [0; BLOCK_BYTES];
        let outcome = match self.with_group(group, |g| Ok(g.known(block)))? {
            Known::Unwritten | Known::Exempt => return Ok(()),
            Known::Checksum(stored) if self.all_copies_match(group, block, stored) => {
                scrubbed.blocks += 1;
                return Ok(());
            }
            Known::Checksum(stored) => self.heal_block(group, block, stored, &mut bytes),
            Known::InFlight(_) | Known::Damaged => self.read_held(group, block, &mut bytes),
        };
        scrubbed.blocks += 1;
        match outcome {
            Ok(()) => scrubbed.healed += 1,
            Err(error) if error.kind == DeviceErrorKind::Corrupt => scrubbed.damaged += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn all_copies_match(&self, group: u64, block: usize, stored: u32) -> bool {
        let offset = block_offset(group, block);
        let mut bytes = [0; BLOCK_BYTES];
        (0..self.below.copies(offset, BLOCK)).all(|copy| {
            let read = self.below.read_copy(copy, offset, &mut bytes);
            read.is_ok() && block_crc(&bytes) == stored
        })
    }
}
