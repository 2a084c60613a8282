//! `hindsight clone`.

use api::{CreateClone, ExitCode, SizeInput};
use units::Size;

use crate::moment;
use crate::session::Session;
use crate::volume::{show, size};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The moment the clone starts at; a volume alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    source: String,
    /// Name of the new volume.
    new: String,
    /// Size of its map extents: 4KiB, 8KiB, 16KiB, 32KiB or 64KiB [default: that of NAME].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    extent: Option<Size>,
}

pub fn run(session: &Session, args: Args) -> anyhow::Result<ExitCode> {
    let source = moment::read_of_volume(&args.source)?;
    let at = Some(source.moment.to_string());
    let body = CreateClone { name: args.new, at, extent: args.extent.map(SizeInput) };
    session.answer(&session.client()?.create_clone(&source.volume, &body)?, show)?;
    Ok(ExitCode::Done)
}
