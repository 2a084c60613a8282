//! When something recurs: every so often, or as a cron line says.

use std::fmt;

use crate::{Cron, Span, WallTime};

/// When something recurs, in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Timing {
    /// At the multiples of a span since 1970.
    Every(Span),
    /// As a cron line says.
    Cron(Cron),
}

impl Timing {
    /// The first time after `time`; `None` beyond 2554, and for a span of nothing.
    #[must_use]
    pub fn next_after(&self, time: WallTime) -> Option<WallTime> {
        match self {
            Timing::Every(span) => {
                let count = time.as_nanos().checked_div(span.0)?;
                let next = count.checked_add(1)?.checked_mul(span.0)?;
                Some(WallTime::from_nanos(next))
            }
            Timing::Cron(cron) => cron.next_after(time),
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Every(span) => f.pad(&format!("every {span}")),
            Timing::Cron(cron) => f.pad(&format!("cron {cron}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timing;
    use crate::{Span, WallTime};

    #[test]
    fn spans_recur_at_their_multiples() {
        let hourly = Timing::Every(Span(3_600_000_000_000));
        let next = |text: &str| {
            let time: WallTime = text.parse().expect("a time");
            hourly.next_after(time).expect("there is one").to_string()
        };
        assert_eq!(next("2026-11-21T10:00:00Z"), "2026-11-21T11:00:00.000000000Z");
        assert_eq!(next("2026-11-21T10:59:59.9Z"), "2026-11-21T11:00:00.000000000Z");
        assert_eq!(hourly.next_after(WallTime::MAX), None);
        assert_eq!(Timing::Every(Span::ZERO).next_after(WallTime::EPOCH), None);
        assert_eq!(hourly.to_string(), "every 1h");
    }
}
