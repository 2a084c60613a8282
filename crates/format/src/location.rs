//! Where a block's bytes are: a segment and an offset in it, in 48 bits.
//!
//! 1. Offset 0 is a hole: zeros, stored nowhere (a segment's header is there, never data). A hole
//!    still names the segment whose batch made it, so that the batch is kept while the hole is
//!    needed; `HOLE` names none. Segment numbers begin at 1.
//! 2. Offsets are multiples of 64 bytes below 32 MiB, so 19 bits hold them; 29 are the segment's.

/// Bits of the offset, in units of 64 bytes.
const OFFSET_BITS: u32 = 19;
/// Bytes in one unit of an offset: the alignment of batches and of their payload.
pub const LOCATION_ALIGNMENT: u32 = 64;
/// The most bytes a segment can have: 32 MiB.
pub const SEGMENT_BYTES_MAX: u32 = LOCATION_ALIGNMENT << OFFSET_BITS;
/// The largest segment number.
pub const SEGMENT_NUMBER_MAX: u64 = (1 << 29) - 1;

/// Zeros, stored nowhere, made by no batch.
pub const HOLE: Location = Location(0);

/// A place in the log, or the hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(pub u64);

impl Location {
    /// The place `offset_bytes` bytes from the start of a segment.
    ///
    /// Asserts its limits: segment 1 to `SEGMENT_NUMBER_MAX`, offset aligned and below 32 MiB.
    #[inline]
    pub fn new(segment: u64, offset_bytes: u32) -> Location {
        assert!((1..=SEGMENT_NUMBER_MAX).contains(&segment), "segment {segment}");
        assert!(offset_bytes < SEGMENT_BYTES_MAX, "offset {offset_bytes}");
        assert!(offset_bytes.is_multiple_of(LOCATION_ALIGNMENT), "offset {offset_bytes}");
        Location(segment << OFFSET_BITS | u64::from(offset_bytes / LOCATION_ALIGNMENT))
    }

    /// A hole that a batch in this segment made.
    ///
    /// Asserts its limits: segment 1 to `SEGMENT_NUMBER_MAX`.
    #[inline]
    pub fn hole_in(segment: u64) -> Location {
        Location::new(segment, 0)
    }

    /// The segment's number; 0 for `HOLE`.
    #[inline]
    pub fn segment(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// Bytes from the segment's start.
    #[inline]
    pub fn offset_bytes(self) -> u32 {
        let units = self.0 & ((1 << OFFSET_BITS) - 1);
        u32::try_from(units).expect("19 bits") * LOCATION_ALIGNMENT
    }

    /// Whether it is a hole.
    #[inline]
    pub fn is_hole(self) -> bool {
        self.0 & ((1 << OFFSET_BITS) - 1) == 0
    }

    /// Whether it is `HOLE` or names a segment within 48 bits.
    #[inline]
    pub fn is_valid(self) -> bool {
        self == HOLE || (1..=SEGMENT_NUMBER_MAX).contains(&self.segment())
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self == &HOLE {
            return f.write_str("hole");
        }
        if self.is_hole() {
            return write!(f, "hole of segment {}", self.segment());
        }
        write!(f, "segment {} + {}", self.segment(), self.offset_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{HOLE, Location, SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};

    #[test]
    fn the_first_and_the_last_place_round_trip() {
        for (segment, offset) in [(1, 64), (SEGMENT_NUMBER_MAX, SEGMENT_BYTES_MAX - 64)] {
            let location = Location::new(segment, offset);
            assert_eq!((location.segment(), location.offset_bytes()), (segment, offset));
            assert!(location.is_valid() && !location.is_hole() && location.0 < 1 << 48);
        }
    }

    #[test]
    fn a_hole_of_a_segment_is_a_hole_and_names_the_segment() {
        let hole = Location::hole_in(7);
        assert!(hole.is_hole() && hole.is_valid() && hole != HOLE);
        assert_eq!((hole.segment(), hole.to_string().as_str()), (7, "hole of segment 7"));
        assert_eq!(HOLE.to_string(), "hole");
    }

    #[test]
    fn segment_zero_and_too_many_bits_are_not_valid() {
        assert!(HOLE.is_valid());
        assert!(!Location(1).is_valid());
        assert!(!Location(1 << 48).is_valid());
    }

    #[test]
    #[should_panic(expected = "offset 96")]
    fn an_unaligned_offset_is_our_mistake() {
        let _ = Location::new(1, 96);
    }
}
