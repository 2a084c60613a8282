//! The text of a granularity: `every-write`, `on-demand`, or an interval such as `1s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Span;

/// Which writes are retained, as users write it. Serialised as its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// Every one: `every-write`.
    EveryWrite,
    /// The last write to an address in each window of this length: `1s`, `10min`. Not zero.
    Interval(Span),
    /// Only what versions and pinned marks need: `on-demand`.
    OnDemand,
}

/// Why a text is not a granularity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GranularityError {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granularity::EveryWrite => f.pad("every-write"),
            Granularity::OnDemand => f.pad("on-demand"),
            Granularity::Interval(span) => span.fmt(f),
        }
    }
}

impl FromStr for Granularity {
    type Err = GranularityError;

    fn from_str(text: &str) -> Result<Granularity, GranularityError> {
        const HINT: &str = "use every-write, on-demand, or an interval such as 1s or 10min";
        let refuse = |message: String, hint: Option<String>| GranularityError {
            message,
            hint: hint.or_else(|| Some(HINT.into())),
        };
        match text {
            "every-write" => return Ok(Granularity::EveryWrite),
            "on-demand" => return Ok(Granularity::OnDemand),
            _ => {}
        }
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            let shown: String = text.chars().take(64).collect();
            return Err(refuse(format!("`{shown}` is not a granularity"), None));
        }
        match text.parse::<Span>() {
            Ok(Span::ZERO) => Err(refuse("an interval of no length retains nothing".into(), None)),
            Ok(span) => Ok(Granularity::Interval(span)),
            Err(e) => Err(refuse(e.message, e.hint)),
        }
    }
}

impl Serialize for Granularity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Granularity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Granularity, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|e: GranularityError| {
            let hint = e.hint.map(|h| format!(" ({h})")).unwrap_or_default();
            de::Error::custom(format!("{}{hint}", e.message))
        })
    }
}
