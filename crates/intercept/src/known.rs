//! Which object of the follower is which of the primary.

use std::collections::{HashMap, HashSet};

use units::FileId;
use wire::nfs3::{Fattr3, FileHandle};

use crate::primary::{Object, Primary, Trouble};

/// Handles that are remembered; the primary tells of others again.
const HANDLES_MAX: usize = 1 << 20;

/// Objects by the primary's handles and numbers. A number has one object of the follower, and that
/// object no other number.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The file system that is followed.
    fsid: u64,
    /// The number of each handle; none of what is on another file system.
    numbers: HashMap<FileHandle, Option<u64>>,
    files: HashMap<u64, FileId>,
    owners: HashMap<FileId, u64>,
    /// Numbers of objects that the follower cannot hold.
    left_out: HashSet<u64>,
}

/// What a handle of the primary's is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This object.
    File(FileId),
    /// Nothing that is followed: of another file system, or left out.
    Foreign,
    /// Nothing that is known.
    Nothing,
}

impl Known {
    /// Knows nothing, of a file system.
    pub(crate) fn begin(&mut self, fsid: u64) {
        *self = Known { fsid, ..Known::default() };
    }

    /// An object of the primary is this one of the follower. Whether it was under this handle
    /// already; else it may be another than the one that had the number before.
    pub(crate) fn is(&mut self, object: &Object, file: FileId) -> bool {
        let number = object.attributes.fileid;
        let was = self.remember(object.handle, Some(number)) == Some(Some(number));
        if let Some(before) = self.owners.insert(file, number).filter(|before| *before != number) {
            self.files.remove(&before);
        }
        let before = self.files.insert(number, file);
        if let Some(before) = before.filter(|before| *before != file) {
            self.owners.remove(&before);
        }
        was && before == Some(file)
    }

    /// Whether an object of the follower is one of the primary's.
    pub(crate) fn is_owned(&self, file: FileId) -> bool {
        self.owners.contains_key(&file)
    }

    /// Whether attributes are of the file system that is followed.
    pub(crate) fn is_own(&self, attributes: &Fattr3) -> bool {
        attributes.fsid == self.fsid
    }

    /// An object that the follower cannot hold; whether that is new.
    pub(crate) fn leave_out(&mut self, number: u64) -> bool {
        self.left_out.insert(number)
    }

    /// Objects that the follower cannot hold.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// The object of the follower that has a number of the primary's; it may be gone.
    pub(crate) fn file(&self, number: u64) -> Option<FileId> {
        self.files.get(&number).copied()
    }

    /// What the primary's object with a handle is here; nothing if the primary's is gone.
    pub(crate) fn find(
        &mut self,
        primary: &mut Primary,
        handle: FileHandle,
    ) -> Result<Found, Trouble> {
        let number = match self.numbers.get(&handle) {
            Some(number) => *number,
            None => match primary.attributes(handle) {
                Ok(attributes) => {
                    let number = self.is_own(&attributes).then_some(attributes.fileid);
                    self.remember(handle, number);
                    number
                }
                Err(gone) if gone.is_gone() => return Ok(Found::Nothing),
                Err(trouble) => return Err(trouble),
            },
        };
        Ok(match number {
            None => Found::Foreign,
            Some(number) if self.left_out.contains(&number) => Found::Foreign,
            Some(number) => self.file(number).map_or(Found::Nothing, Found::File),
        })
    }

    fn remember(&mut self, handle: FileHandle, number: Option<u64>) -> Option<Option<u64>> {
        if self.numbers.len() >= HANDLES_MAX {
            self.numbers.clear();
        }
        self.numbers.insert(handle, number)
    }
}
