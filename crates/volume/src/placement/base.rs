//! A volume's base: settled blocks at places of their own, in the order of their addresses.
//!
//! A base is made of slabs, and a slab is a segment in which every block has a *home*: a place for
//! one batch with this one block. A home is written over, which no other place in a log is. Its
//! content names itself (timeline, seq, checksum), so that the map can be rebuilt from it.
//!
//! Invariants
//! 1. A home is written only while no committed run names it; so what the map says after a crash
//!    is there, whatever became of the write.
//! 2. Nor is it written while someone may read it who looked the map up before the commit that
//!    stopped naming it (`is_quiet`).
//!
//! Deliberately unaware of what comes home and when (`migration`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{Rank, RankedMutex};
use format::batch::{BatchKind, header_bytes};
use format::location::Location;
use format::segment::SEGMENT_HEADER_BYTES;
use history::Segment;
use units::BLOCK_BYTES;

/// Bytes from one home to the next: a block with the header of its batch.
#[must_use]
pub fn home_bytes() -> u32 {
    home_header_bytes() + BLOCK_BYTES as u32
}

/// Bytes of a home before its block.
#[must_use]
pub fn home_header_bytes() -> u32 {
    header_bytes(BatchKind::Relocated, 1, 1)
}

/// A segment with homes.
struct Slab {
    segment: Arc<Segment>,
    /// Readers that may still look at homes which the map no longer names.
    readers: Weak<()>,
}

/// The slabs of a volume.
pub struct Base {
    slab_blocks: u64,
    slabs: RankedMutex<BTreeMap<u64, Slab>>,
}

impl Base {
    /// A base without slabs.
    #[must_use]
    pub fn new(zone_bytes: u64) -> Base {
        let homes = (zone_bytes - SEGMENT_HEADER_BYTES as u64) / u64::from(home_bytes());
        assert!(homes > 0, "a zone of {zone_bytes} bytes has homes");
        Base { slab_blocks: homes, slabs: RankedMutex::new(Rank::BaseSlabs, BTreeMap::new()) }
    }

    /// The slab in which a block has its home.
    #[must_use]
    pub fn slab_of(&self, block: u64) -> u64 {
        block / self.slab_blocks
    }

    /// The blocks that have their homes in a slab.
    #[must_use]
    pub fn blocks_of(&self, slab: u64) -> Range<u64> {
        slab * self.slab_blocks..(slab + 1) * self.slab_blocks
    }

    /// Where in its segment the batch of a block begins.
    #[must_use]
    pub fn offset_of(&self, block: u64) -> u32 {
        let index = u32::try_from(block % self.slab_blocks).expect("a zone has few blocks");
        SEGMENT_HEADER_BYTES as u32 + index * home_bytes()
    }

    /// A block's home in a segment.
    #[must_use]
    pub fn home_of(&self, block: u64, segment: u64) -> Location {
        Location::new(segment, self.offset_of(block) + home_header_bytes())
    }

    /// Bytes of a slab, with the segment's header.
    #[must_use]
    pub fn slab_bytes(&self) -> u32 {
        let homes = u32::try_from(self.slab_blocks).expect("a zone has few blocks");
        SEGMENT_HEADER_BYTES as u32 + homes * home_bytes()
    }

    /// Adds a slab that the catalogue names.
    pub fn add(&self, segment: Arc<Segment>) {
        let slab = segment.slab.expect("a segment of a base");
        let before = self.slabs.lock().insert(slab, Slab { segment, readers: Weak::new() });
        assert!(before.is_none(), "slab {slab} added twice");
    }

    /// Forgets a slab that the catalogue no longer names.
    pub fn remove(&self, slab: u64) {
        let before = self.slabs.lock().remove(&slab);
        assert!(before.is_some(), "slab {slab} is not there");
    }

    /// The segment of a slab.
    #[must_use]
    pub fn segment(&self, slab: u64) -> Option<Arc<Segment>> {
        self.slabs.lock().get(&slab).map(|slab| Arc::clone(&slab.segment))
    }

    /// The segments of all slabs.
    #[must_use]
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.slabs.lock().values().map(|slab| Arc::clone(&slab.segment)).collect()
    }

    /// How many slabs there are.
    #[must_use]
    pub fn slab_count(&self) -> usize {
        self.slabs.lock().len()
    }

    /// Blocks that are at home.
    #[must_use]
    pub fn blocks_at_home(&self) -> u64 {
        let live = |slab: &Slab| slab.segment.live_entries.load(Ordering::Acquire).max(0) as u64;
        self.slabs.lock().values().map(live).sum()
    }

    /// The map stopped naming some homes of a slab; these readers may not know yet.
    pub fn disturb(&self, slab: u64, readers: &Weak<()>) {
        if let Some(slab) = self.slabs.lock().get_mut(&slab) {
            // Earlier readers have left before them.
            slab.readers = Weak::clone(readers);
        }
    }

    /// Whether nobody reads homes of a slab that the map no longer names.
    #[must_use]
    pub fn is_quiet(&self, slab: u64) -> bool {
        self.slabs.lock().get(&slab).is_none_or(|slab| slab.readers.strong_count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Base, home_bytes, home_header_bytes};

    #[test]
    fn homes_do_not_overlap_and_fit_their_zone() {
        for zone_bytes in [256 << 10, 1 << 20, 32 << 20] {
            let base = Base::new(zone_bytes);
            assert!(u64::from(base.slab_bytes()) <= zone_bytes);
            assert!(u64::from(base.slab_bytes() + home_bytes()) > zone_bytes);
            let blocks = base.blocks_of(3);
            for block in blocks.clone() {
                assert_eq!(base.slab_of(block), 3);
                let home = base.home_of(block, 9);
                assert_eq!(home.offset_bytes(), base.offset_of(block) + home_header_bytes());
                if block > blocks.start {
                    assert_eq!(base.offset_of(block), base.offset_of(block - 1) + home_bytes());
                }
            }
            assert_eq!(base.slab_of(blocks.end), 4);
        }
    }
}
