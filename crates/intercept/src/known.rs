//! Which object of the follower is which of the primary.

use std::collections::HashMap;

use units::FileId;
use wire::nfs3::FileHandle;

use crate::primary::{Object, Primary, Trouble};

/// Handles that are remembered; the primary tells of others again.
const HANDLES_MAX: usize = 1 << 20;

/// Objects by the primary's handles and numbers. A number has one object of the follower, and that
/// object no other number.
#[derive(Debug, Default)]
pub(crate) struct Known {
    numbers: HashMap<FileHandle, u64>,
    files: HashMap<u64, FileId>,
    owners: HashMap<FileId, u64>,
}

impl Known {
    /// An object of the primary is this one of the follower.
    pub(crate) fn is(&mut self, object: &Object, file: FileId) {
        let number = object.attributes.fileid;
        self.remember(object.handle, number);
        if let Some(before) = self.owners.insert(file, number).filter(|before| *before != number) {
            self.files.remove(&before);
        }
        if let Some(before) = self.files.insert(number, file).filter(|before| *before != file) {
            self.owners.remove(&before);
        }
    }

    /// Whether an object of the follower is one of the primary's.
    pub(crate) fn is_owned(&self, file: FileId) -> bool {
        self.owners.contains_key(&file)
    }

    /// The object of the follower that has a number of the primary's; it may be gone.
    pub(crate) fn file(&self, number: u64) -> Option<FileId> {
        self.files.get(&number).copied()
    }

    /// The object of the follower that is the primary's with a handle; none if there is none, or the
    /// primary's is gone.
    pub(crate) fn find(
        &mut self,
        primary: &mut Primary,
        handle: FileHandle,
    ) -> Result<Option<FileId>, Trouble> {
        let number = match self.numbers.get(&handle) {
            Some(number) => *number,
            None => match primary.attributes(handle) {
                Ok(attributes) => {
                    self.remember(handle, attributes.fileid);
                    attributes.fileid
                }
                Err(gone) if gone.is_gone() => return Ok(None),
                Err(trouble) => return Err(trouble),
            },
        };
        Ok(self.file(number))
    }

    fn remember(&mut self, handle: FileHandle, number: u64) {
        if self.numbers.len() >= HANDLES_MAX {
            self.numbers.clear();
        }
        self.numbers.insert(handle, number);
    }

    /// The primary may have given its handles and numbers to others.
    pub(crate) fn forget(&mut self) {
        *self = Known::default();
    }
}
