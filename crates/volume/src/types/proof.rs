//! The answers of checks.

use serde::{Deserialize, Serialize};

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
