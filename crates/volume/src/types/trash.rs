//! How volumes are deleted, and what is told of those that can be had back.

use units::WallTime;

/// How a volume is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// How long it can be had back; a week if nothing is said, and not at all for 0.
    pub grace_ns: Option<u64>,
    /// Whether versions and pinned marks go with it.
    pub force: bool,
    /// Only say what would be deleted.
    pub dry_run: bool,
}

/// A volume that was deleted, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedVolume {
    /// Its number: several of one name may have been deleted.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Bytes of its present.
    pub size_bytes: u64,
    /// When it was deleted.
    pub deleted: WallTime,
    /// Until when it can be had back.
    pub until: WallTime,
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Versions it has.
    pub versions: u64,
    /// Pinned marks it has.
    pub pinned_marks: u64,
}
