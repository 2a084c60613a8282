//! The members under a pool, if it is on a stack of them, and what is to be done about them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use block::{Array, ArrayError};
use env::{Rank, RankedMutex};

use crate::core::Core;
use crate::types::Settling;
use crate::{Error, Result};

/// The members of a pool.
pub struct Members {
    array: OnceLock<Arc<Array>>,
    /// The work of opening the pool on them.
    pub settled: OnceLock<Settling>,
    /// Held while what happened to members is written down; taken before the books.
    noting: RankedMutex<()>,
    /// Ranges in which writes met what does not agree, and that could not be looked at yet; how
    /// often that was tried.
    pub noticed: RankedMutex<Vec<(Range<u64>, u32)>>,
}

impl Default for Members {
    fn default() -> Members {
        Members {
            array: OnceLock::new(),
            settled: OnceLock::new(),
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

    /// Writes down what happened to them. The rest is kept for the next time.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn note(&self, core: &Core) -> Result<()> {
        let Some(array) = self.array() else { return Ok(()) };
        // A second caller returns when the first has written it down.
        let _noting = self.noting.lock();
        let mut events = array.take_events().into_iter();
        while let Some(event) = events.next() {
            let detail = format!("{}: {}", event.member, event.detail);
            if let Err(error) = core.note(event.what, "", detail) {
                array.put_back([event].into_iter().chain(events));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// An array's error as this crate's.
pub fn of_array(error: ArrayError) -> Error {
    match error {
        ArrayError::Refused { what, hint } => Error::invalid(what).with_hint(hint),
        error @ ArrayError::NotClosed => Error::invalid(error.to_string()),
        ArrayError::Device(error) => error.into(),
    }
}
