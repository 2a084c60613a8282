//! Volumes as iSCSI targets, and who is logged in to them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::requests::some_of;

/// The iSCSI target that is a volume's present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiTarget {
    /// The volume.
    pub volume: String,
    /// The target's name; `:at:` and a moment behind it name a moment.
    pub name: String,
    /// The same for clients that take a URL, on this machine.
    pub uri: String,
    /// The access to it, and to moments of it.
    pub access: IscsiAccess,
    /// The sessions on it, and on moments of it.
    pub sessions: Vec<IscsiSession>,
}

/// The access to a volume and its moments over iSCSI. Secrets are not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiAccess {
    /// The name by which initiators prove themselves (CHAP); null if they need not.
    pub chap_user: Option<String>,
    /// The name by which the target proves itself to those that ask for it; null if it does not.
    pub mutual_user: Option<String>,
    /// The names of initiators that may; none are all.
    pub allow: Vec<String>,
}

/// A name and its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapCredential {
    /// The name.
    pub user: String,
    /// The secret: 12 to 16 characters of ASCII without blanks.
    pub secret: String,
}

impl fmt::Debug for ChapCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChapCredential").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Another access to a volume over iSCSI; what is left out stays as it is. It holds from the next
/// login on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTarget {
    /// The name and secret by which initiators prove themselves; null asks for none any more.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<ChapCredential>)]
    pub chap: Option<Option<ChapCredential>>,
    /// Those by which the target does; null takes them away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<ChapCredential>)]
    pub mutual: Option<Option<ChapCredential>>,
    /// The names of initiators that may log in; none are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
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
