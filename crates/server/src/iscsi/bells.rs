//! The things that ring for a session.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use wire::scsi::Identity;

use super::sessions::Opened;
use super::unit::Number;
use crate::Attachment;
use crate::serving::Export;

/// Something that a session is told from outside.
pub(super) enum Bell {
    /// Another session has the commands to a unit aborted; the number of that time.
    Abort(Number, u64),
    /// A unit is wanted without clients.
    Leave(Number),
    /// It was to be left by now.
    Expire(Number),
    /// The target has other units: those that are no more, and new ones.
    Units(Vec<Number>, Vec<OpenUnit>),
    /// The target was deleted.
    Deleted,
}

/// The way to ring for a session.
pub(super) type Bells = UnboundedSender<Bell>;

/// A unit of it.
pub(super) struct OpenUnit {
    pub(super) number: Number,
    pub(super) export: Arc<dyn Export>,
    pub(super) attachment: Attachment,
    pub(super) identity: Identity,
    /// The disk that it is, and as of which revert.
    pub(super) opened: Opened,
}
