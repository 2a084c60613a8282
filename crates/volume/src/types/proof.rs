//! What a check said of a moment.

use serde::{Deserialize, Serialize};
use units::WallTime;

use super::Resolved;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The moment serves.
    Good,
    /// It does not.
    Bad,
    /// The check could not tell, or did not come to an end.
    Unknown,
}

impl Verdict {
    /// As the contract has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Unknown => "unknown",
        }
    }
}

/// What a check said of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The moment.
    pub at: Resolved,
    /// The hook that was the check.
    pub hook: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// When it began.
    pub proved: WallTime,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How it ended, in words.
    pub said: String,
}
