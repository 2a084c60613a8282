//! `hindsight timeline`: the line of the web page, in the terminal.

use api::{ExitCode, Timeline, TimelineQuery};

use crate::moment;
use crate::output::human;
use crate::session::Session;

/// Heights of a column, from nothing on.
const BARS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];
/// A column in which something was flushed.
const FLUSHED: char = '\u{b7}';

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the volume.
    name: String,
    /// From this moment [default: the oldest].
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    since: Option<String>,
    /// To this moment [default: the present].
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    until: Option<String>,
    /// Columns of the line.
    #[arg(long, value_name = "N", default_value_t = 72,
        value_parser = clap::value_parser!(u16).range(1..=4000))]
    columns: u16,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let read = |text: &Option<String>| -> anyhow::Result<Option<String>> {
        Ok(text.as_deref().map(moment::read).transpose()?.map(|m| m.to_string()))
    };
    let query = TimelineQuery {
        since: read(&args.since)?,
        until: read(&args.until)?,
        points: Some(usize::from(args.columns)),
    };
    let told = session.client()?.timeline(&args.name, &query)?;
    session.answer(&told, show)?;
    Ok(ExitCode::Done)
}

/// The line, what its heights mean, and the events.
fn show(told: &Timeline) -> String {
    let most = told.bytes.iter().copied().max().unwrap_or(0);
    let bars: String = (0..told.bytes.len()).map(|column| bar(told, column, most)).collect();
    let flushed = |&flushes: &u64| if flushes > 0 { FLUSHED } else { ' ' };
    let flushes: String = told.flushes.iter().map(flushed).collect();
    let total: u64 = told.bytes.iter().sum();
    let writes = told.seqs.last().unwrap_or(&0) - told.seqs.first().unwrap_or(&0);
    let mut lines = vec![
        format!("events   {}", events(told)),
        format!("bytes    {bars}"),
        format!("flushes  {flushes}"),
        format!("since    {}", told.since),
        format!("until    {}", told.until),
        format!(
            "written  {} in {writes} writes, at most {} in a column",
            human(total),
            human(most)
        ),
    ];
    for event in told.events.iter().flatten() {
        let text = format!("{} {}", event.kind, event.detail);
        lines.push(format!("{}  {} (seq:{})", event.time, text.trim_end(), event.seq));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The root of what was written, so that one write is seen beside many; something is never nothing.
fn bar(told: &Timeline, column: usize, most: u64) -> char {
    if told.seqs[column + 1] == told.seqs[column] && told.bytes[column] == 0 {
        return BARS[0];
    }
    let part = (told.bytes[column] as f64 / most.max(1) as f64).sqrt();
    let height = (part * (BARS.len() - 1) as f64).ceil() as usize;
    BARS[height.clamp(1, BARS.len() - 1)]
}

/// A letter in each column that has events: the first of its kind, a revert before all others.
fn events(told: &Timeline) -> String {
    let mut letters = vec![' '; told.bytes.len()];
    let mut put = |column: usize, kind: &str| {
        if let Some(letter) = letters.get_mut(column)
            && (*letter == ' ' || kind == "revert")
        {
            *letter = kind.chars().next().unwrap_or('?');
        }
    };
    for event in told.events.iter().flatten() {
        // A write that is an event as well is at the edge behind its column.
        let after = told.seqs.partition_point(|&seq| seq < event.seq);
        put(after.saturating_sub(1), &event.kind);
    }
    for count in &told.event_counts {
        put(usize::try_from(count.column).unwrap_or(usize::MAX), &count.kind);
    }
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use api::{Event, EventCount, Stamp, Time, Timeline};
    use units::WallTime;

    use super::show;

    fn time(ns: u64) -> Time {
        Time(WallTime::from_nanos(ns))
    }

    fn line(events: Option<Vec<Event>>, event_counts: Vec<EventCount>) -> String {
        show(&Timeline {
            since: time(0),
            until: time(4),
            seqs: vec![3, 3, 4, 4, 6],
            bytes: vec![0, 4096, 0, 65536],
            flushes: vec![0, 1, 2, 0],
            events,
            event_counts,
            oldest: Stamp { seq: 3, time: time(0) },
            latest: Stamp { seq: 6, time: time(4) },
        })
    }

    #[test]
    fn small_writes_are_seen_beside_large_ones_and_none_beside_nothing() {
        let event = |seq, kind: &str| Event {
            seq,
            time: time(seq),
            kind: kind.to_owned(),
            detail: "x".to_owned(),
        };
        let text = line(Some(vec![event(4, "mark"), event(6, "version")]), Vec::new());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "events    m v");
        assert_eq!(lines[1], "bytes     \u{2582} \u{2588}");
        assert_eq!(lines[2], "flushes   \u{b7}\u{b7}");
        assert_eq!(lines[5], "written  68 KiB in 3 writes, at most 64 KiB in a column");
        assert_eq!(lines[7], "1970-01-01T00:00:00.000000006Z  version x (seq:6)");
    }

    #[test]
    fn events_that_are_only_counted_have_their_letters_too() {
        let count = |column, kind: &str| EventCount { column, kind: kind.to_owned(), count: 9 };
        let text = line(None, vec![count(0, "version"), count(0, "revert"), count(3, "mark")]);
        assert_eq!(text.lines().next(), Some("events   r  m"));
    }
}
