//! Which volume it is: its number, its name, its record, the pool it is in, and whether it is still
//! served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use units::Seq;

use crate::catalogue::VolumeRecord;
use crate::catalogue::transaction::{Record, Transaction};
use crate::core::Core;
use crate::names::VolumeName;
use crate::types::{Access, Architecture, Granularity, InitiatorPort, Reservations};
use crate::{Error, Result};

/// A volume as the catalogue knows it.
pub struct Identity {
    pub(crate) id: u64,
    pub(crate) name: Arc<VolumeName>,
    pub(crate) core: Arc<Core>,
    pub(crate) record: Record,
    is_gone: AtomicBool,
    /// It is gone, and nothing is left of it.
    is_buried: AtomicBool,
    /// It was deleted, and can be had back; changes with its record.
    is_in_trash: AtomicBool,
}

impl Identity {
    /// That of a record.
    pub fn new(core: Arc<Core>, record: VolumeRecord) -> Identity {
        Identity {
            id: record.id,
            name: Arc::new(VolumeName::new(record.name.clone())),
            core,
            is_gone: AtomicBool::new(record.deleted),
            is_buried: AtomicBool::new(false),
            is_in_trash: AtomicBool::new(record.trash.is_some()),
            record: Record::new(record),
        }
    }

    /// Its number, which it keeps whatever it is called.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was deleted for good.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// It is deleted for good.
    pub(crate) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// Whether it is gone, and nothing is left of it.
    pub(crate) fn is_buried(&self) -> bool {
        self.is_buried.load(Ordering::Acquire)
    }

    /// Nothing is left of it.
    pub(crate) fn set_buried(&self) {
        self.is_buried.store(true, Ordering::Release);
    }

    /// Whether it was deleted and can be had back.
    pub(crate) fn is_in_trash(&self) -> bool {
        self.is_in_trash.load(Ordering::Acquire)
    }

    /// It goes into the trash, or comes out of it.
    pub(crate) fn set_in_trash(&self, is_in_trash: bool) {
        self.is_in_trash.store(is_in_trash, Ordering::Release);
    }

    /// Fails when it was deleted for good.
    pub(crate) fn check_there(&self) -> Result<()> {
        if self.is_gone() {
            return Err(Error::not_found(format!("{} was deleted", self.name)));
        }
        Ok(())
    }

    /// The error of a number that none of its versions has.
    pub(crate) fn no_version(&self, number: u64) -> Error {
        Error::not_found(format!("{} has no version {number}", self.name))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_there()?;
        if self.core.is_closed() {
            return Err(Error::refused("the pool is closed"));
        }
        Ok(())
    }

    /// A call that fails because the volume was deleted beside it says so, whatever it met.
    pub(crate) fn unless_gone<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.or_else(|error| self.check_open().and(Err(error)))
    }

    /// Begins a transaction about this volume. A deleted volume takes none: its record may be gone,
    /// and a commit would bring half of it back.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        let tx = self.core.begin()?;
        self.check_open()?;
        Ok(tx)
    }

    /// From when on it may go by itself, in nanoseconds since 1970, if it is a scratch clone.
    pub(crate) fn scratch_until_ns(&self) -> Option<u64> {
        self.record.lock().scratch_until_ns
    }

    /// Whether it is a scratch clone, which goes by itself.
    #[must_use]
    pub fn is_scratch(&self) -> bool {
        self.scratch_until_ns().is_some()
    }

    /// Whether clients can have it: it is neither deleted nor in the trash.
    #[must_use]
    pub fn is_served(&self) -> bool {
        !self.is_gone() && !self.is_in_trash()
    }

    /// Fails when it is deleted, or in the trash: clients write to neither.
    pub(crate) fn check_served(&self) -> Result<()> {
        self.check_open()?;
        match self.is_in_trash() {
            false => Ok(()),
            true => {
                let text = format!("{} was deleted", self.name);
                let hint = format!("`hindsight volume undelete {}` brings it back", self.name);
                Err(Error::not_found(text).with_hint(hint))
            }
        }
    }

    /// Where its data lives.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.record.lock().architecture
    }

    /// Whether a change of architecture has something left to do.
    #[must_use]
    pub fn is_converting(&self) -> bool {
        self.record.lock().conversion.is_some()
    }

    /// The access to it over iSCSI.
    #[must_use]
    pub fn access(&self) -> Access {
        self.record.lock().access.clone()
    }

    /// Its persistent reservations, as far as they are kept.
    #[must_use]
    pub fn reservations(&self) -> Reservations {
        self.record.lock().reservations.clone()
    }

    /// Keeps persistent reservations over restarts, which a port has changed; empty ones are kept
    /// no more. The audit log tells of it when the holder is another, when
    /// others are registered no more, and when keeping begins or ends.
    ///
    /// # Errors
    /// `NotFound` once the volume is deleted; `Refused`.
    pub fn keep_reservations(&self, reservations: &Reservations, by: &InitiatorPort) -> Result<()> {
        let mut tx = self.begin()?;
        self.check_served()?;
        let record = tx.change(&self.record);
        let before = std::mem::replace(&mut record.reservations, reservations.clone());
        let is_told = before.held != reservations.held
            || before.is_empty() != reservations.is_empty()
            || before.registrations.iter().any(|it| it.port != *by && !reservations.has(&it.port));
        if is_told {
            let detail = format!("{} by {}", reservations.told(), by.initiator);
            tx.audit("reservations", &self.name, detail)?;
        }
        tx.commit().map(drop)
    }

    /// The seq of the last revert or shrink, or of its beginning: since then no client's writes
    /// were taken back.
    #[must_use]
    pub fn last_rewrite(&self) -> Seq {
        let record = self.record.lock();
        let reverted = record.line.last().expect("a line is never empty").0;
        let mut shrinks = record.sizes.windows(2).filter(|sizes| sizes[1].1 < sizes[0].1);
        Seq(shrinks.next_back().map_or(reverted, |sizes| sizes[1].0.max(reverted)))
    }

    pub(crate) fn granularity_now(&self) -> Granularity {
        self.record.lock().granularity_at(Seq(u64::MAX))
    }
}
