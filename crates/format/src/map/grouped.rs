//! Extent leaf pages: entries of a run grouped by the write and the extent that they are of.
//!
//! 1. A page holds the entries of a stretch of the run's order, as a leaf page does; only within
//!    the page are they grouped. So decoding needs no page but one, and the order is exact.
//! 2. Records are in the order of (extent, seq descending, first block).

use units::Seq;

use super::entry::{Entry, Key, layout};
use super::places::{Places, Stride};
use crate::error::Result;
use crate::field::{get, get_u32, put, verify_zero_bytes};
use crate::location::Location;
use crate::page::{PAGE_BYTES, PageAddress, PageType, layout as header, zeroed_page};

pub(super) const EXTENT_LEAF: PageType = PageType {
    structure: "extent leaf page",
    magic: u32::from_le_bytes(*b"HLFX"),
    salt: u32::from_le_bytes(*b"lfex"),
    record_bytes: layout::RECORD_BYTES,
};

/// Bytes that records can have in a page.
const RECORDS_BYTES_MAX: usize = PAGE_BYTES - header::BYTES;
/// Bytes of a checksum.
const CRC_BYTES: usize = 4;
/// Blocks that a record tells of, at most.
const BLOCKS_MAX: usize = units::MapExtent::BLOCKS_MAX;
/// The most entries that an extent leaf page holds: holes of whole extents.
pub const GROUPED_ENTRIES_MAX: usize = EXTENT_LEAF.records_max() * BLOCKS_MAX;
const _: () = assert!(GROUPED_ENTRIES_MAX == 3248 && EXTENT_LEAF.records_max() < 1 << 12);

/// The blocks of one extent that one write left.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The extent's first block, or a range of a higher level.
    key: Key,
    seq: Seq,
    places: Places,
    /// Of the blocks in the mask, in order.
    crcs: [u32; BLOCKS_MAX],
}

impl Record {
    fn bytes(&self) -> usize {
        record_bytes(&self.places)
    }

    fn encode(&self, b: &mut [u8]) {
        let kind = u64::from(self.key.level) | (self.places.stride as u64) << 4;
        put(b, layout::RECORD_KIND, kind);
        put(b, layout::RECORD_INDEX, self.key.index);
        put(b, layout::RECORD_SEQ, self.seq.0);
        put(b, layout::RECORD_LOCATION, self.places.first.0);
        put(b, layout::RECORD_MASK, u64::from(self.places.mask));
        let crcs = b[layout::RECORD_BYTES..].chunks_exact_mut(CRC_BYTES);
        crcs.zip(self.crcs).for_each(|(bytes, crc)| bytes.copy_from_slice(&crc.to_le_bytes()));
    }
}

fn record_bytes(places: &Places) -> usize {
    let crcs = if places.first.is_hole() { 0 } else { places.mask.count_ones() as usize };
    layout::RECORD_BYTES + crcs * CRC_BYTES
}

/// Gathers the records of one page.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    records: Vec<Record>,
    /// The first record of the extent that is being gathered.
    open: usize,
    bytes: usize,
}

impl Grouping {
    /// Takes the next entry in order, of an extent of so many blocks; false if the page is full.
    pub(super) fn push(&mut self, entry: &Entry, extent_blocks: usize) -> bool {
        let place = EXTENT_LEAF.place(PageAddress::new(0, 0, 0));
        entry.verify(place).expect("an entry that we write is in range");
        let block = match entry.key.level {
            0 => (entry.key.index % extent_blocks as u64) as usize,
            _ => 0,
        };
        let key = Key { index: entry.key.index - block as u64, ..entry.key };
        if self.records.get(self.open).is_some_and(|record| record.key != key) {
            self.open = self.records.len();
        }
        let seq_at = self.records[self.open..].partition_point(|record| record.seq > entry.seq);
        let mut at = self.open + seq_at;
        let crc_bytes = if entry.location.is_hole() { 0 } else { CRC_BYTES };
        while let Some(record) = self.records.get_mut(at).filter(|r| r.seq == entry.seq) {
            if let Some(joined) = record.places.with(block, entry.location) {
                if self.bytes + crc_bytes > RECORDS_BYTES_MAX {
                    return false;
                }
                record.crcs[record.places.mask.count_ones() as usize] = entry.crc;
                record.places = joined;
                self.bytes += crc_bytes;
                return true;
            }
            at += 1;
        }
        if self.bytes + layout::RECORD_BYTES + crc_bytes > RECORDS_BYTES_MAX {
            return false;
        }
        let mut crcs = [0; BLOCKS_MAX];
        crcs[0] = entry.crc;
        let places = Places::one(block, entry.location);
        self.records.insert(at, Record { key, seq: entry.seq, places, crcs });
        self.bytes += layout::RECORD_BYTES + crc_bytes;
        true
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        (self.open, self.bytes) = (0, 0);
    }

    pub(super) fn encode(&self, address: PageAddress) -> Box<[u8; PAGE_BYTES]> {
        let mut bytes = zeroed_page();
        let mut offset = header::BYTES;
        for record in &self.records {
            let end = offset + record.bytes();
            record.encode(&mut bytes[offset..end]);
            offset = end;
        }
        assert!(offset == header::BYTES + self.bytes, "{offset} bytes of {}", self.bytes);
        EXTENT_LEAF.seal(&mut bytes, address, self.records.len());
        bytes
    }
}

/// A verified extent leaf page, with the order of its entries.
#[derive(Clone, Debug)]
pub(super) struct GroupedPage {
    bytes: Box<[u8; PAGE_BYTES]>,
    /// Where each record is.
    offsets: Box<[u16]>,
    /// Entries in order: number of the record, times 16, and the block in its extent.
    order: Box<[u16]>,
}

impl GroupedPage {
    /// Verifies a page and every entry of it.
    pub(super) fn decode(
        bytes: Box<[u8; PAGE_BYTES]>,
        address: PageAddress,
    ) -> Result<GroupedPage> {
        let count = EXTENT_LEAF.verify_header(&bytes, address)?;
        let place = EXTENT_LEAF.place(address);
        let mut offsets = Vec::with_capacity(count);
        let mut end = header::BYTES;
        let mut previous = None;
        for i in 0..count {
            let start = end;
            end += layout::RECORD_BYTES;
            place.require(end <= PAGE_BYTES, "a record within the page", i)?;
            let record = &bytes[start..end];
            let (key, seq) = (decode_key(record), decode_seq(record));
            let stride = Stride::from_number(record[layout::RECORD_KIND.offset] >> 4);
            place.require(stride.is_some(), "a stride of 0 to 2", record[0] >> 4)?;
            let places = decode_places(record);
            let holds = match key.level {
                0 => key.index.is_multiple_of(2),
                _ => places.mask == 1 && places.first.is_hole(),
            };
            let holds = holds && places.is_valid();
            place.require(holds, "blocks of an extent within a segment", key.index)?;
            end += record_bytes(&places) - layout::RECORD_BYTES;
            place.require(end <= PAGE_BYTES, "checksums within the page", i)?;
            let rank = (key, std::cmp::Reverse(seq), places.mask.trailing_zeros());
            place.require(previous < Some(rank), "records in order", i)?;
            previous = Some(rank);
            offsets.push(u16::try_from(start).expect("within a page"));
        }
        verify_zero_bytes(place, &bytes[end..], end)?;
        let mut page = GroupedPage { bytes, offsets: offsets.into(), order: Box::default() };
        page.order = page.work_out_order();
        let mut previous = None;
        for i in 0..page.len() {
            let entry = page.get(i);
            entry.verify(place)?;
            place.require(previous < Some(entry.order()), "entries in order", i)?;
            previous = Some(entry.order());
        }
        Ok(page)
    }

    /// Of each extent block by block, from the newest record that tells of it to the oldest.
    fn work_out_order(&self) -> Box<[u16]> {
        let mut order = Vec::new();
        let mut start = 0;
        while start < self.offsets.len() {
            let key = decode_key(self.record(start));
            let same =
                (start..self.offsets.len()).take_while(|r| decode_key(self.record(*r)) == key);
            let end = start + same.count();
            let mask = |record| get_u32(self.record(record), layout::RECORD_MASK);
            for block in 0..BLOCKS_MAX {
                let tells = |record: &usize| mask(*record) >> block & 1 == 1;
                order.extend((start..end).filter(tells).map(|r| (r * BLOCKS_MAX + block) as u16));
            }
            start = end;
        }
        order.into()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        PAGE_BYTES + 2 * (self.offsets.len() + self.order.len())
    }

    #[inline]
    pub(super) fn get(&self, i: usize) -> Entry {
        let (record, block) = self.place_of(i);
        let places = decode_places(record);
        let location = places.location(block);
        let crc = if location.is_hole() {
            0
        } else {
            let at = layout::RECORD_BYTES + CRC_BYTES * places.position(block);
            u32::from_le_bytes(record[at..at + CRC_BYTES].try_into().expect("four bytes"))
        };
        let key = decode_key(record);
        let key = Key { index: key.index + block as u64, ..key };
        Entry { key, seq: decode_seq(record), location, crc }
    }

    /// Key and seq of entry `i`.
    #[inline]
    pub(super) fn key_and_seq(&self, i: usize) -> (Key, Seq) {
        let (record, block) = self.place_of(i);
        let key = decode_key(record);
        (Key { index: key.index + block as u64, ..key }, decode_seq(record))
    }

    /// The record that tells of entry `i`, and the block of its extent.
    #[inline(always)]
    fn place_of(&self, i: usize) -> (&[u8], usize) {
        let place = usize::from(self.order[i]);
        (self.record(place / BLOCKS_MAX), place % BLOCKS_MAX)
    }

    #[inline(always)]
    fn record(&self, record: usize) -> &[u8] {
        &self.bytes[usize::from(self.offsets[record])..]
    }
}

#[inline(always)]
fn decode_key(record: &[u8]) -> Key {
    let level = record[layout::RECORD_KIND.offset] & 0xf;
    Key { level, index: get(record, layout::RECORD_INDEX) }
}

#[inline(always)]
fn decode_seq(record: &[u8]) -> Seq {
    Seq(get(record, layout::RECORD_SEQ))
}

#[inline(always)]
fn decode_places(record: &[u8]) -> Places {
    let stride = Stride::from_number(record[layout::RECORD_KIND.offset] >> 4);
    Places {
        first: Location(get(record, layout::RECORD_LOCATION)),
        stride: stride.unwrap_or_default(),
        mask: get_u32(record, layout::RECORD_MASK) as u16,
    }
}
