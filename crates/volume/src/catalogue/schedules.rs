//! The tables of schedules: of volumes, and of groups. Each is there once there has been one.

use redb::{ReadableDatabase, TableDefinition};

use super::{Catalogue, Commit, ScheduleRecord, decode, encode, failed};
use crate::Result;

type Table = TableDefinition<'static, u64, &'static [u8]>;

pub(super) const SCHEDULES: Table = TableDefinition::new("schedules");
pub(super) const GROUP_SCHEDULES: Table = TableDefinition::new("group-schedules");

impl Catalogue {
    /// The schedule of a volume.
    ///
    /// # Errors
    /// `Corrupt` when the record is unreadable.
    pub fn schedule(&self, volume: u64) -> Result<Option<ScheduleRecord>> {
        self.schedule_in(SCHEDULES, "schedules", volume)
    }

    /// The schedule of a group.
    ///
    /// # Errors
    /// `Corrupt` when the record is unreadable.
    pub fn group_schedule(&self, group: u64) -> Result<Option<ScheduleRecord>> {
        self.schedule_in(GROUP_SCHEDULES, "group-schedules", group)
    }

    fn schedule_in(&self, table: Table, name: &str, key: u64) -> Result<Option<ScheduleRecord>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(table) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let value = table.get(key).map_err(failed)?;
        value.map(|value| decode(name, key, value.value())).transpose()
    }
}

impl Commit {
    /// Writes the schedule of a volume.
    pub fn put_schedule(&self, volume: u64, record: &ScheduleRecord) -> Result<()> {
        self.put(SCHEDULES, volume, &encode(record))
    }

    /// Removes the schedule of a volume, if it has one.
    pub fn remove_schedule(&self, volume: u64) -> Result<()> {
        self.take(SCHEDULES, volume)
    }

    /// Writes the schedule of a group.
    pub fn put_group_schedule(&self, group: u64, record: &ScheduleRecord) -> Result<()> {
        self.put(GROUP_SCHEDULES, group, &encode(record))
    }

    /// Removes the schedule of a group, if it has one.
    pub fn remove_group_schedule(&self, group: u64) -> Result<()> {
        self.take(GROUP_SCHEDULES, group)
    }
}
