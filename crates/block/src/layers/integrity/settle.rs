//! Blocks that are not what their checksum says: those that were in flight are settled, others are
//! healed or are errors.
//!
//! Invariant: who settles or heals a block holds its range, or the group while nobody writes to it.

use std::cell::RefCell;

use format::checksum::block_crc;
use format::integrity::BLOCK_BYTES;

use super::geometry::{BLOCK, block_number, block_offset};
use super::group::{Group, Known};
use super::{IntegrityDevice, Mismatch};
use crate::heal::{Right, read_again};
use crate::{BlockDevice, Ledger, Operation, Outcome, Result, Resync};

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Settles what was in flight of a group; blocks that cannot be read stay in flight. One that
    /// matches is settled when all copies do: the others may be all there is one day, and who
    /// writes a part of it needs the rest, whether or not anybody needs that.
    pub(super) fn settle(&self, number: u64, group: &mut Group) {
        let blocks = group.blocks_in_flight();
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let mut bytes = vec![0; run.len() * BLOCK_BYTES];
            let all = self.below.read_at(block_offset(number, run[0]), &mut bytes);
            let agree = self.agree(block_offset(number, run[0]), &bytes);
            let blocks = run.iter().zip(agree).zip(bytes.chunks_exact_mut(BLOCK_BYTES));
            for ((&block, is_agreed), bytes) in blocks {
                let Known::InFlight(stored) = group.known(block) else { continue };
                if all.is_ok() && is_agreed && block_crc(bytes) == stored {
                    group.settled(block);
                } else {
                    let checksums = (stored, &group.earlier(block)[..]);
                    if let Ok(found) = self.settle_block(number, block, checksums, bytes) {
                        note_settled(group, block, stored, found);
                    }
                }
            }
        }
    }

    /// Which blocks from an offset on every copy has as they were read.
    fn agree(&self, offset: u64, bytes: &[u8]) -> Vec<bool> {
        let mut agree = vec![true; bytes.len() / BLOCK_BYTES];
        let copies = self.below.copies(offset, bytes.len() as u64);
        let mut other = vec![0; if copies > 1 { bytes.len() } else { 0 }];
        for copy in 0..if copies > 1 { copies } else { 0 } {
            if self.below.read_copy(copy, offset, &mut other).is_err() {
                // Each by itself.
                agree.fill(false);
                break;
            }
            let blocks = bytes.chunks_exact(BLOCK_BYTES).zip(other.chunks_exact(BLOCK_BYTES));
            agree.iter_mut().zip(blocks).for_each(|(agree, (one, other))| *agree &= one == other);
        }
        agree
    }

    /// Settles one block that was in flight: a copy that matches is right, or else one that matches
    /// what another copy of the page says, of before; where none does, the copies are made to
    /// agree. Returns the checksum of what is there now.
    ///
    /// A copy of before is better than one that is torn: that may be of a device that lost what was
    /// written to it even earlier, and said nothing.
    fn settle_block(
        &self,
        group: u64,
        block: usize,
        (stored, earlier): (u32, &[u32]),
        buffer: &mut [u8],
    ) -> Result<u32> {
        let offset = block_offset(group, block);
        let copies = self.below.copies(offset, BLOCK);
        for checksum in std::iter::once(stored).chain(earlier.iter().copied()) {
            let right = |bytes: &[u8]| block_crc(bytes) == checksum;
            for copy in 0..copies {
                if self.below.read_copy(copy, offset, buffer).is_ok() && right(buffer) {
                    if copies > 1 {
                        self.heal_below(offset, buffer, &right)?;
                    }
                    return Ok(checksum);
                }
            }
        }
        self.below.resync(offset, BLOCK, Resync::All)?;
        self.below.read_at(offset, buffer)?;
        let mut other = vec![0; buffer.len()];
        for copy in 0..if copies > 1 { copies } else { 0 } {
            self.below.read_copy(copy, offset, &mut other)?;
            if other != buffer {
                Ledger::add(&self.ledger.unrecoverable, 1);
                let text = "its copies do not agree".to_owned();
                return Err(self.corrupt(Operation::Read, group, block, text));
            }
        }
        Ledger::add(&self.ledger.checksums_recovered, 1);
        Ok(block_crc(buffer))
    }

    /// The right bytes of a block that did not match when it was read without its range.
    pub(super) fn read_settled(&self, group: u64, block: usize, buffer: &mut [u8]) -> Result<()> {
        let number = block_number(group, block);
        let _held = self.ranges.hold(number..number + 1);
        self.read_held(group, block, buffer)
    }

    /// The right bytes of a block whose range is held.
    pub(super) fn read_held(&self, group: u64, block: usize, buffer: &mut [u8]) -> Result<()> {
        match self.with_group(group, |g| Ok(g.known(block)))? {
            Known::Unwritten => {
                buffer.fill(0);
                Ok(())
            }
            Known::Exempt => self.below.read_at(block_offset(group, block), buffer),
            Known::Damaged => {
                let text = "the sector of its checksum is damaged".to_owned();
                Err(self.corrupt(Operation::Read, group, block, text))
            }
            Known::Checksum(stored) => {
                self.below.read_at(block_offset(group, block), buffer)?;
                if block_crc(buffer) == stored {
                    return Ok(());
                }
                self.heal_block(group, block, stored, buffer)
            }
            Known::InFlight(stored) => {
                let earlier = self.with_group(group, |g| Ok(g.earlier(block)))?;
                let found = self.settle_block(group, block, (stored, &earlier), buffer)?;
                self.with_group(group, |g| {
                    note_settled(g, block, stored, found);
                    Ok(())
                })
            }
        }
    }

    /// Heals a block that does not match, as DARC's Fig. 4 has it.
    pub(super) fn heal_block(
        &self,
        group: u64,
        block: usize,
        stored: u32,
        buffer: &mut [u8],
    ) -> Result<()> {
        // What the copies said is kept: where all say the same, it is the answer.
        let said = RefCell::new(Vec::new());
        let right = |bytes: &[u8]| {
            let mut said = said.borrow_mut();
            said.clear();
            said.extend_from_slice(bytes);
            block_crc(bytes) == stored
        };
        let outcome = self.heal_below(block_offset(group, block), buffer, &right)?;
        match (outcome, self.options.mismatch) {
            (Outcome::Transient | Outcome::Recovered, _) if block_crc(buffer) == stored => Ok(()),
            (Outcome::Agreed, Mismatch::TrustCopies) => {
                buffer.copy_from_slice(&said.borrow());
                self.store_checksum(group, block, block_crc(buffer))?;
                Ledger::add(&self.ledger.checksum_ios, 1);
                Ledger::add(&self.ledger.checksums_recovered, 1);
                Ok(())
            }
            (outcome, _) => {
                if outcome == Outcome::Agreed {
                    Ledger::add(&self.ledger.unrecoverable, 1);
                }
                let text = match outcome {
                    Outcome::Agreed => "all copies are the same, and do not match its checksum",
                    _ => "no copy of it matches its checksum",
                };
                Err(self.corrupt(Operation::Read, group, block, text.to_owned()))
            }
        }
    }

    /// A block's checksum is this one, durably.
    pub(super) fn store_checksum(&self, group: u64, block: usize, checksum: u32) -> Result<()> {
        self.with_group(group, |g| {
            g.set(block, checksum);
            self.write_page_durably(group, g)
        })
    }

    /// Heals a range of the device below. Where there is one copy nobody else counts.
    pub(super) fn heal_below(
        &self,
        offset: u64,
        buffer: &mut [u8],
        right: &Right<'_>,
    ) -> Result<Outcome> {
        if self.below.copies(offset, buffer.len() as u64) > 1 {
            return self.below.heal(offset, buffer, right);
        }
        let outcome = read_again(&self.below, offset, buffer, right)?;
        Ledger::add(&self.ledger.data_ios, 1);
        Ledger::add(&self.ledger.checksums, 1);
        self.ledger.count(outcome);
        Ok(outcome)
    }
}

/// Notes that a block is settled, with the checksum that it has now.
fn note_settled(group: &mut Group, block: usize, stored: u32, found: u32) {
    if found == stored {
        group.settled(block);
    } else {
        group.set(block, found);
    }
}
