//! The table of scrubs: the last one, or the one under way, and when there is another. It is there
//! once there was one.

use redb::{ReadableDatabase, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Catalogue, Commit, encode, failed};
use crate::Result;

pub(super) const SCRUBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("scrubs");

const LAST: &str = "last";
const SCHEDULE: &str = "schedule";

/// The part of a pool that a scrub is looking at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubPhase {
    /// Segments, in the order of their zones.
    #[default]
    Segments,
    /// Runs, in the order of their numbers.
    Runs,
    /// The catalogue.
    Catalogue,
    /// The parity, if all of its data was right or is again.
    Parity,
}

/// How far a scrub is, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRecord {
    /// When it began.
    pub started_ns: u64,
    /// When it came to its end or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// It was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The part that it is looking at.
    pub phase: ScrubPhase,
    /// The zone, the run, the page of the catalogue, or the region of the array that comes next.
    pub next: u64,
    /// Bytes of the segment, or pages of the run, that it is done with.
    pub offset: u32,
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Ranges of which a copy was wrong.
    pub wrong: u64,
    /// Of these: written again from a copy that was right.
    pub healed: u64,
    /// Of these: blocks that no copy had, written again from another version.
    #[serde(default, skip_serializing_if = "super::records::is_zero")]
    pub repaired: u64,
    /// Of these: versions in packs that no copy had and that readers have from another version.
    #[serde(default, skip_serializing_if = "super::records::is_zero")]
    pub elsewhere: u64,
    /// Blocks and pages that are needed and wrong on every copy.
    pub lost: u64,
    /// The first of these, for people.
    pub losses: Vec<String>,
    /// Segments and ranges in them that the runs are to be asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<(u64, u32, u32)>,
}

/// How often there is a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubScheduleRecord {
    /// Nanoseconds from the beginning of one to that of the next.
    pub every_ns: u64,
    /// When that was set.
    pub set_ns: u64,
}

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
