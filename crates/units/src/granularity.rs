//! The text of a granularity: `every-write`, `on-demand`, or an interval such as `1s`.

use std::fmt;
use std::str::FromStr;

use crate::Span;
use crate::malformed::{Malformed, as_text, shorten};

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
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Granularity, Malformed> {
        const HINT: &str = "use every-write, on-demand, or an interval such as 1s or 10min";
        match text {
            "every-write" => return Ok(Granularity::EveryWrite),
            "on-demand" => return Ok(Granularity::OnDemand),
            _ => {}
        }
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("`{}` is not a granularity", shorten(text));
            return Err(Malformed::new(message, HINT));
        }
        match text.parse::<Span>() {
            Ok(Span::ZERO) => Err(Malformed::new("an interval of no length retains nothing", HINT)),
            span => span.map(Granularity::Interval),
        }
    }
}

as_text!(Granularity);
