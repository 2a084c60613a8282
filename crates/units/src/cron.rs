//! A cron line: five fields (minute, hour, day of the month, month, day of the week), in UTC.
//!
//! Lists, ranges and steps as in crontab(5); months and weekdays also by name, Sunday is 0 or 7.
//! If both days are restricted (neither begins with `*`), either is enough. `@hourly`, `@daily`,
//! `@weekly`, `@monthly` and `@yearly` are short for lines.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Weekday;

use crate::calendar::{date_of, instant};
use crate::{Malformed, WallTime};

/// The 29th of February skips at most eight years.
const DAYS_MAX: usize = 9 * 366;
/// Characters of a line.
const CHARS_MAX: usize = 256;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When something is done, as a line of cron tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both kinds of day are restricted: one of them is enough.
    either_day: bool,
}

fn wrong(message: String) -> Malformed {
    let hint = "five fields: minute, hour, day of the month, month, day of the week, as in \
                `0 * * * *` or `30 3 * * mon-fri`";
    Malformed::new(message, hint)
}

/// The values that a field may hold.
struct Field {
    name: &'static str,
    first: u64,
    last: u64,
    /// Names of the values from `first` on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", first: 0, last: 59, names: &[] },
    Field { name: "hour", first: 0, last: 23, names: &[] },
    Field { name: "day of the month", first: 1, last: 31, names: &[] },
    Field { name: "month", first: 1, last: 12, names: &MONTHS },
    Field { name: "day of the week", first: 0, last: 7, names: &WEEKDAYS },
];

impl Field {
    /// The values of a field as bits.
    fn read(&self, text: &str) -> Result<u64, Malformed> {
        let mut bits = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(self.number(step, 1)?)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.first, self.last),
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                None if step.is_some() => {
                    return Err(wrong(format!("`{part}`: a step needs a range, as in */5")));
                }
                None => (self.value(range)?, self.value(range)?),
            };
            if first > last {
                return Err(wrong(format!("`{part}`: a {} cannot run backwards", self.name)));
            }
            let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
            for value in (first..=last).step_by(step) {
                bits |= 1 << value;
            }
        }
        Ok(bits)
    }

    fn value(&self, text: &str) -> Result<u64, Malformed> {
        let lower = text.to_ascii_lowercase();
        if let Some(index) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.first + index as u64);
        }
        let value = self.number(text, self.first)?;
        if value > self.last {
            return Err(self.no_value(text));
        }
        Ok(value)
    }

    fn number(&self, text: &str, least: u64) -> Result<u64, Malformed> {
        let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let value = text.parse::<u64>().ok().filter(|value| is_number && *value >= least);
        value.ok_or_else(|| self.no_value(text))
    }

    fn no_value(&self, text: &str) -> Malformed {
        let (name, first, last) = (self.name, self.first, self.last);
        wrong(format!("`{text}` is no {name}: {first} to {last}"))
    }
}

impl Cron {
    /// The first instant after `time` that the line names; `None` after 2554.
    #[must_use]
    pub fn next_after(&self, time: WallTime) -> Option<WallTime> {
        let civil = time.timestamp().to_zoned(jiff::tz::TimeZone::UTC).datetime();
        let (hour, minute) = (bit(civil.hour()), bit(civil.minute()) + 1);
        let mut date = date_of(time);
        for day in 0..DAYS_MAX {
            if self.names_day(date) {
                let (hour, minute) = if day == 0 { (hour, minute) } else { (0, 0) };
                if let Some((hour, minute)) = self.time_from(hour, minute) {
                    return instant(date.at(hour, minute, 0, 0));
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn names_day(&self, date: jiff::civil::Date) -> bool {
        let has = |bits: u64, value: i8| bits >> bit(value) & 1 == 1;
        let weekday = match date.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let (day, weekday) = (has(self.days, date.day()), has(self.weekdays, weekday));
        let fits = if self.either_day { day || weekday } else { day && weekday };
        fits && has(self.months, date.month())
    }

    /// The first time of a day at or after this one.
    fn time_from(&self, hour: u32, minute: u32) -> Option<(i8, i8)> {
        let small = |value: u32| i8::try_from(value).expect("below 60");
        let first = self.minutes.trailing_zeros();
        let rest = if minute < 60 { self.minutes >> minute << minute } else { 0 };
        if self.hours >> hour & 1 == 1 && rest != 0 {
            return Some((small(hour), small(rest.trailing_zeros())));
        }
        let later = self.hours >> (hour + 1) << (hour + 1);
        (later != 0).then(|| (small(later.trailing_zeros()), small(first)))
    }
}

fn bit(value: i8) -> u32 {
    u32::from(value.unsigned_abs())
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Cron {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Cron, Malformed> {
        if text.len() > CHARS_MAX || !text.is_ascii() {
            return Err(wrong("this is no cron line".to_owned()));
        }
        let line = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let parts: Vec<&str> = line.split_ascii_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(wrong(format!("`{}` has {} fields, not five", text.trim(), parts.len())));
        }
        let mut bits = [0; 5];
        for ((bits, field), part) in bits.iter_mut().zip(&FIELDS).zip(&parts) {
            *bits = field.read(part)?;
        }
        let [minutes, hours, days, months, weekdays] = bits;
        let cron = Cron {
            text: parts.join(" "),
            minutes,
            hours,
            days,
            months,
            weekdays: weekdays & 0x7f | weekdays >> 7,
            either_day: !parts[2].starts_with('*') && !parts[4].starts_with('*'),
        };
        if cron.next_after(WallTime::EPOCH).is_none() {
            return Err(wrong(format!("`{}` names no day that exists", cron.text)));
        }
        Ok(cron)
    }
}

#[cfg(test)]
mod tests {
    use super::Cron;
    use crate::WallTime;

    fn next(line: &str, after: &str) -> String {
        let cron: Cron = line.parse().expect("a cron line");
        let time: WallTime = after.parse().expect("a time");
        let text = cron.next_after(time).expect("there is one").to_string();
        text[..16].to_owned()
    }

    #[test]
    fn the_next_time_is_the_first_that_fits_and_is_later() {
        let cases = [
            ("* * * * *", "2026-11-21T10:00:00Z", "2026-11-21T10:01"),
            ("* * * * *", "2026-12-31T23:59:59.9Z", "2027-01-01T00:00"),
            ("0 * * * *", "2026-11-21T10:00:00Z", "2026-11-21T11:00"),
            ("*/15 9-17 * * mon-fri", "2026-11-20T17:45:00Z", "2026-11-23T09:00"),
            ("30 3 1 * *", "2026-11-21T10:00:00Z", "2026-12-01T03:30"),
            ("0 0 29 2 *", "2026-11-21T10:00:00Z", "2028-02-29T00:00"),
            ("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00"),
            ("0 0 13 * fri", "2026-11-21T10:00:00Z", "2026-11-27T00:00"),
            ("0 0 */2 * fri", "2026-11-21T10:00:00Z", "2026-11-27T00:00"),
            ("0 12 * JAN,Jul 7", "2026-11-21T10:00:00Z", "2027-01-03T12:00"),
            ("5,10-20/5 4 * * *", "2026-11-21T04:10:30Z", "2026-11-21T04:15"),
            ("@weekly", "2026-11-21T10:00:00Z", "2026-11-22T00:00"),
        ];
        for (line, after, then) in cases {
            assert_eq!(next(line, after), then, "{line} after {after}");
        }
    }

    #[test]
    fn what_is_no_line_is_refused_with_a_hint() {
        for line in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "5/2 * * * *",
            "*/0 * * * *",
            "9-5 * * * *",
            "a * * * *",
            "-1 * * * *",
            "1,,2 * * * *",
            "0 0 31 2 *",
            "@reboot",
            "0 0 * * montag",
            "99999999999 * * * *",
        ] {
            let error = line.parse::<Cron>().expect_err(line);
            assert!(error.hint.is_some(), "{line}");
        }
    }

    #[test]
    fn a_line_is_read_back_as_it_is_printed() {
        for line in ["*/15 9-17 * * mon-fri", "@daily", "  0   0 1 1 *"] {
            let cron: Cron = line.parse().expect("a line");
            assert_eq!(cron.to_string().parse::<Cron>(), Ok(cron));
        }
    }
}
