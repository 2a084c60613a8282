//! Where and when in a volume: block addresses and sequence numbers.

use serde::{Deserialize, Serialize};

/// Bytes in a block, the unit of checksums and of the map.
pub const BLOCK_BYTES: u64 = 4096;

/// The position of a write in a volume's history. Only rises; 0 is "before the first write".
///
/// Limit: 2^48 - 1 (see `Seq::MAX`), about 8,900 years at a thousand writes a second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first write: the empty volume.
    pub const ZERO: Seq = Seq(0);
    /// The largest seq a pool can record.
    pub const MAX: Seq = Seq((1 << 48) - 1);

    /// The seq after this one.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A block address within a volume: byte offset / 4096. Limit: 2^40 - 1 (4 PiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCount(pub u64);
