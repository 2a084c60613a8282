//! Consistency groups: what is asked, and what is answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::requests::some_of;
use crate::{Resolved, Reverted, Time, Would};

/// A group of volumes that are captured at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateGroup {
    /// 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or digit.
    pub name: String,
    /// Names of its volumes: 1 to 256.
    pub volumes: Vec<String>,
}

/// A group as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its volumes by name; one that is deleted leaves it.
    pub volumes: Vec<String>,
    /// When it was made.
    pub created: Time,
    /// How often it was captured.
    pub captures: u64,
    /// The hook around captures that name none; null without one: then those of its volumes are.
    #[serde(default)]
    pub hook: Option<String>,
    /// Whether the server's configuration has that hook.
    #[serde(default)]
    pub hook_known: bool,
}

/// Settings of a group to change, one at least; those left out stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeGroup {
    /// A hook of the server's configuration around captures that name none; null (or `none`) takes
    /// it away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<Option<String>>,
}

/// A capture of a group: a version of each volume, all of one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupVersion {
    /// 0, 1, 2 ...; never used twice in a group.
    pub number: u64,
    /// The clock's time.
    pub time: Time,
    /// Free text.
    pub label: String,
    /// `crash-consistent`, `quiesced` (by a hook) or `quiesce-failed`: failed if a volume's hook
    /// failed, quiesced if all volumes were.
    pub consistency: String,
    /// Why hooks failed: told once, in the answer to the call that captured it.
    #[serde(default)]
    pub hook_failure: Option<String>,
    /// `people` or `schedule`.
    #[serde(default)]
    pub made_by: String,
    /// The versions that are still there.
    pub versions: Vec<MemberVersion>,
}

/// A version of a volume in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberVersion {
    /// The volume.
    pub volume: String,
    /// The number of its version.
    pub number: u64,
}

/// Clones of all volumes of a group.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneGroup {
    /// The name of the new group; its volumes are called `NAME-VOLUME`.
    pub name: String,
    /// The moment they start at, of one instant: `latest` (the default), a time, `v:N` of the
    /// group, a mark that each volume has, or `VOLUME=MOMENT,...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A moment of a group, resolved for one of its volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberResolved {
    /// The volume.
    pub volume: String,
    /// The moment.
    #[serde(flatten)]
    pub resolved: Resolved,
}

/// The effect of a group's revert on one of its volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberReverted {
    /// The volume.
    pub volume: String,
    /// The revert.
    #[serde(flatten)]
    pub reverted: Reverted,
}

/// The effect of a group's revert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupReverted {
    /// The group.
    pub group: String,
    /// Its volumes.
    pub volumes: Vec<MemberReverted>,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
    /// The moment to revert the group to for undoing this.
    #[schema(example = "data=seq:12345,wal=seq:678")]
    pub undo: String,
}
