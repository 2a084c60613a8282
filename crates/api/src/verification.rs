//! Verdicts of checks on moments.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;

/// A check that is to be run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// The moment; the present by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// A hook of the server's configuration that has `verify`.
    pub hook: String,
}

/// The verdict of a check on a moment, or that it has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// The moment.
    pub seq: u64,
    /// Its time.
    pub time: Time,
    /// The hook.
    pub hook: String,
    /// `running`, also while it waits; `good`, `bad`, or `unknown`, where the check could not tell
    /// or did not come to an end.
    pub verdict: String,
    /// When it was asked for.
    pub asked: Time,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How it ended, in words.
    pub said: String,
}
