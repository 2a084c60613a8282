//! How fast a scrub and a rebuild may be, in bytes a second (`meter`). A limit is no share: whoever
//! paces these works (the server) may let them rest for longer.

use std::num::NonZeroU64;

use crate::jobs::meter::STEP_BYTES_MIN;
use crate::pool::Engine;
use crate::{Error, Result};

/// The least that a limit may be, in bytes a second.
pub const RATE_BYTES_MIN: u64 = STEP_BYTES_MIN;

/// Limits in bytes a second; `None` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of what a scrub reads, of all copies.
    pub scrub: Option<NonZeroU64>,
    /// Of what a member that came back or takes another's place gets.
    pub rebuild: Option<NonZeroU64>,
}

/// A change of limits; those that are not named stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateChange {
    /// Of scrubs.
    pub scrub: Option<Option<NonZeroU64>>,
    /// Of rebuilds.
    pub rebuild: Option<Option<NonZeroU64>>,
}

impl Engine {
    /// How fast scrubs and rebuilds may be.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates { scrub: self.limits.scrub.limit(), rebuild: self.limits.rebuild.limit() }
    }

    /// Changes that, from the next step on; it is not kept for the next opening.
    pub fn set_rates(&self, rates: Rates) {
        self.limits.scrub.set(rates.scrub);
        self.limits.rebuild.set(rates.rebuild);
    }

    /// Changes some of that at somebody's request, which is written to the audit log first.
    ///
    /// # Errors
    /// `Invalid` below [`RATE_BYTES_MIN`]: then nothing was changed; `Refused`, `Io`.
    pub fn change_rates(&self, change: RateChange) -> Result<Rates> {
        self.check_open()?;
        let asked = [("scrub", change.scrub), ("rebuild", change.rebuild)];
        let mut told = Vec::new();
        for (what, limit) in asked {
            let Some(limit) = limit else { continue };
            if limit.is_some_and(|limit| limit.get() < RATE_BYTES_MIN) {
                return Err(Error::invalid(format!("the limit of a {what} is too little"))
                    .with_hint("give at least 64KiB (a second), or none for no limit"));
            }
            told.push(match limit {
                Some(limit) => format!("{what} at most {} a second", units::Size(limit.get())),
                None => format!("{what} without a limit"),
            });
        }
        if !told.is_empty() {
            self.core.note("rates", "", told.join(", "))?;
        }
        if let Some(limit) = change.scrub {
            self.limits.scrub.set(limit);
        }
        if let Some(limit) = change.rebuild {
            self.limits.rebuild.set(limit);
        }
        Ok(self.rates())
    }
}
