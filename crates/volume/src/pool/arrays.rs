//! The members under a pool, if it is on a stack of them, and what is to be done about them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use block::Array;
use env::{Rank, RankedMutex};

use crate::jobs::meter::Meter;
use crate::jobs::resync_pace::Beside;
use crate::types::Settling;

/// The members of a pool.
pub struct Members {
    array: OnceLock<Arc<Array>>,
    /// The work of opening the pool on them.
    pub settled: OnceLock<Settling>,
    /// Keeps rebuilds to their limit.
    pub rate: Meter,
    /// How rebuilds make way for clients.
    pub pace: RankedMutex<Beside>,
    /// Held while what happened to members is written down; taken before the books.
    pub noting: RankedMutex<()>,
    /// Ranges in which writes met what does not agree, and that could not be looked at yet; how
    /// often that was tried.
    pub noticed: RankedMutex<Vec<(Range<u64>, u32)>>,
}

impl Default for Members {
    fn default() -> Members {
        Members {
            array: OnceLock::new(),
            settled: OnceLock::new(),
            rate: Meter::default(),
            pace: RankedMutex::new(Rank::Noted, Beside::default()),
            noting: RankedMutex::new(Rank::MembersNoted, ()),
            noticed: RankedMutex::new(Rank::Noted, Vec::new()),
        }
    }
}

impl Members {
    /// The array that they make; `None` of a pool that is not on members.
    pub fn array(&self) -> Option<&Arc<Array>> {
        self.array.get()
    }

    /// The pool is on these.
    pub fn set(&self, array: Arc<Array>) {
        self.array.set(array).ok().expect("a pool is opened once");
    }
}
