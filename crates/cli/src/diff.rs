//! `hindsight diff`.

use api::{Client, DiffQuery, ExitCode, Range};

use crate::failure::Failure;
use crate::moment;
use crate::output::{Align, count, human, table};
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// One moment; a volume alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    from: String,
    /// The other, of the same volume.
    #[arg(value_name = "NAME[@MOMENT]")]
    to: String,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let from = moment::read_of_volume(&args.from)?;
    let to = moment::read_of_volume(&args.to)?;
    if from.volume != to.volume {
        let message = format!("{} and {} are different volumes", from.volume, to.volume);
        return Err(Failure::usage(message)
            .with_hint("diff compares two moments of one volume")
            .into());
    }
    let client = session.client()?;
    // Both are fixed before the first page, so that every page speaks of the same two moments.
    let fixed = |moment: &units::Moment| -> anyhow::Result<String> {
        let resolved = client.resolve(&from.volume, &moment.to_string())?;
        Ok(units::Moment::Seq(units::Seq(resolved.seq)).to_string())
    };
    let ranges = between(&client, &from.volume, (fixed(&from.moment)?, fixed(&to.moment)?))?;
    session.answer(&ranges, |r| show(r))?;
    let bytes = ranges.iter().map(|r| r.length).sum();
    let ranges = count(ranges.len() as u64, "range");
    say(&format!("{ranges}, {} differ", human(bytes)));
    Ok(ExitCode::Done)
}

/// The ranges of a volume that differ between two moments that are fixed.
pub fn between(
    client: &Client,
    volume: &str,
    (from, to): (String, String),
) -> anyhow::Result<Vec<Range>> {
    let mut query = DiffQuery { from, to: Some(to), limit: None, next: None };
    let mut ranges = Vec::new();
    loop {
        let page = client.diff(volume, &query)?;
        ranges.extend(page.entries);
        match page.next {
            Some(next) => query.next = Some(next),
            None => return Ok(ranges),
        }
    }
}

fn show(ranges: &[Range]) -> String {
    let heading = [("OFFSET", Align::Right), ("LENGTH", Align::Right)];
    let row = |r: &Range| vec![r.offset.to_string(), r.length.to_string()];
    table(&heading, &ranges.iter().map(row).collect::<Vec<_>>())
}
