//! `hindsight revert`.

use api::{ExitCode, HistoryQuery, Revert, Reverted};

use crate::failure::Failure;
use crate::moment;
use crate::output::{human, pairs};
use crate::session::{Session, say, tell};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the volume.
    name: String,
    /// The moment to make present.
    #[arg(
        long,
        value_name = "MOMENT",
        allow_hyphen_values = true,
        required_unless_present = "undo",
        conflicts_with = "undo"
    )]
    to: Option<String>,
    /// Make present what was before the last revert. What was written since stays in the past.
    #[arg(long)]
    undo: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Revert although clients are attached; what they have cached will be wrong.
    #[arg(long)]
    force: bool,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let to = match &args.to {
        Some(to) => moment::read(to)?.to_string(),
        None => before_last(session, &args.name)?,
    };
    let body = Revert { to, dry_run: args.dry_run, force: args.force };
    let reverted = session.client()?.revert(&args.name, &body)?;
    session.answer(&reverted, show)?;
    if args.dry_run {
        tell(&reverted.would);
    } else {
        say(&format!("to undo: hindsight revert {} --to {}", args.name, reverted.undo));
    }
    Ok(ExitCode::Done)
}

/// The moment right before the last revert. Undone twice, a revert is made again.
fn before_last(session: &Session, name: &str) -> anyhow::Result<String> {
    let history = session.client()?.history(name, &HistoryQuery::default())?;
    let reverts = history.events.iter().filter(|event| event.kind == "revert");
    match reverts.map(|event| event.seq).max() {
        Some(seq) => Ok(format!("seq:{}", seq.saturating_sub(1))),
        None => {
            let message = format!("{name} was not reverted as far back as its past can be opened");
            Err(Failure { code: ExitCode::NotFound, message, hint: None }.into())
        }
    }
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
