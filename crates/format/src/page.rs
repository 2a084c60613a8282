//! The common form of the 4096-byte pages of map runs and of the time index: a header of 32 bytes,
//! then records of one size, then zeros. `docs/format/map-run.md`.
//!
//! 1. A page holds its own address: pool, run and page number. A misdirected or lost write leaves
//!    a page of another address, or of an older run, in its place, and both are told.

use crate::checksum::{put_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{get, get_u32, put, verify_zero, verify_zero_bytes};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Where the fields of the shared header are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The header; the records follow.
    pub const BYTES: usize = 32;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 4;
        CRC = "crc", 4, 4;
        POOL_TAG = "pool_tag", 8, 8;
        RUN = "run", 16, 8;
        PAGE = "page", 24, 4;
        COUNT = "count", 28, 2;
        ZERO = "zero", 30, 2;
    }
}

/// Where a page is. Written into it, and compared when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageAddress {
    /// The lower half of the pool's identity.
    pub pool_tag: u64,
    /// The run's number, which no other run of the pool ever has.
    pub run: u64,
    /// The page's number in its run.
    pub page: u32,
}

impl PageAddress {
    /// The address of a page of a run of the pool with that identity.
    pub fn new(pool_id: u128, run: u64, page: u32) -> PageAddress {
        let pool_tag = u64::try_from(pool_id & u128::from(u64::MAX)).expect("64 bits");
        PageAddress { pool_tag, run, page }
    }

    /// The address of another page of the same run.
    #[must_use]
    pub fn with_page(self, page: u32) -> PageAddress {
        PageAddress { page, ..self }
    }
}

/// The marks that tell one type of page from another.
pub(crate) struct PageType {
    pub structure: &'static str,
    pub magic: u32,
    pub salt: u32,
    pub record_bytes: usize,
}

impl PageType {
    pub(crate) const fn records_max(&self) -> usize {
        (PAGE_BYTES - layout::BYTES) / self.record_bytes
    }

    pub(crate) fn place(&self, address: PageAddress) -> Place {
        Place { structure: self.structure, address: u64::from(address.page) }
    }

    /// Where record `i` is in its page.
    #[inline(always)]
    pub(crate) const fn record(&self, i: usize) -> std::ops::Range<usize> {
        let start = layout::BYTES + i * self.record_bytes;
        start..start + self.record_bytes
    }

    /// Completes a page whose `count` records are in place. Of records of several sizes,
    /// `record_bytes` is the least.
    pub(crate) fn seal(&self, b: &mut [u8; PAGE_BYTES], address: PageAddress, count: usize) {
        assert!(0 < count && count <= self.records_max(), "{count} records");
        put(b, layout::MAGIC, u64::from(self.magic));
        put(b, layout::POOL_TAG, address.pool_tag);
        put(b, layout::RUN, address.run);
        put(b, layout::PAGE, u64::from(address.page));
        put(b, layout::COUNT, count as u64);
        put_crc(self.salt, b, layout::CRC);
    }

    /// Verifies all of a page but its records; returns how many there are.
    pub(crate) fn verify(&self, b: &[u8; PAGE_BYTES], address: PageAddress) -> Result<usize> {
        let count = self.verify_header(b, address)?;
        let end = self.record(count).start;
        verify_zero_bytes(self.place(address), &b[end..], end)?;
        Ok(count)
    }

    /// The same, but for what is behind the records: for those that find the end by reading them.
    pub(crate) fn verify_header(
        &self,
        b: &[u8; PAGE_BYTES],
        address: PageAddress,
    ) -> Result<usize> {
        let place = self.place(address);
        place.require_magic(get(b, layout::MAGIC), u64::from(self.magic))?;
        verify_crc(place, self.salt, b, layout::CRC)?;
        let found = PageAddress {
            pool_tag: get(b, layout::POOL_TAG),
            run: get(b, layout::RUN),
            page: get_u32(b, layout::PAGE),
        };
        if found != address {
            return Err(place.invalid(&format!("{address:?}"), format_args!("{found:?}")));
        }
        verify_zero(place, b, layout::ZERO)?;
        let count = get_u32(b, layout::COUNT) as usize;
        place.require(0 < count && count <= self.records_max(), "a count in range", count)?;
        Ok(count)
    }
}

/// A page of zeros, on the heap.
pub(crate) fn zeroed_page() -> Box<[u8; PAGE_BYTES]> {
    Box::new([0; PAGE_BYTES])
}
