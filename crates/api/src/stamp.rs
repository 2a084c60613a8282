//! A position in a history.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;

/// A seq with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stamp {
    /// The position in the volume's history.
    pub seq: u64,
    /// When it was written; never goes back as seq rises.
    pub time: Time,
}
