//! `hindsight diff`.

use api::{DiffQuery, ExitCode, Range};

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
    let mut query = DiffQuery {
        from: fixed(&from.moment)?,
        to: Some(fixed(&to.moment)?),
        limit: None,
        next: None,
    };
    let mut ranges = Vec::new();
    loop {
        let page = client.diff(&from.volume, &query)?;
        ranges.extend(page.entries);
        match page.next {
            Some(next) => query.next = Some(next),
            None => break,
        }
    }
    session.answer(&ranges, |r| show(r))?;
    let bytes = ranges.iter().map(|r| r.length).sum();
    let ranges = count(ranges.len() as u64, "range");
    say(&format!("{ranges}, {} differ", human(bytes)));
    Ok(ExitCode::Done)
}

fn show(ranges: &[Range]) -> String {
    let heading = [("OFFSET", Align::Right), ("LENGTH", Align::Right)];
    let row = |r: &Range| vec![r.offset.to_string(), r.length.to_string()];
    table(&heading, &ranges.iter().map(row).collect::<Vec<_>>())
}
