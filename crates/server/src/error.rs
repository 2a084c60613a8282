//! Why a server did not start, or stopped.

use std::io;
use std::path::PathBuf;

use api::{ExitCode, ProblemKind};

/// Why a server did not start, or did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag or a field of the configuration is missing or wrong.
    #[error("{message}")]
    Setting {
        /// The fault.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// The configuration file cannot be used.
    #[error("cannot use the configuration file {}: {source}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file or directory of the pool cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory holds something, and no pool.
    #[error("{} is not empty and holds no pool", path.display())]
    NotAPool {
        /// The directory.
        path: PathBuf,
    },
    /// Another server has the pool open.
    #[error("another server has the pool {} open", path.display())]
    Locked {
        /// The pool's file or device.
        path: PathBuf,
    },
    /// The engine refused the pool.
    #[error("{0}")]
    Pool(#[source] volume::Error),
    /// A listener could not be set up.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A listener would reach beyond this machine without TLS and authentication.
    #[error("{address} can be reached from other machines without TLS and authentication")]
    Exposed {
        /// Where.
        address: String,
        /// How to make it safe.
        hint: &'static str,
    },
    /// The TLS files cannot be used.
    #[error("{0}")]
    Tls(#[source] crate::tls::TlsError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl StartError {
    pub(crate) fn setting(message: impl Into<String>, hint: &str) -> StartError {
        let hint = Some(hint.to_owned()).filter(|h| !h.is_empty());
        StartError::Setting { message: message.into(), hint }
    }

    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            StartError::Setting { hint, .. } => hint.clone(),
            StartError::NotAPool { .. } => {
                Some("name the directory of a pool, or an empty or missing one".to_owned())
            }
            StartError::Locked { .. } => Some("stop that one first".to_owned()),
            StartError::Pool(error) => error.hint.clone(),
            StartError::Exposed { hint, .. } => Some((*hint).to_owned()),
            StartError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another program listens there: give another address or port 0".to_owned())
            }
            StartError::ConfigFile { .. }
            | StartError::Path { .. }
            | StartError::Listen { .. }
            | StartError::Tls(_)
            | StartError::Thread(_) => None,
        }
    }

    /// The exit code of `hindsight serve`.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            StartError::Setting { .. }
            | StartError::ConfigFile { .. }
            | StartError::Tls(_)
            | StartError::Exposed { .. } => ExitCode::Usage,
            StartError::Locked { .. } => ExitCode::Busy,
            StartError::Pool(error) => problem_kind(&error.kind).exit_code(),
            StartError::Path { .. }
            | StartError::NotAPool { .. }
            | StartError::Listen { .. }
            | StartError::Thread(_) => ExitCode::Failed,
        }
    }
}

/// The one function from what the engine says to what the API says; status, type and exit code
/// follow from its answer.
#[must_use]
pub fn problem_kind(kind: &volume::ErrorKind) -> ProblemKind {
    match kind {
        volume::ErrorKind::NotFound => ProblemKind::NotFound,
        volume::ErrorKind::Exists => ProblemKind::Exists,
        volume::ErrorKind::Invalid | volume::ErrorKind::OutOfBounds => ProblemKind::Invalid,
        volume::ErrorKind::OutsideWindow { .. } => ProblemKind::OutsideWindow,
        volume::ErrorKind::Busy => ProblemKind::Busy,
        volume::ErrorKind::Full => ProblemKind::Full,
        volume::ErrorKind::Refused => ProblemKind::RefusingWrites,
        volume::ErrorKind::Corrupt => ProblemKind::Corrupt,
        volume::ErrorKind::Io | volume::ErrorKind::Unusable => ProblemKind::Internal,
    }
}
