//! The storey that background work is done on: the groups and volumes of a pool, its members, and
//! what jobs know of one another.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedMutex};

use crate::jobs::dedup::progress::Dedup;
use crate::pool::arrays::Members;
use crate::retention::groups::Groups;
use crate::volume::Volume;

/// Work that failed is not tried again for so long, where nothing else goes on: a broken device is
/// not asked on and on.
pub const AFTER_FAILURE_NS: u64 = 5_000_000_000;

/// A pool as background work sees it. The rest changes with the right to do some.
pub struct Parts {
    groups: Groups,
    /// The members, if it is on a stack of them.
    pub members: Members,
    /// Searches for equal blocks; merges enter what they found.
    pub dedup: RankedMutex<Dedup>,
    /// The merges under way.
    pub merging: RankedMutex<Merging>,
    /// A purge that failed is tried again then, by the monotonic clock.
    purge_again_ns: AtomicU64,
}

impl Deref for Parts {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl Parts {
    /// These groups, with nothing under way.
    pub fn new(groups: Groups) -> Parts {
        Parts {
            groups,
            members: Members::default(),
            dedup: RankedMutex::new(Rank::Dedup, Dedup::default()),
            merging: RankedMutex::new(Rank::Noted, Merging::default()),
            purge_again_ns: AtomicU64::new(0),
        }
    }

    /// Whether no purge has failed lately.
    pub fn may_purge(&self, now_ns: u64) -> bool {
        now_ns >= self.purge_again_ns.load(Ordering::Relaxed)
    }

    /// A purge failed.
    pub fn note_failed_purge(&self) {
        let now_ns = self.core.machine.clock.monotonic_ns();
        self.purge_again_ns.store(now_ns + AFTER_FAILURE_NS, Ordering::Relaxed);
    }

    /// The merges under way.
    pub fn merging(&self) -> Merging {
        *self.merging.lock()
    }
}

/// The volumes that merges are under way of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merging {
    /// Of which some runs are joined.
    pub join: Option<u64>,
    /// Of which a timeline is merged as a whole.
    pub full: Option<u64>,
    /// There was something to merge in the last step.
    pub is_busy: bool,
}

impl Merging {
    /// Whether there is one.
    pub fn is_any(self) -> bool {
        self.join.or(self.full).is_some()
    }

    /// Whether one is of this volume.
    pub fn is_of(self, volume: &Volume) -> bool {
        [self.join, self.full].contains(&Some(volume.id))
    }
}
