//! How commands end; the one place where failures of the engine become statuses and sense.

use volume::{Error, ErrorKind};
use wire::scsi::{Code, Sense, SenseKey, Status};

use crate::buffers::Chain;

/// How a command ended.
pub(super) enum Ended {
    /// Done, and there is nothing to send.
    Good,
    /// Done, with data of a read.
    Data(Chain),
    /// Done, with a short answer, which is not yet cut to what the initiator takes.
    Short(Vec<u8>),
    /// With another status.
    Status(Status),
    /// Not done.
    Failed(Sense),
}

impl Ended {
    /// Whether it counts as an error.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Ended::Failed(_) | Ended::Status(_))
    }
}

impl From<Sense> for Ended {
    fn from(sense: Sense) -> Ended {
        Ended::Failed(sense)
    }
}

/// The end of a command that the engine refused.
pub(super) fn failure(error: &Error, writes: bool) -> Ended {
    tracing::debug!(%error, "a command failed");
    let (key, code) = match &error.kind {
        ErrorKind::OutOfBounds => (SenseKey::ILLEGAL_REQUEST, Code::LBA_OUT_OF_RANGE),
        ErrorKind::Invalid => (SenseKey::ILLEGAL_REQUEST, Code::INVALID_CDB_FIELD),
        ErrorKind::Full => (SenseKey::DATA_PROTECT, Code::NO_SPACE),
        ErrorKind::Busy => return Ended::Status(Status::BUSY),
        ErrorKind::NotFound | ErrorKind::Exists => (SenseKey::ILLEGAL_REQUEST, Code::NO_SUCH_UNIT),
        ErrorKind::OutsideWindow { .. } => (SenseKey::NOT_READY, Code::NO_MEDIUM),
        ErrorKind::Corrupt if writes => (SenseKey::MEDIUM_ERROR, Code::WRITE_ERROR),
        ErrorKind::Corrupt => (SenseKey::MEDIUM_ERROR, Code::READ_ERROR),
        ErrorKind::Io => (SenseKey::HARDWARE_ERROR, Code::INTERNAL_FAILURE),
        ErrorKind::Refused | ErrorKind::Unusable => {
            (SenseKey::NOT_READY, Code::MANUAL_INTERVENTION)
        }
    };
    Ended::Failed(Sense::new(key, code))
}
