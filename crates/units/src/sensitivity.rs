//! How soon a watch gives an alarm.

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

crate::names!(Display Sensitivity: Low "low", Normal "normal", High "high");
