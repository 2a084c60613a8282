//! Volumes as iSCSI targets, and who is logged in to them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;
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
    /// The `ADDRESS:PORT`s that discovery tells initiators elsewhere; none are those at which they
    /// come.
    pub announced: Vec<String>,
    /// The access to it, and to moments of it.
    pub access: IscsiAccess,
    /// The sessions on it, and on moments of it.
    pub sessions: Vec<IscsiSession>,
    /// The persistent reservations of the volume; null while nobody is registered.
    pub reservations: Option<IscsiReservations>,
}

/// The persistent reservations of a volume, through whichever target they were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiReservations {
    /// The ports that are registered.
    pub registered: Vec<IscsiRegistration>,
    /// The reservation that is held; null if none is.
    pub held: Option<IscsiReservation>,
    /// They outlive the server, because the last initiator that registered asked for that (APTPL).
    pub kept: bool,
}

/// A port of an initiator that is registered with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiRegistration {
    /// The initiator's name.
    pub initiator: String,
    /// Its part of the session's identity (ISID), 12 hex digits.
    pub isid: String,
    /// The key under which it is registered, 16 hex digits.
    pub key: String,
}

/// A reservation that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiReservation {
    /// The initiator that asked for it.
    pub initiator: String,
    /// Its type: `write-exclusive`, `exclusive-access`, `write-exclusive-registrants`,
    /// `exclusive-access-registrants`, `write-exclusive-all` or `exclusive-access-all`.
    pub kind: String,
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

/// An iSCSI target of several units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeTarget {
    /// Its name, which no volume has.
    pub name: String,
    /// When it was made.
    pub created: Time,
    /// Its iSCSI name; null when iSCSI is off, or the name is too long.
    pub iscsi_name: Option<String>,
    /// The `ADDRESS:PORT`s that discovery tells initiators elsewhere; none are those at which they
    /// come.
    pub announced: Vec<String>,
    /// Its units, by number.
    pub luns: Vec<TargetLun>,
    /// Numbers of units that were taken out: no unit ever gets them.
    pub retired: Vec<u16>,
    /// The access to it.
    pub access: IscsiAccess,
    /// The sessions on it.
    pub sessions: Vec<IscsiSession>,
}

/// A unit of a made target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetLun {
    /// Its number.
    pub lun: u16,
    /// The volume; null when it was deleted: then there is no such unit.
    pub volume: Option<String>,
    /// The seq of the moment that it is, read-only; null is the present.
    pub seq: Option<u64>,
    /// For clients that take a URL, on this machine; null when iSCSI is off.
    pub uri: Option<String>,
}

/// A unit that a target is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLun {
    /// Its number, 0 to 16383: one that no unit of the target ever had.
    pub lun: u16,
    /// The volume.
    pub volume: String,
    /// A moment of it, which is resolved now and stays; without one the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A new target of several units: some volumes, or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTarget {
    /// 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or digit.
    pub name: String,
    /// Its units: 1 to 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub luns: Vec<NewLun>,
    /// Or the group whose volumes are its units, from number 0 on in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The moment of the group, as for `GET /groups/{group}/resolve`; without one the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The name and secret by which initiators prove themselves; without them those of the
    /// volumes that have an access of their own, if these are the same, as for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapCredential>,
    /// Those by which the target does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<ChapCredential>,
    /// The names of initiators that may log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

/// A change of a made target; what is left out stays as it is. The access holds from the next login
/// on, other units for sessions that are there as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMadeTarget {
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
    /// Units to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<NewLun>,
    /// Numbers of units to take out, for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<u16>,
    /// Take units out although there are sessions: they lose them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}
