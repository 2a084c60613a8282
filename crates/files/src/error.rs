//! How reading a disk fails.

use std::fmt;
use std::io;

/// What a caller can make of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// It is there, and of another kind than what was asked for.
    WrongKind,
    /// The disk contradicts itself, or a checksum does not match.
    Damaged,
    /// The disk is right for all we know, and uses what we cannot read; the message names it.
    Unsupported,
    /// It is larger than a limit of ours; the message names it.
    Limit,
    /// The disk itself could not be read.
    Source,
}

/// Why something could not be read.
#[derive(Debug)]
pub struct Error {
    /// What a caller can make of it.
    pub kind: ErrorKind,
    message: String,
    cause: Option<io::Error>,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), cause: None }
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Limit, message)
    }

    pub(crate) fn wrong_kind(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::WrongKind, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn source(offset: u64, cause: io::Error) -> Error {
        let message = format!("the disk cannot be read at byte {offset}");
        Error { kind: ErrorKind::Source, message, cause: Some(cause) }
    }
}
