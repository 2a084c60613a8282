//! The one error of the model, of traces and of the laboratory: what the caller may do about it,
//! what went wrong, and a hint.

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
    /// A failure of a kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, source: None }
    }

    /// A setting that cannot be.
    #[must_use]
    pub fn setting(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setting, message)
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Error {
        Error { hint: Some(hint.into()), ..self }
    }

    /// The same with what it comes from.
    #[must_use]
    pub fn because(self, source: impl StdError + Send + Sync + 'static) -> Error {
        Error { source: Some(Box::new(source)), ..self }
    }
}
