//! The table of figures of map runs. A program that does not know it merges runs and leaves rows of
//! runs that are no more: nothing is asked about them.

use redb::{ReadableDatabase, ReadableTable, TableDefinition};

use super::{Catalogue, Commit, encode, failed};
use crate::Result;
use crate::pool::run_figures::Figures;

pub(super) const FIGURES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("figures");

impl Catalogue {
    /// The figures of all runs. An unreadable run is left out: a run without figures counts as one
    /// of which nothing is known.
    ///
    /// # Errors
    /// The device's.
    pub fn figures(&self) -> Result<Vec<(u64, Figures)>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(FIGURES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut all = Vec::new();
        for item in table.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            let figures: Option<Figures> = serde_json::from_slice(value.value()).ok();
            all.extend(figures.filter(Figures::are_sound).map(|f| (key.value(), f)));
        }
        Ok(all)
    }
}

impl Commit {
    /// Writes the figures of a run.
    pub fn put_figures(&self, run: u64, figures: &Figures) -> Result<()> {
        let mut table = self.transaction.open_table(FIGURES).map_err(failed)?;
        table.insert(run, &encode(figures)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes those of a run that is no more.
    pub fn remove_figures(&self, run: u64) -> Result<()> {
        let mut table = self.transaction.open_table(FIGURES).map_err(failed)?;
        table.remove(run).map_err(failed)?;
        Ok(())
    }
}
