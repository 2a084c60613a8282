//! Leaf pages: up to 184 entries of a run, in order; or more of them, grouped (`grouped`).

use units::Seq;

use super::entry::{Entry, Key, decode_key, layout};
use super::grouped::{EXTENT_LEAF, GroupedPage};
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

/// A verified leaf page, of either form. It is small to keep: the page itself, and where its
/// entries are if they are grouped.
#[derive(Clone, Debug)]
pub struct LeafPage(Form);

#[derive(Clone, Debug)]
enum Form {
    Plain(PlainPage),
    Grouped(GroupedPage),
}

/// The page, and the number of its entries.
#[derive(Clone, Debug)]
struct PlainPage {
    bytes: Box<[u8; PAGE_BYTES]>,
    count: usize,
}

impl LeafPage {
    /// The page of these entries. Asserts that they are 1 to 184, sound, and in order.
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
        if bytes[..4] == EXTENT_LEAF.magic.to_le_bytes() {
            return Ok(LeafPage(Form::Grouped(GroupedPage::decode(bytes, address)?)));
        }
        let count = LEAF.verify(&bytes, address)?;
        let page = PlainPage { bytes, count };
        let place = LEAF.place(address);
        let mut previous = None;
        for i in 0..count {
            let entry = page.get(i);
            entry.verify(place)?;
            let ascends = previous.is_none_or(|previous| previous < entry.order());
            place.require(ascends, "entries in order", i)?;
            previous = Some(entry.order());
        }
        Ok(LeafPage(Form::Plain(page)))
    }

    /// The number of entries, at least 1.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a leaf is never empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(page) => page.count,
            Form::Grouped(page) => page.len(),
        }
    }

    /// Whether its entries are grouped by extents.
    pub fn is_grouped(&self) -> bool {
        matches!(self.0, Form::Grouped(_))
    }

    /// Bytes of memory on the heap.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Plain(_) => PAGE_BYTES,
            Form::Grouped(page) => page.memory_bytes(),
        }
    }

    /// Entry `i`. Panics if there are not so many.
    #[inline]
    pub fn get(&self, i: usize) -> Entry {
        match &self.0 {
            Form::Plain(page) => page.get(i),
            Form::Grouped(page) => page.get(i),
        }
    }

    /// The index of the first entry at or after (`key`, `seq`): of this key with this or a lower
    /// seq, or of a later key. `len()` if there is none.
    #[inline]
    pub fn seek(&self, key: Key, seq: Seq) -> usize {
        self.seek_from(0, key, seq)
    }

    /// As `seek`, for callers that know that all entries before `from` are before the place.
    #[inline]
    pub fn seek_from(&self, from: usize, key: Key, seq: Seq) -> usize {
        let is_before = |(found, of): (Key, Seq)| found < key || (found == key && of > seq);
        match &self.0 {
            Form::Plain(page) => search(from, page.count, |i| is_before(page.key_and_seq(i))),
            Form::Grouped(page) => search(from, page.len(), |i| is_before(page.key_and_seq(i))),
        }
    }
}

/// The first of `low..high` that is not before the place.
#[inline]
fn search(mut low: usize, mut high: usize, is_before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl PlainPage {
    #[inline]
    fn get(&self, i: usize) -> Entry {
        Entry::decode(self.record(i))
    }

    #[inline]
    fn key_and_seq(&self, i: usize) -> (Key, Seq) {
        let record = self.record(i);
        (decode_key(record), Seq(get(record, layout::SEQ)))
    }

    #[inline(always)]
    fn record(&self, i: usize) -> &[u8] {
        assert!(i < self.count, "entry {i} of {}", self.count);
        &self.bytes[LEAF.record(i)]
    }
}
