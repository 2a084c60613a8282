//! `hindsight group`.

use api::{CreateGroup, CreateVersion, ExitCode, Group, GroupVersion, ListQuery};
use clap::Subcommand;
use serde_json::json;

use crate::output::{Align, table};
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a group of volumes.
    Create {
        /// Name of the group.
        group: String,
        /// Names of its volumes.
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
    },
    /// List the groups.
    #[command(visible_alias = "ls")]
    List,
    /// Show the captures of a group.
    Show {
        /// Name of the group.
        group: String,
    },
    /// Delete a group; its volumes and their versions stay.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the group.
        group: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Capture all volumes of a group at one instant.
    Version {
        /// Name of the group.
        group: String,
        /// Free text.
        #[arg(long)]
        label: Option<String>,
        /// A hook of the server's configuration that makes what uses the volumes quiet.
        #[arg(long, value_name = "NAME")]
        hook: Option<String>,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        Verb::Create { group, volumes } => {
            let made = client.create_group(&CreateGroup { name: group, volumes })?;
            session.answer(&made, |group| list(std::slice::from_ref(group)))?;
        }
        Verb::List => session.answer(&client.groups()?, |groups| list(groups))?,
        Verb::Show { group } => {
            let found = client.group(&group)?;
            let mut query = ListQuery::default();
            let mut captures = Vec::new();
            loop {
                let page = client.group_versions(&group, &query)?;
                captures.extend(page.entries);
                match page.next {
                    Some(next) => query.next = Some(next),
                    None => break,
                }
            }
            let answer = json!({"group": found, "versions": captures});
            session.answer(&answer, |_| {
                format!("{}\n{}", list(std::slice::from_ref(&found)), versions(&captures))
            })?;
        }
        Verb::Delete { group, dry_run } => {
            if dry_run {
                client.group(&group)?;
                say(&format!("group {group}: would be deleted; nothing was changed"));
            } else {
                client.delete_group(&group)?;
                say(&format!("group {group}: deleted; its volumes and their versions stay"));
            }
            session.answer(&json!({"group": group, "deleted": !dry_run}), |_| String::new())?;
        }
        Verb::Version { group, label, hook } => {
            let made = client.create_group_version(&group, &CreateVersion { label, hook })?;
            session.answer(&made, |version| versions(std::slice::from_ref(version)))?;
        }
    }
    Ok(ExitCode::Done)
}

fn list(groups: &[Group]) -> String {
    let heading = [
        ("GROUP", Align::Left),
        ("VOLUMES", Align::Left),
        ("CAPTURES", Align::Right),
        ("CREATED", Align::Left),
    ];
    let row = |g: &Group| {
        vec![g.name.clone(), g.volumes.join(", "), g.captures.to_string(), g.created.to_string()]
    };
    table(&heading, &groups.iter().map(row).collect::<Vec<_>>())
}

fn versions(captures: &[GroupVersion]) -> String {
    let heading = [
        ("NUMBER", Align::Right),
        ("TIME", Align::Left),
        ("CONSISTENCY", Align::Left),
        ("VERSIONS", Align::Left),
        ("LABEL", Align::Left),
    ];
    let row = |capture: &GroupVersion| {
        let members = capture.versions.iter();
        let named: Vec<String> =
            members.map(|member| format!("{}@v:{}", member.volume, member.number)).collect();
        let number = capture.number.to_string();
        let consistency = capture.consistency.clone();
        let time = capture.time.to_string();
        vec![number, time, consistency, named.join(", "), capture.label.clone()]
    };
    table(&heading, &captures.iter().map(row).collect::<Vec<_>>())
}
