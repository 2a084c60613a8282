//! `hindsight prove`: has a check of the server's configuration look at a moment, and tells what
//! checks said.

use std::thread;
use std::time::Duration;

use api::{ExitCode, Verification, Verify};
use clap::Subcommand;

use crate::failure::Failure;
use crate::moment;
use crate::output::Table;
use crate::session::Session;

/// How often is looked whether a check has ended.
const LOOK: Duration = Duration::from_millis(100);
const RUNNING: &str = "running";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The volume and the moment; a volume alone is its present.
    #[arg(value_name = "VOLUME[@MOMENT]", required = true)]
    of: Option<String>,
    /// The hook, which has `verify` in the server's configuration.
    #[arg(long, value_name = "NAME", required = true)]
    hook: Option<String>,
    /// Do not wait for its end.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List what checks said of moments of a volume, the last first.
    List {
        /// Name of the volume.
        name: String,
    },
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    if let Some(Verb::List { name }) = &args.verb {
        session.answer(&client.verifications(name)?, |all| show(all))?;
        return Ok(ExitCode::Done);
    }
    let lacking = || Failure::usage("VOLUME[@MOMENT] and --hook are needed");
    let of = moment::read_of_volume(args.of.as_deref().ok_or_else(lacking)?)?;
    let hook = args.hook.clone().ok_or_else(lacking)?;
    let body = Verify { at: Some(of.moment.to_string()), hook };
    let mut told = client.verify(&of.volume, &body)?;
    while !args.no_wait && told.verdict == RUNNING {
        thread::sleep(LOOK);
        let is_it = |one: &Verification| {
            (one.seq, one.asked, &one.hook) == (told.seq, told.asked, &told.hook)
        };
        let found = client.verifications(&of.volume)?.into_iter().find(is_it);
        let gone = || Failure::new("the check is gone: the server was started anew");
        told = found.ok_or_else(gone)?;
    }
    session.answer(&told, |told| show(std::slice::from_ref(told)))?;
    Ok(match told.verdict.as_str() {
        "bad" => ExitCode::Failed,
        "unknown" => ExitCode::Partly,
        _ => ExitCode::Done,
    })
}

fn show(all: &[Verification]) -> String {
    Table::of(all)
        .right("SEQ", |one| one.seq.to_string())
        .left("TIME", |one| one.time.to_string())
        .left("HOOK", |one| one.hook.clone())
        .left("VERDICT", |one| one.verdict.clone())
        .right("TOOK", |one| one.took_ms.map_or(String::new(), |took| format!("{took} ms")))
        .left("SAID", |one| one.said.clone())
        .text()
}
