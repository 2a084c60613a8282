//! The list of READDIR and READDIRPLUS, within what the client takes (3.3.16 and 3.3.17).
//!
//! 1. `READDIR3resok` or `READDIRPLUS3resok`, with all overhead of XDR, is never longer than
//!    `count` or `maxcount`, nor than [`LIST_BYTES_MAX`]. Attributes of the directory are counted,
//!    whether they will be sent or not.
//! 2. `dircount` holds for file ids, names and cookies, with their overhead. The first entry may
//!    exceed it, so that a client whose `dircount` is too small gets through the directory.
//! 3. Nothing is allocated for room that no entry takes.

use super::limits::{LIST_BYTES_MAX, VERIFIER_BYTES};
use super::types::{FileHandle, Nfsstat3, PostOpAttr};
use crate::xdr::{Encode, Writer, padding};

/// `fattr3` behind the boolean of a `post_op_attr`.
const ATTRIBUTES_BYTES: usize = 4 + 84;
/// All of a `resok` but the entries: attributes, verifier, the end of the list, `eof`.
const FIXED_BYTES: usize = ATTRIBUTES_BYTES + VERIFIER_BYTES + 4 + 4;

/// `entry3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry3<'a> {
    /// Number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: &'a [u8],
    /// From where the listing goes on behind it.
    pub cookie: u64,
}

impl Entry3<'_> {
    /// Bytes that it takes in a list.
    #[must_use]
    pub const fn list_bytes(&self) -> usize {
        4 + 8 + opaque_bytes(self.name) + 8
    }
}

/// `entryplus3`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlus3<'a> {
    /// The part that READDIR has.
    pub entry: Entry3<'a>,
    /// Its attributes.
    pub name_attributes: PostOpAttr,
    /// Its handle (`post_op_fh3`).
    pub name_handle: Option<FileHandle>,
}

impl EntryPlus3<'_> {
    /// Bytes that it takes in a list.
    #[must_use]
    pub fn list_bytes(&self) -> usize {
        let attributes = if self.name_attributes.is_some() { ATTRIBUTES_BYTES } else { 4 };
        let handle = self.name_handle.as_ref().map_or(0, |handle| opaque_bytes(handle.as_bytes()));
        self.entry.list_bytes() + attributes + 4 + handle
    }
}

const fn opaque_bytes(data: &[u8]) -> usize {
    4 + data.len() + padding(data.len()).len()
}

/// A list that grows entry by entry.
#[derive(Debug)]
pub struct DirList {
    bytes: Vec<u8>,
    /// For all entries; `None` when not even an empty list has room.
    room_bytes: Option<usize>,
    dir_bytes: usize,
    /// For what `dircount` counts; `None` in READDIR.
    dir_room_bytes: Option<usize>,
}

impl DirList {
    /// Of READDIR.
    #[must_use]
    pub fn readdir(count: u32) -> DirList {
        let room_bytes = clipped(count).checked_sub(FIXED_BYTES);
        DirList { bytes: Vec::new(), room_bytes, dir_bytes: 0, dir_room_bytes: None }
    }

    /// Of READDIRPLUS.
    #[must_use]
    pub fn readdirplus(dircount: u32, maxcount: u32) -> DirList {
        DirList { dir_room_bytes: Some(clipped(dircount)), ..DirList::readdir(maxcount) }
    }

    /// Adds an entry to a list of READDIR; false, and nothing is added, when it has no room.
    ///
    /// # Panics
    /// When it is a list of READDIRPLUS.
    #[must_use]
    pub fn add(&mut self, entry: &Entry3<'_>) -> bool {
        assert!(self.dir_room_bytes.is_none(), "READDIRPLUS has other entries");
        self.add_bytes(entry, entry.list_bytes(), 0)
    }

    /// Adds an entry to a list of READDIRPLUS; false, and nothing is added, when it has no room.
    ///
    /// # Panics
    /// When it is a list of READDIR.
    #[must_use]
    pub fn add_plus(&mut self, entry: &EntryPlus3<'_>) -> bool {
        assert!(self.dir_room_bytes.is_some(), "READDIR has other entries");
        self.add_bytes(entry, entry.list_bytes(), entry.entry.list_bytes())
    }

    fn add_bytes(&mut self, entry: &impl Encode, list_bytes: usize, dir_bytes: usize) -> bool {
        let end = self.bytes.len() + list_bytes;
        let dir_end = self.dir_bytes + dir_bytes;
        let is_over = self.dir_room_bytes.is_some_and(|room| dir_end > room);
        if self.room_bytes.is_none_or(|room| end > room) || is_over && !self.bytes.is_empty() {
            return false;
        }
        Writer::new(&mut self.bytes).put(&true).put(entry);
        assert_eq!(self.bytes.len(), end, "an entry is as long as it was said to be");
        self.dir_bytes = dir_end;
        true
    }

    /// The list, to go behind the results; `eof` says that the last entry of the directory was
    /// added.
    ///
    /// # Errors
    /// [`Nfsstat3::TooSmall`] when there was no room for any entry.
    pub fn finish(mut self, eof: bool) -> Result<Vec<u8>, Nfsstat3> {
        if self.room_bytes.is_none() || self.bytes.is_empty() && !eof {
            return Err(Nfsstat3::TooSmall);
        }
        Writer::new(&mut self.bytes).put(&false).put(&eof);
        Ok(self.bytes)
    }
}

fn clipped(count: u32) -> usize {
    usize::try_from(count).map_or(LIST_BYTES_MAX, |count| count.min(LIST_BYTES_MAX))
}
