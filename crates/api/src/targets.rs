//! Volumes as iSCSI targets, and who is logged in to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The iSCSI target that is a volume's present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiTarget {
    /// The volume.
    pub volume: String,
    /// The target's name; `:at:` and a moment behind it name a moment.
    pub name: String,
    /// The same for clients that take a URL, on this machine.
    pub uri: String,
    /// The sessions on it, and on moments of it.
    pub sessions: Vec<IscsiSession>,
}

/// An initiator that is logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiSession {
    /// The session's number (TSIH).
    pub id: u16,
    /// The initiator's name.
    pub initiator: String,
    /// The name under which it opened the target.
    pub target: String,
}
