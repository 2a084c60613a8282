//! Retention: versions, marks, schedules, groups, the trash, and how history leaves the past.

pub mod clock;
pub mod expiry;
pub mod explain;
pub mod filter;
pub mod grace;
pub mod group_schedule;
pub mod group_schedules;
pub mod groups;
pub mod hooks;
pub mod keep_rules;
pub mod marks;
pub mod moments;
pub mod needed;
pub mod open_files;
pub mod pins;
pub mod proofs;
pub mod schedule;
pub mod schedules;
pub mod stand_still;
pub mod trash;
pub mod versions;
pub mod visibility;
pub mod watch;

use std::ops::Deref;

use env::{Rank, RankedMutex};

use crate::jobs::compactions::Compactions;
use crate::jobs::encoding::progress::EncodingState;
use crate::retention::expiry::told::Expired;
use crate::retention::moments::Moments;
use crate::retention::schedule::Schedule;
use crate::retention::versions::counting::Counting;

/// The retention of a volume's history: how long it is kept, and in which form.
pub struct Retention {
    moments: Moments,
    /// Knowledge of the bytes that versions changed; taken after `pins`.
    counting: RankedMutex<Counting>,
    /// When versions are captured and which stay; changes under the pool's `books`.
    schedule: RankedMutex<Option<Schedule>>,
    /// The audit record of what left the window last, since the pool was opened; changes under the
    /// pool's `books`.
    expired: RankedMutex<Option<Expired>>,
    /// Versions that were compacted or uncompacted by hand.
    compactions: Compactions,
    encoding: RankedMutex<EncodingState>,
}

impl Deref for Retention {
    type Target = Moments;

    fn deref(&self) -> &Moments {
        &self.moments
    }
}

impl Retention {
    /// That of moments, as the catalogue has it.
    pub fn new(
        moments: Moments,
        counting: Counting,
        schedule: Option<Schedule>,
        compactions: Compactions,
    ) -> Retention {
        Retention {
            moments,
            counting: RankedMutex::new(Rank::Counting, counting),
            schedule: RankedMutex::new(Rank::Schedule, schedule),
            expired: RankedMutex::new(Rank::Noted, None),
            compactions,
            encoding: RankedMutex::new(Rank::Encoding, EncodingState::default()),
        }
    }

    pub(crate) fn compaction_queue(&self) -> &Compactions {
        &self.compactions
    }

    pub(crate) fn encoding(&self) -> &RankedMutex<EncodingState> {
        &self.encoding
    }
}
