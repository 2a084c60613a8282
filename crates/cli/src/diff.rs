//! `hindsight diff`.

use api::{Client, DiffQuery, ExitCode, Page, Range};
use units::{Moment, Seq, VolumeMoment};

use crate::output::{Table, count, human};
use crate::session::{Session, say};
use crate::{moment, share_files};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// One moment; a volume alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    from: String,
    /// The other: of the same volume, of a clone of it, of its origin, or of a clone of that
    /// [default: the present of the same].
    #[arg(value_name = "NAME[@MOMENT]")]
    to: Option<String>,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let from = moment::read_of_volume(&args.from)?;
    let to = match &args.to {
        Some(to) => moment::read_of_volume(to)?,
        None => VolumeMoment { volume: from.volume.clone(), moment: Moment::Latest },
    };
    let client = session.client()?;
    let is_share = is_share(&client, &from.volume)?;
    // Both are fixed before the first page, so that every page speaks of the same two moments.
    let fixed = |of: &VolumeMoment| -> anyhow::Result<(String, String)> {
        let resolved = client.resolve(&of.volume, &of.moment.to_string())?;
        let moment = Moment::Seq(Seq(resolved.seq)).to_string();
        Ok((of.volume.clone(), moment))
    };
    let (from, to) = (fixed(&from)?, fixed(&to)?);
    if is_share {
        let paths = share_files::between(&client, &from, &to)?;
        session.answer(&paths, |paths| share_files::show_differences(paths))?;
        say(&format!("{} changed", count(paths.len() as u64, "path")));
        return Ok(ExitCode::Done);
    }
    let ranges = between(&client, &from, &to)?;
    session.answer(&ranges, |r| show(r))?;
    let bytes = ranges.iter().map(|r| r.length).sum();
    let ranges = count(ranges.len() as u64, "range");
    say(&format!("{ranges}, {} differ", human(bytes)));
    Ok(ExitCode::Done)
}

/// Whether a share has this name.
fn is_share(client: &Client, name: &str) -> anyhow::Result<bool> {
    Ok(api::found(client.share(name))?.is_some())
}

/// The ranges that differ between two moments of volumes that are fixed.
pub fn between(
    client: &Client,
    (volume, from): &(String, String),
    (other, to): &(String, String),
) -> anyhow::Result<Vec<Range>> {
    let mut query = DiffQuery {
        from: from.clone(),
        to: Some(to.clone()),
        to_volume: (other != volume).then(|| other.clone()),
        limit: None,
        next: None,
    };
    Ok(Page::all(|next| {
        query.next = next;
        client.diff(volume, &query)
    })?)
}

pub fn show(ranges: &[Range]) -> String {
    Table::of(ranges)
        .right("OFFSET", |r| r.offset.to_string())
        .right("LENGTH", |r| r.length.to_string())
        .text()
}
