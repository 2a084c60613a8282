//! The causes of alarms.

use serde::{Deserialize, Serialize};

/// The cause of an alarm of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmKind {
    /// Data was written over with what looks random, as encryption does.
    Scrambled,
    /// Data was written over with zeros, or trimmed.
    Wiped,
}

impl AlarmKind {
    /// As the contract has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            AlarmKind::Scrambled => "scrambled",
            AlarmKind::Wiped => "wiped",
        }
    }
}
