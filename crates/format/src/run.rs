//! Map runs: leaf pages, then index pages, then a footer. `docs/format/map-run.md`.
//!
//! 1. The footer is the last page that is written; a run without a sound footer is no run.
//! 2. The index has the first key and seq of every leaf, in order.

use units::{MapExtent, Seq};

use crate::checksum::{put_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{Field, codec, get, get_u32, put, verify_zero};
use crate::map::{GROUPED_ENTRIES_MAX, Key, LEAF_ENTRIES_MAX};
use crate::page::{PAGE_BYTES, PageAddress, PageType, zeroed_page};

/// Where the footer's fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The footer.
    pub const BYTES: usize = 4096;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 4;
        CRC = "crc", 4, 4;
        POOL_TAG = "pool_tag", 8, 8;
        RUN = "run", 16, 8;
        PAGE = "page", 24, 4;
        FORMAT_VERSION = "format_version", 28, 4;
        TIMELINE = "timeline", 32, 8;
        LEAF_PAGES = "leaf_pages", 40, 4;
        INDEX_PAGES = "index_pages", 44, 4;
        ENTRIES = "entries", 48, 8;
        KEY_FIRST_LEVEL = "key_first_level", 56, 1;
        KEY_FIRST_INDEX = "key_first_index", 57, 5;
        KEY_LAST_LEVEL = "key_last_level", 62, 1;
        KEY_LAST_INDEX = "key_last_index", 63, 5;
        INDEX_CRC = "index_crc", 68, 4;
        SEQ_FIRST = "seq_first", 72, 8;
        SEQ_LAST = "seq_last", 80, 8;
        EXTENT_BLOCKS = "extent_blocks", 88, 1;
        ZERO = "zero", 89, 4007;
    }

    /// An entry of an index page.
    pub const INDEX_BYTES: usize = 12;
    fields! {
        /// In order.
        INDEX_FIELDS[INDEX_BYTES]:
        INDEX_LEVEL = "level", 0, 1;
        INDEX_INDEX = "index", 1, 5;
        INDEX_SEQ = "seq", 6, 6;
    }
}

const MAGIC: u32 = u32::from_le_bytes(*b"HRUN");
const SALT: u32 = u32::from_le_bytes(*b"runf");

const INDEX: PageType = PageType {
    structure: "index page",
    magic: u32::from_le_bytes(*b"HIDX"),
    salt: u32::from_le_bytes(*b"indx"),
    record_bytes: layout::INDEX_BYTES,
};

/// The most leaves that an index page tells of.
pub const INDEX_ENTRIES_MAX: usize = INDEX.records_max();
const _: () = assert!(INDEX_ENTRIES_MAX == 338);

/// A run's footer: its last page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFooter {
    /// The timeline whose writes it tells of.
    pub timeline: u64,
    /// Leaf pages: pages 0 and on.
    pub leaf_pages: u32,
    /// Index pages, after the leaves.
    pub index_pages: u32,
    /// Entries in all leaves.
    pub entries: u64,
    /// The first entry's key.
    pub key_first: Key,
    /// The last entry's key.
    pub key_last: Key,
    /// The smallest seq of an entry.
    pub seq_first: Seq,
    /// The largest seq of an entry.
    pub seq_last: Seq,
    /// The plain CRC32C of all index pages.
    pub index_crc: u32,
    /// The unit in which its leaves keep entries.
    pub extent: MapExtent,
}

codec! {
    RunFooter:
    timeline = TIMELINE, leaf_pages = LEAF_PAGES, index_pages = INDEX_PAGES, entries = ENTRIES,
    seq_first = SEQ_FIRST, seq_last = SEQ_LAST, index_crc = INDEX_CRC;
    key_first: Key, key_last: Key, extent: MapExtent
}

impl RunFooter {
    /// Pages of the whole run.
    pub fn pages(&self) -> u32 {
        self.leaf_pages + self.index_pages + 1
    }

    /// The footer's bytes. Asserts that every field is in its range, and that `address` is that of
    /// the run's last page.
    pub fn encode(&self, address: PageAddress) -> Box<[u8; PAGE_BYTES]> {
        self.verify(place(address), address).expect("a footer that we write is in range");
        let mut page = zeroed_page();
        let b = &mut page[..];
        put(b, layout::MAGIC, u64::from(MAGIC));
        put(b, layout::POOL_TAG, address.pool_tag);
        put(b, layout::RUN, address.run);
        put(b, layout::PAGE, u64::from(address.page));
        put(b, layout::FORMAT_VERSION, u64::from(crate::FORMAT_VERSION));
        self.put_fields(b);
        put(b, layout::KEY_FIRST_LEVEL, u64::from(self.key_first.level));
        put(b, layout::KEY_FIRST_INDEX, self.key_first.index);
        put(b, layout::KEY_LAST_LEVEL, u64::from(self.key_last.level));
        put(b, layout::KEY_LAST_INDEX, self.key_last.index);
        // Runs of single blocks are as they were before there was anything else.
        let extent_blocks = if self.extent.is_block() { 0 } else { self.extent.blocks() };
        put(b, layout::EXTENT_BLOCKS, extent_blocks as u64);
        put_crc(SALT, b, layout::CRC);
        page
    }

    /// Decodes the footer of the run that ends with the page at `address`.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version`, or `Invalid` (also if it is of another address).
    pub fn decode(b: &[u8; PAGE_BYTES], address: PageAddress) -> Result<RunFooter> {
        let place = place(address);
        place.require_magic(get(b, layout::MAGIC), u64::from(MAGIC))?;
        verify_crc(place, SALT, b, layout::CRC)?;
        place.require_version(get_u32(b, layout::FORMAT_VERSION))?;
        let found = PageAddress {
            pool_tag: get(b, layout::POOL_TAG),
            run: get(b, layout::RUN),
            page: get_u32(b, layout::PAGE),
        };
        if found != address {
            return Err(place.invalid(&format!("{address:?}"), format_args!("{found:?}")));
        }
        verify_zero(place, b, layout::ZERO)?;
        let extent_blocks = u64::from(b[layout::EXTENT_BLOCKS.offset]);
        let extent = match extent_blocks {
            0 => Some(MapExtent::BLOCK),
            1 => None,
            more => MapExtent::try_from(more * units::BLOCK_BYTES).ok(),
        };
        let unknown = || place.invalid("extents of 0, 2, 4, 8 or 16 blocks", extent_blocks);
        let key = |level: Field, index| Key { level: b[level.offset], index: get(b, index) };
        let key_first = key(layout::KEY_FIRST_LEVEL, layout::KEY_FIRST_INDEX);
        let key_last = key(layout::KEY_LAST_LEVEL, layout::KEY_LAST_INDEX);
        let extent = extent.ok_or_else(unknown)?;
        let footer = RunFooter::get_fields(b, key_first, key_last, extent);
        footer.verify(place, address)?;
        Ok(footer)
    }

    fn verify(&self, place: Place, address: PageAddress) -> Result<()> {
        let index_pages = self.leaf_pages.div_ceil(INDEX_ENTRIES_MAX as u32);
        let pages_hold = self.leaf_pages > 0
            && self.index_pages == index_pages
            && self.leaf_pages.checked_add(index_pages) == Some(address.page);
        place.require(pages_hold, "leaf and index pages before the footer", self.leaf_pages)?;
        let leaf_pages = u64::from(self.leaf_pages);
        let (most, expected) = match self.extent.is_block() {
            true => (LEAF_ENTRIES_MAX, "1 to 184 entries a leaf"),
            false => (GROUPED_ENTRIES_MAX, "1 to 3248 entries a leaf"),
        };
        let entries_hold = leaf_pages <= self.entries && self.entries <= leaf_pages * most as u64;
        place.require(entries_hold, expected, self.entries)?;
        let keys_hold = self.key_first.is_valid()
            && self.key_last.is_valid()
            && self.key_first <= self.key_last;
        place.require(keys_hold, "keys in order", format_args!("{:?}", self.key_last))?;
        let seqs_hold = Seq::ZERO < self.seq_first
            && self.seq_first <= self.seq_last
            && self.seq_last <= Seq::MAX;
        place.require(seqs_hold, "seqs in order", self.seq_last)
    }
}

fn place(address: PageAddress) -> Place {
    Place { structure: "run footer", address: u64::from(address.page) }
}

/// Where a leaf begins. Ordered as entries are: ascending keys, descending seqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The key of the leaf's first entry.
    pub key: Key,
    /// The seq of the leaf's first entry.
    pub seq: Seq,
}

impl IndexEntry {
    /// Its place in the order of entries.
    #[inline]
    #[must_use]
    pub fn order(&self) -> (Key, std::cmp::Reverse<Seq>) {
        (self.key, std::cmp::Reverse(self.seq))
    }
}

/// Pages of the index of a run. Not a value: an index is kept as a `Vec<IndexEntry>`.
pub struct IndexPage;

impl IndexPage {
    /// The page of these entries, 1 to `INDEX_ENTRIES_MAX`.
    pub fn encode(address: PageAddress, entries: &[IndexEntry]) -> Box<[u8; PAGE_BYTES]> {
        assert!(entries.len() <= INDEX_ENTRIES_MAX, "{} entries", entries.len());
        let mut bytes = zeroed_page();
        for (i, entry) in entries.iter().enumerate() {
            assert!(i == 0 || entries[i - 1].order() < entry.order(), "entries in order");
            let record = &mut bytes[INDEX.record(i)];
            put(record, layout::INDEX_LEVEL, u64::from(entry.key.level));
            put(record, layout::INDEX_INDEX, entry.key.index);
            put(record, layout::INDEX_SEQ, entry.seq.0);
        }
        INDEX.seal(&mut bytes, address, entries.len());
        bytes
    }

    /// Verifies a page and appends its entries to `index`, which holds those of the pages before.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, or `Invalid` (also if it is of another address).
    pub fn decode(
        bytes: &[u8; PAGE_BYTES],
        address: PageAddress,
        index: &mut Vec<IndexEntry>,
    ) -> Result<()> {
        let count = INDEX.verify(bytes, address)?;
        let place = INDEX.place(address);
        for i in 0..count {
            let record = &bytes[INDEX.record(i)];
            let key = Key {
                level: record[layout::INDEX_LEVEL.offset],
                index: get(record, layout::INDEX_INDEX),
            };
            let entry = IndexEntry { key, seq: Seq(get(record, layout::INDEX_SEQ)) };
            let holds = key.is_valid() && entry.seq > Seq::ZERO;
            place.require(holds, "a key and a seq", key.index)?;
            let ascends = index.last().is_none_or(|last| last.order() < entry.order());
            place.require(ascends, "entries in order", i)?;
            index.push(entry);
        }
        Ok(())
    }
}
