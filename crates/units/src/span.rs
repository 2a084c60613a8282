//! Spans of time, read from `250ms`, `90s`, `5min`, `2h`, `7d`, `2w`, `3mo`.
//!
//! A bare `m` is refused: half of the world means minutes by it and the other half months, and the
//! two differ by a factor of 43,200 in what is kept.

use std::fmt;
use std::str::FromStr;

use crate::malformed::{Malformed, as_text, shorten};
use crate::number::{Decimal, DecimalError};

/// A length of time in nanoseconds, read from `5min`, `250ms`, `7d`. Serialised as its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
const MONTH: u64 = 30 * DAY;

/// Units in print, longest first. Weeks and months are read but not printed: `7d` stays `7d`.
const PRINTED: [(u64, &str); 4] = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")];

const UNITS_HINT: &str = "use a unit of ms, s, min, h, d, w, mo, as in 250ms, 5min or 7d";

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// From whole seconds; `None` beyond 584 years.
    pub fn from_seconds(seconds: u64) -> Option<Span> {
        seconds.checked_mul(SECOND).map(Span)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Reads a number and a unit, with or without a blank between them and the unit in words or
    /// short: the form of `10 minutes ago` without the `ago`.
    pub(crate) fn parse_in_words(text: &str) -> Result<Span, Malformed> {
        let (number, unit) = split(text)?;
        let unit = unit.trim_start();
        let short = match unit {
            "millisecond" | "milliseconds" => "ms",
            "second" | "seconds" | "sec" | "secs" => "s",
            "minute" | "minutes" | "mins" => "min",
            "hour" | "hours" => "h",
            "day" | "days" => "d",
            "week" | "weeks" => "w",
            "month" | "months" => "mo",
            other => other,
        };
        scale(number, short, text)
    }
}

impl fmt::Display for Span {
    /// Prints with the longest of `d h min s ms` that leaves no fraction; shorter spans as a
    /// fraction of `ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in PRINTED {
            if self.0 != 0 && self.0.is_multiple_of(unit) {
                return f.pad(&format!("{}{name}", self.0 / unit));
            }
        }
        if self.0 == 0 {
            return f.pad("0s");
        }
        let (whole, fraction) = (self.0 / MILLISECOND, self.0 % MILLISECOND);
        if fraction == 0 {
            return f.pad(&format!("{whole}ms"));
        }
        f.pad(&format!("{whole}.{}ms", format!("{fraction:06}").trim_end_matches('0')))
    }
}

impl FromStr for Span {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Span, Malformed> {
        let (number, unit) = split(text)?;
        scale(number, unit, text)
    }
}

fn split(text: &str) -> Result<(Decimal, &str), Malformed> {
    Decimal::split(text).map_err(|kind| match kind {
        DecimalError::NotANumber => {
            Malformed::new(format!("`{}` is not a span of time", shorten(text)), UNITS_HINT)
        }
        DecimalError::TooLong => too_long(text),
    })
}

fn scale(number: Decimal, unit: &str, text: &str) -> Result<Span, Malformed> {
    let unit_ns = match unit {
        "ms" => MILLISECOND,
        "s" => SECOND,
        "min" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        "w" => WEEK,
        "mo" => MONTH,
        other => return Err(unknown_unit(other, text)),
    };
    number.times(unit_ns).map(Span).ok_or_else(|| too_long(text))
}

fn unknown_unit(unit: &str, text: &str) -> Malformed {
    let shown = shorten(text);
    match unit {
        "" => Malformed::new(format!("`{shown}` has no unit of time"), UNITS_HINT),
        "m" | "M" => {
            let message = format!("the unit of `{shown}` may be minutes or months");
            Malformed::new(message, "min or mo?")
        }
        _ => Malformed::new(format!("`{}` is not a unit of time", shorten(unit)), UNITS_HINT),
    }
}

fn too_long(text: &str) -> Malformed {
    Malformed::new(
        format!("`{}` is too long or too precise a number", shorten(text)),
        "spans end at 584 years and have at most 18 digits behind the point",
    )
}

as_text!(Span);
