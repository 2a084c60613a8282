//! A group's checksums in memory, and their page.

use std::collections::BTreeMap;
use std::ops::Range;

use format::PAGE_BYTES;
use format::integrity::{
    ChecksumSector, GROUP_BLOCKS, PAGE_SECTORS, SECTOR_BLOCKS, SECTOR_BYTES, SectorState,
};

use super::geometry::{Span, sector_of};
use crate::Guard;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was never written, or discarded since: zeros.
    Unwritten,
    /// It has this checksum.
    Checksum(u32),
    /// It was in flight when the power or a write failed: this checksum, or anything.
    InFlight(u32),
    /// Its checksum was lost with its sector.
    Damaged,
    /// It has none here: whoever wrote it guards it.
    Exempt,
}

/// A group of which the page was read.
pub(super) struct Group {
    checksums: Box<[u32; GROUP_BLOCKS]>,
    written: [u128; PAGE_SECTORS],
    in_flight: [u128; PAGE_SECTORS],
    /// What other copies of their sectors, of before, say of blocks in flight.
    earlier: BTreeMap<usize, Vec<u32>>,
    /// Sectors whose blocks their owner guards: nothing of them is written or in flight.
    exempt: [bool; PAGE_SECTORS],
    /// The page as it was encoded last, if it was since the group was marked clean.
    page: Option<Box<EncodedPage>>,
    /// Sectors that cannot be decoded, and what is there instead.
    damaged: BTreeMap<usize, Box<[u8; SECTOR_BYTES]>>,
    /// The generation of the page that was written last, if one was.
    generation: Option<u32>,
    /// Whether the device says durably that blocks may be in flight.
    pub open: bool,
    /// Whether a page was written, and failed, that no later one was written durably after.
    pub unsure: bool,
    /// Whether the page in memory says something else than the one that was written last.
    pub dirty: bool,
    /// Writes under way.
    pub writers: u32,
    /// Whether it is among those of which a flush writes the page.
    pub listed: bool,
    /// The flush that wrote its page last, if it was not marked clean since; they begin with 1.
    pub written_by: u64,
}

/// A group's page, of which some sectors are to be encoded anew.
struct EncodedPage {
    bytes: [u8; PAGE_BYTES],
    stale: [bool; PAGE_SECTORS],
    open: bool,
}

impl EncodedPage {
    fn new(open: bool) -> EncodedPage {
        EncodedPage { bytes: [0; PAGE_BYTES], stale: [true; PAGE_SECTORS], open }
    }
}

impl Group {
    /// A group of which no block was written.
    pub(super) fn new() -> Group {
        Group {
            checksums: Box::new([0; GROUP_BLOCKS]),
            written: [0; PAGE_SECTORS],
            in_flight: [0; PAGE_SECTORS],
            earlier: BTreeMap::new(),
            exempt: [false; PAGE_SECTORS],
            page: None,
            damaged: BTreeMap::new(),
            generation: None,
            open: false,
            unsure: false,
            dirty: false,
            writers: 0,
            listed: false,
            written_by: 0,
        }
    }

    /// Takes what a sector says.
    pub(super) fn take_sector(&mut self, place: usize, sector: &ChecksumSector) {
        self.written[place] = sector.written;
        // A page that was torn has sectors of two generations.
        let is_ahead = |last: u32| sector.generation.wrapping_sub(last) < 1 << 31;
        if self.generation.is_none_or(is_ahead) {
            self.generation = Some(sector.generation);
        }
        if sector.state == SectorState::Open {
            self.in_flight[place] = sector.written;
        }
        self.exempt[place] = sector.state == SectorState::Exempt;
        let checksums = &mut self.checksums[place * SECTOR_BLOCKS..][..SECTOR_BLOCKS];
        checksums.copy_from_slice(&sector.checksums);
    }

    /// Takes what a copy of a sector says that is older than the one that was taken.
    pub(super) fn take_earlier(&mut self, place: usize, older: &ChecksumSector) {
        let both = self.in_flight[place] & older.written;
        for (number, &checksum) in older.checksums.iter().enumerate() {
            let block = place * SECTOR_BLOCKS + number;
            if both & sector_of(block).1 != 0 && checksum != self.checksums[block] {
                self.earlier.entry(block).or_default().push(checksum);
            }
        }
    }

    /// Checksums of before of a block in flight.
    pub(super) fn earlier(&self, block: usize) -> Vec<u32> {
        self.earlier.get(&block).cloned().unwrap_or_default()
    }

    /// Keeps a sector that cannot be decoded as it is.
    pub(super) fn take_damage(&mut self, place: usize, bytes: Box<[u8; SECTOR_BYTES]>) {
        self.damaged.insert(place, bytes);
    }

    /// The page as it is to be written, of a new generation. Sectors that say what they said stay
    /// as they were, and of the generation that they were.
    pub(super) fn encode(&mut self, tag: u32, group: u64, open: bool) -> &[u8; PAGE_BYTES] {
        let generation = self.generation.map_or(0, |last| last.wrapping_add(1));
        self.generation = Some(generation);
        let page = self.page.get_or_insert_with(|| Box::new(EncodedPage::new(open)));
        if page.open != open {
            **page = EncodedPage::new(open);
        }
        for (place, bytes) in page.bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            if !std::mem::take(&mut page.stale[place]) {
                continue;
            }
            if let Some(damaged) = self.damaged.get(&place) {
                bytes.copy_from_slice(&damaged[..]);
                continue;
            }
            let mut checksums = [0; SECTOR_BLOCKS];
            checksums.copy_from_slice(&self.checksums[place * SECTOR_BLOCKS..][..SECTOR_BLOCKS]);
            let sector = sector_number(group, place);
            let written = self.written[place];
            let state = match (self.exempt[place], open) {
                (true, _) => SectorState::Exempt,
                (false, true) => SectorState::Open,
                (false, false) => SectorState::Clean,
            };
            let sector = ChecksumSector { tag, generation, sector, state, written, checksums };
            bytes.copy_from_slice(&sector.encode());
        }
        &page.bytes
    }

    pub(super) fn known(&self, block: usize) -> Known {
        let (place, bit) = sector_of(block);
        match () {
            () if self.damaged.contains_key(&place) => Known::Damaged,
            () if self.exempt[place] => Known::Exempt,
            () if self.written[place] & bit == 0 => Known::Unwritten,
            () if self.in_flight[place] & bit != 0 => Known::InFlight(self.checksums[block]),
            () => Known::Checksum(self.checksums[block]),
        }
    }

    /// The blocks of the span that were never written.
    pub(super) fn unwritten(&self, span: &Span) -> Vec<usize> {
        let is_unwritten = |&block: &usize| self.known(block) == Known::Unwritten;
        span.blocks.clone().filter(is_unwritten).collect()
    }

    /// How many of the span's blocks, from its first, are exempt or not as its first one is, and
    /// which of both.
    pub(super) fn are_exempt(&self, span: &Span) -> (usize, bool) {
        let is_exempt = |place: usize| self.exempt[place] && !self.damaged.contains_key(&place);
        let is_first = is_exempt(span.blocks.start / SECTOR_BLOCKS);
        let mut end = span.blocks.start;
        while end < span.blocks.end && is_exempt(end / SECTOR_BLOCKS) == is_first {
            end = ((end / SECTOR_BLOCKS + 1) * SECTOR_BLOCKS).min(span.blocks.end);
        }
        (end - span.blocks.start, is_first)
    }

    /// The sectors of which all blocks are in the span, and which their owner guards.
    pub(super) fn exempt_in(&self, span: &Span, last: usize) -> Vec<usize> {
        let is_exempt = |place: &usize| self.exempt[*place] && !self.damaged.contains_key(place);
        let covered = |place: &usize| covers(span, *place, last);
        (0..PAGE_SECTORS).filter(covered).filter(is_exempt).collect()
    }

    /// A sector is exempt no more; whoever calls this sets the checksums of all of its blocks.
    pub(super) fn end_exemption(&mut self, place: usize) {
        self.exempt[place] = false;
        self.note_stale(place);
    }

    /// Gives the sectors of which all blocks are in the span another guard; nothing of them was
    /// written. Answers whether that changes any, and whether any had blocks that were written.
    pub(super) fn set_guard(&mut self, span: &Span, last: usize, by: Guard) -> (bool, bool) {
        let (mut is_changed, mut had_blocks) = (false, false);
        // One of fewer blocks stays: it gets more when the device becomes longer.
        let is_whole = |place: usize| sector_blocks(place, last).len() == SECTOR_BLOCKS;
        let covered = |&place: &usize| covers(span, place, last) && is_whole(place);
        for place in (0..PAGE_SECTORS).filter(covered) {
            let is_exempt = by == Guard::Owner;
            let was_damaged = self.damaged.remove(&place).is_some();
            if self.exempt[place] == is_exempt && !was_damaged {
                continue;
            }
            had_blocks |= was_damaged || self.written[place] != 0;
            is_changed = true;
            self.exempt[place] = is_exempt;
            (self.written[place], self.in_flight[place]) = (0, 0);
            self.earlier.retain(|block, _| block / SECTOR_BLOCKS != place);
            self.checksums[place * SECTOR_BLOCKS..][..SECTOR_BLOCKS].fill(0);
            self.note_stale(place);
        }
        (is_changed, had_blocks)
    }

    /// Whether sectors of which so many were read as open are all that can be.
    pub(super) fn is_all(&self, open: usize) -> bool {
        let exempt = self.exempt.iter().filter(|is_exempt| **is_exempt).count();
        open > 0 && open + exempt == PAGE_SECTORS
    }

    /// The blocks that may have been in flight.
    pub(super) fn blocks_in_flight(&self) -> Vec<usize> {
        let is_in_flight = |&block: &usize| matches!(self.known(block), Known::InFlight(_));
        (0..GROUP_BLOCKS).filter(is_in_flight).collect()
    }

    /// A block has this checksum; what is damaged stays so.
    pub(super) fn set(&mut self, block: usize, checksum: u32) {
        let (place, bit) = sector_of(block);
        if self.damaged.contains_key(&place) {
            return;
        }
        self.dirty = true;
        self.note_stale(place);
        self.checksums[block] = checksum;
        self.written[place] |= bit;
        self.settled(block);
    }

    /// A block is what its checksum says.
    pub(super) fn settled(&mut self, block: usize) {
        let (place, bit) = sector_of(block);
        self.in_flight[place] &= !bit;
        self.earlier.remove(&block);
    }

    /// A block is none that was written.
    pub(super) fn clear(&mut self, block: usize) {
        let (place, bit) = sector_of(block);
        self.note_stale(place);
        self.checksums[block] = 0;
        self.written[place] &= !bit;
        self.settled(block);
        self.dirty = true;
    }

    /// A write of these blocks failed: they are what they were, what they should be, or between.
    pub(super) fn doubt(&mut self, blocks: Range<usize>) {
        for block in blocks {
            let (place, bit) = sector_of(block);
            self.in_flight[place] |= self.written[place] & bit;
        }
    }

    /// Sectors that are damaged and of which the span leaves something.
    pub(super) fn damaged_in_part(&self, span: &Span, last: usize) -> Option<usize> {
        self.damaged.keys().copied().find(|&place| {
            let blocks = sector_blocks(place, last);
            let touched = blocks.start < span.blocks.end && span.blocks.start < blocks.end;
            touched && !covers(span, place, last)
        })
    }

    /// Forgets the damage of sectors of which all blocks are in the span: none is written.
    pub(super) fn renew(&mut self, span: &Span, last: usize) {
        while let Some(&place) = self.damaged.keys().find(|&&place| covers(span, place, last)) {
            self.damaged.remove(&place);
            self.note_stale(place);
            self.dirty = true;
        }
    }

    /// Whether any block of the span was never written.
    pub(super) fn any_unwritten(&self, span: &Span) -> bool {
        span.blocks.clone().any(|block| self.known(block) == Known::Unwritten)
    }

    /// Forgets the bytes of the page: nobody writes to the group for now.
    pub(super) fn forget_page(&mut self) {
        self.page = None;
    }

    fn note_stale(&mut self, place: usize) {
        if let Some(page) = &mut self.page {
            page.stale[place] = true;
        }
    }

    /// Whether any block of the span was written, or may have been.
    pub(super) fn any_written(&self, span: &Span) -> bool {
        span.blocks.clone().any(|block| self.known(block) != Known::Unwritten)
    }
}

/// The number of a sector on the device.
pub(super) fn sector_number(group: u64, place: usize) -> u32 {
    let number = group * PAGE_SECTORS as u64 + place as u64;
    u32::try_from(number).expect("a device of at most 2^32 checksum sectors")
}

/// The blocks of a sector of a group that has `last` blocks.
fn sector_blocks(place: usize, last: usize) -> Range<usize> {
    (place * SECTOR_BLOCKS).min(last)..((place + 1) * SECTOR_BLOCKS).min(last)
}

fn covers(span: &Span, place: usize, last: usize) -> bool {
    let blocks = sector_blocks(place, last);
    !blocks.is_empty() && span.blocks.start <= blocks.start && blocks.end <= span.blocks.end
}
