//! `hindsight clone`.

use api::{CreateClone, ExitCode};

use crate::moment;
use crate::session::Session;
use crate::volume::show;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The moment the clone starts at; a volume alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    source: String,
    /// Name of the new volume.
    new: String,
}

pub fn run(session: &Session, args: Args) -> anyhow::Result<ExitCode> {
    let source = moment::read_of_volume(&args.source)?;
    let body = CreateClone { name: args.new, at: Some(source.moment.to_string()) };
    session.answer(&session.client()?.create_clone(&source.volume, &body)?, show)?;
    Ok(ExitCode::Done)
}
