//! The one error of this crate.

use units::{Seq, WallTime};

/// The caller's choices after a failure. Front ends map it to errno, status and exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such volume, version or mark.
    NotFound,
    /// The name is taken.
    Exists,
    /// A value that can never be right: fix the request.
    Invalid,
    /// The moment lies outside what can be opened.
    OutsideWindow {
        /// The oldest moment that can be opened.
        oldest: (Seq, WallTime),
        /// The present.
        latest: (Seq, WallTime),
    },
    /// In use: try again later or with force.
    Busy,
    /// A request beyond the end of the volume.
    OutOfBounds,
    /// No space left: deletes still work.
    Full,
    /// An earlier write or flush failed; writes are refused until the pool is opened again.
    Refused,
    /// Stored bytes do not match their checksum. Says where, expected and found.
    Corrupt,
    /// The device failed.
    Io,
    /// This pool cannot be opened by this program (other format version, torn superblocks, missing
    /// device).
    Unusable,
}

/// A failed operation of a pool or volume.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The caller's choices.
    pub kind: ErrorKind,
    /// The event, for people.
    pub message: String,
    /// The remedy, for people.
    pub hint: Option<String>,
    /// The cause, untouched.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause or hint.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, source: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// The same with a cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }
}

macro_rules! constructors {
    ($($name:ident: $kind:ident,)*) => {
        impl Error {
            $(pub(crate) fn $name(message: impl Into<String>) -> Error {
                Error::new(ErrorKind::$kind, message)
            })*
        }
    };
}

constructors! {
    busy: Busy,
    corrupt: Corrupt,
    exists: Exists,
    full: Full,
    invalid: Invalid,
    not_found: NotFound,
    refused: Refused,
    unusable: Unusable,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
