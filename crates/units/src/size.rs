//! Sizes in bytes.

use serde::{Deserialize, Serialize};

/// A size in bytes, read from `10GiB`, `10G` (= GiB) or `4096`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Size(pub u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SizeError(pub String);
