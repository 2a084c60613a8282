//! `hindsight man`.

use std::path::PathBuf;

use anyhow::Context;
use api::ExitCode;

use crate::session::say;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to write the pages into; made if it is missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let wrote = || format!("cannot write manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(wrote)?;
    clap_mangen::generate_to(crate::help::command(), &args.dir).with_context(wrote)?;
    crate::lab::write_pages(&args.dir)?;
    say(&format!("wrote manual pages to {}", args.dir.display()));
    Ok(ExitCode::Done)
}
