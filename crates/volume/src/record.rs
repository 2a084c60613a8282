//! A volume's record, as the catalogue has it.
//!
//! Invariants
//! 1. It equals the catalogue's but for the instant between a commit and `set`, and that is under
//!    the books. So it is copied to be changed only by those who have them: a copy made before
//!    would take back what others commit meanwhile.

use std::ops::Deref;

use env::{Rank, RankedGuard, RankedMutex};

use crate::catalogue::{Numbers, VolumeRecord};

/// The record of a volume.
pub struct Record(RankedMutex<VolumeRecord>);

impl Record {
    /// That of the catalogue.
    #[must_use]
    pub fn new(record: VolumeRecord) -> Record {
        Record(RankedMutex::new(Rank::Record, record))
    }

    /// The record, to be read.
    #[track_caller]
    pub fn lock(&self) -> impl Deref<Target = VolumeRecord> + '_ {
        self.0.lock()
    }

    /// Takes up what was committed under the books.
    pub fn set(&self, record: VolumeRecord, _books: &RankedGuard<'_, Numbers>) {
        *self.0.lock() = record;
    }
}
