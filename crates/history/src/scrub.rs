//! Looking at every copy of what is stored, before somebody needs it.
//!
//! Stored data says itself what it should be: batches and packs hold the checksums of what is in
//! them, pages of runs their own. So a zone can be looked at from its beginning to its end, without
//! the map. Of what is wrong on some copies the right one is written over the others; what is wrong
//! on all may be what a power cut tore and nobody needs: the map is asked. A block that is needed
//! is had from another version with the same checksum, if there is one, and written again. Where
//! not even a header says what there was, the range is a [`Suspect`](Suspects), and the map's runs,
//! looked at afterwards, tell whether they name something there.
//!
//! Copies are read in large pieces and verified in memory; only what is wrong there is read again.

use std::ops::Range;
use std::sync::atomic::Ordering;

use block::Right;
use block::heal::is_right_somehow;
use format::batch::{
    BATCH_ALIGNMENT, BATCH_HEADER_FIXED_BYTES, Batch, BatchKind, DescriptorKind, header_bytes,
    peek_header_bytes,
};
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, LeafPage};
use format::pack::{PACK_ALIGNMENT, PACK_HEADER_BYTES, PackHeader};
use format::run::{IndexPage, RunFooter};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use format::time::TimePage;
use format::{PAGE_BYTES, PageAddress};
use units::{BLOCK_BYTES, Lba, Seq};

use crate::packs::is_at;
use crate::scan::belongs;
use crate::{Content, PageExtents, Segment, Store, block_location, read_header};

mod suspects;
mod windows;

pub use suspects::Suspects;
use windows::Windows;

/// Blocks that are named in a report, at most.
const LOSSES_NAMED: usize = 16;

/// Whether bytes are a page of a run, of whatever kind, at that address.
fn is_page(bytes: &[u8; PAGE_BYTES], address: PageAddress) -> bool {
    LeafPage::decode(Box::new(*bytes), address).is_ok()
        || IndexPage::decode(bytes, address, &mut Vec::new()).is_ok()
        || TimePage::decode(Box::new(*bytes), address).is_ok()
        || RunFooter::decode(bytes, address).is_ok()
}

/// The findings of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Ranges of which a copy was wrong or could not be read.
    pub wrong: u64,
    /// Of these: where that was the copy that readers get. Of stretches that were asked about.
    pub misread: u64,
    /// Of these: written again from a copy that was right.
    pub healed: u64,
    /// Of these: blocks of which no copy was right, written again from another version that has
    /// the same bytes.
    pub repaired: u64,
    /// Of these: versions in packs that no copy has and readers are given from another version that
    /// has the same bytes.
    pub elsewhere: u64,
    /// Blocks and pages that are needed and wrong on every copy, of ranges that were asked about.
    pub lost: u64,
}

/// The questions of a scrub to the map.
pub trait ScrubMap {
    /// Whether it still names a version where it was found. In doubt it is needed.
    fn still_names(&self, version: &Version) -> bool;
    /// Versions of a block that have a checksum: `(block, checksum)`.
    fn alike(&self, like: (u64, u32)) -> Vec<Entry>;
}

/// A version of a block in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its timeline.
    pub timeline: u64,
    /// Its block.
    pub block: Lba,
    /// Its seq.
    pub seq: Seq,
    /// Where it is.
    pub location: Location,
}

/// Something that is needed and wrong on every copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A version of a block.
    Block(Version),
    /// A page of a run.
    Page {
        /// The run.
        run: u64,
        /// Its page.
        page: u32,
    },
}

/// A scrub under way.
pub struct Scrub<'s> {
    store: &'s Store,
    map: &'s dyn ScrubMap,
    windows: Windows<'s>,
    /// Its findings.
    pub report: ScrubReport,
    /// The first of what is lost.
    pub losses: Vec<Loss>,
    /// Where something may be lost, if the runs are asked about it.
    pub suspects: Option<Suspects>,
    /// The stretches that are asked about, if not all.
    asked: Option<&'s dyn Fn(u64, u64) -> bool>,
}

impl<'s> Scrub<'s> {
    /// A scrub that has seen nothing. Blocks that it finds may be written again: its caller sees to
    /// it that nothing that the map names is moved, freed or written over meanwhile.
    pub fn new(store: &'s Store, map: &'s dyn ScrubMap) -> Scrub<'s> {
        Scrub {
            store,
            map,
            windows: Windows::new(store),
            report: ScrubReport::default(),
            losses: Vec::new(),
            suspects: None,
            asked: None,
        }
    }

    /// Counts as misread or lost only what touches some stretches, `(offset, bytes)`: more is
    /// looked at than that.
    #[must_use]
    pub fn asked(mut self, asked: Option<&'s dyn Fn(u64, u64) -> bool>) -> Scrub<'s> {
        self.asked = asked;
        self
    }

    fn is_asked(&self, at: u64, length: usize) -> bool {
        self.asked.is_none_or(|asked| asked(at, length as u64))
    }

    /// Reads one copy where all are known to say the same: of these stretches, `(offset, bytes)`.
    #[must_use]
    pub fn agreed(mut self, agreed: Option<&'s dyn Fn(u64, u64) -> bool>) -> Scrub<'s> {
        self.windows.agreed = agreed;
        self
    }

    /// Bytes that were read, of all copies.
    pub fn read_bytes(&self) -> u64 {
        self.report.read_bytes + self.windows.read_bytes
    }

    /// Its findings.
    pub fn report(&self) -> ScrubReport {
        ScrubReport { read_bytes: self.read_bytes(), ..self.report }
    }

    fn lose(&mut self, loss: Loss, is_asked: bool) {
        self.report.wrong += 1;
        self.report.lost += u64::from(is_asked);
        if self.losses.len() < LOSSES_NAMED {
            self.losses.push(loss);
        }
    }

    /// A block that the map names is wrong on every copy: other versions may have its bytes.
    fn repair(&mut self, version: Version, crc: u32, at: u64) {
        let like = (version.block.0, crc);
        let is_asked = self.is_asked(at, BLOCK_BYTES as usize);
        let versions = self.map.alike(like);
        if self.store.repair_elsewhere(versions, like, version.location, at) {
            self.report.wrong += 1;
            self.report.misread += u64::from(is_asked);
            self.report.repaired += 1;
        } else {
            self.lose(Loss::Block(version), is_asked);
        }
    }

    fn suspect(&mut self, segment: u64, range: Range<u32>) {
        if let Some(suspects) = &mut self.suspects {
            suspects.add(segment, range);
        }
    }

    /// Looks at all copies of a range; says whether one is right now.
    pub fn range(&mut self, at: u64, length: usize, right: &Right<'_>) -> bool {
        let device = &self.store.device;
        let mut bytes = vec![0; length];
        let (mut wrong, mut is_misread, mut is_known) = (false, false, false);
        for copy in 0..device.copies(at, length as u64) {
            self.report.read_bytes += length as u64;
            let is_right = device.read_copy(copy, at, &mut bytes).is_ok() && right(&bytes);
            wrong |= !is_right;
            is_misread |= !is_right && copy == 0;
            is_known |= is_right;
        }
        // Members that are wrong in the same place are left out together by a way of reading all.
        is_known = is_known || is_right_somehow(&**device, at, &mut bytes, right);
        if wrong && is_known {
            self.report.wrong += 1;
            self.report.misread += u64::from(is_misread && self.is_asked(at, length));
            self.report.healed += u64::from(self.store.heal(at, &mut bytes, right));
        }
        is_known
    }

    /// The same for what is in the windows; the device is asked only where something is wrong.
    fn held(&mut self, at: u64, length: usize, right: &Right<'_>) -> bool {
        self.windows.load(at, length);
        self.windows.all(at, length, right) || self.range(at, length, right)
    }

    /// Looks at what is in a segment from an offset on, until about so many bytes of it were gone
    /// over; says where to go on. Writes above `stable` may be under way: they are passed by.
    pub fn segment(
        &mut self,
        segment: &Segment,
        from: u32,
        bytes: u64,
        stable: Seq,
    ) -> Option<u32> {
        let zone_bytes = self.store.zone_bytes;
        let base = self.store.zone_offset(segment.zone);
        self.windows.begin(base + zone_bytes);
        let end = segment.end.load(Ordering::Acquire);
        let is_sealed = segment.sealed.load(Ordering::Acquire);
        let header = read_header(self.store, segment.zone, segment.number);
        let Ok(Some(header)) = header else {
            if is_sealed && end > SEGMENT_HEADER_BYTES as u32 {
                self.report.wrong += u64::from(self.suspects.is_some());
                self.report.misread += u64::from(self.suspects.is_some());
                self.suspect(segment.number, 0..end);
            }
            return None;
        };
        let first = SEGMENT_HEADER_BYTES as u32;
        if from < first {
            let is_header =
                |bytes: &[u8]| SegmentHeader::decode(bytes).is_ok_and(|found| found == header);
            self.held(base, SEGMENT_HEADER_BYTES, &is_header);
        }
        let from = from.max(first);
        // Behind the end is what merges left that came to nothing, or are about to put there.
        let last = match is_sealed && segment.content() == Content::Logged {
            true => u64::from(end),
            false => zone_bytes,
        };
        let until = u64::from(from).saturating_add(bytes.max(1)).min(last);
        let until = u32::try_from(until).expect("zones are at most 32 MiB");
        let walk = Walk { header: &header, base, known: is_sealed.then_some(end), stable };
        let at = match segment.content() {
            Content::Pack => self.packs(&walk, from..until),
            Content::Home => self.homes(&walk, from..until),
            Content::Logged | Content::Shared => self.batches(&walk, from..until),
        };
        (u64::from(at) + (BATCH_HEADER_FIXED_BYTES as u64) <= last).then_some(at)
    }

    /// Tells of bytes that belong to nothing: something may have been there if something follows,
    /// or if so much is known to have been written.
    fn gap(&mut self, walk: &Walk<'_>, gap: Range<u32>, is_followed: bool) {
        let end = if is_followed { gap.end } else { gap.end.min(walk.known.unwrap_or(0)) };
        if gap.start < end {
            self.suspect(walk.header.segment, gap.start..end);
        }
    }

    fn batches(&mut self, walk: &Walk<'_>, range: Range<u32>) -> u32 {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("at most 32 MiB");
        let (mut offset, mut gap) = (range.start, range.start);
        while offset < range.end {
            let Some(header) = self.batch_header(walk, offset as usize, zone_bytes) else {
                offset += BATCH_ALIGNMENT;
                continue;
            };
            let batch = Batch::decode(&header).expect("decoded before");
            self.gap(walk, gap..offset, true);
            let last = batch.header.base_seq.0 + u64::from(batch.op_count).saturating_sub(1);
            let is_settled = batch.header.kind != BatchKind::Writes || last <= walk.stable.0;
            if is_settled {
                self.batch(walk, &batch, zone_bytes);
            }
            offset += batch.total_bytes();
            gap = offset;
        }
        self.gap(walk, gap..offset, false);
        offset
    }

    /// The header of a batch at an offset, if a copy has one.
    fn batch_header(&mut self, walk: &Walk<'_>, offset: usize, zone: usize) -> Option<Vec<u8>> {
        if offset + BATCH_HEADER_FIXED_BYTES > zone {
            return None;
        }
        let at = walk.base + offset as u64;
        self.windows.load(at, BATCH_HEADER_FIXED_BYTES);
        for copy in 0..self.windows.copies() {
            let fixed = self.windows.get(copy, at, BATCH_HEADER_FIXED_BYTES);
            let Ok(length) = peek_header_bytes(fixed) else { continue };
            if offset + length as usize > zone {
                continue;
            }
            self.windows.load(at, length as usize);
            let bytes = self.windows.get(copy, at, length as usize);
            if Batch::decode(bytes).is_ok_and(|b| belongs(&b, walk.header, offset, zone)) {
                return Some(bytes.to_vec());
            }
        }
        None
    }

    fn batch(&mut self, walk: &Walk<'_>, batch: &Batch<'_>, zone: usize) {
        let offset = batch.header.offset as usize;
        let right = |bytes: &[u8]| {
            Batch::decode(bytes).is_ok_and(|b| belongs(&b, walk.header, offset, zone))
        };
        self.held(walk.base + offset as u64, batch.header_bytes as usize, &right);
        for op in batch.descriptors().filter(|op| op.kind == DescriptorKind::Data) {
            let place = batch.header.offset + op.payload_offset;
            let first = Location::new(walk.header.segment, place);
            for (i, crc) in op.crcs().enumerate() {
                let location = block_location(first, i);
                let at = walk.base + u64::from(location.offset_bytes());
                let right = |bytes: &[u8]| block_crc(bytes) == crc;
                if self.held(at, BLOCK_BYTES as usize, &right) {
                    continue;
                }
                let block = Lba(op.block.0 + i as u64);
                let version = Version { timeline: op.timeline, block, seq: op.seq, location };
                if self.map.still_names(&version) {
                    self.repair(version, crc, at);
                }
            }
        }
    }

    /// Homes are written over one by one: what is in one may be no batch on any copy, and copies
    /// may be right and not the same; the map knows which it names.
    fn homes(&mut self, walk: &Walk<'_>, range: Range<u32>) -> u32 {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("at most 32 MiB");
        let head = header_bytes(BatchKind::Relocated, 1, 1);
        let home = (head + BLOCK_BYTES as u32) as usize;
        let mut offset = range.start;
        while offset < range.end && offset as usize + home <= zone_bytes {
            let at = walk.base + u64::from(offset);
            let right = |bytes: &[u8]| {
                let Ok(batch) = Batch::decode(bytes) else { return false };
                let mut crcs = batch.descriptors().flat_map(|op| op.crcs().collect::<Vec<_>>());
                belongs(&batch, walk.header, offset as usize, zone_bytes)
                    && crcs.all(|crc| crc == block_crc(&bytes[head as usize..]))
            };
            let is_known = self.held(at, home, &right);
            let is_like = |bytes: &[u8]| peek_header_bytes(bytes).is_ok();
            let looks = self.windows.any(at, home, &is_like);
            if (!is_known && looks) || (is_known && !self.windows.is_same(at, home)) {
                self.suspect(walk.header.segment, offset..offset + home as u32);
            }
            offset += home as u32;
        }
        // The rest of the zone holds no home.
        if offset as usize + home > zone_bytes { zone_bytes as u32 } else { offset }
    }

    fn packs(&mut self, walk: &Walk<'_>, range: Range<u32>) -> u32 {
        let store = self.store;
        let (mut offset, mut gap) = (range.start, range.start);
        while offset < range.end {
            let Some(header) = self.pack_header(walk, offset) else {
                offset += PACK_ALIGNMENT;
                continue;
            };
            self.gap(walk, gap..offset, true);
            let total = header.total_bytes();
            let right = |bytes: &[u8]| store.is_pack(bytes, &header.place);
            if !self.held(walk.base + u64::from(offset), total, &right) {
                self.suspect(walk.header.segment, offset..offset + total as u32);
            }
            offset += total as u32;
            gap = offset;
        }
        self.gap(walk, gap..offset, false);
        offset
    }

    fn pack_header(&mut self, walk: &Walk<'_>, offset: u32) -> Option<PackHeader> {
        let room = self.store.zone_bytes - u64::from(offset);
        if (PACK_HEADER_BYTES as u64) > room {
            return None;
        }
        let at = walk.base + u64::from(offset);
        self.windows.load(at, PACK_HEADER_BYTES);
        (0..self.windows.copies()).find_map(|copy| {
            let bytes = self.windows.get(copy, at, PACK_HEADER_BYTES);
            let header = PackHeader::decode(bytes).ok()?;
            let belongs = is_at(&header.place, (walk.header.segment, offset, walk.header.nonce));
            (belongs && header.total_bytes() as u64 <= room).then_some(header)
        })
    }

    /// Looks at pages of a run of a timeline; those that are wrong on every copy count as lost.
    /// Suspects that its entries name are looked at.
    pub fn pages(
        &mut self,
        (timeline, run): (u64, u64),
        (extents, pages): (&PageExtents, Range<u32>),
        wants: &dyn Fn(u64) -> bool,
    ) {
        let address = PageAddress::new(self.store.pool_id, run, 0);
        let mut first = 0;
        for extent in &extents.list {
            let base = self.store.zone_offset(extent.zone);
            let start = base + u64::from(extent.first) * PAGE_BYTES as u64;
            self.windows.begin(start + u64::from(extent.count) * PAGE_BYTES as u64);
            for page in pages.start.max(first)..pages.end.min(first + extent.count) {
                let at = start + u64::from(page - first) * PAGE_BYTES as u64;
                if wants(at) {
                    self.page(timeline, address.with_page(page), (run, page), at);
                }
            }
            first += extent.count;
        }
    }

    fn page(&mut self, timeline: u64, address: PageAddress, (run, page): (u64, u32), at: u64) {
        let is_right = |bytes: &[u8]| bytes.first_chunk().is_some_and(|b| is_page(b, address));
        if !self.held(at, PAGE_BYTES, &is_right) {
            return self.lose(Loss::Page { run, page }, self.is_asked(at, PAGE_BYTES));
        }
        if self.suspects.as_ref().is_none_or(Suspects::is_empty) {
            return;
        }
        let mut bytes = Box::new([0; PAGE_BYTES]);
        if self.store.device.read_at(at, &mut bytes[..]).is_err() {
            return;
        }
        let Ok(leaf) = LeafPage::decode(bytes, address) else { return };
        for entry in (0..leaf.len()).map(|i| leaf.get(i)) {
            let is_suspect = |s: &Suspects| s.has(entry.location);
            if entry.key.level == 0 && self.suspects.as_ref().is_some_and(is_suspect) {
                self.entry(timeline, &entry);
            }
        }
    }

    /// Looks at what an entry names.
    fn entry(&mut self, timeline: u64, entry: &Entry) {
        let location = entry.location;
        let Some(segment) = self.store.segment(location.segment()) else { return };
        let at = self.store.zone_offset(segment.zone) + u64::from(location.offset_bytes());
        let (block, seq) = (entry.key.first_block(), entry.seq);
        let version = Version { timeline, block, seq, location };
        if segment.content() == Content::Pack {
            if self.store.has_packed(location, (block.0, seq), entry.crc) {
                return;
            }
            // In a pack one version is computed from others: it is not written again alone.
            let like = (block.0, entry.crc);
            if self.store.is_elsewhere(self.map.alike(like), like, location) {
                self.report.wrong += 1;
                self.report.misread += 1;
                self.report.elsewhere += 1;
            } else {
                self.lose(Loss::Block(version), true);
            }
        } else if !self.range(at, BLOCK_BYTES as usize, &|bytes| block_crc(bytes) == entry.crc) {
            self.repair(version, entry.crc, at);
        }
    }
}

/// A segment that is gone over.
struct Walk<'w> {
    header: &'w SegmentHeader,
    /// Where it begins on the device.
    base: u64,
    /// Up to where it was written, if that is known.
    known: Option<u32>,
    /// Writes up to this seq have ended.
    stable: Seq,
}
