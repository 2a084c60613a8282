//! `hindsight resolve`.

use api::{ExitCode, Resolved};

use crate::moment;
use crate::output::pairs;
use crate::session::Session;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The moment.
    #[arg(value_name = "NAME@MOMENT")]
    moment: String,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let asked = moment::read_of_volume(&args.moment)?;
    let resolved = session.client()?.resolve(&asked.volume, &asked.moment.to_string())?;
    session.answer(&resolved, show)?;
    Ok(ExitCode::Done)
}

fn show(resolved: &Resolved) -> String {
    let exact = if resolved.exact { "yes" } else { "no: the last retained moment before it" };
    pairs(&[
        ("seq", resolved.seq.to_string()),
        ("time", resolved.time.to_string()),
        ("exact", exact.to_owned()),
    ])
}
