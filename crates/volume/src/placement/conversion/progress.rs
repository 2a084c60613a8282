//! How far a volume is with becoming what it shall be.

use crate::catalogue::VolumeRecord;

/// How far a volume is with becoming what it shall be, since the pool was opened.
#[derive(Debug, Default)]
pub struct Conversion {
    /// The first slab of the current store that was not looked at; none: all were.
    pub fill_from: Option<u64>,
    /// Entries that were pending when that began are in runs.
    pub flushed: bool,
    /// A reclamation that offers homes in the base has begun.
    pub offered: bool,
    /// Blocks at home that the reclamation at hand could not read.
    pub unmovable: u64,
    /// So many blocks at home cannot leave it.
    pub rest: Option<u64>,
    /// Blocks at home and zones to leave to when the last reclamation began.
    tried: Option<(u64, u64)>,
    /// The work in all, in blocks.
    total_blocks: u64,
}

impl Conversion {
    /// Of a volume whose pool has just been opened.
    #[must_use]
    pub fn of(record: &VolumeRecord, is_importing: bool) -> Conversion {
        let is_under_way = record.conversion.is_some() || is_importing;
        let fills = is_under_way && record.architecture.has_current_store();
        Conversion { fill_from: fills.then_some(0), ..Conversion::default() }
    }

    /// Slabs from this one on are to be looked at again: something came into the map there.
    pub fn fill_again_from(&mut self, slab: u64) {
        self.flushed |= self.fill_from.is_none();
        self.fill_from = Some(self.fill_from.map_or(slab, |from| from.min(slab)));
    }

    /// Slabs from one on were looked at, up to the next, unless a change meanwhile began from the
    /// start.
    pub fn filled(&mut self, from: u64, next: Option<u64>) {
        if self.fill_from == Some(from) {
            self.fill_from = next;
        }
    }

    /// Whether entries are to be in runs before slabs are looked at.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.fill_from.is_some() && !self.flushed
    }

    /// Whether a reclamation should begin that takes blocks out of the base: so many are left, for
    /// so many zones, and some slab `fits` there.
    pub fn wants_to_leave(&mut self, left: u64, zones: u64, fits: bool) -> bool {
        // All that is left was tried, and could not be read.
        if self.unmovable >= left && left > 0 {
            self.rest = Some(left);
        }
        // Where no slab fits, a merge may make room; but not the same one again. Nor one that only
        // meets what cannot be read.
        let is_new = zones > 0 && self.tried != Some((left, zones));
        let goes_on = fits && self.unmovable == 0;
        self.rest != Some(left) && (left == 0 || goes_on || is_new)
    }

    /// A reclamation begins, with so many blocks at home and zones to leave to. Whether it is the
    /// first that offers homes in the base.
    pub fn begin_pass(&mut self, tried: (u64, u64), has_base: bool) -> bool {
        self.unmovable = 0;
        self.tried = Some(tried);
        has_base && !std::mem::replace(&mut self.offered, true)
    }

    /// The work in all, in blocks, of which so many are left.
    pub fn total_blocks(&mut self, left: u64) -> u64 {
        self.total_blocks = self.total_blocks.max(left);
        self.total_blocks
    }
}
