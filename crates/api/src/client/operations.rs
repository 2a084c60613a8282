//! Calls about the operations on shares, and repairs.

use super::{Client, Page, Result, share};
use crate::{Operation, OperationsQuery, RepairShare, ShareRepair, VersionsOfQuery};

impl Client {
    /// A page of the operations on a share, the newest first.
    pub fn operations(&self, name: &str, query: &OperationsQuery) -> Result<Page<Operation>> {
        self.page(&share(name).part("ops").query(query))
    }

    /// A page of the operations on one file, the newest first.
    pub fn versions_of(&self, name: &str, query: &VersionsOfQuery) -> Result<Page<Operation>> {
        self.page(&share(name).part("versions-of").query(query))
    }

    /// Undoes some operations, or says what would be done.
    pub fn repair_share(&self, name: &str, body: &RepairShare) -> Result<ShareRepair> {
        self.post(&share(name).part("repairs"), body)
    }
}
