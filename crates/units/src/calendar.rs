//! Hours, days, weeks, months and years of UTC, as numbers that rise.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::WallTime;

const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;
const WEEK_NS: u64 = 7 * DAY_NS;
/// 1970 began on a Thursday: its first ISO week on the Monday before.
const WEEK_OFFSET_NS: u64 = 3 * DAY_NS;

/// A kind of calendar period, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// A full hour.
    Hour,
    /// A day.
    Day,
    /// An ISO week, from Monday.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl Period {
    /// The number of the period that holds `time`: the same for all times in it, higher later.
    pub fn number_of(self, time: WallTime) -> u64 {
        let nanos = time.as_nanos();
        match self {
            Period::Hour => nanos / HOUR_NS,
            Period::Day => nanos / DAY_NS,
            Period::Week => week_of(nanos),
            Period::Month => {
                let date = date_of(time);
                months_of(date)
            }
            Period::Year => u64::from(date_of(time).year().unsigned_abs()),
        }
    }

    /// The first instant after the period that holds `time`.
    #[must_use]
    pub fn end_of(self, time: WallTime) -> WallTime {
        let number = self.number_of(time);
        let multiple = |unit: u64| WallTime::from_nanos((number + 1).saturating_mul(unit));
        match self {
            Period::Hour => multiple(HOUR_NS),
            Period::Day => multiple(DAY_NS),
            Period::Week => {
                let end = (number + 1).saturating_mul(WEEK_NS);
                WallTime::from_nanos(end.saturating_sub(WEEK_OFFSET_NS))
            }
            Period::Month => start_of(number + 1),
            Period::Year => start_of((number + 1) * 12),
        }
    }
}

/// Saturates in the last week of what a time can tell.
fn week_of(nanos: u64) -> u64 {
    nanos.saturating_add(WEEK_OFFSET_NS) / WEEK_NS
}

fn months_of(date: Date) -> u64 {
    u64::from(date.year().unsigned_abs()) * 12 + u64::from(date.month().unsigned_abs()) - 1
}

/// The first instant of a month, by number.
fn start_of(month: u64) -> WallTime {
    let year = i16::try_from(month / 12).unwrap_or(i16::MAX).min(9999);
    let in_year = i8::try_from(month % 12).expect("below 12") + 1;
    instant(Date::constant(year, in_year, 1).at(0, 0, 0, 0)).unwrap_or(WallTime::MAX)
}

/// The date in UTC.
pub(crate) fn date_of(time: WallTime) -> Date {
    time.timestamp().to_zoned(TimeZone::UTC).date()
}

/// The instant of a date and time in UTC; `None` before 1970 and after 2554.
pub(crate) fn instant(civil: DateTime) -> Option<WallTime> {
    let zoned = civil.to_zoned(TimeZone::UTC).ok()?;
    WallTime::from_timestamp(zoned.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::Period;
    use crate::WallTime;

    fn at(text: &str) -> WallTime {
        text.parse().expect("a time")
    }

    #[test]
    fn a_period_ends_where_the_next_begins() {
        let cases = [
            (Period::Hour, "2026-11-21T10:59:59.9Z", "2026-11-21T11:00:00Z"),
            (Period::Day, "2026-12-31T23:00:00Z", "2027-01-01T00:00:00Z"),
            (Period::Week, "2026-11-21T10:00:00Z", "2026-11-23T00:00:00Z"),
            (Period::Week, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
            (Period::Week, "1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z"),
            (Period::Month, "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"),
            (Period::Month, "2026-12-05T12:00:00Z", "2027-01-01T00:00:00Z"),
            (Period::Year, "2026-11-21T10:00:00Z", "2027-01-01T00:00:00Z"),
        ];
        for (period, time, end) in cases {
            assert_eq!(period.end_of(at(time)), at(end), "{period:?} {time}");
            let before = WallTime::from_nanos(at(end).as_nanos() - 1);
            assert_eq!(period.number_of(before), period.number_of(at(time)), "{period:?} {time}");
            assert_eq!(period.number_of(at(end)), period.number_of(at(time)) + 1);
        }
    }

    #[test]
    fn a_week_of_two_years_is_one_week() {
        let number = |text| Period::Week.number_of(at(text));
        assert_eq!(number("2026-12-28T00:00:00Z"), number("2027-01-03T23:59:59Z"));
    }

    #[test]
    fn the_ends_of_time_have_periods() {
        for period in [Period::Hour, Period::Day, Period::Week, Period::Month, Period::Year] {
            for time in [WallTime::EPOCH, WallTime::MAX] {
                assert!(period.end_of(time) >= time || time == WallTime::MAX, "{period:?}");
            }
        }
    }
}
