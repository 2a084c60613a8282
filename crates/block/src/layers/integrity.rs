//! The integrity layer: a checksum of every block that was written, kept beside the data and held
//! against it at every read. `docs/format/integrity.md` has the bytes and what a crash leaves.
//!
//! Invariants: 1. bytes that are answered match their checksum, or belong to a block that was never
//! written (zeros), or were in flight when the power or a write failed and are old, new or both by
//! sectors; all else is an error of kind `Corrupt`; 2. blocks of groups that were not being written
//! when the power failed are protected without exception; 3. a block that was discarded is as one
//! that was never written; the part of a block that a discard touches stays as it is; 4. memory is
//! bounded: groups that are clean are forgotten, those that are not are made clean. (Not after a
//! flush has failed: what is on the device is not known then, and nothing is called clean.)

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use format::PAGE_BYTES;
use format::checksum::block_crc;
use format::integrity::{
    BLOCK_BYTES, COPY_OFFSETS, GROUP_BLOCKS, GROUPS_OFFSET, IntegrityHeader, SECTOR_BYTES,
};

use self::geometry::{BLOCK, Span, block_number, block_offset, blocks_of, spans};
use self::group::{Group, Known};
use super::header::{Unusable, read_copies};
use crate::heal::{Piece, heal_pieces};
use crate::ranges::RangeLock;
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, Guard, Ledger, Operation, Outcome, Result, Resync,
    Right,
};

mod computed;
mod edges;
mod geometry;
mod group;
mod groups;
mod guard;
mod last;
mod load;
mod scrub;
mod settle;
mod write;

pub use self::scrub::Scrubbed;

/// What is done when all copies of a block say the same and its checksum says something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mismatch {
    /// An error: rot may have hit all copies, or all may have lost a write.
    #[default]
    Refuse,
    /// The copies are taken to be right, and the checksum is written anew, as in DARC.
    TrustCopies,
}

/// How an integrity layer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityOptions {
    /// What to do about copies that agree against their checksum.
    pub mismatch: Mismatch,
    /// Groups (of 3.75 MiB) whose checksums are kept in memory, 4 KiB each, 8 while it is open.
    pub groups_max: usize,
    /// Groups that may be open at a time, fewer than `groups_max`; a power cut leaves no more than
    /// these to settle.
    pub open_max: usize,
}

impl Default for IntegrityOptions {
    fn default() -> IntegrityOptions {
        IntegrityOptions { mismatch: Mismatch::Refuse, groups_max: 4096, open_max: 256 }
    }
}

/// Makes pages of checksums say that nothing was written.
fn clear_pages(below: &dyn BlockDevice, groups: Range<u64>) -> Result<()> {
    let zeros = [0; PAGE_BYTES];
    for group in groups {
        let mut page = [1; PAGE_BYTES];
        let read = below.read_at(geometry::page_offset(group), &mut page);
        let is_one = below.copies(geometry::page_offset(group), BLOCK) == 1;
        if read.is_err() || page != zeros || !is_one {
            below.write_at(geometry::page_offset(group), &[IoSlice::new(&zeros)])?;
        }
    }
    below.flush()
}

fn write_header(below: &dyn BlockDevice, header: &IntegrityHeader) -> Result<()> {
    let copies = COPY_OFFSETS.into_iter().enumerate();
    copies.into_iter().try_for_each(|(copy, offset)| {
        below.write_durable(offset, &[IoSlice::new(&header.encode(copy))])
    })
}

/// A device that knows what was written to it.
pub struct IntegrityDevice<D> {
    below: D,
    header: IntegrityHeader,
    options: IntegrityOptions,
    ledger: Arc<Ledger>,
    ranges: RangeLock,
    groups: groups::Groups,
    last: last::LastBlocks,
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Makes `below` an integrity device of the identity `id` (a random number) on which nothing
    /// was written; what is on it is lost. Reads every page of checksums, one in 3.75 MiB.
    ///
    /// # Errors
    /// Those of the device below; `OutOfRange` if it has no room for a block.
    pub fn format(below: &D, id: u128) -> Result<()> {
        let blocks = geometry::blocks_within(below.len_bytes());
        if blocks == 0 {
            let text = "the device is too short for a block and its checksum";
            return Err(refusal(below, DeviceErrorKind::OutOfRange, text.to_owned()));
        }
        // An old header goes first: what it would call never written may be so only in part.
        let zeros = [0; PAGE_BYTES];
        for offset in COPY_OFFSETS {
            below.write_durable(offset, &[IoSlice::new(&zeros[..SECTOR_BYTES])])?;
        }
        clear_pages(below, 0..blocks.div_ceil(GROUP_BLOCKS as u64))?;
        write_header(below, &IntegrityHeader { id, blocks, has_exempt: true })
    }

    /// Makes what is new of a device below that had `before_bytes` say that nothing was written
    /// there. To be called before anybody relies on the new length, and again if it failed: the
    /// device that is there is not touched, its header neither.
    ///
    /// # Errors
    /// Those of the device below.
    pub fn extend(below: &D, before_bytes: u64) -> Result<()> {
        let groups = |bytes: u64| geometry::blocks_within(bytes).div_ceil(GROUP_BLOCKS as u64);
        // The last group may be longer than it was: of what is new in it nothing was noted.
        clear_pages(below, groups(before_bytes)..groups(below.len_bytes()))
    }

    /// The integrity device that is on `below`, as long as that has room for.
    ///
    /// # Errors
    /// Those of the device below; `Corrupt` if it is no integrity device, of another version, or
    /// was made on something longer.
    pub fn open(
        below: D,
        options: IntegrityOptions,
        ledger: Arc<Ledger>,
    ) -> Result<IntegrityDevice<D>> {
        assert!(options.open_max < options.groups_max && options.open_max > 0, "{options:?}");
        let decode = IntegrityHeader::decode;
        let accept = |_: &IntegrityHeader| Some(());
        let read = read_copies(&below, &COPY_OFFSETS, decode, IntegrityHeader::encode, accept);
        let (header, ()) = read.map_err(|unusable| {
            let text = match unusable {
                Unusable::Damaged(text) => text,
                Unusable::Refused => unreachable!("every sound header is accepted"),
            };
            refusal(&below, DeviceErrorKind::Corrupt, text)
        })?;
        if geometry::bytes_for(header.blocks) > below.len_bytes() {
            let text = format!("shorter than the {} blocks that it had", header.blocks);
            return Err(refusal(&below, DeviceErrorKind::Corrupt, text));
        }
        let header =
            IntegrityHeader { blocks: geometry::blocks_within(below.len_bytes()), ..header };
        let (ranges, groups) = (RangeLock::default(), groups::Groups::default());
        let last = last::LastBlocks::default();
        Ok(IntegrityDevice { below, header, options, ledger, ranges, groups, last })
    }

    /// Bytes that a device must have for `len_bytes` of data.
    #[must_use]
    pub fn bytes_below(len_bytes: u64) -> u64 {
        geometry::bytes_for(len_bytes.div_ceil(BLOCK))
    }

    /// Bytes of data on a device with so many bytes.
    #[must_use]
    pub fn bytes_above(below_bytes: u64) -> u64 {
        geometry::blocks_within(below_bytes) * BLOCK
    }

    /// The random identity.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.header.id
    }

    /// Blocks of a group: the last one may have fewer than others.
    fn blocks_in(&self, group: u64) -> usize {
        let left = self.header.blocks - block_number(group, 0);
        left.min(GROUP_BLOCKS as u64) as usize
    }

    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes()) {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the device");
        let (kind, device) = (DeviceErrorKind::OutOfRange, self.describe());
        Err(DeviceError { kind, operation, offset, length_bytes, device, source })
    }

    /// The error of a block that cannot be had.
    fn corrupt(&self, operation: Operation, group: u64, block: usize, text: String) -> DeviceError {
        let (kind, device) = (DeviceErrorKind::Corrupt, self.describe());
        let offset = block_number(group, block) * BLOCK;
        let source = io::Error::new(io::ErrorKind::InvalidData, text);
        DeviceError { kind, operation, offset, length_bytes: BLOCK, device, source }
    }

    /// Reads whole blocks of a group, verified, and heals what needs it.
    fn read_blocks(&self, span: &Span, buffer: &mut [u8]) -> Result<()> {
        let known = self.with_group(span.group, |group| Ok(known(group, span)))?;
        if known.iter().any(|known| *known != Known::Unwritten) {
            self.below.read_at(span.offset(), buffer)?;
        }
        for (i, bytes) in buffer.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            if !holds(known[i], bytes) {
                self.read_settled(span.group, span.blocks.start + i, bytes)?;
            }
        }
        Ok(())
    }

    /// The same without waiting; `false` if there is anything to wait for or to heal.
    fn try_read_blocks(&self, span: &Span, buffer: &mut [u8]) -> Result<bool> {
        let Some(known) = self.try_with_group(span.group, |group| known(group, span)) else {
            return Ok(false);
        };
        if known.iter().any(|known| *known != Known::Unwritten)
            && !self.below.try_read_at(span.offset(), buffer)?
        {
            return Ok(false);
        }
        let mut blocks = buffer.chunks_exact_mut(BLOCK_BYTES).zip(known);
        Ok(blocks.all(|(bytes, known)| holds(known, bytes)))
    }

    /// Lets `read` read the blocks of every group that a request touches, and gives the request its
    /// bytes of them.
    fn read_with(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl Fn(&Span, &mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let length = buffer.len() as u64;
        self.check(Operation::Read, offset, length)?;
        if buffer.is_empty() {
            return Ok(true);
        }
        for span in spans(blocks_of(offset, length)) {
            let part = span.bytes(offset, length);
            let within = (part.start - offset) as usize..(part.end - offset) as usize;
            let target = &mut buffer[within];
            if target.len() == span.length() {
                if !read(&span, target)? {
                    return Ok(false);
                }
                continue;
            }
            let mut whole = vec![0; span.length()];
            if !read(&span, &mut whole)? {
                return Ok(false);
            }
            let skip = (part.start - block_number(span.group, span.blocks.start) * BLOCK) as usize;
            target.copy_from_slice(&whole[skip..skip + target.len()]);
        }
        Ok(true)
    }

    /// The places below of the blocks of a request that were written, and where they are in it.
    fn pieces(&self, offset: u64, length: u64) -> Result<Vec<Piece<'_>>> {
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        for span in spans(blocks_of(offset, length)) {
            let known = self.with_group(span.group, |group| Ok(known(group, &span)))?;
            for (block, known) in span.blocks.clone().zip(known) {
                if known == Known::Unwritten {
                    continue;
                }
                let one = Span { group: span.group, blocks: block..block + 1 };
                let part = one.bytes(offset, length);
                let skip = part.start - block_number(span.group, block) * BLOCK;
                let below = block_offset(span.group, block) + skip;
                let within = (part.start - offset) as usize..(part.end - offset) as usize;
                match pieces.last_mut() {
                    Some((_, at, last))
                        if last.end == within.start && *at + last.len() as u64 == below =>
                    {
                        last.end = within.end;
                    }
                    _ => pieces.push((&self.below, below, within)),
                }
            }
        }
        Ok(pieces)
    }

    /// Heals the blocks of a range, which is held, one by one by their own checksums.
    fn heal_blocks(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len() as u64;
        let mut bytes = [0; BLOCK_BYTES];
        for span in spans(blocks_of(offset, length)) {
            for block in span.blocks.clone() {
                self.read_held(span.group, block, &mut bytes)?;
                let right = bytes;
                let below = block_offset(span.group, block);
                let known = self.with_group(span.group, |g| Ok(g.known(block)))?;
                // What is right of one that is exempt, its owner knows alone.
                if !matches!(known, Known::Unwritten | Known::Exempt) {
                    self.heal_below(below, &mut bytes, &|copy| copy == right)?;
                }
                let one = Span { group: span.group, blocks: block..block + 1 };
                let part = one.bytes(offset, length);
                let start = block_number(span.group, block) * BLOCK;
                let within = (part.start - start) as usize..(part.end - start) as usize;
                let target = (part.start - offset) as usize..(part.end - offset) as usize;
                buffer[target].copy_from_slice(&right[within]);
            }
        }
        Ok(())
    }

    /// Writes the checksums anew of whole blocks that somebody knows to be these.
    fn adopt(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let length = bytes.len() as u64;
        let whole = offset.div_ceil(BLOCK)..(offset + length) / BLOCK;
        for span in spans(whole.start..whole.end.max(whole.start)) {
            for block in span.blocks.clone() {
                let at = (block_number(span.group, block) * BLOCK - offset) as usize;
                let crc = block_crc(&bytes[at..at + BLOCK_BYTES]);
                let known = self.with_group(span.group, |group| Ok(group.known(block)))?;
                if matches!(known, Known::Checksum(c) | Known::InFlight(c) if c != crc) {
                    self.store_checksum(span.group, block, crc)?;
                }
            }
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for IntegrityDevice<D> {
    fn len_bytes(&self) -> u64 {
        self.header.blocks * BLOCK
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = |span: &Span, bytes: &mut [u8]| self.read_blocks(span, bytes).map(|()| true);
        self.read_with(offset, buffer, read).map(drop)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_with(offset, buffer, |span, bytes| self.try_read_blocks(span, bytes))
    }

    fn read_unverified(&self, offset: u64, buffer: &mut [u8], may_wait: bool) -> Result<bool> {
        let length = buffer.len() as u64;
        self.check(Operation::Read, offset, length)?;
        for span in spans(blocks_of(offset, length)) {
            let part = span.bytes(offset, length);
            let target = &mut buffer[(part.start - offset) as usize..(part.end - offset) as usize];
            let unwritten = match may_wait {
                true => Some(self.with_group(span.group, |g| Ok(g.unwritten(&span)))?),
                false => self.try_with_group(span.group, |group| group.unwritten(&span)),
            };
            let Some(unwritten) = unwritten else { return Ok(false) };
            let begin = block_number(span.group, span.blocks.start) * BLOCK;
            let at = span.offset() + (part.start - begin);
            if unwritten.len() < span.blocks.len()
                && !self.below.read_unverified(at, target, may_wait)?
            {
                return Ok(false);
            }
            for block in unwritten {
                let start = block_number(span.group, block) * BLOCK;
                let (from, to) = (start.max(part.start), (start + BLOCK).min(part.end));
                target[(from - part.start) as usize..(to - part.start) as usize].fill(0);
            }
        }
        Ok(true)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write(offset, slices, false)
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        let range = self.range_below(offset, length_bytes);
        self.below.allocate(range.start, range.end - range.start)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let whole = offset.div_ceil(BLOCK)..(offset + length_bytes) / BLOCK;
        if whole.is_empty() {
            return Ok(());
        }
        for span in spans(whole) {
            self.by_guard(span, |part, is_exempt| self.discard_part(part, is_exempt))?;
        }
        Ok(())
    }

    fn guard(&self, offset: u64, length_bytes: u64, by: Guard) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        self.set_guard(offset, length_bytes, by)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write(offset, slices, true)
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        if self.check(Operation::Read, offset, length_bytes).is_err() {
            return 1;
        }
        let range = self.range_below(offset, length_bytes);
        self.below.copies(range.start, range.end - range.start)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let pieces = self.pieces(offset, buffer.len() as u64)?;
        buffer.fill(0);
        pieces
            .into_iter()
            .try_for_each(|(below, at, part)| below.read_copy(copy, at, &mut buffer[part]))
    }

    fn ways(&self) -> usize {
        self.below.ways()
    }

    /// Where there are several, whoever asks tells which of them is right, whatever the checksums
    /// say that are kept here. The only one is right as far as these say, as for every reader: what
    /// no reader gets and no healing takes shall not be a way of this device under a mirror.
    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.below.ways() == 1 {
            return self.read_at(offset, buffer);
        }
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let pieces = self.pieces(offset, buffer.len() as u64)?;
        buffer.fill(0);
        pieces
            .into_iter()
            .try_for_each(|(below, at, part)| below.read_way(way, at, &mut buffer[part]))
    }

    /// The caller has a checksum of its own, over what may be more or less than a block: bytes that
    /// it calls right are right, whatever the checksums say that are kept here.
    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let length = buffer.len() as u64;
        self.check(Operation::Read, offset, length)?;
        let _held = self.ranges.hold(blocks_of(offset, length));
        let edges = self.vouched_edges(offset, length)?;
        buffer.fill(0);
        let outcome = heal_pieces(&self.pieces(offset, length)?, buffer, right)?;
        if matches!(outcome, Outcome::Transient | Outcome::Recovered) {
            // Whatever comes of writing checksums: the bytes are there.
            let _ = self.adopt(offset, buffer);
            for edge in edges {
                let _ = self.mend_edge(edge, offset, buffer);
            }
            return Ok(outcome);
        }
        // No copy of the whole is right; of each block one may be.
        let healed = self.heal_blocks(offset, buffer).is_ok() && right(buffer);
        Ok(if healed { Outcome::Recovered } else { outcome })
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        match which {
            Resync::Computed => return self.compute_again(offset, length_bytes),
            Resync::Unused => return self.forget(offset, length_bytes),
            Resync::Stale | Resync::All | Resync::Loose | Resync::Beside => {}
        }
        if offset == 0 && matches!(which, Resync::Stale | Resync::Beside) {
            // Without the header there is nothing.
            self.below.resync(0, GROUPS_OFFSET, Resync::Stale)?;
        }
        let range = self.range_below(offset, length_bytes);
        if which == Resync::Beside {
            let mut groups = spans(blocks_of(offset, length_bytes)).map(|span| span.group);
            groups.try_for_each(|group| {
                self.below.resync(geometry::page_offset(group), BLOCK, Resync::Stale)
            })?;
        }
        self.below.resync(range.start, range.end - range.start, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.check(Operation::Read, offset, length_bytes)?;
        let range = self.range_below(offset, length_bytes);
        let found = self.below.disagreements(range.start, range.end - range.start)?;
        Ok(found.iter().filter_map(|range| self.above(range)).collect())
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        self.below.noticed().iter().filter_map(|range| self.above(range)).collect()
    }

    fn describe(&self) -> String {
        format!("integrity({})", self.below.describe())
    }
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Where a range of data lies below, with the pages of its groups.
    fn range_below(&self, offset: u64, length_bytes: u64) -> Range<u64> {
        let blocks = geometry::below(offset, length_bytes);
        let first = offset / BLOCK / GROUP_BLOCKS as u64;
        if length_bytes == 0 { blocks } else { geometry::page_offset(first)..blocks.end }
    }
}

/// What is known of the blocks of a span.
fn known(group: &Group, span: &Span) -> Vec<Known> {
    span.blocks.clone().map(|block| group.known(block)).collect()
}

/// Whether bytes that were read are a block's; fills in those of one that was never written.
fn holds(known: Known, bytes: &mut [u8]) -> bool {
    match known {
        Known::Unwritten => {
            bytes.fill(0);
            true
        }
        Known::Exempt => true,
        Known::Checksum(stored) => block_crc(bytes) == stored,
        Known::InFlight(_) | Known::Damaged => false,
    }
}

/// Why a device is not one of this kind.
fn refusal(below: &dyn BlockDevice, kind: DeviceErrorKind, text: String) -> DeviceError {
    let source = io::Error::new(io::ErrorKind::InvalidData, text);
    let (operation, device) = (Operation::Read, format!("integrity({})", below.describe()));
    DeviceError { kind, operation, offset: 0, length_bytes: SECTOR_BYTES as u64, device, source }
}
