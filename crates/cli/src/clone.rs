//! `hindsight clone`.

use std::thread;
use std::time::Duration;

use api::{CreateClone, ExitCode, SizeInput, SpanInput};
use terminal::arguments::{size, span};
use units::{Size, Span};

use crate::moment;
use crate::session::Session;
use crate::volume_text::show;

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
    /// Copy all of it, in the background: it shares nothing with NAME in the end.
    #[arg(long)]
    full: bool,
    /// Only for so long, and until nobody has it open: a scratch clone. `volume rename` keeps it.
    #[arg(long, value_name = "SPAN", value_parser = span, conflicts_with = "full")]
    scratch: Option<Span>,
    /// Wait until all of it is copied.
    #[arg(long, requires = "full")]
    wait: bool,
}

/// How often is looked whether it is copied.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(session: &Session, args: Args) -> anyhow::Result<ExitCode> {
    let source = moment::read_of_volume(&args.source)?;
    let at = Some(source.moment.to_string());
    let extent = args.extent.map(SizeInput);
    let scratch = args.scratch.map(SpanInput);
    let body = CreateClone { name: args.new, at, extent, full: args.full, scratch };
    let client = session.client()?;
    let mut clone = client.create_clone(&source.volume, &body)?;
    while args.wait && clone.import.is_some() {
        thread::sleep(LOOK);
        clone = client.volume(&body.name)?;
    }
    session.answer(&clone, show)?;
    Ok(ExitCode::Done)
}
