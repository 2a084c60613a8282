//! `hindsight retention` and `hindsight group retention`.

use api::{ApplyRetention, ClientError, ExitCode, Explained, ListQuery, Page, Pruned};
use clap::Subcommand;

use crate::output::{Table, count};
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Say of every version why it stays or goes, and when.
    Explain {
        /// Name of the volume.
        name: String,
    },
    /// Prune now what no rule of the schedule keeps.
    Apply {
        /// Name of the volume.
        name: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

/// The same of groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Say of every capture of a group why it stays or goes, and when.
    Explain {
        /// Name of the group.
        group: String,
    },
    /// Prune now the captures that no rule of the group's schedule keeps.
    Apply {
        /// Name of the group.
        group: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        Verb::Explain { name } => explain_all(session, |query| client.retention(&name, query))?,
        Verb::Apply { name, dry_run } => {
            ask_first(session, dry_run, |body| client.apply_retention(&name, body))?;
            let pruned = client.apply_retention(&name, &ApplyRetention { dry_run })?;
            told(session, &pruned, "version", &name)?;
        }
    }
    Ok(ExitCode::Done)
}

pub fn run_group(session: &Session, verb: GroupVerb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        GroupVerb::Explain { group } => {
            explain_all(session, |query| client.group_retention(&group, query))?;
        }
        GroupVerb::Apply { group, dry_run } => {
            ask_first(session, dry_run, |body| client.apply_group_retention(&group, body))?;
            let pruned = client.apply_group_retention(&group, &ApplyRetention { dry_run })?;
            told(session, &pruned, "capture", &format!("group {group}"))?;
        }
    }
    Ok(ExitCode::Done)
}

fn explain_all(
    session: &Session,
    call: impl Fn(&ListQuery) -> Result<Page<Explained>, ClientError>,
) -> anyhow::Result<()> {
    let versions = Page::all(|next| call(&ListQuery { next, limit: None }))?;
    session.answer(&versions, |versions| explain(versions))
}

/// Asks on a terminal before what no rule keeps goes.
fn ask_first(
    session: &Session,
    dry_run: bool,
    call: impl Fn(&ApplyRetention) -> Result<Pruned, ClientError>,
) -> anyhow::Result<()> {
    if dry_run || !session.asks() {
        return Ok(());
    }
    let many = call(&ApplyRetention { dry_run: true })?.versions.len() as u64;
    session.confirm(&format!("{many} that no rule keeps go"))
}

fn told(session: &Session, pruned: &Pruned, noun: &str, of: &str) -> anyhow::Result<()> {
    let many = count(pruned.versions.len() as u64, noun);
    let what = if pruned.dry_run { "would be pruned; nothing was changed" } else { "pruned" };
    say(&format!("{many} of {of} {what}"));
    pruned.would.iter().for_each(|one| say(&one.text));
    session.answer(pruned, |pruned| {
        pruned.versions.iter().map(|number| format!("{number}\n")).collect()
    })
}

fn explain(versions: &[Explained]) -> String {
    let why = |one: &Explained| match one.made_by.as_str() {
        "people" => "made by people: only people delete it".to_owned(),
        "removed-schedule" => "its schedule was removed: only people delete it".to_owned(),
        _ if one.stays => one.rules.join(", "),
        _ => "no rule keeps it".to_owned(),
    };
    Table::of(versions)
        .right("NUMBER", |one| one.number.to_string())
        .left("TIME", |one| one.time.to_string())
        .left("STAYS", |one| if one.stays { "yes" } else { "no" }.to_owned())
        .left("GOES", |one| one.goes.map_or_else(|| "-".to_owned(), |time| time.to_string()))
        .left("WHY", |one| why(one))
        .text()
}
