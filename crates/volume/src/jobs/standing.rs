//! The state by which it is told whether room can be made.

use crate::core::Core;
use crate::pool::registry::Registry;

/// Tells whether room can be made that could not be made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Free zones.
    pub free_zones: u32,
    /// Segments that were made for writers since the pool was opened.
    pub made: u64,
    /// Map entries of all segments.
    pub entries: u64,
    /// The last audit record: whatever was deleted or expired is in one.
    audit: u64,
    /// Moments that views hold.
    views: usize,
}

impl Standing {
    /// That of now.
    pub fn of(core: &Core, registry: &Registry) -> Standing {
        // Let go at once: pins come before the books.
        let audit = core.books.lock().audit;
        Standing {
            free_zones: core.store.zone_counts().1,
            made: core.segments_made(),
            entries: core.store.space_of_all().entries,
            audit,
            views: registry.all().iter().map(|volume| volume.pins().lock().viewed()).sum(),
        }
    }
}
