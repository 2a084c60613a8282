//! Marks: names for moments, which pin them if asked to.

use units::{Moment, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{MarkRecord, tables};
use crate::names::check_name;
use crate::retention::moments::Moments;
use crate::types::{Mark, Stamp};
use crate::{Error, Result};

impl Moments {
    /// Names a moment; pins it if asked to.
    ///
    /// # Errors
    /// `Invalid` name, `Exists`, and those of resolving.
    pub fn create_mark(&self, name: &str, at: &Moment, pin: bool) -> Result<Mark> {
        self.create_mark_with(name, at, pin, |_, _| Ok(()))
    }

    /// The same, with something else in its commit: both are made, or none.
    pub(crate) fn create_mark_with(
        &self,
        name: &str,
        at: &Moment,
        pin: bool,
        also: impl FnOnce(&mut Transaction<'_>, &MarkRecord) -> Result<()>,
    ) -> Result<Mark> {
        self.check_open()?;
        check_name("mark", name)?;
        if pin {
            self.destage_all()?;
            self.core.store.flush()?;
        }
        let mut still = self.stand_still()?;
        let pins = &mut still.pins;
        if pins.mark(name).is_some() {
            return Err(Error::exists(format!("{} has a mark {name} already", self.name)));
        }
        let resolved = self.resolve_with(at, pins)?;
        let record = MarkRecord {
            seq: resolved.seq.0,
            time_ns: resolved.time.as_nanos(),
            pinned: pin,
            created_ns: self.now().as_nanos(),
        };
        let mut tx = self.begin()?;
        self.check_served()?;
        tx.put(tables::MARKS, (self.id, name), &record)?;
        also(&mut tx, &record)?;
        let _books = tx.commit()?;
        let mark = mark_of(name, &record);
        pins.add_mark(name.to_owned(), record);
        Ok(mark)
    }

    /// Whether it has a mark of this name.
    #[must_use]
    pub fn has_mark(&self, name: &str) -> bool {
        self.pins().lock().mark(name).is_some()
    }

    /// All marks, by name.
    ///
    /// # Errors
    /// `NotFound` once the volume is deleted.
    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.check_open()?;
        Ok(self.pins().lock().marks().map(|(name, record)| mark_of(name, record)).collect())
    }

    /// Deletes a mark.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete_mark(&self, name: &str) -> Result<()> {
        self.check_open()?;
        let mut pins = self.pins().lock();
        let Some(mark) = pins.mark(name) else {
            return Err(Error::not_found(format!("{} has no mark {name}", self.name)));
        };
        let mut tx = self.begin()?;
        tx.remove(tables::MARKS, (self.id, name))?;
        let detail = format!("mark {name} (seq {}, pinned: {})", mark.seq, mark.pinned);
        tx.audit("mark-delete", &self.name, detail)?;
        let _books = tx.commit()?;
        pins.remove_mark(name);
        self.reclamation().want();
        Ok(())
    }
}

fn mark_of(name: &str, record: &MarkRecord) -> Mark {
    Mark {
        name: name.to_owned(),
        stamp: Stamp::of(record.seq, record.time_ns),
        pinned: record.pinned,
        created: WallTime::from_nanos(record.created_ns),
    }
}
