//! A command as it was received.

use wire::iscsi::{CommandRequest, Residual, Tag, TaskAttribute};
use wire::scsi::Command;
use wire::scsi::command::Movement;

use super::context::SECTOR_BYTES;

/// A command as it was received.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) request: CommandRequest,
    pub(super) command: Command,
}

impl Received {
    pub(super) fn tag(&self) -> Tag {
        self.request.task_tag
    }

    /// Whether it waits for all before it, and all after it for this.
    pub(super) fn is_ordered(&self) -> bool {
        self.request.attribute == TaskAttribute::Ordered
    }

    /// Bytes that the initiator takes.
    pub(super) fn takes(&self) -> u32 {
        if self.request.reads { self.request.expected_bytes } else { 0 }
    }

    /// Bytes that the initiator sends.
    pub(super) fn sends(&self) -> u32 {
        if self.request.writes { self.request.expected_bytes } else { 0 }
    }

    /// The difference between what the command moves and what the initiator expects of it.
    pub(super) fn residual(&self) -> Residual {
        match self.command.movement(SECTOR_BYTES) {
            Movement::In(bytes) => Residual::between(self.takes(), bytes),
            Movement::Out(bytes) => Residual::between(self.sends(), bytes),
            Movement::InAtMost(_) => Residual::between(self.takes(), 0),
            Movement::None => Residual::between(self.takes().max(self.sends()), 0),
        }
    }
}
