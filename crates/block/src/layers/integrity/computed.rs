//! Redundancy below that is computed anew: the layer looks at what it keeps there itself.
//!
//! Whoever is above looked at the blocks. A header or page that rotted must not get into parity
//! either: that could heal it.

use std::ops::Range;

use format::PAGE_BYTES;
use format::integrity::{
    COPY_OFFSETS, ChecksumSector, GROUP_BLOCKS, IntegrityHeader, PAGE_SECTORS, SECTOR_BYTES,
};

use super::IntegrityDevice;
use super::geometry::{self, BLOCK, blocks_of, page_offset};
use super::group::{Known, sector_number};
use crate::layers::header::{are_sound, forget_between};
use crate::{BlockDevice, Result, Resync};

/// The groups of a range of data.
fn groups_of(offset: u64, length_bytes: u64) -> Range<u64> {
    let (blocks, per_group) = (blocks_of(offset, length_bytes), GROUP_BLOCKS as u64);
    blocks.start / per_group..blocks.end.div_ceil(per_group)
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// The data of which something is in a range below, or the page.
    pub(super) fn above(&self, below: &Range<u64>) -> Option<Range<u64>> {
        let above = |at: u64| (geometry::blocks_within(at) * BLOCK).min(self.len_bytes());
        // With the block behind a page that it ends with.
        let end = above(below.end.saturating_add(BLOCK));
        Some(above(below.start)..end).filter(|range| !range.is_empty())
    }

    /// What lies below of a range of data of which everything was looked at, with the pages of the
    /// groups that begin in it.
    fn looked_at(&self, offset: u64, length_bytes: u64) -> Range<u64> {
        let mut below = geometry::below(offset, length_bytes);
        if offset.is_multiple_of(GROUP_BLOCKS as u64 * BLOCK) {
            below.start -= PAGE_BYTES as u64;
        }
        if offset == 0 && are_sound(&self.below, &COPY_OFFSETS, IntegrityHeader::decode) {
            below.start = 0;
        }
        if offset + length_bytes == self.len_bytes() {
            // There is no room for a block in what is left.
            below.end = self.below.len_bytes();
        }
        below
    }

    /// Says below that nobody has anything in a range of data. The page of a group of which some
    /// blocks were written is somebody's.
    pub(super) fn forget(&self, offset: u64, length_bytes: u64) -> Result<()> {
        if length_bytes == 0 {
            return Ok(());
        }
        let mut below = geometry::below(offset, length_bytes);
        if offset == 0 {
            below.start = forget_between(&self.below, COPY_OFFSETS)?;
        }
        if offset + length_bytes == self.len_bytes() {
            below.end = self.below.len_bytes();
        }
        let forget = |range: Range<u64>| match range.is_empty() {
            true => Ok(()),
            false => self.below.resync(range.start, range.end - range.start, Resync::Unused),
        };
        let mut from = below.start;
        for group in groups_of(offset, length_bytes) {
            let page = page_offset(group)..page_offset(group) + PAGE_BYTES as u64;
            if !self.is_used(group) {
                from = from.min(page.start);
            } else if page.start >= from {
                forget(from..page.start)?;
                from = page.end;
            }
        }
        forget(from..below.end)
    }

    /// Whether any block of a group was written, or may have been.
    fn is_used(&self, group: u64) -> bool {
        let blocks = self.blocks_in(group);
        let is_used =
            self.with_group(group, |g| Ok((0..blocks).any(|b| g.known(b) != Known::Unwritten)));
        is_used.unwrap_or(true)
    }

    /// Has everything in a range of data computed anew, but for what would be computed of pages
    /// that are not right.
    pub(super) fn compute_again(&self, offset: u64, length_bytes: u64) -> Result<()> {
        if length_bytes == 0 {
            return Ok(());
        }
        let below = self.looked_at(offset, length_bytes);
        let compute = |range: Range<u64>| match range.is_empty() {
            true => Ok(()),
            false => self.below.resync(range.start, range.end - range.start, Resync::Computed),
        };
        let mut from = below.start;
        for group in groups_of(offset, length_bytes) {
            let page = page_offset(group)..page_offset(group) + PAGE_BYTES as u64;
            if page.start >= below.start && !self.is_page_right(group) {
                compute(from..page.start)?;
                from = page.end;
            }
        }
        compute(from..below.end)
    }

    /// Whether each sector of a page is, as it lies there, the newest that can be had; it is made
    /// so if need be.
    fn is_page_right(&self, group: u64) -> bool {
        (0..PAGE_SECTORS).all(|place| {
            let offset = page_offset(group) + (place * SECTOR_BYTES) as u64;
            let number = sector_number(group, place);
            self.is_sector_right(offset, number) || {
                self.heal_sector(offset, number);
                self.is_sector_right(offset, number)
            }
        })
    }

    fn is_sector_right(&self, offset: u64, number: u32) -> bool {
        let first = self.sector_copy(0, offset, number);
        let newest = self.newest_sector(offset, number);
        first.is_some() && first.map(|(_, bytes)| bytes) == newest
    }

    fn heal_sector(&self, offset: u64, number: u32) {
        let mut bytes = [0; SECTOR_BYTES];
        let tag = self.header.tag();
        // What cannot be had stays wrong, and whoever asked looks again.
        let _ = match self.newest_sector(offset, number) {
            Some(newest) => self.heal_below(offset, &mut bytes, &|bytes| bytes == newest),
            None => self.heal_below(offset, &mut bytes, &|bytes| {
                ChecksumSector::decode(bytes, tag, number).is_ok()
            }),
        };
    }

    /// A copy of a sector, if it is sound: what it says, none if nothing was written of the blocks,
    /// and its bytes.
    fn sector_copy(
        &self,
        copy: usize,
        offset: u64,
        number: u32,
    ) -> Option<(Option<ChecksumSector>, [u8; SECTOR_BYTES])> {
        let mut bytes = [0; SECTOR_BYTES];
        self.below.read_copy(copy, offset, &mut bytes).ok()?;
        let sector = ChecksumSector::decode(&bytes, self.header.tag(), number).ok()?;
        Some((sector, bytes))
    }

    /// The newest of a sector's copies that is sound.
    fn newest_sector(&self, offset: u64, number: u32) -> Option<[u8; SECTOR_BYTES]> {
        let mut newest: Option<(Option<ChecksumSector>, [u8; SECTOR_BYTES])> = None;
        for copy in 0..self.below.copies(offset, SECTOR_BYTES as u64) {
            let Some((sector, bytes)) = self.sector_copy(copy, offset, number) else { continue };
            let is_newer = match (&newest, &sector) {
                (None, _) | (Some((None, _)), Some(_)) => true,
                (Some((Some(known), _)), Some(sector)) => sector.is_newer(known),
                (Some(_), None) => false,
            };
            if is_newer {
                newest = Some((sector, bytes));
            }
        }
        newest.map(|(_, bytes)| bytes)
    }
}
