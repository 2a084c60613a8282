//! `hindsight volume delete`, `undelete` and `list --deleted`.

use api::{Client, ClientError, DeleteQuery, DeletedVolume, DryRunQuery, ExitCode, Undelete};
use serde_json::json;
use units::Span;

use crate::failure::Failure;
use crate::output::{Table, human};
use crate::session::{Session, say, tell};
use terminal::arguments::span;

#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// Its name.
    name: String,
    /// Delete it although there are versions or pinned marks, which go with it, or clients are
    /// attached, which are disconnected.
    #[arg(long)]
    force: bool,
    /// Delete it for good; also one that was deleted before.
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// How long it can be had back [default: 7d]; sooner over when the pool is full.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    grace: Option<Span>,
    /// Number of one that was deleted before, where several have the name.
    #[arg(long, value_name = "N", requires = "now")]
    id: Option<u64>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct UndeleteArgs {
    /// Name that the volume had.
    name: String,
    /// Name that it gets, if another volume has the old one now.
    #[arg(long = "as", value_name = "NEWNAME")]
    new_name: Option<String>,
    /// Its number, where several have the name (`hindsight volume list --deleted`).
    #[arg(long, value_name = "N")]
    id: Option<u64>,
}

/// Deletes a volume, or a share.
type Remove = fn(&Client, &str, &DeleteQuery) -> Result<Option<DeletedVolume>, ClientError>;

pub fn delete(session: &Session, args: &DeleteArgs, remove: Remove) -> anyhow::Result<()> {
    let client = session.client()?;
    let name = &args.name;
    let is_there = args.id.is_none() && api::found(client.volume(name))?.is_some();
    if args.now && !is_there {
        return empty(session, &client, args);
    }
    let query = DeleteQuery {
        force: args.force,
        now: args.now,
        grace: args.grace.map(|grace| grace.to_string()),
        dry_run: args.dry_run,
    };
    let gone = args.now || args.grace == Some(Span(0));
    if gone && !args.dry_run {
        session.confirm(&format!("{name} goes for good, with its history"))?;
    }
    if let Some(told) = remove(&client, name, &query)? {
        tell(&told.would);
        return session.answer(&told, |_| String::new());
    }
    say(&format!("deleted {name}"));
    let all = if gone { Vec::new() } else { client.trash()? };
    let deleted = all.into_iter().rfind(|one| one.name == *name);
    if let Some(one) = &deleted {
        say(&format!("until {}: hindsight volume undelete {name} --id {}", one.until, one.id));
    }
    let until = deleted.as_ref().map(|one| one.until);
    let id = deleted.as_ref().map(|one| one.id);
    let answer = json!({"name": name, "deleted": true, "dry_run": false, "id": id, "until": until});
    session.answer(&answer, |_| String::new())
}

fn empty(session: &Session, client: &Client, args: &DeleteArgs) -> anyhow::Result<()> {
    let one = find(client, &args.name, args.id)?;
    if !args.dry_run {
        session.confirm(&format!("{} goes for good, with its history", one.name))?;
    }
    if let Some(told) = client.empty_trash(one.id, DryRunQuery { dry_run: args.dry_run })? {
        tell(&told.would);
        return session.answer(&told, |_| String::new());
    }
    say(&format!("deleted {} for good", one.name));
    let answer = json!({"name": one.name, "deleted": true, "dry_run": false, "id": one.id});
    session.answer(&answer, |_| String::new())
}

/// The deleted volume of that name, or of that number and name.
fn find(client: &Client, name: &str, id: Option<u64>) -> anyhow::Result<DeletedVolume> {
    let mut found = client.trash()?;
    found.retain(|one| one.name == name && id.is_none_or(|id| one.id == id));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let text = format!("there is no deleted volume {name}");
            let failure = Failure { code: ExitCode::NotFound, ..Failure::new(text) };
            Err(failure.with_hint("`hindsight volume list --deleted` names them").into())
        }
        many => {
            let ids: Vec<String> = found.iter().map(|one| one.id.to_string()).collect();
            let text = format!("{many} deleted volumes have the name {name}");
            Err(Failure::usage(text).with_hint(format!("give --id {}", ids.join(" or "))).into())
        }
    }
}

pub fn undelete(session: &Session, args: UndeleteArgs) -> anyhow::Result<()> {
    let client = session.client()?;
    let one = find(&client, &args.name, args.id)?;
    let volume = client.undelete_volume(one.id, &Undelete { name: args.new_name })?;
    say(&format!("{} is back", volume.name));
    session.answer(&volume, crate::volume_text::show)
}

pub fn show(session: &Session) -> anyhow::Result<()> {
    session.answer(&session.client()?.trash()?, |all| list(all))
}

fn list(all: &[DeletedVolume]) -> String {
    Table::of(all)
        .right("ID", |one| one.id.to_string())
        .left("NAME", |one| one.name.clone())
        .right("SIZE", |one| human(one.size))
        .right("LIVE", |one| human(one.live_bytes))
        .right("HISTORY", |one| human(one.history_bytes))
        .right("VERSIONS", |one| one.versions.to_string())
        .left("DELETED", |one| one.deleted.to_string())
        .left("UNTIL", |one| one.until.to_string())
        .text()
}
