//! Operations on shares: who changed a file, and when; and repairs, which undo some of them.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Time, Would};

/// An operation that changed a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its number; they rise by one.
    pub number: u64,
    /// When it was done.
    pub time: Time,
    /// The moment before it, as a seq. Operations that were written together have the same.
    pub seq_before: u64,
    /// The procedure of NFS: `CREATE`, `WRITE`, `SETATTR`, `MKDIR`, `SYMLINK`, `MKNOD`, `REMOVE`,
    /// `RMDIR`, `RENAME` or `LINK`.
    pub procedure: String,
    /// The address of the client; null of what a command of this server did.
    pub client: Option<String>,
    /// The user, after squashing.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The path that it was about: of a name by the directory as it is called now, of a file as it
    /// is called now. Null if nothing has a name for it any more.
    pub path: Option<String>,
    /// The new path of a `RENAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The first byte of a `WRITE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes that a `WRITE` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The size that it gave to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The size before, of what was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_before: Option<u64>,
    /// The mode that it set, octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The owner that it set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_uid: Option<u32>,
    /// The group that it set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_gid: Option<u32>,
    /// The command that it is part of, such as `repair=17` or `restore=17`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Which operations, and how many. All that is given has to hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationsQuery {
    /// Not before this moment.
    pub since: Option<String>,
    /// Not after this moment.
    pub until: Option<String>,
    /// Of a client: an address or a network.
    pub client: Option<String>,
    /// Of a user.
    pub uid: Option<u32>,
    /// On a path, or below it.
    pub path: Option<String>,
    /// Of procedures, with commas between them.
    pub op: Option<String>,
    /// More conditions, as the `undo` of a repair has them.
    #[serde(rename = "where")]
    pub conditions: Option<String>,
    /// Operations in the answer at most: 1 to 10,000, which is the default.
    #[param(minimum = 1, maximum = 10_000)]
    pub limit: Option<usize>,
    /// Where the page begins: the `next` of the one before.
    pub next: Option<u64>,
}

/// Which file's operations, and how many.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VersionsOfQuery {
    /// The path of the file, from the top.
    #[param(example = "/docs/letter.txt")]
    pub path: String,
    /// The moment at which that is its path; the present by default.
    pub at: Option<String>,
    /// Operations in the answer at most: 1 to 10,000, which is the default.
    #[param(minimum = 1, maximum = 10_000)]
    pub limit: Option<usize>,
    /// Where the page begins: the `next` of the one before.
    pub next: Option<u64>,
}

/// A repair that is asked for: the share as it would be without some operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairShare {
    /// The operations to be undone: conditions with `and` or `or` between them, of `client`,
    /// `uid`, `time`, `path`, `op`, `number`, `repair`, `restore` and `import`.
    #[schema(example = "client=10.0.0.7 and time>=-2h and path~/docs/*")]
    pub undo: String,
    /// Operations that are undone with them: `nothing` (the default): one on which another stands
    /// is not undone; `names`: those that stand on undone ones; `bytes`: these, and those that
    /// wrote over bytes of undone ones; `reads`: these, and all that a client's user did after it
    /// had read a file that an undone one wrote, of a share whose reads are logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<String>,
    /// Only say what would be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A repair that was done, or would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShareRepair {
    /// The share.
    pub share: String,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Its number: `repair=NUMBER` undoes it. Null if nothing was to be done.
    pub number: Option<u64>,
    /// The moment before it, as a seq.
    pub before: u64,
    /// Operations that are undone.
    pub undone: u64,
    /// Of those that were named, how many are not undone, since others stand on them.
    pub kept: u64,
    /// Of those that are undone, how many were not named.
    pub followed: u64,
    /// The operations that stand on undone ones, the first 1,000 of them.
    pub dependents: Vec<DependentOperation>,
    /// The changes, in the order of paths, the first 1,000 of them.
    pub changes: Vec<RepairChange>,
    /// How many changes there are.
    pub changes_total: u64,
    /// Bytes that differ.
    pub bytes: u64,
    /// Of a dry run: the changes, in words.
    pub would: Vec<Would>,
}

/// An operation that stands on others that were to be undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DependentOperation {
    /// It.
    pub operation: Operation,
    /// The relation, in words.
    pub reason: String,
    /// The numbers of those that it stands on.
    pub on: Vec<u64>,
}

/// A change of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairChange {
    /// `restored`, `removed`, `renamed`, `written` or `set`.
    pub change: String,
    /// The path.
    pub path: String,
    /// Bytes that are `written`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
