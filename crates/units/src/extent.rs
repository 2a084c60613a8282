//! Map extents: the unit in which the map of a volume keeps entries.

use serde::{Deserialize, Serialize};

use crate::{BLOCK_BYTES, Malformed, Size};

/// The unit in which the map of a volume keeps entries: 1, 2, 4, 8 or 16 blocks, in bytes.
/// Everything else (checksums, what is retained, what is read) goes by the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct MapExtent(u32);

impl MapExtent {
    /// One block: an entry a block.
    pub const BLOCK: MapExtent = MapExtent(4 << 10);
    /// The most blocks that an extent can have.
    pub const BLOCKS_MAX: usize = 16;
    /// Every one there is, in ascending order.
    pub const ALL: [MapExtent; 5] = [
        MapExtent::BLOCK,
        MapExtent(8 << 10),
        MapExtent(16 << 10),
        MapExtent(32 << 10),
        MapExtent(64 << 10),
    ];

    /// Its bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// Its blocks: 1 to 16.
    #[inline]
    pub const fn blocks(self) -> usize {
        (self.0 / BLOCK_BYTES as u32) as usize
    }

    /// Whether it is one block.
    #[inline]
    pub fn is_block(&self) -> bool {
        *self == MapExtent::BLOCK
    }
}

impl Default for MapExtent {
    fn default() -> MapExtent {
        MapExtent::BLOCK
    }
}

impl TryFrom<u64> for MapExtent {
    type Error = Malformed;

    fn try_from(bytes: u64) -> Result<MapExtent, Malformed> {
        let found = MapExtent::ALL.into_iter().find(|extent| extent.bytes() == bytes);
        found.ok_or_else(|| {
            let there = MapExtent::ALL.map(|extent| extent.to_string()).join(", ");
            let why = match bytes < BLOCK_BYTES {
                true => "blocks, the unit of checksums, have 4KiB",
                false => "an extent is a power of two of blocks, 16 at most",
            };
            let message = format!("an extent cannot be {}: {why}", Size(bytes));
            Malformed::new(message, format!("give one of {there}"))
        })
    }
}

impl From<MapExtent> for u64 {
    fn from(extent: MapExtent) -> u64 {
        extent.bytes()
    }
}

impl std::fmt::Display for MapExtent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Size(self.bytes()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::MapExtent;

    #[test]
    fn powers_of_two_of_1_to_16_blocks_are_extents_and_nothing_else_is() {
        for extent in MapExtent::ALL {
            assert_eq!(MapExtent::try_from(extent.bytes()), Ok(extent));
        }
        assert_eq!(MapExtent::ALL.map(MapExtent::blocks), [1, 2, 4, 8, 16]);
        assert_eq!(MapExtent::default().to_string(), "4KiB");
        for (bytes, part) in [
            (0, "cannot be 0: blocks, the unit of checksums"),
            (512, "cannot be 512: blocks, the unit of checksums"),
            (4097, "cannot be 4097: an extent is a power of two"),
            (12 << 10, "cannot be 12KiB"),
            (128 << 10, "cannot be 128KiB: an extent is a power of two of blocks, 16 at most"),
            (u64::MAX, "cannot be"),
        ] {
            let error = MapExtent::try_from(bytes).expect_err("no extent");
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.hint.as_deref(), Some("give one of 4KiB, 8KiB, 16KiB, 32KiB, 64KiB"));
        }
    }
}
