//! The pool's catalogue: volumes, timelines, segments, runs, versions, marks, audit. Small and
//! cold.
//!
//! Invariants
//! 1. One commit is one atomic, durable step from one consistent catalogue to the next.
//! 2. A commit also makes durable everything written to the device before it (the library flushes
//!    the same device), so what a record points to is never younger than the record.
//! 3. A record that cannot be read stops us: it never means "none".

pub mod transaction;

mod backend;
mod compactions;
mod copies;
mod figures;
mod first_page;
mod groups;
mod guard;
mod open_files;
#[cfg(test)]
mod page_tests;
mod records;
mod samples;
mod schedules;
mod scrubs;
mod sums;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use history::Store;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, Value,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use backend::CACHE_BYTES;
pub use backend::{CatalogueMedia, write_superblock};
#[cfg(test)]
use compactions::COMPACTIONS;
pub use copies::Told;
#[cfg(test)]
use figures::FIGURES;
#[cfg(test)]
use groups::{GROUP_VERSIONS, GROUPS};
use guard::guarded;
pub use guard::panic_becomes_error;
#[cfg(test)]
use open_files::OPEN_FILES;
pub use records::{
    CompactionRecord, ConversionRecord, EventRecord, GraceRecord, GroupRecord, GroupVersionRecord,
    MarkRecord, RunRecord, ScheduleRecord, ScheduledRecord, ScrubPhase, ScrubRecord,
    ScrubScheduleRecord, SegmentRecord, SourceRecord, TimelineRecord, TrashRecord, VersionRecord,
    VolumeRecord,
};
#[cfg(test)]
use samples::SAMPLES;
#[cfg(test)]
use schedules::{GROUP_SCHEDULES, SCHEDULES};
#[cfg(test)]
use scrubs::SCRUBS;

use crate::types::AuditRecord;
use crate::{Error, ErrorKind, Result};

const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const VOLUMES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("volumes");
const TIMELINES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("timelines");
const SEGMENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("segments");
const SPARES: TableDefinition<'_, u64, u32> = TableDefinition::new("spares");
const MAP_RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("map-runs");
const TIME_RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("time-runs");
const VERSIONS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("versions");
const MARKS: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("marks");
const CURRENT: TableDefinition<'_, (u64, u64), u32> = TableDefinition::new("current");
const BASES: TableDefinition<'_, (u64, u64), u64> = TableDefinition::new("bases");
const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit");

/// The open catalogue.
pub struct Catalogue {
    database: Held,
}

/// The library's database. When let go it writes once more, and asserts where it finds pages that
/// cannot be: damage, which by then nobody asks about.
struct Held(Option<Database>);

impl Deref for Held {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Database {
        self.0.as_mut().expect("held until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let database = self.0.take();
        // All commits are durable; this last write would only be found sooner.
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
    /// No number: how full the pool was, in percent, when it was warned of last; 0 when it was not.
    pub warning: u64,
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
        redb::Error::Corrupted(_) => ErrorKind::Corrupt,
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, format!("the catalogue cannot be used: {source}")).with_source(source)
}

fn unreadable(table: &str, key: impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Corrupt, format!("catalogue: record {key:?} of {table} is unreadable"))
}

fn decode<T: DeserializeOwned>(table: &str, key: impl std::fmt::Debug, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| unreadable(table, key).with_source(e))
}

fn encode(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data")
}

impl Catalogue {
    /// Makes an empty catalogue.
    ///
    /// # Errors
    /// The device's.
    pub fn create(media: CatalogueMedia) -> Result<Catalogue> {
        let catalogue = Catalogue::open_with(media)?;
        let commit = catalogue.begin()?;
        let t = &commit.transaction;
        t.open_table(NUMBERS).map_err(failed)?;
        t.open_table(VOLUMES).map_err(failed)?;
        t.open_table(TIMELINES).map_err(failed)?;
        t.open_table(SEGMENTS).map_err(failed)?;
        t.open_table(SPARES).map_err(failed)?;
        t.open_table(MAP_RUNS).map_err(failed)?;
        t.open_table(TIME_RUNS).map_err(failed)?;
        t.open_table(VERSIONS).map_err(failed)?;
        t.open_table(MARKS).map_err(failed)?;
        t.open_table(AUDIT).map_err(failed)?;
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
            return Err(Error::new(ErrorKind::Corrupt, "the pool has no catalogue"));
        }
        copies::settle_copies(&media, told).map_err(failed)?;
        let opened = guarded(|| {
            let mut catalogue = Catalogue::open_with(media)?;
            // Every page's checksum, once, so that damage is found now and not as a wrong answer
            // later. (False means "was repaired", which is the ordinary case after a crash.)
            catalogue.database.check_integrity().map_err(failed)?;
            Ok(catalogue)
        });
        opened.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Corrupt, "the pages of the catalogue contradict each other"))
        })
    }

    fn open_with(media: CatalogueMedia) -> Result<Catalogue> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_with_backend(media).map_err(failed)?;
        Ok(Catalogue { database: Held(Some(database)) })
    }

    /// Begins a commit; there is one at a time.
    ///
    /// # Errors
    /// `Refused` after an earlier failure.
    pub fn begin(&self) -> Result<Commit> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        transaction.set_quick_repair(true);
        Ok(Commit { transaction, store: None })
    }

    /// Reads what a pool needs to begin.
    ///
    /// # Errors
    /// `Corrupt` when any record is unreadable.
    pub fn load(&self) -> Result<Contents> {
        let t = self.database.begin_read().map_err(failed)?;
        let mut contents = Contents::default();
        let numbers = t.open_table(NUMBERS).map_err(failed)?;
        let number = |name: &str| -> Result<u64> {
            Ok(numbers.get(name).map_err(failed)?.map_or(0, |n| n.value()))
        };
        contents.numbers = Numbers {
            volume: number("volume")?,
            timeline: number("timeline")?,
            segment: number("segment")?,
            run: number("run")?,
            audit: number("audit")?,
            schedule: number("schedule")?,
            group: number("group")?,
            warning: number("warning")?,
        };
        contents.volumes = self.all("volumes", VOLUMES)?;
        contents.timelines = self.all("timelines", TIMELINES)?;
        contents.map_runs = self.all("map-runs", MAP_RUNS)?;
        contents.time_runs = self.all("time-runs", TIME_RUNS)?;
        for item in t.open_table(SEGMENTS).map_err(failed)?.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let record = SegmentRecord::decode(value.value())
                .ok_or_else(|| unreadable("segments", key.value()))?;
            contents.segments.push((key.value(), record));
        }
        for item in t.open_table(SPARES).map_err(failed)?.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            contents.spares.push((key.value(), value.value()));
        }
        let volumes = &contents.volumes;
        contents.slabs =
            self.slabs(CURRENT, volumes.iter().any(|v| v.architecture.has_current_store()))?;
        contents.bases = self.slabs(BASES, volumes.iter().any(|v| v.architecture.has_base()))?;
        Ok(contents)
    }

    /// The slabs of current stores or of bases, each with what it lies in. The table is there once
    /// a volume has such; that it must be is said by `expected`.
    fn slabs<V>(
        &self,
        table: TableDefinition<'_, (u64, u64), V>,
        expected: bool,
    ) -> Result<Vec<(u64, u64, V)>>
    where
        V: for<'a> Value<SelfType<'a> = V> + 'static,
    {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(table) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) if !expected => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut slabs = Vec::new();
        for item in table.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let (volume, slab) = key.value();
            slabs.push((volume, slab, value.value()));
        }
        Ok(slabs)
    }

    fn all<T: DeserializeOwned>(
        &self,
        name: &str,
        table: TableDefinition<'_, u64, &'static [u8]>,
    ) -> Result<Vec<T>> {
        let t = self.database.begin_read().map_err(failed)?;
        let mut records = Vec::new();
        for item in t.open_table(table).map_err(failed)?.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            records.push(decode(name, key.value(), value.value())?);
        }
        Ok(records)
    }

    /// Visits the versions of a volume, by number: there may be millions.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn each_version(
        &self,
        volume: u64,
        mut visit: impl FnMut(u64, VersionRecord),
    ) -> Result<()> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = t.open_table(VERSIONS).map_err(failed)?;
        for item in table.range((volume, 0)..=(volume, u64::MAX)).map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let number = key.value().1;
            visit(number, decode("versions", number, value.value())?);
        }
        Ok(())
    }

    /// At most `limit` versions of a volume from a number on.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn versions_from(
        &self,
        volume: u64,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, VersionRecord)>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = t.open_table(VERSIONS).map_err(failed)?;
        let mut records = Vec::new();
        let range = table.range((volume, first)..=(volume, u64::MAX)).map_err(failed)?;
        for item in range.take(limit) {
            let (key, value) = item.map_err(failed)?;
            let number = key.value().1;
            records.push((number, decode("versions", number, value.value())?));
        }
        Ok(records)
    }

    /// One version of a volume.
    ///
    /// # Errors
    /// `Corrupt` when the record is unreadable.
    pub fn version(&self, volume: u64, number: u64) -> Result<Option<VersionRecord>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = t.open_table(VERSIONS).map_err(failed)?;
        let value = table.get((volume, number)).map_err(failed)?;
        value.map(|value| decode("versions", number, value.value())).transpose()
    }

    /// The marks of a volume, by name.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn marks(&self, volume: u64) -> Result<Vec<(String, MarkRecord)>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = t.open_table(MARKS).map_err(failed)?;
        let mut records = Vec::new();
        for item in table.range((volume, "")..(volume + 1, "")).map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let name = key.value().1.to_owned();
            let record = decode("marks", &name, value.value())?;
            records.push((name, record));
        }
        Ok(records)
    }

    /// Audit records with a number above `after`, oldest first.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = t.open_table(AUDIT).map_err(failed)?;
        let mut records = Vec::new();
        for item in table.range(after.saturating_add(1)..).map_err(failed)?.take(limit) {
            let (key, value) = item.map_err(failed)?;
            records.push(decode("audit", key.value(), value.value())?);
        }
        Ok(records)
    }
}

impl Commit {
    fn put(
        &self,
        table: TableDefinition<'_, u64, &'static [u8]>,
        key: u64,
        value: &[u8],
    ) -> Result<()> {
        let mut table = self.transaction.open_table(table).map_err(failed)?;
        table.insert(key, value).map_err(failed)?;
        Ok(())
    }

    fn take(&self, table: TableDefinition<'_, u64, &'static [u8]>, key: u64) -> Result<()> {
        let mut table = self.transaction.open_table(table).map_err(failed)?;
        table.remove(key).map_err(failed)?;
        Ok(())
    }

    /// Writes the highest numbers given out.
    pub fn put_numbers(&self, numbers: &Numbers) -> Result<()> {
        let mut table = self.transaction.open_table(NUMBERS).map_err(failed)?;
        for (name, value) in [
            ("volume", numbers.volume),
            ("timeline", numbers.timeline),
            ("segment", numbers.segment),
            ("run", numbers.run),
            ("audit", numbers.audit),
            ("schedule", numbers.schedule),
            ("group", numbers.group),
            ("warning", numbers.warning),
        ] {
            table.insert(name, value).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes a volume that is not open yet; the record of one that is changes by
    /// `Transaction::change`.
    pub fn put_volume(&self, record: &VolumeRecord) -> Result<()> {
        self.put(VOLUMES, record.id, &encode(record))
    }

    /// Removes a volume with its versions and marks.
    pub fn remove_volume(&self, id: u64) -> Result<()> {
        self.take(VOLUMES, id)
    }

    /// Removes all versions and marks of a volume.
    pub fn remove_pins(&self, id: u64) -> Result<()> {
        let mut versions = self.transaction.open_table(VERSIONS).map_err(failed)?;
        versions.retain_in((id, 0)..=(id, u64::MAX), |_, _| false).map_err(failed)?;
        drop(versions);
        let mut marks = self.transaction.open_table(MARKS).map_err(failed)?;
        marks.retain_in((id, "")..(id + 1, ""), |_, _| false).map_err(failed)?;
        drop(marks);
        self.remove_open_files(id, 0, u64::MAX)
    }

    /// Writes a timeline.
    pub fn put_timeline(&self, record: &TimelineRecord) -> Result<()> {
        self.put(TIMELINES, record.id, &encode(record))
    }

    /// Removes a timeline.
    pub fn remove_timeline(&self, id: u64) -> Result<()> {
        self.take(TIMELINES, id)
    }

    /// Writes a segment.
    pub fn put_segment(&self, number: u64, record: &SegmentRecord) -> Result<()> {
        self.put(SEGMENTS, number, &record.encode())
    }

    /// Removes a segment.
    pub fn remove_segment(&self, number: u64) -> Result<()> {
        self.take(SEGMENTS, number)
    }

    /// Writes a spare.
    pub fn put_spare(&self, number: u64, zone: u32) -> Result<()> {
        let mut table = self.transaction.open_table(SPARES).map_err(failed)?;
        table.insert(number, zone).map_err(failed)?;
        Ok(())
    }

    /// Removes a spare.
    pub fn remove_spare(&self, number: u64) -> Result<()> {
        let mut table = self.transaction.open_table(SPARES).map_err(failed)?;
        table.remove(number).map_err(failed)?;
        Ok(())
    }

    /// Writes a run of map entries.
    pub fn put_map_run(&self, record: &RunRecord) -> Result<()> {
        self.put(MAP_RUNS, record.id, &encode(record))
    }

    /// Removes a run of map entries.
    pub fn remove_map_run(&self, id: u64) -> Result<()> {
        self.take(MAP_RUNS, id)?;
        self.remove_figures(id)
    }

    /// Writes a run of times.
    pub fn put_time_run(&self, record: &RunRecord) -> Result<()> {
        self.put(TIME_RUNS, record.id, &encode(record))
    }

    /// Removes a run of times.
    pub fn remove_time_run(&self, id: u64) -> Result<()> {
        self.take(TIME_RUNS, id)
    }

    /// Writes a version.
    pub fn put_version(&self, volume: u64, number: u64, record: &VersionRecord) -> Result<()> {
        let mut table = self.transaction.open_table(VERSIONS).map_err(failed)?;
        table.insert((volume, number), &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes a version.
    pub fn remove_version(&self, volume: u64, number: u64) -> Result<()> {
        let mut table = self.transaction.open_table(VERSIONS).map_err(failed)?;
        table.remove((volume, number)).map_err(failed)?;
        Ok(())
    }

    /// Writes a mark.
    pub fn put_mark(&self, volume: u64, name: &str, record: &MarkRecord) -> Result<()> {
        let mut table = self.transaction.open_table(MARKS).map_err(failed)?;
        table.insert((volume, name), &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes a mark.
    pub fn remove_mark(&self, volume: u64, name: &str) -> Result<()> {
        let mut table = self.transaction.open_table(MARKS).map_err(failed)?;
        table.remove((volume, name)).map_err(failed)?;
        Ok(())
    }

    /// Makes the table of slabs if it is not there.
    pub fn begin_slabs(&self) -> Result<()> {
        self.transaction.open_table(CURRENT).map_err(failed)?;
        Ok(())
    }

    /// Writes a slab of a volume's current store.
    pub fn put_slab(&self, volume: u64, slab: u64, zone: u32) -> Result<()> {
        let mut table = self.transaction.open_table(CURRENT).map_err(failed)?;
        table.insert((volume, slab), zone).map_err(failed)?;
        Ok(())
    }

    /// Removes all slabs of a volume.
    pub fn remove_slabs(&self, volume: u64) -> Result<()> {
        let mut table = self.transaction.open_table(CURRENT).map_err(failed)?;
        table.retain_in((volume, 0)..=(volume, u64::MAX), |_, _| false).map_err(failed)?;
        Ok(())
    }

    /// Makes the table of bases if it is not there.
    pub fn begin_bases(&self) -> Result<()> {
        self.transaction.open_table(BASES).map_err(failed)?;
        Ok(())
    }

    /// Writes a slab of a volume's base: the segment that it is.
    pub fn put_base(&self, volume: u64, slab: u64, segment: u64) -> Result<()> {
        let mut table = self.transaction.open_table(BASES).map_err(failed)?;
        table.insert((volume, slab), segment).map_err(failed)?;
        Ok(())
    }

    /// Removes a slab of a volume's base.
    pub fn remove_base(&self, volume: u64, slab: u64) -> Result<()> {
        let mut table = self.transaction.open_table(BASES).map_err(failed)?;
        table.remove((volume, slab)).map_err(failed)?;
        Ok(())
    }

    /// Removes all slabs of a volume's base.
    pub fn remove_bases(&self, volume: u64) -> Result<()> {
        let mut table = self.transaction.open_table(BASES).map_err(failed)?;
        table.retain_in((volume, 0)..=(volume, u64::MAX), |_, _| false).map_err(failed)?;
        Ok(())
    }

    /// Adds to the audit log.
    pub fn put_audit(&self, record: &AuditRecord) -> Result<()> {
        self.put(AUDIT, record.number, &encode(record))
    }

    /// Takes a record out of the audit log whose place another takes in this commit.
    pub fn remove_audit(&self, number: u64) -> Result<()> {
        self.take(AUDIT, number)
    }

    /// Refuses writes to the store from when a panic lets go of this: before the books are free.
    pub fn fail_on_panic(&mut self, store: &Arc<Store>) {
        self.store = Some(FailsByPanic(Arc::clone(store)));
    }

    /// Makes it all durable.
    pub fn commit(self) -> Result<()> {
        self.transaction.commit().map_err(failed)
    }
}
