//! The one error of this crate: which structure, where, what was expected and what was found.

use crate::FORMAT_VERSION;

/// The fault of the bytes, and so the reader's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// Another structure, or none: the magic differs. Ends a scan of the log's tail.
    NotThis,
    /// Written by another version of the format, or with a feature this program does not know.
    Version,
    /// The checksum differs: rot, a torn or a misdirected write. Try another copy.
    Checksum,
    /// The checksum holds and a value is out of its range, or it belongs elsewhere.
    Invalid,
}

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at {address}: expected {expected}, found {found}")]
pub struct FormatError {
    /// The fault of the bytes.
    pub kind: FormatErrorKind,
    /// The structure's name, as in `docs/format/`.
    pub structure: &'static str,
    /// Where, as far as the decoder knows: a byte offset in its zone (superblock, batch), a zone
    /// (segment), a page of its run (leaf, index, footer, time); 0 if it was not to be known.
    pub address: u64,
    /// The bytes that should be there.
    pub expected: String,
    /// The bytes that are there.
    pub found: String,
}

/// The result of decoders.
pub type Result<T> = std::result::Result<T, FormatError>;

/// A structure and its address: what every check of a decoder needs to complain.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its name, as in `docs/format/`.
    pub structure: &'static str,
    /// Where.
    pub address: u64,
}

impl Place {
    /// An error there.
    pub fn error(
        self,
        kind: FormatErrorKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> FormatError {
        FormatError {
            kind,
            structure: self.structure,
            address: self.address,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// An `Invalid` error unless `holds`; the texts are made only then.
    ///
    /// # Errors
    /// `Invalid`.
    #[inline]
    pub fn require(self, holds: bool, expected: &str, found: impl std::fmt::Display) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(self.invalid(expected, found))
    }

    /// An `Invalid` error.
    pub fn invalid(self, expected: &str, found: impl std::fmt::Display) -> FormatError {
        self.error(FormatErrorKind::Invalid, expected, found.to_string())
    }

    /// An `Invalid` error unless a number that rises by one each time can rise on: nobody counts so
    /// far.
    pub(crate) fn require_countable(self, name: &str, number: u64) -> Result<()> {
        if number <= 1 << 62 {
            return Ok(());
        }
        Err(self.invalid(&format!("a {name} of at most 2^62"), number))
    }

    /// A `NotThis` error unless the magic is the structure's.
    ///
    /// # Errors
    /// `NotThis`.
    #[inline]
    pub fn require_magic(self, found: u64, expected: u64) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let expected = format!("magic {expected:#x}");
        Err(self.error(FormatErrorKind::NotThis, expected, format!("{found:#x}")))
    }

    /// A `Version` error unless the version is the one that this program knows.
    pub(crate) fn require_version(self, found: u32) -> Result<()> {
        if found == FORMAT_VERSION {
            return Ok(());
        }
        let expected = format!("format version {FORMAT_VERSION}");
        Err(self.error(FormatErrorKind::Version, expected, format!("format version {found}")))
    }

    /// The first `count` bytes, or a `NotThis` error: what is too short is no such structure.
    ///
    /// # Errors
    /// `NotThis`.
    #[inline]
    pub fn require_bytes(self, bytes: &[u8], count: usize) -> Result<&[u8]> {
        bytes.get(..count).ok_or_else(|| {
            let found = format!("{} bytes", bytes.len());
            self.error(FormatErrorKind::NotThis, format!("{count} bytes"), found)
        })
    }
}
