//! The scalars of the JSON: instants as RFC 3339 text, sizes and spans that may be typed by people.
//!
//! We send canonical values (an instant in UTC with nanoseconds, sizes as integers of bytes, spans
//! as text such as `7d`), and also take `10GiB` for a size and seconds for a span.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use units::{Malformed, Size, Span, WallTime};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// RFC 3339 in UTC with nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime, examples("2026-11-21T10:00:00.000000000Z"))]
pub struct Time(pub WallTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        WallTime::from_str(&text).map(Time).map_err(de::Error::custom)
    }
}

/// A size in bytes: an integer in what we send; text such as `10GiB` is taken too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeInput(pub Size);

impl Serialize for SizeInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.0)
    }
}

impl<'de> Deserialize<'de> for SizeInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SizeInput, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            wanted: "bytes as an integer, or a size such as \"10GiB\"",
            number: |n| Some(SizeInput(Size(n))),
            text: |t| Size::from_str(t).map(SizeInput).map_err(Malformed::in_one_line),
        })
    }
}

impl PartialSchema for SizeInput {
    fn schema() -> RefOr<Schema> {
        let pattern = "^[0-9]{1,4}([.][0-9]{1,3})?([KMGT](iB)?)?$";
        number_or_text("Bytes, or a size such as `10GiB`.", "10GiB", (pattern, u64::MAX))
    }
}

impl ToSchema for SizeInput {}

/// A length of time: text such as `7d` or `90s` in what we send; whole seconds are taken too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanInput(pub Span);

impl Serialize for SpanInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SpanInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SpanInput, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            wanted: "a length of time such as \"7d\", or seconds as an integer",
            number: |n| n.checked_mul(SECOND_NS).map(|ns| SpanInput(Span(ns))),
            text: |t| Span::from_str(t).map(SpanInput).map_err(Malformed::in_one_line),
        })
    }
}

impl PartialSchema for SpanInput {
    fn schema() -> RefOr<Schema> {
        let text = "A length of time such as `7d` or `90s`, or whole seconds.";
        number_or_text(text, "7d", ("^[0-9]{1,4}(ms|s|min|h|d)$", u64::MAX / SECOND_NS))
    }
}

impl ToSchema for SpanInput {}

/// Takes a JSON number through one function and a JSON string through another.
struct NumberOrText<T> {
    wanted: &'static str,
    number: fn(u64) -> Option<T>,
    text: fn(&str) -> Result<T, String>,
}

impl<T> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        (self.number)(value).ok_or_else(|| E::custom(format!("{value} is too large")))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        // JSON has one kind of number: 4096.0 is the integer 4096. Above 2^53 it is not exact.
        if value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value) {
            return self.visit_u64(value as u64);
        }
        Err(E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        (self.text)(value).map_err(E::custom)
    }
}

fn number_or_text(description: &str, example: &str, (pattern, max): (&str, u64)) -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let number = number.maximum(Some(max));
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
    let text = text.examples([serde_json::Value::from(example)]);
    Schema::OneOf(
        OneOfBuilder::new().item(number).item(text).description(Some(description)).build(),
    )
    .into()
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::{SECOND_NS, SizeInput, SpanInput, Time};

    fn size(json: &str) -> Result<u64, String> {
        serde_json::from_str::<SizeInput>(json).map(|s| s.0.0).map_err(|e| e.to_string())
    }

    #[test]
    fn a_size_is_a_number_or_a_text() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4096.0"), Ok(4096));
        assert_eq!(size("\"10GiB\""), Ok(10 << 30));
        assert_eq!(size("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["-1", "1.5", "1e30", "null", "[]", "\"ten\"", "18446744073709551616"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_span_is_seconds_or_a_text_and_is_sent_as_text() {
        let span = |json| serde_json::from_str::<SpanInput>(json).map(|s| s.0.0);
        assert_eq!(span("90").expect("seconds"), 90 * SECOND_NS);
        assert_eq!(span("\"7d\"").expect("text"), 7 * 86_400 * SECOND_NS);
        assert!(span("18446744073709551615").is_err());
        let json = serde_json::to_string(&span("\"7d\"").map(|s| SpanInput(Span(s))).expect("7d"));
        assert_eq!(json.expect("json"), "\"7d\"");
    }

    #[test]
    fn a_time_is_sent_in_utc_with_nanoseconds() {
        let time: Time = serde_json::from_str("\"2026-11-21T11:00:00.25+01:00\"").expect("time");
        let json = serde_json::to_string(&time).expect("json");
        assert_eq!(json, "\"2026-11-21T10:00:00.250000000Z\"");
    }
}
