//! Moments as people at a terminal write them: local times without an offset, days by name, `...
//! ago`.
//!
//! Invariants: 1. what the contract's forms say is never read differently here; 2. a local time
//! that a change of the clocks skips or repeats is refused, not guessed; 3. the answer says what
//! was understood.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use crate::{Malformed, Moment, Span, WallTime};

/// A moment and what was made of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The moment.
    pub moment: Moment,
    /// For people: `2026-11-21T09:00:00.000000000Z (2026-11-21 10:00:00 +01:00 here)`.
    pub text: String,
}

const FORMS_HINT: &str = "use latest, 2026-11-21T10:00:00Z, -5min, seq:12345, v:3, mark:NAME, \
     2026-11-21 10:00, 10:00, yesterday 14:03 or 10 minutes ago";

impl Moment {
    /// Reads every form of `FromStr`, and also local times: `2026-11-21 10:00`,
    /// `2026-11-21T10:00:00`,
    /// `2026-11-21` (its first instant), `10:00` (today), `today`, `yesterday 14:03`, `10 minutes
    /// ago`, `now`.
    ///
    /// # Errors
    /// When the text is none of these, or names a local time that does not exist, or exists twice,
    /// or (given without a date) is yet to come.
    pub fn parse_local(text: &str, now: WallTime, zone: &TimeZone) -> Result<Reading, Malformed> {
        let text = text.trim();
        match Moment::form(text) {
            Ok(moment) => Ok(read_as(moment, now, zone)),
            Err(contract) => {
                // Only where no local form fits either is the contract's complaint the right one.
                let reading = local(text, now, zone)?.or_else(|| Moment::bare_mark(text));
                reading.ok_or_else(|| with_all_forms(contract)).map(|m| read_as(m, now, zone))
            }
        }
    }
}

fn with_all_forms(mut error: Malformed) -> Malformed {
    if error.hint.as_ref().is_some_and(|h| h.starts_with("use latest")) {
        error.hint = Some(FORMS_HINT.into());
    }
    error
}

fn read_as(moment: Moment, now: WallTime, zone: &TimeZone) -> Reading {
    let text = match &moment {
        Moment::At(time) => shown(*time, zone),
        Moment::Ago(span) => format!("{span} before {now}"),
        other => other.to_string(),
    };
    Reading { moment, text }
}

fn shown(time: WallTime, zone: &TimeZone) -> String {
    let local = time.timestamp().to_zoned(zone.clone());
    format!("{time} ({} here)", local.strftime("%Y-%m-%d %H:%M:%S%.f %:z"))
}

/// The moment of a local form; `None` when the text is not one.
fn local(text: &str, now: WallTime, zone: &TimeZone) -> Result<Option<Moment>, Malformed> {
    if text == "now" {
        return Ok(Some(Moment::Latest));
    }
    if let Some(span) = text.strip_suffix(" ago") {
        return Ok(Some(Moment::Ago(Span::parse_in_words(span.trim())?)));
    }
    let today = now.timestamp().to_zoned(zone.clone()).date();
    let (day, time) = match text.split_once([' ', 'T']) {
        Some((day, time)) => (day, Some(time.trim_start())),
        None => (text, None),
    };
    let found = match (named_day(text, today), named_day(day, today), time) {
        (Some(date), _, _) => Some((date, Time::midnight(), false)),
        (None, Some(date), Some(time)) => clock(time).map(|time| (date, time, false)),
        _ => clock(text).map(|time| (today, time, true)),
    };
    let Some((date, time, bare_time)) = found else { return Ok(None) };
    let at = instant(date.to_datetime(time), zone)?;
    if bare_time && at > now {
        let message = format!("{text} today is yet to come");
        return Err(Malformed::new(message, format!("yesterday {text}?")));
    }
    Ok(Some(Moment::At(at)))
}

/// The date of `today`, `yesterday` or `2026-11-21`.
fn named_day(text: &str, today: Date) -> Option<Date> {
    match text {
        "today" => Some(today),
        "yesterday" => today.yesterday().ok(),
        _ if is_digits_like(text, b"0000-00-00") => text.parse().ok(),
        _ => None,
    }
}

/// The time of `10:00`, `10:00:00`, `10:00:00.25`.
fn clock(text: &str) -> Option<Time> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let fits = is_digits_like(whole, b"00:00:00")
        || (is_digits_like(text, b"00:00") && !text.contains('.'));
    if fits { text.parse().ok() } else { None }
}

fn is_digits_like(text: &str, shape: &[u8]) -> bool {
    text.len() == shape.len()
        && text
            .bytes()
            .zip(shape)
            .all(|(got, &want)| if want == b'0' { got.is_ascii_digit() } else { got == want })
}

fn instant(civil: DateTime, zone: &TimeZone) -> Result<WallTime, Malformed> {
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    let strange = ambiguous.is_ambiguous();
    let timestamp: Timestamp = match ambiguous.unambiguous() {
        Ok(timestamp) => timestamp,
        Err(_) if strange => {
            let message = format!("the clocks change at {civil}: it does not exist, or twice");
            return Err(Malformed::new(message, "give the offset, as in 10:00:00+01:00"));
        }
        Err(e) => return Err(Malformed { message: e.to_string(), hint: None }),
    };
    WallTime::from_timestamp(timestamp)
        .map_err(|e| Malformed { message: e.to_string(), hint: None })
}
