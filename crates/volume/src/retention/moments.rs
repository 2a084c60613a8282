//! The moments of a volume that can be opened, and what is known of the space they take.
//!
//! Invariant: a moment is resolved and pinned under `pins`, and the horizon moves under it, so that
//! no view opens on a moment that is just leaving the window.

use std::ops::Deref;

use env::{Rank, RankedMutex};

use crate::pool::space::counted::LastCount;
use crate::retention::pins::Pins;
use crate::write::Writer;

/// The moments of a volume.
pub struct Moments {
    writer: Writer,
    pins: RankedMutex<Pins>,
    last_count: LastCount,
}

impl Deref for Moments {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl Moments {
    /// Those of a writer, with these pins.
    pub fn new(writer: Writer, pins: Pins) -> Moments {
        let pins = RankedMutex::numbered(Rank::Pins, writer.id, pins);
        Moments { writer, pins, last_count: LastCount::default() }
    }

    pub(crate) fn pins(&self) -> &RankedMutex<Pins> {
        &self.pins
    }

    pub(crate) fn last_count(&self) -> &LastCount {
        &self.last_count
    }
}
