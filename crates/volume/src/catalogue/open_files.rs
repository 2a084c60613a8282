//! The table of files that were open at captures. It is there once a hook has told of some.

use redb::{ReadableDatabase, TableDefinition, TableHandle};

use super::{Catalogue, Commit, decode, encode, failed};
use crate::Result;
use crate::retention::open_files::OpenFiles;

pub(super) const OPEN_FILES: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("open-files");

impl Catalogue {
    /// The files that were open when a version of a volume was captured.
    ///
    /// # Errors
    /// `Corrupt` when the record is unreadable.
    pub fn open_files(&self, volume: u64, number: u64) -> Result<Option<OpenFiles>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(OPEN_FILES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let value = table.get((volume, number)).map_err(failed)?;
        value.map(|value| decode("open-files", number, value.value())).transpose()
    }
}

impl Commit {
    /// Writes the files that were open when a version was captured.
    pub fn put_open_files(&self, volume: u64, number: u64, files: &OpenFiles) -> Result<()> {
        let mut table = self.transaction.open_table(OPEN_FILES).map_err(failed)?;
        table.insert((volume, number), &encode(files)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes those of versions that are removed, these numbers and all between them.
    pub fn remove_open_files(&self, volume: u64, first: u64, last: u64) -> Result<()> {
        // To open the table would make it.
        let mut tables = self.transaction.list_tables().map_err(failed)?;
        if !tables.any(|table| table.name() == OPEN_FILES.name()) {
            return Ok(());
        }
        let mut table = self.transaction.open_table(OPEN_FILES).map_err(failed)?;
        table.retain_in((volume, first)..=(volume, last), |_, _| false).map_err(failed)?;
        Ok(())
    }
}
