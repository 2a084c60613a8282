//! The table of samples. It is there once there was one; a program that does not know it leaves it
//! alone.

use redb::{ReadableDatabase, ReadableTable, TableDefinition};

use super::{Catalogue, Commit, encode, failed};
use crate::Result;
use crate::pool::samples::{Sample, Samples};

pub(super) const SAMPLES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("samples");

impl Catalogue {
    /// All samples. Unreadable ones are left out: only the figures of growth depend on them.
    ///
    /// # Errors
    /// The device's.
    pub fn samples(&self) -> Result<Samples> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(SAMPLES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Samples::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut all = Samples::new();
        for item in table.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let sample: Option<Sample> = serde_json::from_slice(value.value()).ok();
            all.extend(sample.map(|sample| (key.value(), sample)));
        }
        Ok(all)
    }
}

impl Commit {
    /// Writes a sample.
    pub fn put_sample(&self, time_ns: u64, sample: &Sample) -> Result<()> {
        let mut table = self.transaction.open_table(SAMPLES).map_err(failed)?;
        table.insert(time_ns, &encode(sample)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes one.
    pub fn remove_sample(&self, time_ns: u64) -> Result<()> {
        let mut table = self.transaction.open_table(SAMPLES).map_err(failed)?;
        table.remove(time_ns).map_err(failed)?;
        Ok(())
    }
}
