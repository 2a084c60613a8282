//! The tables of consistency groups and of their captures. They are there once there was a group.

use redb::{ReadableDatabase, ReadableTable, TableDefinition};

use super::{Catalogue, Commit, GroupRecord, GroupVersionRecord, decode, encode, failed};
use crate::Result;

pub(super) const GROUPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("groups");
pub(super) const GROUP_VERSIONS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("group-versions");

impl Catalogue {
    /// All groups, by id.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn groups(&self) -> Result<Vec<GroupRecord>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(GROUPS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut records = Vec::new();
        for item in table.iter().map_err(failed)? {
            let (key, value) = item.map_err(failed)?;
            records.push(decode("groups", key.value(), value.value())?);
        }
        Ok(records)
    }

    /// At most `limit` captures of a group from a number on.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub fn group_versions(
        &self,
        group: u64,
        first: u64,
        limit: usize,
    ) -> Result<Vec<(u64, GroupVersionRecord)>> {
        let t = self.database.begin_read().map_err(failed)?;
        let table = match t.open_table(GROUP_VERSIONS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut records = Vec::new();
        let range = table.range((group, first)..=(group, u64::MAX)).map_err(failed)?;
        for item in range.take(limit) {
            let (key, value) = item.map_err(failed)?;
            let number = key.value().1;
            records.push((number, decode("group-versions", number, value.value())?));
        }
        Ok(records)
    }
}

impl Commit {
    /// Writes a group.
    pub fn put_group(&self, record: &GroupRecord) -> Result<()> {
        let mut table = self.transaction.open_table(GROUPS).map_err(failed)?;
        table.insert(record.id, &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes a group with what is known of its captures; the versions stay.
    pub fn remove_group(&self, id: u64) -> Result<()> {
        let mut groups = self.transaction.open_table(GROUPS).map_err(failed)?;
        groups.remove(id).map_err(failed)?;
        drop(groups);
        let mut versions = self.transaction.open_table(GROUP_VERSIONS).map_err(failed)?;
        versions.retain_in((id, 0)..=(id, u64::MAX), |_, _| false).map_err(failed)?;
        Ok(())
    }

    /// Writes a capture of a group.
    pub fn put_group_version(
        &self,
        group: u64,
        number: u64,
        record: &GroupVersionRecord,
    ) -> Result<()> {
        let mut table = self.transaction.open_table(GROUP_VERSIONS).map_err(failed)?;
        table.insert((group, number), &encode(record)[..]).map_err(failed)?;
        Ok(())
    }

    /// Removes a capture of a group.
    pub fn remove_group_version(&self, group: u64, number: u64) -> Result<()> {
        let mut table = self.transaction.open_table(GROUP_VERSIONS).map_err(failed)?;
        table.remove((group, number)).map_err(failed)?;
        Ok(())
    }
}
