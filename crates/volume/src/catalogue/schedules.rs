//! The table of schedules. It is there once a volume has had one.

use redb::{ReadableDatabase, TableDefinition};

use super::{Catalogue, Commit, ScheduleRecord, decode, encode, failed};
use crate::Result;

pub(super) const SCHEDULES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("schedules");

impl Catalogue {
    /// The schedule of a volume.
    ///
    /// # Errors
    /// `Corrupt` when the record is unreadable.
    pub fn schedule(&self, volume: u64) -> Result<Option<ScheduleRecord>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(SCHEDULES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let value = table.get(volume).map_err(failed)?;
        value.map(|value| decode("schedules", volume, value.value())).transpose()
    }
}

impl Commit {
    /// Writes the schedule of a volume.
    pub fn put_schedule(&self, volume: u64, record: &ScheduleRecord) -> Result<()> {
        let mut table = self.transaction.open_table(SCHEDULES).map_err(failed)?;
        table.insert(volume, &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes the schedule of a volume, if it has one.
    pub fn remove_schedule(&self, volume: u64) -> Result<()> {
        let mut table = self.transaction.open_table(SCHEDULES).map_err(failed)?;
        table.remove(volume).map_err(failed)?;
        Ok(())
    }
}
