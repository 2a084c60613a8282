//! The time index: which seq the log had reached at what time, and how much had been written.
//! `docs/format/time-run.md`.
//!
//! 1. Neither time nor seq ever falls from one entry to the next, nor do the totals.

use units::{Seq, WallTime};

use crate::error::{Place, Result};
use crate::field::codec;
use crate::page::{PAGE_BYTES, PageAddress, PageType, zeroed_page};

/// Where an entry's fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// An entry.
    pub const BYTES: usize = 32;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        TIME = "time", 0, 8;
        SEQ = "seq", 8, 8;
        BYTES_TOTAL = "bytes_total", 16, 8;
        FLUSHES_TOTAL = "flushes_total", 24, 8;
    }
}

const TIME: PageType = PageType {
    structure: "time page",
    magic: u32::from_le_bytes(*b"HTIM"),
    salt: u32::from_le_bytes(*b"time"),
    record_bytes: layout::BYTES,
};

/// The most entries that a time page holds.
pub const TIME_ENTRIES_MAX: usize = TIME.records_max();
const _: () = assert!(TIME_ENTRIES_MAX == 127);

/// How far the log was at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TimeEntry {
    /// The time of the write with this seq.
    pub time: WallTime,
    /// The seq.
    pub seq: Seq,
    /// Bytes written in the log up to and with this seq.
    pub bytes_total: u64,
    /// Flushes asked for up to then.
    pub flushes_total: u64,
}

codec! {
    TimeEntry:
    time = TIME, seq = SEQ, bytes_total = BYTES_TOTAL, flushes_total = FLUSHES_TOTAL;
}

impl TimeEntry {
    /// Whether `next` may follow.
    pub fn may_precede(&self, next: &TimeEntry) -> bool {
        self.time <= next.time
            && self.seq <= next.seq
            && self.bytes_total <= next.bytes_total
            && self.flushes_total <= next.flushes_total
    }

    fn verify(&self, place: Place) -> Result<()> {
        place.require(self.seq <= Seq::MAX, "a seq below 2^48", self.seq)
    }
}

/// A verified page of the time index.
#[derive(Clone, Debug)]
pub struct TimePage {
    bytes: Box<[u8; PAGE_BYTES]>,
    count: usize,
}

impl TimePage {
    /// The page of these entries. Asserts that they are 1 to 127, and in order.
    pub fn encode(address: PageAddress, entries: &[TimeEntry]) -> Box<[u8; PAGE_BYTES]> {
        assert!(entries.len() <= TIME_ENTRIES_MAX, "{} entries", entries.len());
        let mut bytes = zeroed_page();
        for (i, entry) in entries.iter().enumerate() {
            entry.verify(TIME.place(address)).expect("an entry that we write is in range");
            assert!(i == 0 || entries[i - 1].may_precede(entry), "entries in order");
            let record = &mut bytes[TIME.record(i)];
            entry.put_fields(record);
        }
        TIME.seal(&mut bytes, address, entries.len());
        bytes
    }

    /// Verifies a page and every entry of it.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, or `Invalid` (also if it is of another address).
    pub fn decode(bytes: Box<[u8; PAGE_BYTES]>, address: PageAddress) -> Result<TimePage> {
        let count = TIME.verify(&bytes, address)?;
        let page = TimePage { bytes, count };
        let place = TIME.place(address);
        for i in 0..count {
            page.get(i).verify(place)?;
            let ascends = i == 0 || page.get(i - 1).may_precede(&page.get(i));
            place.require(ascends, "entries in order", i)?;
        }
        Ok(page)
    }

    /// The number of entries, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a time page is never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Entry `i`. Panics if there are not so many.
    pub fn get(&self, i: usize) -> TimeEntry {
        assert!(i < self.count, "entry {i} of {}", self.count);
        TimeEntry::get_fields(&self.bytes[TIME.record(i)])
    }
}
