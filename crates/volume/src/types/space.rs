//! Figures of space: of a volume, of the pool, and of the history that goes when it is full.

use units::Seq;

use super::stamp::Stamp;

/// History that was written over so long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeBytes {
    /// Less than so many nanoseconds ago (and not less than those before it); `None` is the rest.
    pub below_ns: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

/// History held by the pins and branches at one moment, or at neighbouring ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The first moment.
    pub first: Seq,
    /// The last one; the same unless there are so many that they are told together.
    pub last: Seq,
    /// How many moments.
    pub moments: u64,
    /// The names at the first and the last: `v:3`, `mark:NAME`, views, `clone NAME`, `revert`.
    pub names: Vec<String>,
    /// Bytes of history that these are the last to see before they were written over. Those of all
    /// holders add up.
    pub held_bytes: u64,
    /// Of these: what no other moment that is held sees. The rest passes to the holder before when
    /// this one goes.
    pub own_bytes: u64,
}

/// The uses of a volume's space, in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Whether that is so; else it is an upper bound.
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Of these: by when they were written over, youngest first.
    pub ages: Vec<AgeBytes>,
    /// Of these: what is not sorted by age before the map's runs are merged.
    pub unsorted_bytes: u64,
    /// Of these: what pins and branches see.
    pub pinned_bytes: u64,
    /// Of these: what has left the window.
    pub beyond_bytes: u64,
    /// Bytes that no moment needs any more: freed in the background, or when room is wanted.
    pub reclaimable_bytes: u64,
    /// The holders, oldest first.
    pub holders: Vec<Holder>,
}

/// How fast something grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Bytes a day; less than nothing where it shrinks.
    pub bytes_a_day: i64,
    /// Over how long that was measured, in nanoseconds.
    pub measured_ns: u64,
}

/// The uses of the space of all volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Bytes of the present that are stored; what clones share counts for each.
    pub live_bytes: u64,
    /// Whether that is so; else it is an upper bound.
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Of these: what pins and branches see.
    pub pinned_bytes: u64,
    /// Deleted volumes that can be had back.
    pub trash_volumes: u64,
    /// Bytes of their presents and histories.
    pub trash_bytes: u64,
    /// Bytes of blocks that the map points to, of all volumes.
    pub stored_bytes: u64,
    /// Of these: those of blocks that are stored once for several volumes, and belong to none.
    pub common_bytes: u64,
    /// Bytes of the versions that they are stored for, had each a block of its own.
    pub common_named_bytes: u64,
    /// How fast what is in use grows, once that can be told.
    pub growth: Option<Growth>,
}

/// The history that a full pool would give up next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sacrifice {
    /// The volume.
    pub volume: String,
    /// The oldest moment that can be opened by time now.
    pub from: Stamp,
    /// The oldest one after it.
    pub to: Stamp,
    /// Why it is kept.
    pub kept_for: KeptFor,
}

/// Why history is kept that a full pool would give up next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    /// The volume was deleted; all of it goes.
    Trash,
    /// The volume is a scratch clone; all of it goes.
    Scratch,
    /// A window or limit was made smaller, and the grace period is not over.
    Grace,
    /// The window.
    Window,
}

/// The pool as it stands.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Identity of the pool, 16 hex digits.
    pub id: String,
    /// The stack, as one line.
    pub layers: String,
    /// Format version.
    pub format_version: u32,
    /// Bytes of all zones.
    pub size_bytes: u64,
    /// Bytes of zones in use.
    pub used_bytes: u64,
    /// Bytes of zones that are free.
    pub free_bytes: u64,
    /// Bytes that new data can still take: free zones but for the reserve.
    pub available_bytes: u64,
    /// Bytes in used zones that reclamation would free now.
    pub reclaimable_bytes: u64,
    /// Bytes of log segments; those of current stores, map runs and catalogue make it `used_bytes`.
    pub log_bytes: u64,
    /// Bytes of current stores.
    pub current_bytes: u64,
    /// Bytes of map runs.
    pub map_bytes: u64,
    /// Bytes of the catalogue and superblocks.
    pub catalogue_bytes: u64,
    /// Map entries not yet in runs.
    pub pending_entries: u64,
    /// Map pages looked up because they were not in memory, since the pool was opened.
    pub page_loads: u64,
    /// `online`, `degraded` (a member is not in) or `refusing-writes`.
    pub state: &'static str,
    /// Blocks whose checksum did not match since the pool was opened.
    pub checksum_errors: u64,
    /// How those ended, and what of the map and the headers was wrong.
    pub healed: history::Healed,
}

/// The outcome of deduplication within a volume's own log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupInfo {
    /// Whether it is on.
    pub is_on: bool,
    /// Bytes of blocks that are stored once for several versions of this volume.
    pub shared_bytes: u64,
    /// Bytes of the blocks of those versions, had each its own.
    pub named_bytes: u64,
}
