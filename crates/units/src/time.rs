//! Wall time: nanoseconds since 1970 UTC, printed and read as RFC 3339.

use serde::{Deserialize, Serialize};

/// An instant in nanoseconds since 1970-01-01T00:00:00Z (good until the year 2554).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(u64);

/// Why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a time: {0}")]
pub struct TimeError(pub String);

impl WallTime {
    /// From nanoseconds since 1970.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> WallTime {
        WallTime(nanos)
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}
