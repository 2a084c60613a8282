//! Failures of calls to the server.

use super::address::ServerAddress;
use super::tls::{Distrust, TlsFileError};
use crate::{ExitCode, Problem, ProblemKind};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The client could not be set up.
    #[error("the client could not start")]
    Start(#[source] std::io::Error),
    /// Nobody answered there.
    #[error("no server at {address}")]
    Connect {
        /// Where.
        address: ServerAddress,
        /// Why.
        source: std::io::Error,
    },
    /// There is no TLS with it, or none that is to be believed.
    #[error("{address} {why}")]
    Tls {
        /// Where.
        address: ServerAddress,
        /// Why.
        why: Distrust,
        /// The error underneath.
        source: std::io::Error,
    },
    /// A file for TLS cannot be used.
    #[error(transparent)]
    TlsFile(#[from] TlsFileError),
    /// The request could not be put together (a name with characters that no URL can hold).
    #[error("the request could not be formed")]
    Request(#[source] hyper::http::Error),
    /// The connection broke.
    #[error("the connection to the server broke")]
    Exchange(#[source] hyper::Error),
    /// The received bytes could not be kept.
    #[error("cannot write what was received")]
    Keep(#[source] std::io::Error),
    /// It did not answer in time.
    #[error("the server did not answer within {0:?}")]
    Late(std::time::Duration),
    /// The answer could not be read to its end.
    #[error("the answer could not be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what this API sends.
    #[error("the answer (status {status}) is not of this API")]
    Answer {
        /// HTTP status.
        status: u16,
        /// Why.
        source: serde_json::Error,
    },
    /// The server said no.
    #[error("{0}")]
    Problem(Box<Problem>),
}

impl ClientError {
    /// Whether the server said no for this reason.
    #[must_use]
    pub fn is(&self, kind: ProblemKind) -> bool {
        matches!(self, ClientError::Problem(problem) if problem.problem_kind() == Some(kind))
    }

    /// The exit code of a command that met it.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            ClientError::Problem(problem) => problem.exit_code(),
            ClientError::Tls { why, .. } => why.exit_code(),
            ClientError::Start(_)
            | ClientError::Connect { .. }
            | ClientError::TlsFile(_)
            | ClientError::Request(_)
            | ClientError::Exchange(_)
            | ClientError::Late(_)
            | ClientError::Body(_)
            | ClientError::Keep(_)
            | ClientError::Answer { .. } => ExitCode::Failed,
        }
    }

    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            ClientError::Problem(problem) => problem.hint.clone(),
            ClientError::Tls { why, .. } => Some(why.hint().to_owned()),
            ClientError::Connect { .. } => Some(
                "is it running (hindsight serve --pool DIR)? name it with --server \
                 unix:DIR/api.sock or HINDSIGHT_SERVER"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
