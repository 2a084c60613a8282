//! The one error of this crate.

use block::{DeviceError, DeviceErrorKind};
use format::FormatError;

/// The caller's choices after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Make room, then try again.
    Full,
    /// Refuse writes until the pool is opened again.
    Refused,
    /// Stored bytes are not what was written: heal or report.
    Corrupt,
    /// The device failed.
    Io,
    /// The volume changed between the check of a request and its execution: check again.
    Moved,
    /// It would have had to wait for others, and was told not to.
    WouldWait,
}

/// A failed operation on the log or the map.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The caller's choices.
    pub kind: ErrorKind,
    /// The event and its place.
    pub message: String,
    /// The cause, untouched.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// The error of every write after one that failed.
    pub fn refused() -> Error {
        Error::new(
            ErrorKind::Refused,
            "an earlier write or flush failed; writes are refused until the pool is opened again",
        )
    }
}

impl Error {
    /// The error of a pointer to a segment that does not exist.
    pub(crate) fn no_segment(number: u64) -> Error {
        let text = format!("the map points to segment {number}, which is not there");
        Error::new(ErrorKind::Corrupt, text)
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Error {
        let kind = match source.kind {
            DeviceErrorKind::Full => ErrorKind::Full,
            DeviceErrorKind::Io => ErrorKind::Io,
            // A pointer beyond the device's end came from damaged metadata.
            DeviceErrorKind::OutOfRange | DeviceErrorKind::Corrupt => ErrorKind::Corrupt,
        };
        Error { kind, message: source.to_string(), source: Some(Box::new(source)) }
    }
}

impl From<FormatError> for Error {
    fn from(source: FormatError) -> Error {
        Error {
            kind: ErrorKind::Corrupt,
            message: source.to_string(),
            source: Some(Box::new(source)),
        }
    }
}
