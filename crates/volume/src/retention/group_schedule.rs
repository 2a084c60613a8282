//! The schedule of a group, and what it made.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::RankedGuard;

use crate::retention::pins::Pins;
use crate::retention::schedule::Schedule;
use crate::volume::Volume;

/// The schedule of a group, and what it made.
#[derive(Debug)]
pub struct GroupSchedule {
    pub schedule: Schedule,
    pub captures: BTreeMap<u64, Made>,
}

/// A capture that a schedule made.
#[derive(Debug)]
pub struct Made {
    /// The clock's time.
    pub made_ns: u64,
    /// Volume ids and the numbers of their versions.
    pub versions: Vec<(u64, u64)>,
}

/// The pins of the volumes of a group, all at once.
pub struct Held<'v> {
    pub volumes: &'v [Arc<Volume>],
    pub pins: Vec<RankedGuard<'v, Pins>>,
}

impl<'v> Held<'v> {
    /// In the order of ids, which is the order of locks.
    pub fn of(volumes: &'v [Arc<Volume>]) -> Held<'v> {
        Held { volumes, pins: volumes.iter().map(|volume| volume.pins().lock()).collect() }
    }

    /// Whether something of a capture is there.
    pub fn has_some_of(&self, made: &Made) -> bool {
        made.versions.iter().any(|&(id, number)| {
            let place = self.volumes.binary_search_by_key(&id, |volume| volume.id);
            place.is_ok_and(|place| self.pins[place].version(number).is_some())
        })
    }
}

impl GroupSchedule {
    /// The captures that count, newest first: number and the clock's time.
    pub fn left<'s>(&'s self, held: &'s Held<'_>) -> impl Iterator<Item = (u64, u64)> + 's {
        let left = self.captures.iter().rev().filter(|(_, made)| held.has_some_of(made));
        left.map(|(&number, made)| (number, made.made_ns))
    }
}
