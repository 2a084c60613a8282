//! An entry of the map, and its key.

use units::{Lba, Seq};

use crate::error::{Place, Result};
use crate::field::{get, get_u32, put};
use crate::location::{HOLE, Location};

/// Where an entry's fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// An entry.
    pub const BYTES: usize = 22;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        LEVEL = "level", 0, 1;
        INDEX = "index", 1, 5;
        SEQ = "seq", 6, 6;
        LOCATION = "location", 12, 6;
        CRC = "crc", 18, 4;
    }

    /// A record of an extent leaf; checksums follow.
    pub const RECORD_BYTES: usize = 20;
    fields! {
        /// In order.
        RECORD_FIELDS[RECORD_BYTES]:
        RECORD_KIND = "kind", 0, 1;
        RECORD_INDEX = "index", 1, 5;
        RECORD_SEQ = "seq", 6, 6;
        RECORD_LOCATION = "location", 12, 6;
        RECORD_MASK = "mask", 18, 2;
    }
}

/// The largest level of a key.
pub const LEVEL_MAX: u8 = 4;
/// log2 of the keys of one level that a key of the next covers: 512.
pub const LEVEL_BITS: u32 = 9;
/// log2 of the blocks that a volume can have: 2^40.
pub const BLOCK_BITS: u32 = 40;

/// A block, or an aligned range of 512^level blocks. Ordered by level, then by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// 0 to `LEVEL_MAX`.
    pub level: u8,
    /// The first block / 512^level.
    pub index: u64,
}

impl Key {
    /// The key of one block.
    #[inline]
    pub fn block(block: Lba) -> Key {
        Key { level: 0, index: block.0 }
    }

    /// The key of that level which covers the block.
    #[inline]
    pub fn covering(block: Lba, level: u8) -> Key {
        Key { level, index: block.0 >> (LEVEL_BITS * u32::from(level)) }
    }

    /// The first block that it covers.
    #[inline]
    pub fn first_block(self) -> Lba {
        Lba(self.index << (LEVEL_BITS * u32::from(self.level)))
    }

    /// How many blocks it covers.
    #[inline]
    pub fn blocks(self) -> u64 {
        1 << (LEVEL_BITS * u32::from(self.level))
    }

    /// Whether level and index are in their ranges.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.level <= LEVEL_MAX
            && self.index >> (BLOCK_BITS - LEVEL_BITS * u32::from(self.level)) == 0
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.level {
            0 => write!(f, "block {}", self.index),
            _ => write!(f, "blocks {} + {}", self.first_block().0, self.blocks()),
        }
    }
}

/// The entry that a write left in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Which block or range.
    pub key: Key,
    /// The write.
    pub seq: Seq,
    /// Where the data is, or the hole.
    pub location: Location,
    /// The CRC32C of the block; 0 for a hole.
    pub crc: u32,
}

impl Entry {
    /// A block with data.
    #[inline]
    pub fn data(block: Lba, seq: Seq, location: Location, crc: u32) -> Entry {
        Entry { key: Key::block(block), seq, location, crc }
    }

    /// A block or range without data.
    #[inline]
    pub fn hole(key: Key, seq: Seq) -> Entry {
        Entry { key, seq, location: HOLE, crc: 0 }
    }

    /// Its place in the order of entries: ascending keys, descending seqs.
    #[inline]
    #[must_use]
    pub fn order(&self) -> (Key, std::cmp::Reverse<Seq>) {
        (self.key, std::cmp::Reverse(self.seq))
    }

    pub(super) fn encode(&self, b: &mut [u8]) {
        put(b, layout::LEVEL, u64::from(self.key.level));
        put(b, layout::INDEX, self.key.index);
        put(b, layout::SEQ, self.seq.0);
        put(b, layout::LOCATION, self.location.0);
        put(b, layout::CRC, u64::from(self.crc));
    }

    #[inline]
    pub(super) fn decode(b: &[u8]) -> Entry {
        Entry {
            key: decode_key(b),
            seq: Seq(get(b, layout::SEQ)),
            location: Location(get(b, layout::LOCATION)),
            crc: get_u32(b, layout::CRC),
        }
    }

    /// Fails unless the entry is one that can be.
    pub(super) fn verify(&self, place: Place) -> Result<()> {
        let key_holds = self.key.is_valid();
        place.require(key_holds, "a key of levels 0 to 4 within 2^40 blocks", self.key.index)?;
        let seq_holds = Seq::ZERO < self.seq && self.seq <= Seq::MAX;
        place.require(seq_holds, "a seq of 1 to 2^48 - 1", self.seq)?;
        let place_holds = self.location.is_valid()
            && (self.key.level == 0 || self.location.is_hole())
            && (self.crc == 0 || !self.location.is_hole());
        place.require(place_holds, "a location, or a hole with checksum 0", self.location)
    }
}

#[inline(always)]
pub(super) fn decode_key(b: &[u8]) -> Key {
    Key { level: b[layout::LEVEL.offset], index: get(b, layout::INDEX) }
}
