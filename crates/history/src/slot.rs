//! Where one block is, as found in the map.

use format::location::Location;
use format::map::Entry;
use units::Seq;

/// Blocks covered by one map page (2 MiB of a volume).
pub const BLOCKS_PER_PAGE: usize = 512;

/// The newest entry found for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Seq of the entry; zero when none was found.
    pub seq: Seq,
    /// Where the bytes are; a hole when the block reads as zeros.
    pub location: Location,
    /// CRC32C of the block; meaningless for a hole.
    pub crc: u32,
    /// Whether any entry was found.
    pub known: bool,
}

/// The slots of a freshly loaded page.
pub type LoadedPage = [Slot; BLOCKS_PER_PAGE];

impl Default for Slot {
    fn default() -> Self {
        Slot { seq: Seq::ZERO, location: format::HOLE, crc: 0, known: false }
    }
}

impl Slot {
    /// Whether the block reads as zeros without being stored.
    pub fn is_hole(&self) -> bool {
        self.location.is_hole()
    }

    /// Becomes what an entry says, if that is newer.
    pub(crate) fn raise(&mut self, entry: &Entry) {
        if entry.seq > self.seq {
            let &Entry { seq, location, crc, .. } = entry;
            *self = Slot { seq, location, crc, known: true };
        }
    }
}

/// The location of the block `index` blocks after `first` in the same payload.
pub fn block_location(first: Location, index: usize) -> Location {
    let offset = u64::from(first.offset_bytes()) + index as u64 * units::BLOCK_BYTES;
    Location::new(first.segment(), u32::try_from(offset).expect("a payload ends within its zone"))
}
