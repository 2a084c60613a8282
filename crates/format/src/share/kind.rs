//! Kinds of objects.

use crate::error::{Place, Result};
use crate::field::{Field, get, numbered};

/// The kind of an object; the numbers are those of NFSv3's `ftype3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A block device.
    BlockDevice = 3,
    /// A character device.
    CharacterDevice = 4,
    /// A symbolic link.
    Symlink = 5,
    /// A socket.
    Socket = 6,
    /// A fifo.
    Fifo = 7,
}

numbered!(FileKind: File Directory BlockDevice CharacterDevice Symlink Socket Fifo);

impl FileKind {
    /// The kind that a field names.
    pub(crate) fn decode(place: Place, b: &[u8], field: Field) -> Result<FileKind> {
        let number = get(b, field);
        let unknown = || place.invalid("a kind from 1 to 7", number);
        FileKind::from_number(number).ok_or_else(unknown)
    }

    /// Whether it has bytes.
    pub fn has_content(self) -> bool {
        matches!(self, FileKind::File | FileKind::Symlink)
    }

    pub(super) fn is_device(self) -> bool {
        matches!(self, FileKind::BlockDevice | FileKind::CharacterDevice)
    }
}
