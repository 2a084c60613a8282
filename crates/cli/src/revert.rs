//! `hindsight revert`.

use api::{ExitCode, Revert, Reverted};

use crate::moment;
use crate::output::{human, pairs};
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the volume.
    name: String,
    /// The moment to make present.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    to: String,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Revert although clients are attached; what they have cached will be wrong.
    #[arg(long)]
    force: bool,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let to = moment::read(&args.to)?.to_string();
    let body = Revert { to, dry_run: args.dry_run, force: args.force };
    let reverted = session.client()?.revert(&args.name, &body)?;
    session.answer(&reverted, show)?;
    if args.dry_run {
        say("nothing was changed");
    } else {
        say(&format!("to undo: hindsight revert {} --to {}", args.name, reverted.undo));
    }
    Ok(ExitCode::Done)
}

fn show(reverted: &Reverted) -> String {
    let stamp = |s: &api::Stamp| format!("{} (seq:{})", s.time, s.seq);
    pairs(&[
        ("from", stamp(&reverted.from)),
        ("to", stamp(&reverted.to)),
        (
            "changed",
            format!("{} ({} bytes)", human(reverted.changed_bytes), reverted.changed_bytes),
        ),
    ])
}
