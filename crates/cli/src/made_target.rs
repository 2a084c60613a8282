//! `hindsight target`, of targets of several units.

use std::str::FromStr;

use api::{ChangeMadeTarget, CreateTarget, MadeTarget, NewLun};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Table, pairs};
use crate::session::{Session, say};
use crate::target_access::{AccessArgs, told};

/// A unit: `N=VOLUME[@MOMENT]`.
#[derive(Clone, Debug)]
pub struct Lun(NewLun);

impl FromStr for Lun {
    type Err = String;

    fn from_str(text: &str) -> Result<Lun, String> {
        let form = || "a unit is N=VOLUME or N=VOLUME@MOMENT".to_owned();
        let (number, of) = text.split_once('=').ok_or_else(form)?;
        let lun = number.parse().map_err(|_| form())?;
        let (volume, at) = split(of);
        Ok(Lun(NewLun { lun, volume: volume.to_owned(), at: at.map(str::to_owned) }))
    }
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the target, which no volume has.
    name: String,
    /// A unit: its number, and the volume or the moment that it is (several times for several).
    #[arg(long, value_name = "N=VOLUME[@MOMENT]", required_unless_present = "group")]
    lun: Vec<Lun>,
    /// A group: its volumes, in the order of their names, are the units from 0 on; with a moment
    /// of the group all of them as of that.
    #[arg(long, value_name = "GROUP[@MOMENT]", conflicts_with = "lun")]
    group: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Name of the target; its volumes stay.
    name: String,
    /// Delete it although initiators are logged in; they are asked to log out.
    #[arg(long)]
    force: bool,
}

/// Changes of the units of a made target.
#[derive(Debug, Args)]
pub struct LunArgs {
    /// A unit to add to a made target: its number, and the volume or the moment that it is.
    #[arg(long, value_name = "N=VOLUME[@MOMENT]")]
    add_lun: Vec<Lun>,
    /// The number of a unit to take out of a made target: it is never given again.
    #[arg(long, value_name = "LUN")]
    remove_lun: Vec<u16>,
    /// Take units out although initiators are logged in: they lose them.
    #[arg(long)]
    force: bool,
}

/// A name, and the moment behind it.
pub fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('@').map_or((text, None), |(name, at)| (name, Some(at)))
}

impl LunArgs {
    /// Whether some are named.
    pub fn is_some(&self) -> bool {
        !self.add_lun.is_empty() || !self.remove_lun.is_empty()
    }
}

pub fn create(session: &Session, args: CreateArgs) -> anyhow::Result<()> {
    let access = args.access.change()?;
    let (group, at) = args.group.as_deref().map(split).unzip();
    let body = CreateTarget {
        name: args.name,
        luns: args.lun.into_iter().map(|lun| lun.0).collect(),
        group: group.map(str::to_owned),
        at: at.flatten().map(str::to_owned),
        chap: access.chap.flatten(),
        mutual: access.mutual.flatten(),
        allow: access.allow,
    };
    let made = session.client()?.create_target(&body)?;
    session.answer(&made, shown)
}

/// Changes a made target.
pub fn set(
    session: &Session,
    name: &str,
    luns: LunArgs,
    access: &AccessArgs,
) -> anyhow::Result<()> {
    let access = access.change()?;
    let body = ChangeMadeTarget {
        chap: access.chap,
        mutual: access.mutual,
        allow: access.allow,
        add: luns.add_lun.into_iter().map(|lun| lun.0).collect(),
        remove: luns.remove_lun,
        force: luns.force,
    };
    let changed = session.client()?.change_made_target(name, &body)?;
    session.answer(&changed, shown)
}

pub fn delete(session: &Session, args: &DeleteArgs) -> anyhow::Result<()> {
    session.client()?.delete_target(&args.name, args.force)?;
    say(&format!("target {}: deleted; its volumes stay", args.name));
    session.answer(&json!({"name": args.name, "deleted": true}), |_| String::new())
}

/// The disk that a unit is, for people.
fn disk(lun: &api::TargetLun) -> String {
    let volume = lun.volume.as_deref().unwrap_or("(deleted)");
    lun.seq.map_or_else(|| volume.to_owned(), |seq| format!("{volume}@seq:{seq}"))
}

/// How to log in to a made target, and who is.
pub fn shown(target: &MadeTarget) -> String {
    let mut shown = Vec::new();
    if let Some(name) = &target.iscsi_name {
        shown.push(("target", name.clone()));
        let uri = target.luns.iter().find_map(|lun| lun.uri.as_deref()).unwrap_or_default();
        let portal = uri.trim_start_matches("iscsi://").split('/').next().unwrap_or_default();
        let portal = target.announced.first().map_or(portal, String::as_str);
        shown.push(("linux", format!("iscsiadm -m discovery -t sendtargets -p {portal}")));
        shown.push(("linux", format!("iscsiadm -m node -T {name} -p {portal} --login")));
    }
    shown.extend(target.luns.iter().map(|lun| ("lun", format!("{}={}", lun.lun, disk(lun)))));
    if !target.retired.is_empty() {
        let numbers: Vec<String> = target.retired.iter().map(ToString::to_string).collect();
        shown.push(("retired", numbers.join(" ")));
    }
    shown.extend(told(&target.access));
    let sessions = target.sessions.iter();
    shown.extend(sessions.map(|s| ("session", format!("{} {}", s.id, s.initiator))));
    pairs(&shown)
}

/// The made targets as a table.
pub fn list(targets: &[MadeTarget]) -> String {
    let luns = |target: &MadeTarget| {
        let luns = target.luns.iter().map(|lun| format!("{}={}", lun.lun, disk(lun)));
        luns.collect::<Vec<String>>().join(" ")
    };
    Table::of(targets)
        .left("TARGET", |target| target.name.clone())
        .right("SESSIONS", |target| target.sessions.len().to_string())
        .left("LUNS", |target| luns(target))
        .left("NAME", |target| target.iscsi_name.clone().unwrap_or_default())
        .text()
}

/// Refuses units of a volume's own target.
pub fn refuse_luns(name: &str) -> anyhow::Error {
    let hint = "`target create` makes one of several units";
    Failure::usage(format!("{name} is a volume: its own target has one unit"))
        .with_hint(hint)
        .into()
}
