//! The pool's catalogue: volumes, timelines, segments, runs, versions, marks, audit. Small and
//! cold.
//!
//! Invariants
//! 1. One commit is one atomic, durable step from one consistent catalogue to the next.
//! 2. A commit also makes durable everything written to the device before it (the library flushes
//!    the same device), so what a record points to is never younger than the record.
//! 3. A record or a table that cannot be read stops us: it never means "none". Only where nothing
//!    depends on a record whoever asks may go on without it.

pub mod tables;
pub mod transaction;

mod backend;
mod copies;
mod first_page;
mod guard;
#[cfg(test)]
mod page_tests;
mod records;
mod sums;

use std::borrow::Borrow;
use std::ops::RangeBounds;
use std::sync::Arc;

use format::superblock::{FEATURE_TABLES, FEATURE_TARGETS};
use history::Store;
use redb::{
    Builder, Database, Durability, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    TableError, TableHandle, Value, WriteTransaction,
};

use backend::CACHE_BYTES;
pub use backend::{CatalogueMedia, write_superblock, write_superblock_twice};
pub use copies::Told;
use guard::guarded;
pub use guard::panic_becomes_error;
pub use records::{
    AlarmRecord, CompactionRecord, ConversionRecord, EventRecord, GroupRecord, GroupVersionRecord,
    MarkRecord, OpenedNameRecord, RunRecord, Sample, ScheduleRecord, ScheduledRecord, ScrubPhase,
    ScrubRecord, ScrubScheduleRecord, SegmentRecord, SourceRecord, TargetRecord, TimelineRecord,
    TokenRecord, TrashRecord, UnitRecord, VersionRecord, VolumeRecord, WatchRecord,
};
use tables::{Form, Table};

use crate::types::Architecture;
use crate::{Error, ErrorKind, Result};

/// Rows with their numbers, and the number at which to go on; `None` at the end.
pub type Page<R> = (Vec<(u64, R)>, Option<u64>);

/// The features that say that all tables are there.
const ALL_TABLES: u64 = FEATURE_TABLES | FEATURE_TARGETS;

/// The least and the greatest key of what belongs to a volume or a group.
#[must_use]
pub fn all_of(id: u64) -> std::ops::RangeInclusive<(u64, u64)> {
    (id, 0)..=(id, u64::MAX)
}

/// The open catalogue.
pub struct Catalogue {
    /// The library's; there until this is dropped.
    database: Option<Database>,
    /// All tables are there: one that is not is damage.
    has_all_tables: bool,
}

impl Drop for Catalogue {
    fn drop(&mut self) {
        // The library writes once more, and asserts where it finds pages that cannot be: damage,
        // which by then nobody asks about. All commits are durable.
        let database = self.database.take();
        let _ = guarded(|| drop(database));
    }
}

/// Everything that is read once, when a pool is opened.
#[derive(Debug, Default)]
pub struct Contents {
    /// Highest number given out of each kind.
    pub numbers: Numbers,
    /// Volumes.
    pub volumes: Vec<VolumeRecord>,
    /// Timelines.
    pub timelines: Vec<TimelineRecord>,
    /// Segments by number.
    pub segments: Vec<(u64, SegmentRecord)>,
    /// Spares: number and zone.
    pub spares: Vec<(u64, u32)>,
    /// Runs of map entries.
    pub map_runs: Vec<RunRecord>,
    /// Runs of times.
    pub time_runs: Vec<RunRecord>,
    /// Slabs of current stores: volume, slab, zone.
    pub slabs: Vec<(u64, u64, u32)>,
    /// Slabs of bases: volume, slab, segment.
    pub bases: Vec<(u64, u64, u64)>,
}

/// Highest numbers given out; none is used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Volumes (and logs).
    pub volume: u64,
    /// Timelines.
    pub timeline: u64,
    /// Segments.
    pub segment: u64,
    /// Runs.
    pub run: u64,
    /// Audit records.
    pub audit: u64,
    /// Schedules.
    pub schedule: u64,
    /// Groups.
    pub group: u64,
    /// Made targets.
    pub target: u64,
    /// No number: how full the pool was, in percent, when it was warned of last; 0 when it was not.
    pub warning: u64,
}

impl Numbers {
    /// Each with its name in the catalogue.
    fn named(&mut self) -> [(&'static str, &mut u64); 9] {
        [
            ("volume", &mut self.volume),
            ("timeline", &mut self.timeline),
            ("segment", &mut self.segment),
            ("run", &mut self.run),
            ("audit", &mut self.audit),
            ("schedule", &mut self.schedule),
            ("group", &mut self.group),
            ("target", &mut self.target),
            ("warning", &mut self.warning),
        ]
    }
}

/// A commit being put together.
pub struct Commit {
    transaction: WriteTransaction,
    /// After the transaction, as fields are dropped in this order.
    store: Option<FailsByPanic>,
}

/// Refuses writes to a store when a panic lets go of it.
struct FailsByPanic(Arc<Store>);

impl Drop for FailsByPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

fn failed(source: impl Into<redb::Error>) -> Error {
    let source = source.into();
    let kind = match &source {
        redb::Error::Corrupted(_) | redb::Error::TableDoesNotExist(_) => ErrorKind::Corrupt,
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, format!("the catalogue cannot be used: {source}")).with_source(source)
}

impl Catalogue {
    /// Makes an empty catalogue.
    ///
    /// # Errors
    /// The device's.
    pub fn create(media: CatalogueMedia) -> Result<Catalogue> {
        let catalogue = Catalogue::open_with(media)?;
        let commit = catalogue.begin()?;
        tables::make_all(&commit.transaction).map_err(failed)?;
        commit.commit()?;
        Ok(catalogue)
    }

    /// Opens a catalogue that must be there. `told` hears how often it was tried in vain to read it
    /// in some way, and how often it may be.
    ///
    /// # Errors
    /// `Corrupt` when its checksums do not hold.
    pub fn open(media: CatalogueMedia, told: &mut Told<'_>) -> Result<Catalogue> {
        if redb::StorageBackend::len(&media).unwrap_or(0) == 0 {
            return Err(Error::corrupt("the pool has no catalogue"));
        }
        copies::settle_copies(&media, told).map_err(failed)?;
        let opened = guarded(|| {
            let mut catalogue = Catalogue::open_with(media)?;
            // Every page's checksum, once, so that damage is found now and not as a wrong answer
            // later. (False means "was repaired", which is the ordinary case after a crash.)
            let database = catalogue.database.as_mut().expect("it was opened");
            database.check_integrity().map_err(failed)?;
            if catalogue.has_all_tables {
                let transaction = catalogue.database().begin_read().map_err(failed)?;
                tables::open_all(&transaction).map_err(failed)?;
            }
            Ok(catalogue)
        });
        opened.unwrap_or_else(|| {
            Err(Error::corrupt("the pages of the catalogue contradict each other"))
        })
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("held until dropped")
    }

    fn open_with(media: CatalogueMedia) -> Result<Catalogue> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let features = media.superblock().features_incompatible;
        let has_all_tables = features & ALL_TABLES == ALL_TABLES;
        let database = builder.create_with_backend(media).map_err(failed)?;
        Ok(Catalogue { database: Some(database), has_all_tables })
    }

    /// Begins a commit; there is one at a time.
    ///
    /// # Errors
    /// `Refused` after an earlier failure.
    pub fn begin(&self) -> Result<Commit> {
        let mut transaction = self.database().begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        transaction.set_quick_repair(true);
        Ok(Commit { transaction, store: None })
    }

    /// Makes the tables that an older program did not; how the superblock says that they are there
    /// is up to the caller.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn make_tables(&self) -> Result<()> {
        let commit = self.begin()?;
        tables::make_all(&commit.transaction).map_err(failed)?;
        commit.commit()
    }

    /// Reads what a pool needs to begin.
    ///
    /// # Errors
    /// `Corrupt` when any record is unreadable.
    pub fn load(&self) -> Result<Contents> {
        let mut numbers = Numbers::default();
        for (name, number) in numbers.named() {
            *number = self.get(tables::NUMBERS, name)?.unwrap_or(0);
        }
        let slabs = self.rows(tables::SLABS, .., usize::MAX)?;
        let bases = self.rows(tables::BASES, .., usize::MAX)?;
        let volumes: Vec<VolumeRecord> = self.all(tables::VOLUMES)?;
        let some = |has: fn(Architecture) -> bool| volumes.iter().any(|v| has(v.architecture));
        for (name, wants) in [
            (tables::SLABS.name, some(Architecture::has_current_store)),
            (tables::BASES.name, some(Architecture::has_base)),
        ] {
            if wants && !self.has_table(name)? {
                return Err(failed(TableError::TableDoesNotExist(name.to_owned())));
            }
        }
        Ok(Contents {
            numbers,
            volumes,
            timelines: self.all(tables::TIMELINES)?,
            segments: self.rows(tables::SEGMENTS, .., usize::MAX)?,
            spares: self.rows(tables::SPARES, .., usize::MAX)?,
            map_runs: self.all(tables::MAP_RUNS)?,
            time_runs: self.all(tables::TIME_RUNS)?,
            slabs: slabs.into_iter().map(|((volume, slab), zone)| (volume, slab, zone)).collect(),
            bases: bases.into_iter().map(|((volume, slab), of)| (volume, slab, of)).collect(),
        })
    }

    /// Whether a table is there: those of slabs are, where a volume has some.
    fn has_table(&self, name: &str) -> Result<bool> {
        let transaction = self.database().begin_read().map_err(failed)?;
        let mut tables = transaction.list_tables().map_err(failed)?;
        Ok(tables.any(|table| table.name() == name))
    }

    /// A table; none where an older program has not made it.
    fn open_table<K: Key + 'static, R, F: Form<R>>(
        &self,
        transaction: &ReadTransaction,
        table: &Table<K, R, F>,
    ) -> Result<Option<ReadOnlyTable<K, F::Stored>>> {
        let is_optional = tables::OPTIONAL.contains(&table.name);
        let may_miss =
            is_optional || !self.has_all_tables && !tables::OF_ALL_POOLS.contains(&table.name);
        match transaction.open_table(table.definition()) {
            Err(TableError::TableDoesNotExist(_)) if may_miss => Ok(None),
            opened => opened.map(Some).map_err(failed),
        }
    }

    /// A row.
    ///
    /// # Errors
    /// `Corrupt` when it is unreadable.
    pub fn get<'k, K: Key + 'static, R, F: Form<R>>(
        &self,
        table: Table<K, R, F>,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<Option<R>> {
        let transaction = self.database().begin_read().map_err(failed)?;
        let Some(open) = self.open_table(&transaction, &table)? else { return Ok(None) };
        let stored = open.get(key.borrow()).map_err(failed)?;
        stored.map(|stored| decode(&table, key.borrow(), &stored.value())).transpose()
    }

    /// Visits rows in the order of their keys, those that are unreadable as well, until `visit`
    /// says that no more are wanted.
    ///
    /// # Errors
    /// Those of `visit`, and the device's.
    pub fn each<'k, K: Key + 'static, R, F: Form<R>, B: Borrow<K::SelfType<'k>>>(
        &self,
        table: Table<K, R, F>,
        range: impl RangeBounds<B>,
        mut visit: impl FnMut(K::SelfType<'_>, Result<R>) -> Result<bool>,
    ) -> Result<()> {
        let transaction = self.database().begin_read().map_err(failed)?;
        let Some(open) = self.open_table(&transaction, &table)? else { return Ok(()) };
        for item in open.range(range).map_err(failed)? {
            let (key, stored) = item.map_err(failed)?;
            let row = decode(&table, &key.value(), &stored.value());
            if !visit(key.value(), row)? {
                break;
            }
        }
        Ok(())
    }

    /// At most `limit` rows with their keys.
    ///
    /// # Errors
    /// `Corrupt` when one is unreadable.
    pub fn rows<K, R, F: Form<R>>(
        &self,
        table: Table<K, R, F>,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(K, R)>>
    where
        K: for<'a> Key<SelfType<'a> = K> + Borrow<K> + 'static,
    {
        let mut rows = Vec::new();
        self.each(table, range, |key, row| {
            if rows.len() < limit {
                rows.push((key, row?));
            }
            Ok(rows.len() < limit)
        })?;
        Ok(rows)
    }

    /// At most `limit` rows from the end of a range on, the last one first.
    ///
    /// # Errors
    /// `Corrupt` when one is unreadable.
    pub fn last_rows<R, F: Form<R>>(
        &self,
        table: Table<u64, R, F>,
        range: impl RangeBounds<u64>,
        limit: usize,
    ) -> Result<Vec<R>> {
        let transaction = self.database().begin_read().map_err(failed)?;
        let Some(open) = self.open_table(&transaction, &table)? else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for item in open.range(range).map_err(failed)?.rev().take(limit) {
            let (key, stored) = item.map_err(failed)?;
            rows.push(decode(&table, &key.value(), &stored.value())?);
        }
        Ok(rows)
    }

    /// All rows, by number.
    ///
    /// # Errors
    /// `Corrupt` when one is unreadable.
    pub fn all<R, F: Form<R>>(&self, table: Table<u64, R, F>) -> Result<Vec<R>> {
        Ok(self.rows(table, .., usize::MAX)?.into_iter().map(|(_, row)| row).collect())
    }

    /// All rows that can be read, by number: where nothing depends on the others.
    ///
    /// # Errors
    /// The device's.
    pub fn readable<R>(&self, table: Table<u64, R>) -> Result<Vec<(u64, R)>>
    where
        tables::Json: Form<R>,
    {
        let mut rows = Vec::new();
        self.each::<_, _, _, u64>(table, .., |key, row| {
            rows.extend(row.ok().map(|row| (key, row)));
            Ok(true)
        })?;
        Ok(rows)
    }

    /// At most `limit` rows of a volume or a group from a number on.
    ///
    /// # Errors
    /// `Corrupt` when one is unreadable.
    pub fn rows_of<R, F: Form<R>>(
        &self,
        table: Table<(u64, u64), R, F>,
        id: u64,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, R)>> {
        let rows = self.rows(table, (id, first)..=(id, u64::MAX), limit)?;
        Ok(rows.into_iter().map(|((_, number), row)| (number, row)).collect())
    }

    /// The same, and where to go on.
    ///
    /// # Errors
    /// `Corrupt` when one is unreadable.
    pub fn page_of<R, F: Form<R>>(
        &self,
        table: Table<(u64, u64), R, F>,
        id: u64,
        first: u64,
        limit: usize,
    ) -> Result<Page<R>> {
        let mut rows = self.rows_of(table, id, first, limit.saturating_add(1))?;
        let next = rows.get(limit).map(|row| row.0);
        rows.truncate(limit);
        Ok((rows, next))
    }

    /// The last scrub, and when there is another. An unreadable record is as if there was none:
    /// nothing else depends on it.
    ///
    /// # Errors
    /// The device's.
    pub fn scrubs(&self) -> Result<(Option<ScrubRecord>, Option<ScrubScheduleRecord>)> {
        let (mut last, mut schedule) = (None, None);
        self.each(tables::SCRUBS, tables::LAST..=tables::LAST, |_, record| {
            last = record.ok();
            Ok(true)
        })?;
        self.each(tables::SCRUB_SCHEDULES, tables::SCHEDULE..=tables::SCHEDULE, |_, record| {
            schedule = record.ok();
            Ok(true)
        })?;
        Ok((last, schedule))
    }

    /// The marks of a volume, by name.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn marks(&self, volume: u64) -> Result<Vec<(String, MarkRecord)>> {
        let mut records = Vec::new();
        self.each(tables::MARKS, (volume, "")..(volume + 1, ""), |(_, name), record| {
            records.push((name.to_owned(), record?));
            Ok(true)
        })?;
        Ok(records)
    }
}

fn decode<K: Key + 'static, R, F: Form<R>>(
    table: &Table<K, R, F>,
    key: &K::SelfType<'_>,
    stored: &<F::Stored as Value>::SelfType<'_>,
) -> Result<R> {
    F::decode(F::Stored::as_bytes(stored).as_ref()).map_err(|source| {
        let text = format!("catalogue: record {key:?} of {} is unreadable", table.name);
        Error::corrupt(text).with_source(source)
    })
}

impl Commit {
    /// Writes a row. The record of an open volume changes by `Transaction::change` instead.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn put<'k, K: Key + 'static, R, F: Form<R>>(
        &self,
        table: Table<K, R, F>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &R,
    ) -> Result<()> {
        let mut open = self.transaction.open_table(table.definition()).map_err(failed)?;
        open.insert(key, F::Stored::from_bytes(&F::encode(row))).map_err(failed)?;
        Ok(())
    }

    /// Removes a row, if it is there.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn remove<'k, K: Key + 'static, R, F: Form<R>>(
        &self,
        table: Table<K, R, F>,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<()> {
        let mut open = self.transaction.open_table(table.definition()).map_err(failed)?;
        open.remove(key).map_err(failed)?;
        Ok(())
    }

    /// Removes rows.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn remove_all<'k, K: Key + 'static, R, F: Form<R>, B: Borrow<K::SelfType<'k>> + 'k>(
        &self,
        table: Table<K, R, F>,
        range: impl RangeBounds<B> + 'k,
    ) -> Result<()> {
        let mut open = self.transaction.open_table(table.definition()).map_err(failed)?;
        open.retain_in(range, |_, _| false).map_err(failed)
    }

    /// Writes the highest numbers given out.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn put_numbers(&self, numbers: &Numbers) -> Result<()> {
        let mut numbers = *numbers;
        for (name, number) in numbers.named() {
            self.put(tables::NUMBERS, name, &*number)?;
        }
        Ok(())
    }

    /// Removes all versions and marks of a volume.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn remove_pins(&self, id: u64) -> Result<()> {
        self.remove_all(tables::VERSIONS, all_of(id))?;
        self.remove_all(tables::MARKS, (id, "")..(id + 1, ""))?;
        self.remove_all(tables::OPEN_FILES, all_of(id))
    }

    /// Removes a run of map entries.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn remove_map_run(&self, id: u64) -> Result<()> {
        self.remove(tables::MAP_RUNS, id)?;
        self.remove(tables::FIGURES, id)
    }

    /// Refuses writes to the store from when a panic lets go of this: before the books are free.
    pub fn fail_on_panic(&mut self, store: &Arc<Store>) {
        self.store = Some(FailsByPanic(Arc::clone(store)));
    }

    /// Makes it all durable.
    ///
    /// # Errors
    /// The device's.
    pub fn commit(self) -> Result<()> {
        self.transaction.commit().map_err(failed)
    }
}
