//! The parts of a pool that background work is done on, and what jobs know of one another.

use std::sync::Arc;

use env::{Rank, RankedMutex};

use crate::core::Core;
use crate::jobs::dedup::progress::Dedup;
use crate::pool::arrays::Members;
use crate::pool::registry::Registry;
use crate::volume::Volume;

/// The parts of a pool. The rest changes with the right to do background work.
pub struct Parts {
    /// The core that the volumes share.
    pub core: Arc<Core>,
    /// The volumes.
    pub registry: Arc<Registry>,
    /// The members, if it is on a stack of them.
    pub members: Arc<Members>,
    /// Searches for equal blocks; merges enter what they found.
    pub dedup: RankedMutex<Dedup>,
    /// The merges under way.
    pub merging: RankedMutex<Merging>,
}

impl Parts {
    /// These, with nothing under way.
    pub fn new(core: &Arc<Core>, registry: &Arc<Registry>, members: &Arc<Members>) -> Parts {
        Parts {
            core: Arc::clone(core),
            registry: Arc::clone(registry),
            members: Arc::clone(members),
            dedup: RankedMutex::new(Rank::Dedup, Dedup::default()),
            merging: RankedMutex::new(Rank::Noted, Merging::default()),
        }
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
