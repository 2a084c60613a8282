//! How soon a watch gives an alarm.

use std::fmt;
use std::str::FromStr;

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

/// Why a text is no sensitivity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no sensitivity")]
pub struct SensitivityError(String);

impl SensitivityError {
    /// The remedy.
    pub const HINT: &str = "there is low, normal, high";
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

impl FromStr for Sensitivity {
    type Err = SensitivityError;

    fn from_str(text: &str) -> Result<Sensitivity, SensitivityError> {
        let found = Sensitivity::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| SensitivityError(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::Sensitivity;

    #[test]
    fn names_are_read_as_they_are_written_and_nothing_else_is() {
        for one in Sensitivity::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("Normal".parse::<Sensitivity>().is_err());
    }
}
