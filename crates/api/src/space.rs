//! The server's figures of space.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{SpanInput, Stamp};

/// The uses of a volume's space. Nothing is walked to tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSpace {
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Whether that was counted; else it is an upper bound until the map is merged.
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Of these: by how long ago they were written over, youngest first.
    pub history_by_age: Vec<AgeBytes>,
    /// Of these: what is not sorted by age before the map is merged.
    pub unsorted_bytes: u64,
    /// Of these: what versions, pinned marks, views, clones and reverts see.
    pub pinned_bytes: u64,
    /// Of these: what has left the window, and is there for them alone.
    pub beyond_window_bytes: u64,
    /// Bytes that no moment needs any more: freed in the background, or when room is wanted.
    pub reclaimable_bytes: u64,
    /// The holders, oldest first. `held_bytes` of all are `pinned_bytes`.
    pub holders: Vec<Holder>,
    /// How fast it grows; null before that can be told.
    pub growth: Option<Growth>,
    /// How fast its history grows: new data that nothing was written over by is none of it.
    #[serde(default)]
    pub history_growth: Option<Growth>,
    /// How long the history limit lasts if history goes on growing like this; null without a limit,
    /// or if it does not grow.
    #[schema(value_type = Option<String>, example = "3d")]
    pub limit_lasts: Option<SpanInput>,
}

/// History that was written over so long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgeBytes {
    /// Less than that ago, and not less than the one before; null is the rest.
    #[schema(value_type = Option<String>, example = "1d")]
    pub below: Option<SpanInput>,
    /// Bytes.
    pub bytes: u64,
}

/// History held by pins of one moment, or of neighbouring ones where there are more than 128.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The first moment.
    pub first_seq: u64,
    /// The last one.
    pub last_seq: u64,
    /// How many.
    pub moments: u64,
    /// The names at the first and the last: `v:3`, `mark:NAME`, `a view`, `clone NAME`, `revert`.
    pub names: Vec<String>,
    /// Bytes of history that nothing later that is held sees. Each is in one holder's figure.
    pub held_bytes: u64,
    /// Of these: what nothing else that is held sees. If only this one goes, and it has left the
    /// window, so much is freed; the rest is shared, and passes to the holder before.
    pub own_bytes: u64,
}

/// How fast something grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Growth {
    /// Bytes a day; below zero where it shrinks.
    pub bytes_per_day: i64,
    /// Over how long that was measured, at most a week.
    #[schema(value_type = String, example = "7d")]
    pub measured: SpanInput,
}

/// The history that a full pool would give up next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sacrifice {
    /// The volume.
    pub volume: String,
    /// The oldest moment that can be opened by time now.
    pub from: Stamp,
    /// The oldest one after it.
    pub to: Stamp,
    /// Whether it is kept only for a grace period.
    pub grace: bool,
    /// Whether the volume was deleted; then all of it goes.
    #[serde(default)]
    pub deleted: bool,
    /// Whether the volume is a scratch clone; then all of it goes.
    #[serde(default)]
    pub scratch: bool,
}
