//! The one error of this crate: what the caller may do about it, what went wrong, and a hint.

use std::error::Error as StdError;

/// What a failure is, and so what the caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The input could not be read.
    Read,
    /// The output could not be written.
    Write,
    /// The input is in no format that is known here.
    UnknownFormat,
    /// The input is not what its format says; only where that was asked to be an error, or where
    /// nothing of it can be used.
    Malformed,
    /// More of something than is allowed for.
    Limit,
    /// A setting is out of its range, or does not fit the others.
    Setting,
}

/// A failure of the laboratory.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What it is.
    pub kind: ErrorKind,
    /// What is wrong, and where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What it comes from.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What fallible functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, source: None }
    }

    /// A setting that cannot be.
    #[must_use]
    pub fn setting(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setting, message)
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Error {
        Error { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn because(self, source: impl StdError + Send + Sync + 'static) -> Error {
        Error { source: Some(Box::new(source)), ..self }
    }
}

/// Bytes of an input as people can read them: what is not printable is escaped.
pub(crate) fn shown(bytes: &[u8], bytes_max: usize) -> String {
    let cut = bytes.len() > bytes_max;
    let text = bytes[..bytes.len().min(bytes_max)].escape_ascii().to_string();
    if cut { format!("{text}...") } else { text }
}
