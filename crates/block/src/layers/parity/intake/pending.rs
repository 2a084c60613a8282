//! The pending log: what waits, as it was written, so that it is there though the process ends.
//!
//! Nothing here is flushed: a power cut may take any of it, as any write that was not flushed.
//!
//! Invariants: 1. a write is answered when its entry and all before it are written; 2. what the
//! entries of an epoch have waits, drains, or is void; 3. an area takes a new epoch when a durable
//! record says that nothing counts there; 4. no epoch is used twice.

use std::collections::BTreeMap;
use std::ops::Range;

use format::parity::{CELL_BYTES, pending_bytes};

/// Bytes of a note.
pub(super) const NOTE_BYTES: u64 = CELL_BYTES as u64;

/// Where the next entry goes.
pub struct Pending {
    /// The number of this use of an area.
    pub epoch: u64,
    pub(super) area_bytes: u64,
    /// Entries of the epoch.
    pub(super) count: u32,
    /// Bytes of the area that they take.
    pub(super) used: u64,
    /// Bytes that notes may still take: for each entry there can be one.
    pub(super) reserved: u64,
    /// The number after the last entry of each stripe that has any which are not void.
    pub(super) stripes: BTreeMap<u64, u32>,
    /// Whether an entry may be there in part: then none may follow it.
    pub(super) is_broken: bool,
    /// Whether what drains now is from the areas: they count until all of it has drained.
    pub(super) is_replay: bool,
}

impl Pending {
    pub fn new(area_bytes: u64) -> Pending {
        Pending {
            epoch: 0,
            area_bytes,
            count: 0,
            used: 0,
            reserved: 0,
            stripes: BTreeMap::new(),
            is_broken: false,
            is_replay: false,
        }
    }

    pub(super) fn at(epoch: u64, area_bytes: u64) -> Pending {
        Pending { epoch, ..Pending::new(area_bytes) }
    }

    /// Goes on in the other area.
    pub fn next(&mut self) {
        if !self.is_replay {
            *self = Pending::at(self.epoch + 1, self.area_bytes);
        }
    }

    /// Whether anything was written to the area.
    pub fn is_used(&self) -> bool {
        self.count > 0 || self.is_broken
    }

    /// Whether an entry of so many bytes fits.
    pub fn has_room(&self, length: usize) -> bool {
        let needed = pending_bytes(length) as u64 + NOTE_BYTES;
        !self.is_broken && self.used + self.reserved + needed <= self.area_bytes
    }

    /// Whether there are entries of some stripes that are not void.
    pub fn has_any(&self, stripes: Range<u64>) -> bool {
        self.stripes.range(stripes).next().is_some()
    }

    /// The number before which a note makes all of a stripe's entries void, if it has any; an error
    /// if none can be written now.
    pub fn entries_of(&self, stripe: u64) -> std::result::Result<Option<u32>, ()> {
        match self.stripes.contains_key(&stripe) {
            true if self.is_broken => Err(()),
            true => Ok(Some(self.count)),
            false => Ok(None),
        }
    }
}
