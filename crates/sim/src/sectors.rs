//! The sectors of a byte range: the granularity at which writes are torn.

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// How many sectors `offset..offset + length` touches.
pub(crate) fn count(offset: u64, length: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    (offset + length - 1) / SECTOR_BYTES - offset / SECTOR_BYTES + 1
}

/// The part of `offset..offset + length` that lies in its sector number `index`: offset and bytes.
pub(crate) fn part(offset: u64, length: u64, index: u64) -> (u64, u64) {
    let start = (offset / SECTOR_BYTES + index) * SECTOR_BYTES;
    let from = start.max(offset);
    let to = (start + SECTOR_BYTES).min(offset + length);
    assert!(from < to, "the sector lies outside the range");
    (from, to - from)
}
