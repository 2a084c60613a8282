//! Leaf pages: up to 184 entries of a run, in order.

use std::fmt::Write as _;

use units::Seq;

use super::{Entry, Key, decode_key, layout};
use crate::error::Result;
use crate::field::get;
use crate::page::{PAGE_BYTES, PageAddress, PageType, zeroed_page};

const LEAF: PageType = PageType {
    structure: "leaf page",
    magic: u32::from_le_bytes(*b"HLEF"),
    salt: u32::from_le_bytes(*b"leaf"),
    record_bytes: layout::BYTES,
};

/// The most entries that a leaf page holds.
pub const LEAF_ENTRIES_MAX: usize = LEAF.records_max();
const _: () = assert!(LEAF_ENTRIES_MAX == 184);

/// A verified leaf page. It is small to keep: the page itself, and the number of its entries.
#[derive(Clone, Debug)]
pub struct LeafPage {
    bytes: Box<[u8; PAGE_BYTES]>,
    count: usize,
}

impl LeafPage {
    /// The page of these entries. Asserts that they are 1 to 184, sound, and in order.
    #[must_use]
    pub fn encode(address: PageAddress, entries: &[Entry]) -> Box<[u8; PAGE_BYTES]> {
        assert!(entries.len() <= LEAF_ENTRIES_MAX, "{} entries", entries.len());
        let mut bytes = zeroed_page();
        for (i, entry) in entries.iter().enumerate() {
            entry.verify(LEAF.place(address)).expect("an entry that we write is in range");
            assert!(i == 0 || entries[i - 1].order() < entry.order(), "entries in order");
            entry.encode(&mut bytes[LEAF.record(i)]);
        }
        LEAF.seal(&mut bytes, address, entries.len());
        bytes
    }

    /// Verifies a page and every entry of it.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, or `Invalid` (also if it is of another address).
    pub fn decode(bytes: Box<[u8; PAGE_BYTES]>, address: PageAddress) -> Result<LeafPage> {
        let count = LEAF.verify(&bytes, address)?;
        let page = LeafPage { bytes, count };
        let place = LEAF.place(address);
        let mut previous = None;
        for i in 0..count {
            let entry = page.get(i);
            entry.verify(place)?;
            let ascends = previous.is_none_or(|previous| previous < entry.order());
            place.require(ascends, "entries in order", i)?;
            previous = Some(entry.order());
        }
        Ok(page)
    }

    /// The number of entries, at least 1.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a leaf is never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Entry `i`. Panics if there are not so many.
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> Entry {
        Entry::decode(self.record(i))
    }

    /// The index of the first entry at or after (`key`, `seq`): of this key with this or a lower
    /// seq, or of a later key. `len()` if there is none.
    #[inline]
    #[must_use]
    pub fn seek(&self, key: Key, seq: Seq) -> usize {
        self.seek_from(0, key, seq)
    }

    /// As `seek`, for callers that know that all entries before `from` are before the place.
    #[inline]
    #[must_use]
    pub fn seek_from(&self, from: usize, key: Key, seq: Seq) -> usize {
        let (mut low, mut high) = (from, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let record = self.record(middle);
            let found = decode_key(record);
            let is_before = found < key || (found == key && Seq(get(record, layout::SEQ)) > seq);
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The entries as text, one a line.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text = format!("leaf page of {} entries\n", self.count);
        for i in 0..self.count {
            let Entry { key, seq, location, crc } = self.get(i);
            writeln!(text, "  {key}, seq {seq}: {location}, crc {crc:#010x}")
                .expect("a String takes all");
        }
        text
    }

    #[inline(always)]
    fn record(&self, i: usize) -> &[u8] {
        assert!(i < self.count, "entry {i} of {}", self.count);
        &self.bytes[LEAF.record(i)]
    }
}
