//! Wall time: nanoseconds since 1970 UTC, printed and read as RFC 3339.
//!
//! Wall time only finds a `Seq`; order never comes from it. The text always has nine fractional
//! digits and `Z`, so that texts of times sort as the times do.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Span;

/// An instant in nanoseconds since 1970-01-01T00:00:00Z (good until the year 2554).
///
/// Serialised as its RFC 3339 text. Durable structures store [`WallTime::as_nanos`] instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

/// Why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a time: {0}")]
pub struct TimeError(pub String);

impl WallTime {
    /// The first instant: 1970-01-01T00:00:00Z.
    pub const EPOCH: WallTime = WallTime(0);
    /// The last instant, in the year 2554.
    pub const MAX: WallTime = WallTime(u64::MAX);

    /// From nanoseconds since 1970.
    pub const fn from_nanos(nanos: u64) -> WallTime {
        WallTime(nanos)
    }

    /// Nanoseconds since 1970.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` later, or [`WallTime::MAX`].
    #[must_use]
    pub fn saturating_add(self, span: Span) -> WallTime {
        WallTime(self.0.saturating_add(span.0))
    }

    /// The instant `span` earlier, or 1970.
    #[must_use]
    pub fn saturating_sub(self, span: Span) -> WallTime {
        WallTime(self.0.saturating_sub(span.0))
    }

    /// How long after `earlier` this is; `None` when it is before.
    #[must_use]
    pub fn since(self, earlier: WallTime) -> Option<Span> {
        self.0.checked_sub(earlier.0).map(Span)
    }

    /// Reads an RFC 3339 instant; the first or last of what can be told apart for one before 1970
    /// or after 2554.
    pub(crate) fn nearest(text: &str) -> Result<WallTime, TimeError> {
        let told = text.parse::<WallTime>();
        let year = text.get(..4).and_then(|digits| digits.parse::<u16>().ok());
        match (&told, year) {
            (Err(_), Some(year)) if !(1971..2554).contains(&year) && is_civil(text) => {
                Ok(if year < 2000 { WallTime::EPOCH } else { WallTime::MAX })
            }
            _ => told,
        }
    }

    /// From the library's instant; refused before 1970 and after 2554.
    pub(crate) fn from_timestamp(timestamp: Timestamp) -> Result<WallTime, TimeError> {
        u64::try_from(timestamp.as_nanosecond())
            .map(WallTime)
            .map_err(|_| TimeError(format!("{timestamp} is not between the years 1970 and 2554")))
    }

    /// As the library's instant.
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_nanosecond(i128::from(self.0))
            .expect("64 bits of nanoseconds end in 2554; the library goes to 9999")
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.9}", self.timestamp()))
    }
}

impl FromStr for WallTime {
    type Err = TimeError;

    /// Reads an RFC 3339 instant with any offset.
    fn from_str(text: &str) -> Result<WallTime, TimeError> {
        // The library also reads zone annotations (`[Europe/Paris]`) and basic ISO 8601; the
        // contract does not promise them, so they are refused before somebody comes to rely on
        // them.
        if !has_shape_of_rfc_3339(text) {
            let shown: String = text.chars().take(64).collect();
            return Err(TimeError(format!(
                "`{shown}` is not like 2026-11-21T10:00:00Z or 2026-11-21T10:00:00.25+01:00"
            )));
        }
        let shortened = without_finest_digits(text);
        let timestamp: Timestamp = shortened.parse().map_err(|e| TimeError(format!("{e}")))?;
        WallTime::from_timestamp(timestamp)
    }
}

/// Whether a text begins with a date and time that exist, and has the shape of RFC 3339.
fn is_civil(text: &str) -> bool {
    has_shape_of_rfc_3339(text) && text.get(..19).is_some_and(|t| t.parse::<DateTime>().is_ok())
}

/// The text without what a fraction tells beyond nanoseconds.
fn without_finest_digits(text: &str) -> Cow<'_, str> {
    let digits = text[20.min(text.len())..].bytes().take_while(u8::is_ascii_digit).count();
    if text.as_bytes().get(19) != Some(&b'.') || digits <= 9 {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{}", &text[..29], &text[20 + digits..]))
}

/// Checks `YYYY-MM-DD?HH:MM:SS[.fraction](Z|+HH:MM|-HH:MM)`; ranges are checked by the library.
fn has_shape_of_rfc_3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((front, rest)) = bytes.split_at_checked(19) else { return false };
    let front_fits = front.iter().zip(b"0000-00-00T00:00:00").all(|(&got, &want)| match want {
        b'0' => got.is_ascii_digit(),
        b'T' => matches!(got, b'T' | b't' | b' '),
        _ => got == want,
    });
    let offset = match rest.split_first() {
        Some((b'.', fraction)) => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        _ => rest,
    };
    let offset_fits = match offset {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => {
            let digits = [a, b, c, d].iter().all(|x| x.is_ascii_digit());
            digits && [*a, *b] <= *b"23" && *c < b'6'
        }
        _ => false,
    };
    front_fits && offset_fits
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WallTime, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
