//! The table of versions that were compacted or uncompacted by hand. It is there once one was.

use redb::{ReadableDatabase, TableDefinition};

use super::{Catalogue, Commit, CompactionRecord, decode, encode, failed};
use crate::Result;

pub(super) const COMPACTIONS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("compactions");

impl Catalogue {
    /// Those of a volume, by the version's number.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn compactions(&self, volume: u64) -> Result<Vec<(u64, CompactionRecord)>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(COMPACTIONS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut records = Vec::new();
        for item in table.range((volume, 0)..=(volume, u64::MAX)).map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let number = key.value().1;
            records.push((number, decode("compactions", number, value.value())?));
        }
        Ok(records)
    }
}

impl Commit {
    /// Writes what was asked for a version.
    pub fn put_compaction(
        &self,
        volume: u64,
        number: u64,
        record: &CompactionRecord,
    ) -> Result<()> {
        let mut table = self.transaction.open_table(COMPACTIONS).map_err(failed)?;
        table.insert((volume, number), &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Forgets what was asked for a version.
    pub fn remove_compaction(&self, volume: u64, number: u64) -> Result<()> {
        let mut table = self.transaction.open_table(COMPACTIONS).map_err(failed)?;
        table.remove((volume, number)).map_err(failed)?;
        Ok(())
    }

    /// Forgets what was asked for all versions of a volume.
    pub fn remove_compactions(&self, volume: u64) -> Result<()> {
        let mut table = self.transaction.open_table(COMPACTIONS).map_err(failed)?;
        table.retain_in((volume, 0)..=(volume, u64::MAX), |_, _| false).map_err(failed)?;
        Ok(())
    }
}
