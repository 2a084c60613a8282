//! `hindsight history`.

use api::{Bucket, ExitCode, History, HistoryQuery, Time};
use units::Span;

use crate::moment;
use crate::output::{Align, human, table};
use crate::session::Session;
use terminal::arguments::span;

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
    /// Length of an interval.
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    step: Span,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let read = |text: &Option<String>| -> anyhow::Result<Option<String>> {
        Ok(text.as_deref().map(moment::read).transpose()?.map(|m| m.to_string()))
    };
    let mut query = HistoryQuery {
        since: read(&args.since)?,
        until: read(&args.until)?,
        step: Some(args.step.to_string()),
        ..HistoryQuery::default()
    };
    let mut whole = client.history(&args.name, &query)?;
    while let Some(next) = whole.next.take() {
        query.next = Some(next);
        let page = client.history(&args.name, &query)?;
        whole.buckets.extend(page.buckets);
        whole.next = page.next;
    }
    session.answer(&whole, show)?;
    Ok(ExitCode::Done)
}

/// Intervals and events in one table, by time.
fn show(history: &History) -> String {
    let heading = [
        ("TIME", Align::Left),
        ("WRITES", Align::Right),
        ("BYTES", Align::Right),
        ("FLUSHES", Align::Right),
        ("EVENT", Align::Left),
    ];
    let mut rows: Vec<(Time, Vec<String>)> = history.buckets.iter().map(bucket).collect();
    for event in &history.events {
        let text = format!("{} {} (seq:{})", event.kind, event.detail, event.seq);
        let blank = String::new;
        rows.push((event.time, vec![event.time.to_string(), blank(), blank(), blank(), text]));
    }
    rows.sort_by_key(|(time, _)| *time);
    table(&heading, &rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>())
}

fn bucket(bucket: &Bucket) -> (Time, Vec<String>) {
    let row = vec![
        bucket.time.to_string(),
        bucket.writes.to_string(),
        human(bucket.bytes),
        bucket.flushes.to_string(),
        String::new(),
    ];
    (bucket.time, row)
}
