//! The table of scrubs: the last one, or the one under way, and when there is another. It is there
//! once there was one.

use redb::{ReadableDatabase, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Catalogue, Commit, ScrubRecord, ScrubScheduleRecord, encode, failed};
use crate::Result;

pub(super) const SCRUBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("scrubs");

const LAST: &str = "last";
const SCHEDULE: &str = "schedule";

impl Catalogue {
    /// The last scrub, and when there is another. An unreadable record is as if there was none:
    /// nothing else depends on it.
    ///
    /// # Errors
    /// The device's.
    pub fn scrubs(&self) -> Result<(Option<ScrubRecord>, Option<ScrubScheduleRecord>)> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(SCRUBS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok((None, None)),
            Err(e) => return Err(failed(e)),
        };
        let last = table.get(LAST).map_err(failed)?;
        let schedule = table.get(SCHEDULE).map_err(failed)?;
        Ok((last.and_then(|v| read(v.value())), schedule.and_then(|v| read(v.value()))))
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

impl Commit {
    /// Writes how far the scrub is.
    pub fn put_scrub(&self, record: &ScrubRecord) -> Result<()> {
        self.put_in_scrubs(LAST, record)
    }

    /// Writes how often there is one.
    pub fn put_scrub_schedule(&self, record: &ScrubScheduleRecord) -> Result<()> {
        self.put_in_scrubs(SCHEDULE, record)
    }

    /// From now on there is none but when somebody asks for it.
    pub fn remove_scrub_schedule(&self) -> Result<()> {
        let mut table = self.transaction.open_table(SCRUBS).map_err(failed)?;
        table.remove(SCHEDULE).map_err(failed)?;
        Ok(())
    }

    fn put_in_scrubs(&self, key: &str, record: &impl Serialize) -> Result<()> {
        let mut table = self.transaction.open_table(SCRUBS).map_err(failed)?;
        table.insert(key, &encode(record)[..]).map_err(failed)?;
        Ok(())
    }
}
