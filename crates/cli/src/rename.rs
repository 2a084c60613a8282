//! `hindsight volume rename`.

use api::Rename;

use crate::session::{Session, say, tell};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the volume.
    name: String,
    /// Its new name: 1 to 128 of A-Z a-z 0-9 . _ -, a letter or digit first.
    new_name: String,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(session: &Session, args: Args) -> anyhow::Result<()> {
    let body = Rename { name: args.new_name, dry_run: args.dry_run };
    let renamed = session.client()?.rename_volume(&args.name, &body)?;
    if renamed.dry_run {
        tell(&renamed.would);
    } else {
        let (old, new) = (&renamed.old_name, &renamed.name);
        say(&format!("{old} is called {new}"));
        match renamed.clients {
            0 => {}
            1 => say(&format!("1 client has it open, and keeps it; it connects to {new} next")),
            many => say(&format!(
                "{many} clients have it open, and keep it; they connect to {new} next"
            )),
        }
        say(&format!("to undo: hindsight volume rename {new} {old}"));
    }
    session.answer(&renamed, |_| String::new())
}
