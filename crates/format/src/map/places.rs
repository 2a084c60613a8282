//! Where the blocks of one extent are that one write left, told by one place and a rule.
//!
//! 1. Lossless: what goes in comes out, or it does not go in. A block whose place is not the one
//!    that the rule says starts other places of its own.
//! 2. All blocks are in one segment, or all of them are one hole.

use units::MapExtent;

use crate::location::{LOCATION_ALIGNMENT, Location, SEGMENT_BYTES_MAX};

/// How the places of the blocks follow from that of the first. With one block, or with a hole, it
/// is `Extent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stride {
    /// As the blocks lie in the extent, 4096 bytes a block: as they were written.
    #[default]
    Extent = 0,
    /// One behind the other, 4096 bytes each, whatever is between them in the extent: as they were
    /// moved when what was between had been written again.
    Dense = 1,
    /// As the blocks lie in the extent, 4288 bytes a block: their homes in a base.
    Homes = 2,
}

impl Stride {
    /// The one with that number.
    pub fn from_number(number: u8) -> Option<Stride> {
        [Stride::Extent, Stride::Dense, Stride::Homes].into_iter().find(|s| *s as u8 == number)
    }

    /// Units of a location from one block to the next.
    const fn units(self) -> u64 {
        let bytes = match self {
            Stride::Extent | Stride::Dense => units::BLOCK_BYTES,
            Stride::Homes => units::BLOCK_BYTES + HOME_HEADER_BYTES,
        };
        bytes / LOCATION_ALIGNMENT as u64
    }
}

/// Bytes before each block in a base: a batch of one relocated block.
const HOME_HEADER_BYTES: u64 = 192;

/// The places of blocks of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Places {
    /// Of the first block in the mask; a hole: of all of them.
    pub first: Location,
    /// How the others follow.
    pub stride: Stride,
    /// Which blocks: bit i is block i of the extent. Never 0.
    pub mask: u16,
}

impl Places {
    /// The place of one block.
    #[inline]
    pub fn one(block: usize, location: Location) -> Places {
        assert!(block < MapExtent::BLOCKS_MAX, "block {block} of an extent");
        Places { first: location, stride: Stride::Extent, mask: 1 << block }
    }

    /// The place of a block. Asserts that it is in the mask.
    #[inline]
    pub fn location(&self, block: usize) -> Location {
        assert!(self.mask >> block & 1 == 1, "block {block} of {:#018b}", self.mask);
        if self.first.is_hole() {
            return self.first;
        }
        let before = match self.stride {
            Stride::Dense => (self.mask & ((1 << block) - 1)).count_ones(),
            Stride::Extent | Stride::Homes => block as u32 - self.mask.trailing_zeros(),
        };
        Location(self.first.0 + u64::from(before) * self.stride.units())
    }

    /// How many blocks in the mask are before this one: which of the checksums is its.
    #[inline]
    pub fn position(&self, block: usize) -> usize {
        (self.mask & ((1 << block) - 1)).count_ones() as usize
    }

    /// With one more block, behind all others; `None` if no rule says its place.
    #[inline]
    #[must_use]
    pub fn with(&self, block: usize, location: Location) -> Option<Places> {
        assert!(block < MapExtent::BLOCKS_MAX, "block {block} of an extent");
        if self.mask >> block != 0 {
            return None;
        }
        let joined = |stride| Places { stride, mask: self.mask | 1 << block, ..*self };
        let strides: &[Stride] = if self.first.is_hole() {
            &[Stride::Extent]
        } else if self.mask.is_power_of_two() {
            &[Stride::Extent, Stride::Dense, Stride::Homes]
        } else if self.is_contiguous() && self.stride == Stride::Extent {
            &[Stride::Extent, Stride::Dense]
        } else {
            std::slice::from_ref(&self.stride)
        };
        let fits = |places: &Places| places.is_valid() && places.location(block) == location;
        strides.iter().map(|stride| joined(*stride)).find(fits)
    }

    /// Without one of its blocks: what is before and behind it, one of the two if a rule says both.
    /// Asserts that it is in the mask.
    #[must_use]
    pub fn without(&self, block: usize) -> [Option<Places>; 2] {
        assert!(self.mask >> block & 1 == 1, "block {block} of {:#018b}", self.mask);
        let rest = self.mask & !(1 << block);
        let below = rest & ((1 << block) - 1);
        if self.stride == Stride::Dense && below != 0 && below != rest {
            return [self.only(below), self.only(rest & !below)];
        }
        [self.only(rest), None]
    }

    /// Some of its blocks, which one rule must say.
    fn only(&self, mask: u16) -> Option<Places> {
        if mask == 0 {
            return None;
        }
        let first = self.location(mask.trailing_zeros() as usize);
        let places = Places { first, stride: self.stride, mask };
        let is_dense = self.stride == Stride::Dense && places.is_contiguous();
        let is_plain = mask.is_power_of_two() || is_dense;
        Some(if is_plain { Places { stride: Stride::Extent, ..places } } else { places })
    }

    /// Whether no block is between its blocks: places of `Extent` and `Dense` are then the same.
    #[inline]
    fn is_contiguous(&self) -> bool {
        let from_first = self.mask >> self.mask.trailing_zeros();
        from_first & from_first.wrapping_add(1) == 0
    }

    /// Whether all of it is in range: for what was read.
    pub fn is_valid(&self) -> bool {
        if self.mask == 0 || !self.first.is_valid() {
            return false;
        }
        if self.first.is_hole() || self.mask.is_power_of_two() {
            return self.stride == Stride::Extent;
        }
        let last = self.location(15 - self.mask.leading_zeros() as usize);
        last.segment() == self.first.segment() && last.offset_bytes() < SEGMENT_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

    use super::{HOME_HEADER_BYTES, Places, Stride};
    use crate::batch::{BatchKind, header_bytes};
    use crate::location::{Location, SEGMENT_BYTES_MAX};

    #[test]
    fn a_home_is_a_batch_of_one_relocated_block() {
        assert_eq!(u64::from(header_bytes(BatchKind::Relocated, 1, 1)), HOME_HEADER_BYTES);
    }

    #[test]
    fn each_stride_is_found_from_the_places() {
        let at = |offset: u32| Location::new(3, offset);
        for (places, stride) in [
            ([(0, at(640)), (1, at(4736)), (4, at(17_024))], Stride::Extent),
            ([(0, at(640)), (1, at(4736)), (4, at(8832))], Stride::Dense),
            ([(0, at(640)), (1, at(4928)), (4, at(17_792))], Stride::Homes),
        ] {
            let mut joined = Places::one(places[0].0, places[0].1);
            for (block, location) in &places[1..] {
                joined = joined.with(*block, *location).expect("a stride says it");
            }
            assert_eq!((joined.stride, joined.mask), (stride, 0b10011));
            assert!(joined.is_valid());
        }
    }

    #[test]
    fn places_end_with_their_segment_and_holes_do_not_join_data() {
        let last = Location::new(3, SEGMENT_BYTES_MAX - 4096);
        let places = Places::one(0, last);
        assert_eq!(places.with(1, Location(last.0 + 64)), None, "the next is of another segment");
        assert_eq!(Places::one(0, Location::hole_in(3)).with(1, Location::new(3, 4096)), None);
        assert_eq!(Places::one(0, Location::hole_in(3)).with(1, Location::hole_in(4)), None);
        let holes = Places::one(0, Location::hole_in(3)).with(9, Location::hole_in(3));
        assert_eq!(holes.map(|holes| holes.location(9)), Some(Location::hole_in(3)));
        let forged = Places { first: last, stride: Stride::Extent, mask: 0b101 };
        assert!(!forged.is_valid());
        assert!(!Places { mask: 0, ..forged }.is_valid());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn blocks_keep_their_places_whatever_is_taken_out(
            offsets in vec((0..16_usize, 0..20_u32, 0..3_u64), 1..16),
            out in vec(0..16_usize, 0..9),
        ) {
            let stride = |kind: u64| if kind == 1 { 4288 } else { 4096 };
            let mut blocks: Vec<(usize, Location)> = offsets
                .iter()
                .map(|&(block, step, kind)| (block, Location::new(7, 640 + step * stride(kind))))
                .collect();
            blocks.sort();
            blocks.dedup_by_key(|(block, _)| *block);
            let mut all: Vec<Places> = Vec::new();
            for &(block, location) in &blocks {
                match all.last_mut().and_then(|last| Some((last.with(block, location)?, last))) {
                    Some((joined, last)) => *last = joined,
                    None => all.push(Places::one(block, location)),
                }
            }
            for block in out {
                let Some(i) = all.iter().position(|p| p.mask >> block & 1 == 1) else { continue };
                blocks.retain(|(other, _)| *other != block);
                let rest = all.remove(i).without(block);
                all.extend(rest.into_iter().flatten());
            }
            let mut found = Vec::new();
            for places in &all {
                prop_assert!(places.is_valid());
                let blocks = (0..16).filter(|block| places.mask >> block & 1 == 1);
                found.extend(blocks.map(|block| (block, places.location(block))));
            }
            found.sort();
            prop_assert_eq!(found, blocks);
        }
    }
}
