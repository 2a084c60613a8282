//! Another name for a volume.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Would;

/// Another name for a volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name.
    pub name: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A volume that was renamed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renamed {
    /// Its new name.
    pub name: String,
    /// The name that it had.
    pub old_name: String,
    /// Clients that have its present open. They keep it, and connect by the new name from now on.
    pub clients: u64,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
}
