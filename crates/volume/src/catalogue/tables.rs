//! The tables of the catalogue: their names, keys and rows. `docs/format/catalogue.md`.
//!
//! Every pool has all of them, from when it was made or was first opened by a program that knows
//! them; the superblock says so (`FEATURE_TABLES`, `FEATURE_TARGETS`). But for [`OPTIONAL`] ones,
//! each of which is made with its first row: a pool without one stays as it is.

use std::io;
use std::marker::PhantomData;

use redb::{Key, ReadTransaction, TableDefinition, TableError, Value, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::records::{
    CompactionRecord, GroupRecord, GroupVersionRecord, MarkRecord, OpenedNameRecord, RunRecord,
    Sample, ScheduleRecord, ScrubRecord, ScrubScheduleRecord, SegmentRecord, TargetRecord,
    TimelineRecord, TokenRecord, VersionRecord, VolumeRecord,
};
use crate::pool::run_figures::Figures;
use crate::retention::open_files::OpenFiles;
use crate::types::AuditRecord;

/// How the store holds the rows of a table.
pub trait Form<R> {
    /// The store's type.
    type Stored: Value + 'static;
    /// A row's bytes.
    fn encode(row: &R) -> Vec<u8>;
    /// The row that some bytes are.
    ///
    /// # Errors
    /// Why they are none.
    fn decode(bytes: &[u8]) -> io::Result<R>;
}

/// As JSON, which refuses fields that it does not know.
pub enum Json {}

impl<R: Serialize + DeserializeOwned> Form<R> for Json {
    type Stored = &'static [u8];

    fn encode(row: &R) -> Vec<u8> {
        serde_json::to_vec(row).expect("records are plain data")
    }

    fn decode(bytes: &[u8]) -> io::Result<R> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// As numbers of a fixed width.
pub enum Fixed {}

impl Form<SegmentRecord> for Fixed {
    type Stored = &'static [u8];

    fn encode(row: &SegmentRecord) -> Vec<u8> {
        row.encode().to_vec()
    }

    fn decode(bytes: &[u8]) -> io::Result<SegmentRecord> {
        SegmentRecord::decode(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl<R: for<'a> Value<SelfType<'a> = R> + 'static> Form<R> for Fixed {
    type Stored = R;

    fn encode(row: &R) -> Vec<u8> {
        R::as_bytes(row).as_ref().to_vec()
    }

    fn decode(bytes: &[u8]) -> io::Result<R> {
        Ok(R::from_bytes(bytes))
    }
}

/// A table of rows `R` by keys `K`.
pub struct Table<K, R, F = Json> {
    /// Its name.
    pub name: &'static str,
    of: PhantomData<(K, R, F)>,
}

impl<K: Key + 'static, R, F: Form<R>> Table<K, R, F> {
    /// The table as the store knows it.
    #[must_use]
    pub fn definition(&self) -> TableDefinition<'static, K, F::Stored> {
        TableDefinition::new(self.name)
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $id:ident: $name:literal, $key:ty => $row:ty $(as $form:ty)?;)*) => {
        $($(#[$doc])* pub const $id: Table<$key, $row $(, $form)?> =
            Table { name: $name, of: PhantomData };)*

        /// Makes those that are not there.
        ///
        /// # Errors
        /// The store's.
        pub fn make_all(transaction: &WriteTransaction) -> Result<(), TableError> {
            $(transaction.open_table($id.definition())?;)*
            Ok(())
        }

        /// Opens all of them.
        ///
        /// # Errors
        /// The store's; one that is not there is an error.
        pub fn open_all(transaction: &ReadTransaction) -> Result<(), TableError> {
            $(transaction.open_table($id.definition())?;)*
            Ok(())
        }

        /// Name, type of the keys and type of the rows of each, as the store has them.
        #[cfg(test)]
        pub fn types() -> Vec<[String; 3]> {
            fn of<K: Key + 'static, R, F: Form<R>>(table: Table<K, R, F>) -> [String; 3] {
                let [key, row] = [K::type_name(), F::Stored::type_name()];
                [table.name, key.name(), row.name()].map(str::to_owned)
            }
            vec![$(of($id)),*, of(TOKENS), of(OPENED_NAMES)]
        }
    };
}

tables! {
    /// Highest numbers given out, by kind.
    NUMBERS: "numbers", &'static str => u64 as Fixed;
    /// Volumes.
    VOLUMES: "volumes", u64 => VolumeRecord;
    /// Timelines.
    TIMELINES: "timelines", u64 => TimelineRecord;
    /// Segments.
    SEGMENTS: "segments", u64 => SegmentRecord as Fixed;
    /// Zones made ready for segments, by the segment's number.
    SPARES: "spares", u64 => u32 as Fixed;
    /// Runs of map entries.
    MAP_RUNS: "map-runs", u64 => RunRecord;
    /// Runs of times.
    TIME_RUNS: "time-runs", u64 => RunRecord;
    /// Versions, by volume and number.
    VERSIONS: "versions", (u64, u64) => VersionRecord;
    /// Marks, by volume and name.
    MARKS: "marks", (u64, &'static str) => MarkRecord;
    /// Zones of current stores, by volume and slab.
    SLABS: "current", (u64, u64) => u32 as Fixed;
    /// Segments of bases, by volume and slab.
    BASES: "bases", (u64, u64) => u64 as Fixed;
    /// Schedules of volumes.
    SCHEDULES: "schedules", u64 => ScheduleRecord;
    /// Versions that were compacted or uncompacted by hand, by volume and number.
    COMPACTIONS: "compactions", (u64, u64) => CompactionRecord;
    /// Consistency groups.
    GROUPS: "groups", u64 => GroupRecord;
    /// Captures of groups, by group and number.
    GROUP_VERSIONS: "group-versions", (u64, u64) => GroupVersionRecord;
    /// Schedules of groups.
    GROUP_SCHEDULES: "group-schedules", u64 => ScheduleRecord;
    /// Made iSCSI targets.
    TARGETS: "targets", u64 => TargetRecord;
    /// Files that were open at captures, by volume and number of the version.
    OPEN_FILES: "open-files", (u64, u64) => OpenFiles;
    /// The audit log.
    AUDIT: "audit", u64 => AuditRecord;
    /// The uses of the entries of map runs. There may be rows of runs that are no more.
    FIGURES: "figures", u64 => Figures;
    /// Samples of the space in use, by time in nanoseconds since 1970.
    SAMPLES: "samples", u64 => Sample;
    /// The last scrub, or the one under way: one row, [`LAST`].
    SCRUBS: "scrubs", &'static str => ScrubRecord;
}

/// Tables that every program has made with a pool.
pub const OF_ALL_POOLS: [&str; 10] = [
    NUMBERS.name,
    VOLUMES.name,
    TIMELINES.name,
    SEGMENTS.name,
    SPARES.name,
    MAP_RUNS.name,
    TIME_RUNS.name,
    VERSIONS.name,
    MARKS.name,
    AUDIT.name,
];

/// Tokens, by name. A pool without any need not have this table, and programs that do not know it
/// pass it over: they let nobody in by a token.
pub const TOKENS: Table<&str, TokenRecord> = Table { name: "tokens", of: PhantomData };

/// Names of moments that iSCSI initiators have opened, and their meaning. Programs that do not know
/// this table pass it over: a name means what it means then.
pub const OPENED_NAMES: Table<&str, OpenedNameRecord> =
    Table { name: "opened-names", of: PhantomData };

/// Tables that need not be there.
pub const OPTIONAL: [&str; 2] = [TOKENS.name, OPENED_NAMES.name];

/// When there is another scrub: one row of the table of scrubs, [`SCHEDULE`].
pub const SCRUB_SCHEDULES: Table<&str, ScrubScheduleRecord> =
    Table { name: SCRUBS.name, of: PhantomData };
/// The key of the last scrub.
pub const LAST: &str = "last";
/// The key of the schedule of scrubs.
pub const SCHEDULE: &str = "schedule";
