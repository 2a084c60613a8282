//! Transactions on the catalogue: the only way to change it, and the records of volumes with it.
//!
//! Invariants
//! 1. There is one at a time: it holds the pool's books, which its commit hands back.
//! 2. A record in memory equals the catalogue's whenever the books are free: it is copied under
//!    them, to be changed, and taken up after the commit, before anybody else can begin.
//! 3. A transaction that is dropped has changed nothing. A commit that fails is the pool's last.

use std::ops::Deref;
use std::sync::Arc;

use env::{Rank, RankedGuard, RankedMutex};

use crate::caller::{caller, caller_from};
use crate::catalogue::{Commit, Numbers, VolumeRecord, tables};
use crate::core::Core;
use crate::types::AuditRecord;
use crate::{Error, Result};

/// The numbers given out, and the right to commit.
pub type Books<'a> = RankedGuard<'a, Numbers>;

/// The record of a volume, as the catalogue has it.
pub struct Record(Arc<RankedMutex<VolumeRecord>>);

impl Record {
    /// The record of a volume that the catalogue has.
    #[must_use]
    pub fn new(record: VolumeRecord) -> Record {
        Record(Arc::new(RankedMutex::new(Rank::Record, record)))
    }

    /// The record, to be read.
    #[track_caller]
    pub fn lock(&self) -> impl Deref<Target = VolumeRecord> + '_ {
        self.0.lock()
    }
}

/// Changes to the catalogue that become durable together, or not at all.
pub struct Transaction<'a> {
    // Dropped before the books: those who wait for them are refused after a panic.
    commit: Commit,
    /// Numbers given out.
    pub numbers: Books<'a>,
    core: &'a Core,
    records: Vec<(Arc<RankedMutex<VolumeRecord>>, VolumeRecord)>,
}

impl Deref for Transaction<'_> {
    type Target = Commit;

    fn deref(&self) -> &Commit {
        &self.commit
    }
}

impl Core {
    /// Begins a transaction; nobody else begins one until it is over.
    ///
    /// # Errors
    /// `Refused` after an earlier failure.
    pub fn begin(&self) -> Result<Transaction<'_>> {
        let numbers = self.books.lock();
        if self.store.has_failed() {
            return Err(Error::from(history::Error::refused()));
        }
        let mut commit = self.catalogue.begin()?;
        commit.fail_on_panic(&self.store);
        Ok(Transaction { commit, numbers, core: self, records: Vec::new() })
    }

    /// Adds a line to the audit log, in a transaction of its own.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn note(&self, action: &str, volume: &str, detail: String) -> Result<()> {
        let mut tx = self.begin()?;
        tx.audit(action, volume, detail)?;
        tx.commit().map(drop)
    }
}

impl<'a> Transaction<'a> {
    /// A record as it is to be after the commit: at first as it is.
    pub fn change(&mut self, record: &Record) -> &mut VolumeRecord {
        let is_it = |(held, _): &(Arc<_>, _)| Arc::ptr_eq(held, &record.0);
        let at = self.records.iter().position(is_it).unwrap_or_else(|| {
            let before = record.lock().clone();
            self.records.push((Arc::clone(&record.0), before));
            self.records.len() - 1
        });
        &mut self.records[at].1
    }

    /// Adds a line to the audit log.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub fn audit(&mut self, action: &str, volume: &str, detail: String) -> Result<()> {
        self.numbers.audit += 1;
        let record = AuditRecord {
            number: self.numbers.audit,
            time_ns: self.core.machine.clock.wall().as_nanos(),
            action: action.to_owned(),
            volume: volume.to_owned(),
            detail,
            caller: None,
            who: caller(),
            from: caller_from(),
        };
        self.put(tables::AUDIT, record.number, &record)
    }

    /// Makes it durable, and takes up the records.
    ///
    /// # Errors
    /// `Refused`; final for the pool.
    pub fn commit(self) -> Result<Books<'a>> {
        self.commit_then(|| ())
    }

    /// The same with something that memory has before the records: they lead to it.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_then(self, first: impl FnOnce()) -> Result<Books<'a>> {
        // In an order in which the commit is dropped before the books, should this panic.
        let Transaction { records, core, numbers, commit } = self;
        let outcome = records
            .iter()
            .try_for_each(|(_, record)| commit.put(tables::VOLUMES, record.id, record))
            .and_then(|()| core.sample(&commit))
            .and_then(|()| commit.put_numbers(&numbers))
            .and_then(|()| commit.commit());
        if outcome.is_err() {
            core.store.fail();
        }
        outcome?;
        first();
        for (held, record) in records {
            let mut held = held.lock();
            assert_eq!(held.id, record.id, "a record stays its volume's");
            *held = record;
        }
        Ok(numbers)
    }
}
