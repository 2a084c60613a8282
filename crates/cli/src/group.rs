//! `hindsight group`.

use api::{
    ChangeGroup, CreateGroup, CreateVersion, ExitCode, Group, GroupVersion, ListQuery, Page,
    RangeQuery, Would,
};
use clap::Subcommand;
use serde_json::json;

use crate::failure;
use crate::output::{self, Table};
use crate::session::{Session, say};
use crate::version::{Numbers, warn_of_hook};
use crate::volume::hook_or_none;
use crate::volume_text::show_hook;
use crate::{retention, schedule, together};

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
    /// Change settings of a group.
    Set {
        /// Name of the group.
        group: String,
        /// A hook of the server's configuration around captures that name none; none takes it
        /// away: then those of its volumes are used.
        #[arg(long, value_name = "NAME")]
        hook: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
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
    /// Delete captures of a group: all of their versions, or none of a capture.
    DeleteVersion {
        /// Name of the group.
        group: String,
        /// Numbers of the captures, or ranges of them with both ends: 7, 3..100.
        #[arg(required = true, value_name = "N")]
        numbers: Vec<Numbers>,
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
        /// A hook of the server's configuration that makes what uses the volumes quiet; none for
        /// no hook [default: that of the group, or those of its volumes].
        #[arg(long, value_name = "NAME")]
        hook: Option<String>,
    },
    /// Make a past moment the present of all volumes of a group, or of none. It can be undone.
    Revert(together::RevertArgs),
    /// Make a clone of each volume of a group, NEW-VOLUME, and a group NEW of these.
    Clone(together::CloneArgs),
    /// Show the byte ranges that differ between two moments of a group, by volume.
    Diff(together::DiffArgs),
    /// Captures by the clock, and which of them stay.
    #[command(subcommand)]
    Schedule(schedule::GroupVerb),
    /// Why captures stay or go, and pruning now.
    #[command(subcommand)]
    Retention(retention::GroupVerb),
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        Verb::Create { group, volumes } => {
            let made = client.create_group(&CreateGroup { name: group, volumes })?;
            session.answer(&made, |group| list(std::slice::from_ref(group)))?;
        }
        Verb::List => session.answer(&client.groups()?, |groups| list(groups))?,
        Verb::Show { group } => show(session, &group)?,
        Verb::Set { group, hook, dry_run } => {
            let (hook, target) = (hook_or_none(hook), format!("group {group}"));
            let people = |group: &Group| list(std::slice::from_ref(group));
            if dry_run {
                let text =
                    format!("the hook of {target} would be {}", hook.as_deref().unwrap_or("none"));
                let would = Would::new("change", target, text);
                let changed = Group { hook, hook_known: true, ..client.group(&group)? };
                return session.would(&[would], &changed, people).map(|()| ExitCode::Done);
            }
            let changed = client.change_group(&group, &ChangeGroup { hook: Some(hook) })?;
            session.answer(&changed, people)?;
        }
        Verb::Delete { group, dry_run } => {
            let (target, answer) =
                (format!("group {group}"), json!({"group": group, "deleted": !dry_run}));
            if dry_run {
                client.group(&group)?;
                let text =
                    format!("{target} would be deleted; its volumes and their versions stay");
                let would = Would::new("delete", target, text);
                return session
                    .would(&[would], &answer, |_| String::new())
                    .map(|()| ExitCode::Done);
            }
            client.delete_group(&group)?;
            say(&format!("{target}: deleted; its volumes and their versions stay"));
            session.answer(&answer, |_| String::new())?;
        }
        Verb::DeleteVersion { group, numbers, dry_run } => {
            return delete_versions(session, &group, &numbers, dry_run);
        }
        Verb::Revert(args) => together::revert(session, &args)?,
        Verb::Clone(args) => {
            let made = together::clone(session, args)?;
            session.answer(&made, |group| list(std::slice::from_ref(group)))?;
        }
        Verb::Diff(args) => together::diff(session, &args)?,
        Verb::Schedule(verb) => return schedule::run_group(session, verb),
        Verb::Retention(verb) => return retention::run_group(session, verb),
        Verb::Version { group, label, hook } => {
            let made = client.create_group_version(&group, &CreateVersion { label, hook })?;
            warn_of_hook(made.hook_failure.as_deref());
            session.answer(&made, |version| versions(std::slice::from_ref(version)))?;
        }
    }
    Ok(ExitCode::Done)
}

/// A group and all of its captures.
fn show(session: &Session, group: &str) -> anyhow::Result<()> {
    let client = session.client()?;
    let found = client.group(group)?;
    let page = |next| client.group_versions(group, &ListQuery { next, limit: None });
    let captures = Page::all(page)?;
    let answer = json!({"group": found, "versions": captures});
    session.answer(&answer, |_| {
        format!("{}\n{}", list(std::slice::from_ref(&found)), versions(&captures))
    })
}

/// Deletes every one it can; exits 3 when only some could be.
fn delete_versions(
    session: &Session,
    group: &str,
    numbers: &[Numbers],
    dry_run: bool,
) -> anyhow::Result<ExitCode> {
    if !dry_run {
        session.confirm(&format!("captures of group {group} go, with their versions"))?;
    }
    let client = session.client()?;
    let mut count = 0;
    let mut code = ExitCode::Done;
    let mut would: Vec<Would> = Vec::new();
    for &Numbers { from, to } in numbers {
        match client.delete_group_versions(group, &RangeQuery { from, to, dry_run }) {
            Ok(done) => {
                if !dry_run {
                    let many = output::count(done.count, "capture");
                    say(&format!(
                        "group {group}, {from} to {to}: {many} deleted, with their versions"
                    ));
                }
                would.extend(done.would);
                count += done.count;
            }
            Err(error) => code = failure::report(&error.into(), session.json),
        }
    }
    let answer = json!({"group": group, "count": count, "deleted": !dry_run});
    match dry_run {
        true => session.would(&would, &answer, |_| String::new())?,
        false => session.answer(&answer, |_| String::new())?,
    }
    Ok(if code != ExitCode::Done && count > 0 { ExitCode::Partly } else { code })
}

fn list(groups: &[Group]) -> String {
    let hook = |group: &Group| {
        group.hook.as_deref().map_or_else(String::new, |hook| show_hook(hook, group.hook_known))
    };
    Table::of(groups)
        .left("GROUP", |group| group.name.clone())
        .left("VOLUMES", |group| group.volumes.join(", "))
        .right("CAPTURES", |group| group.captures.to_string())
        .left("CREATED", |group| group.created.to_string())
        .left("HOOK", |group| hook(group))
        .text()
}

fn versions(captures: &[GroupVersion]) -> String {
    let named = |capture: &GroupVersion| {
        let members = capture.versions.iter();
        let named = members.map(|member| format!("{}@v:{}", member.volume, member.number));
        named.collect::<Vec<String>>().join(", ")
    };
    Table::of(captures)
        .right("NUMBER", |capture| capture.number.to_string())
        .left("TIME", |capture| capture.time.to_string())
        .left("CONSISTENCY", |capture| capture.consistency.clone())
        .left("VERSIONS", |capture| named(capture))
        .left("LABEL", |capture| capture.label.clone())
        .text()
}
