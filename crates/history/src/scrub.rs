//! Looking at every copy of what is stored, before somebody needs it.
//!
//! What is stored says itself what it should be: batches and packs hold the checksums of what is in
//! them, pages of runs their own. So a zone can be looked at from its beginning to its end, without
//! the map. Of what is wrong on some copies the right one is written over the others; what is wrong
//! on all may be what a power cut tore and nobody needs: the caller is asked.

use block::Right;
use format::batch::{Batch, BatchKind, DescriptorKind, header_bytes};
use format::checksum::block_crc;
use format::location::Location;
use format::map::LeafPage;
use format::pack::PackHeader;
use format::run::{IndexPage, RunFooter};
use format::segment::SegmentHeader;
use format::time::TimePage;
use format::{PAGE_BYTES, PageAddress};
use units::{BLOCK_BYTES, Lba, Seq};

use crate::scan::belongs;
use crate::{
    Content, Error, PageExtents, Result, Segment, Store, block_location, read_header, scan_segment,
};

/// Whether bytes are a page of a run, of whatever kind, at that address.
fn is_page(bytes: &[u8; PAGE_BYTES], address: PageAddress) -> bool {
    LeafPage::decode(Box::new(*bytes), address).is_ok()
        || IndexPage::decode(bytes, address, &mut Vec::new()).is_ok()
        || TimePage::decode(Box::new(*bytes), address).is_ok()
        || RunFooter::decode(bytes, address).is_ok()
}

/// What a scrub has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Ranges of which a copy was wrong or could not be read.
    pub wrong: u64,
    /// Of these: written again from a copy that was right.
    pub healed: u64,
    /// Blocks that are needed and wrong on every copy.
    pub lost: u64,
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

/// A scrub under way.
pub struct Scrub<'s> {
    store: &'s Store,
    /// Whether a version that is wrong on every copy is needed.
    is_needed: &'s dyn Fn(&Version) -> bool,
    /// What it has seen.
    pub report: ScrubReport,
}

impl<'s> Scrub<'s> {
    /// A scrub that has seen nothing.
    #[must_use]
    pub fn new(store: &'s Store, is_needed: &'s dyn Fn(&Version) -> bool) -> Scrub<'s> {
        Scrub { store, is_needed, report: ScrubReport::default() }
    }

    /// Looks at all copies of a range; says whether one is right now.
    pub fn range(&mut self, at: u64, length: usize, right: &Right<'_>) -> bool {
        let device = &self.store.device;
        let mut bytes = vec![0; length];
        let (mut wrong, mut is_known) = (false, false);
        for copy in 0..device.copies(at, length as u64) {
            self.report.read_bytes += length as u64;
            let is_right = device.read_copy(copy, at, &mut bytes).is_ok() && right(&bytes);
            wrong |= !is_right;
            is_known |= is_right;
        }
        if wrong && is_known {
            self.report.wrong += 1;
            self.report.healed += u64::from(self.store.heal(at, &mut bytes, right));
        }
        is_known
    }

    /// Looks at everything in a segment.
    ///
    /// # Errors
    /// Those of the device while it is scanned.
    pub fn segment(&mut self, segment: &Segment) -> Result<()> {
        let Some(header) = read_header(self.store, segment.zone, segment.number)? else {
            return Ok(());
        };
        let base = self.store.zone_offset(segment.zone);
        let is_header =
            |bytes: &[u8]| SegmentHeader::decode(bytes).is_ok_and(|found| found == header);
        self.range(base, format::segment::SEGMENT_HEADER_BYTES, &is_header);
        match segment.content() {
            Content::Pack => self.packs(segment, &header),
            Content::Home => self.homes(&header, base),
            Content::Logged | Content::Shared => self.batches(&header, base),
        }
    }

    fn batches(&mut self, header: &SegmentHeader, base: u64) -> Result<()> {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("at most 32 MiB");
        scan_segment(self.store, header, |batch| {
            let offset = batch.header.offset as usize;
            let right = |bytes: &[u8]| {
                Batch::decode(bytes).is_ok_and(|b| belongs(&b, header, offset, zone_bytes))
            };
            self.range(base + offset as u64, batch.header_bytes as usize, &right);
            for op in batch.descriptors().filter(|op| op.kind == DescriptorKind::Data) {
                let first = Location::new(header.segment, batch.header.offset + op.payload_offset);
                for (i, crc) in op.crcs().enumerate() {
                    let location = block_location(first, i);
                    let at = base + u64::from(location.offset_bytes());
                    let right = |bytes: &[u8]| block_crc(bytes) == crc;
                    if self.range(at, BLOCK_BYTES as usize, &right) {
                        continue;
                    }
                    let version = Version {
                        timeline: op.timeline,
                        block: Lba(op.block.0 + i as u64),
                        seq: op.seq,
                        location,
                    };
                    if (self.is_needed)(&version) {
                        self.report.wrong += 1;
                        self.report.lost += 1;
                    }
                }
            }
            Ok(())
        })
        .map(drop)
    }

    /// Homes are written over one by one: what is in one may be no batch on any copy.
    fn homes(&mut self, header: &SegmentHeader, base: u64) -> Result<()> {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("at most 32 MiB");
        let first = format::segment::SEGMENT_HEADER_BYTES;
        let header_bytes = header_bytes(BatchKind::Relocated, 1, 1) as usize;
        let home = header_bytes + BLOCK_BYTES as usize;
        for offset in (first..).step_by(home).take_while(|offset| offset + home <= zone_bytes) {
            let right = |bytes: &[u8]| {
                let Ok(batch) = Batch::decode(bytes) else { return false };
                let mut crcs = batch.descriptors().flat_map(|op| op.crcs().collect::<Vec<_>>());
                belongs(&batch, header, offset, zone_bytes)
                    && crcs.all(|crc| crc == block_crc(&bytes[header_bytes..]))
            };
            self.range(base + offset as u64, home, &right);
        }
        Ok(())
    }

    fn packs(&mut self, segment: &Segment, header: &SegmentHeader) -> Result<()> {
        let base = self.store.zone_offset(segment.zone);
        let store = self.store;
        store.scan_packs((segment.number, segment.zone, header.nonce), |place, _| {
            let at = base + u64::from(place.offset);
            let mut bytes = vec![0; format::pack::PACK_HEADER_BYTES];
            store.device.read_at(at, &mut bytes)?;
            let total = PackHeader::decode(&bytes).map_err(Error::from)?.total_bytes();
            self.range(at, total, &|bytes| store.is_pack(bytes, place));
            Ok(())
        })?;
        Ok(())
    }

    /// Looks at the pages of a run; those that are wrong on every copy count as lost.
    pub fn pages(&mut self, run: u64, extents: &PageExtents, wants: &dyn Fn(u64) -> bool) {
        let address = PageAddress::new(self.store.pool_id, run, 0);
        for (page, at) in extents.places(self.store).filter(|&(_, at)| wants(at)) {
            let address = address.with_page(page);
            let is_right = |bytes: &[u8]| bytes.first_chunk().is_some_and(|b| is_page(b, address));
            if !self.range(at, PAGE_BYTES, &is_right) {
                self.report.wrong += 1;
                self.report.lost += 1;
            }
        }
    }
}
