//! The one error of this crate.

use std::io;
use std::path::{Path, PathBuf};

/// What fallible functions of this crate return.
pub type Result<T> = std::result::Result<T, LoadError>;

/// A measurement that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The lab refused a workload.
    #[error(transparent)]
    Lab(#[from] model::Error),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] volume::Error),
    /// A layer or device failed.
    #[error(transparent)]
    Device(#[from] block::DeviceError),
    /// Members could not be put together.
    #[error(transparent)]
    Array(#[from] block::ArrayError),
    /// A file could not be made, read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A setting is out of its range.
    #[error("{0}")]
    Setting(String),
    /// What was found is not what has to be there, or a thread did not do what it was to do.
    #[error("{0}")]
    Unexpected(String),
}

impl LoadError {
    pub(crate) fn at(path: &Path, source: io::Error) -> LoadError {
        LoadError::File { path: path.to_owned(), source }
    }
}
