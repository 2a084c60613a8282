//! Errors of the rungs below, in this crate's words.

use crate::{Error, ErrorKind};

impl From<history::Error> for Error {
    fn from(source: history::Error) -> Error {
        let kind = match source.kind {
            history::ErrorKind::Full => ErrorKind::Full,
            history::ErrorKind::Refused => ErrorKind::Refused,
            history::ErrorKind::Corrupt => ErrorKind::Corrupt,
            history::ErrorKind::Io => ErrorKind::Io,
            history::ErrorKind::Moved | history::ErrorKind::WouldWait => ErrorKind::Busy,
        };
        let hint = match kind {
            ErrorKind::Full => Some("delete versions, marks or volumes, or add space"),
            ErrorKind::Refused => {
                Some("look at the log for the first failure, then restart the server")
            }
            _ => None,
        };
        Error {
            kind,
            message: source.to_string(),
            hint: hint.map(str::to_owned),
            source: Some(Box::new(source)),
        }
    }
}

impl From<block::DeviceError> for Error {
    fn from(source: block::DeviceError) -> Error {
        Error::from(history::Error::from(source))
    }
}

impl From<format::FormatError> for Error {
    fn from(source: format::FormatError) -> Error {
        Error::from(history::Error::from(source))
    }
}
