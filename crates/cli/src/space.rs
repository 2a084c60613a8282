//! Space, for people.

use api::{Growth, VolumeSpace};
use units::Span;

use crate::output::{Table, human, pairs};

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// Bytes that were counted, or at most so many.
pub fn bound(bytes: u64, is_exact: bool) -> String {
    let told = human(bytes);
    if is_exact { told } else { format!("at most {told}") }
}

/// A span in its two largest units.
pub fn rough(span: Span) -> String {
    let (days, hours, minutes) =
        (span.0 / DAY_NS, span.0 % DAY_NS / HOUR_NS, span.0 % HOUR_NS / MINUTE_NS);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{}s", span.0 / 1_000_000_000),
        (0, 0, minutes) => format!("{minutes}min"),
        (0, hours, minutes) => format!("{hours}h {minutes}min"),
        (days, hours, _) if days < 10 => format!("{days}d {hours}h"),
        (days, ..) => format!("{days}d"),
    }
}

/// How fast something grows.
pub fn growth(growth: Option<&Growth>) -> String {
    let Some(growth) = growth else { return "not known before an hour is over".to_owned() };
    let sign = if growth.bytes_per_day < 0 { "-" } else { "" };
    let bytes = human(growth.bytes_per_day.unsigned_abs());
    format!("{sign}{bytes} a day (measured over {})", rough(growth.measured.0))
}

/// What a volume's space is for.
pub fn show(space: &VolumeSpace) -> String {
    let mut lines = vec![
        ("live".to_owned(), bound(space.live_bytes, space.live_exact)),
        ("history".to_owned(), human(space.history_bytes)),
    ];
    let mut above = None;
    for age in &space.history_by_age {
        let label = match (age.below, above) {
            (Some(below), _) => format!("  below {}", below.0),
            (None, Some(above)) => format!("  {above} and older"),
            (None, None) => "  all".to_owned(),
        };
        lines.push((label, human(age.bytes)));
        above = age.below.map(|below| below.0);
    }
    lines.push(("  not sorted yet".to_owned(), human(space.unsorted_bytes)));
    lines.push(("pinned".to_owned(), human(space.pinned_bytes)));
    lines.push(("  beyond the window".to_owned(), human(space.beyond_window_bytes)));
    lines.push(("reclaimable".to_owned(), human(space.reclaimable_bytes)));
    lines.push(("growth".to_owned(), growth(space.growth.as_ref())));
    lines.push(("of history".to_owned(), growth(space.history_growth.as_ref())));
    let lasts = space.limit_lasts.map(|span| ("limit lasts".to_owned(), rough(span.0)));
    lines.extend(lasts);
    let lines: Vec<(&str, String)> = lines.iter().map(|(a, b)| (a.as_str(), b.clone())).collect();
    let told = pairs(&lines);
    if space.holders.is_empty() {
        return told;
    }
    let holders = Table::of(&space.holders)
        .right("SEQ", |holder| holder.first_seq.to_string())
        .right("MOMENTS", |holder| holder.moments.to_string())
        .right("HELD", |holder| human(holder.held_bytes))
        .right("ONLY ITS OWN", |holder| human(holder.own_bytes))
        .left("HELD BY", |holder| holder.names.join(", "))
        .text();
    format!("{told}\n{holders}")
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::{DAY_NS, HOUR_NS, MINUTE_NS, rough};

    #[test]
    fn spans_are_told_in_two_units() {
        for (nanos, told) in [
            (0, "0s"),
            (59 * 1_000_000_000, "59s"),
            (MINUTE_NS, "1min"),
            (25 * HOUR_NS + MINUTE_NS, "1d 1h"),
            (3 * HOUR_NS + 5 * MINUTE_NS, "3h 5min"),
            (40 * DAY_NS + HOUR_NS, "40d"),
        ] {
            assert_eq!(rough(Span(nanos)), told);
        }
    }
}
