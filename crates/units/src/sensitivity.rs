//! How soon a watch gives an alarm.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The sensitivity of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Only much is told.
    Low,
    /// The one that is used unless somebody says otherwise.
    Normal,
    /// Little is told, too.
    High,
}

impl Sensitivity {
    /// All of them.
    pub const ALL: [Sensitivity; 3] = [Sensitivity::Low, Sensitivity::Normal, Sensitivity::High];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sensitivity::Low => "low",
            Sensitivity::Normal => "normal",
            Sensitivity::High => "high",
        }
    }
}

impl fmt::Display for Sensitivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
