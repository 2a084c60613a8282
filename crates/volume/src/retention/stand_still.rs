//! A volume that stands still: nothing waits in its cache, its writers are held back, and its pins
//! are held, so that the moment that is now can be pinned.

use env::RankedGuard;
use units::Moment;

use crate::host::RoomWait;
use crate::retention::moments::Moments;
use crate::retention::pins::Pins;
use crate::write::write_back::Hold;
use crate::{ErrorKind, Result};

/// A volume that stands still, with its pins.
pub struct Still<'v> {
    /// Its pins.
    pub pins: RankedGuard<'v, Pins>,
    _hold: Option<Hold<'v>>,
}

impl<'v> Still<'v> {
    /// Lets writes go on; what was seen under the closed gate stays to be pinned.
    pub fn let_writes_go(self) -> RankedGuard<'v, Pins> {
        self.pins
    }
}

impl Moments {
    /// Makes the volume stand still, so that "now" is in the log. On a pool that refuses writes
    /// what waits cannot come there: then the past goes on without it.
    ///
    /// # Errors
    /// `Full` where what waits finds no room at all.
    pub(crate) fn stand_still(&self) -> Result<Still<'_>> {
        let mut wait = RoomWait::default();
        loop {
            match self.destage_all().and_then(|()| self.try_stand_still()) {
                Err(_) if self.core.store.has_failed() => {
                    return Ok(Still { pins: self.pins().lock(), _hold: None });
                }
                Err(e) if e.kind == ErrorKind::Full => {
                    if !self.core.host()?.wait_for_room(&mut wait, &|| true)? {
                        return Err(e);
                    }
                }
                other => return other,
            }
        }
    }

    /// The same for those who open a moment. A captured moment is in the log: it needs neither the
    /// waiting writes nor room for them.
    ///
    /// # Errors
    /// Those of [`Moments::stand_still`].
    pub(crate) fn stand_still_for(&self, moment: &Moment) -> Result<Still<'_>> {
        let pins = self.pins().lock();
        let is_captured = match moment {
            Moment::Version(_) => true,
            Moment::Mark(name) => pins.mark(name).is_some_and(|mark| mark.pinned),
            _ => false,
        };
        if is_captured {
            return Ok(Still { pins, _hold: None });
        }
        drop(pins);
        self.stand_still()
    }

    /// Makes it stand still for those who have destaged most of it, and may hold the pins of
    /// volumes with lower ids: no room is made.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub(crate) fn try_stand_still(&self) -> Result<Still<'_>> {
        let pins = self.pins().lock();
        let hold = self.hold_writes_now()?;
        Ok(Still { pins, _hold: Some(hold) })
    }
}
