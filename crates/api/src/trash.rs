//! Deleting volumes, and having them back.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Time, Would};

/// How a volume is deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// Go on although there are versions or pinned marks, which go with it, or clients are
    /// attached, which are disconnected.
    #[serde(default)]
    pub force: bool,
    /// For good: it does not go to the trash.
    #[serde(default)]
    pub now: bool,
    /// How long it can be had back, as a span; `7d` by default, sooner over when room is wanted.
    #[param(example = "7d")]
    pub grace: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Whether anything is done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DryRunQuery {
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Under which name a volume comes back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undelete {
    /// The name that it had, if none is given; it is needed where another volume has that now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A volume that was deleted, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedVolume {
    /// Its number in the trash: several may have had one name.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Bytes of its present.
    pub size: u64,
    /// When it was deleted.
    pub deleted: Time,
    /// Until when it can be had back, unless room is wanted before.
    pub until: Time,
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Versions that it has.
    pub versions: u64,
    /// Pinned marks that it has.
    pub pinned_marks: u64,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
}
