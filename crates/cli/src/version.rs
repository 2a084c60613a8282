//! `hindsight version`.

use api::{CreateVersion, ExitCode, ListQuery, Version};
use clap::Subcommand;
use serde_json::json;

use crate::failure;
use crate::output::{Align, human, table};
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Capture the present as a version.
    Create {
        /// Name of the volume.
        name: String,
        /// Free text.
        #[arg(long)]
        label: Option<String>,
    },
    /// List the versions of a volume.
    #[command(visible_alias = "ls")]
    List {
        /// Name of the volume.
        name: String,
    },
    /// Show a version.
    Show {
        /// Name of the volume.
        name: String,
        /// Number of the version.
        number: u64,
    },
    /// Delete versions; their moments stay openable as long as the window holds them.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the volume.
        name: String,
        /// Numbers of the versions.
        #[arg(required = true)]
        numbers: Vec<u64>,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { name, label } => {
            let version = session.client()?.create_version(&name, &CreateVersion { label })?;
            session.answer(&version, |v| list(std::slice::from_ref(v)))?;
        }
        Verb::List { name } => session.answer(&all(session, &name)?, |v| list(v))?,
        Verb::Show { name, number } => {
            let version = session.client()?.version(&name, number)?;
            session.answer(&version, |v| list(std::slice::from_ref(v)))?;
        }
        Verb::Delete { name, numbers, dry_run } => {
            return delete(session, &name, &numbers, dry_run);
        }
    }
    Ok(ExitCode::Done)
}

fn all(session: &Session, name: &str) -> anyhow::Result<Vec<Version>> {
    let client = session.client()?;
    let mut query = ListQuery::default();
    let mut versions = Vec::new();
    loop {
        let page = client.versions(name, &query)?;
        versions.extend(page.entries);
        match page.next {
            Some(next) => query.next = Some(next),
            None => return Ok(versions),
        }
    }
}

/// Deletes every one it can; exits 3 when only some could be.
fn delete(
    session: &Session,
    name: &str,
    numbers: &[u64],
    dry_run: bool,
) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let mut deleted = Vec::new();
    let mut code = ExitCode::Done;
    for &number in numbers {
        let done = if dry_run {
            client.version(name, number).map(|_| ())
        } else {
            client.delete_version(name, number)
        };
        match done {
            Ok(()) => deleted.push(number),
            Err(error) => code = failure::report(&error.into()),
        }
    }
    let what = if dry_run { "would be deleted; nothing was changed" } else { "deleted" };
    for number in &deleted {
        say(&format!("version {number} of {name}: {what}"));
    }
    let answer = json!({"volume": name, "versions": deleted, "deleted": !dry_run});
    session.answer(&answer, |_| String::new())?;
    Ok(if code != ExitCode::Done && !deleted.is_empty() { ExitCode::Partly } else { code })
}

fn list(versions: &[Version]) -> String {
    let heading = [
        ("NUMBER", Align::Right),
        ("TIME", Align::Left),
        ("SEQ", Align::Right),
        ("CHANGED", Align::Right),
        ("LABEL", Align::Left),
    ];
    let row = |v: &Version| {
        vec![
            v.number.to_string(),
            v.time.to_string(),
            v.seq.to_string(),
            human(v.bytes_changed),
            v.label.clone(),
        ]
    };
    table(&heading, &versions.iter().map(row).collect::<Vec<_>>())
}
