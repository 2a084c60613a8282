//! `hindsight target`.

use api::{ChangeTarget, ExitCode, IscsiReservations, IscsiTarget};
use clap::{Args, Subcommand};
use serde_json::json;
use wire::iscsi::names;

use crate::failure::Failure;
use crate::made_target::{self, CreateArgs, DeleteArgs, LunArgs};
use crate::output::{Table, pairs};
use crate::session::Session;
use crate::target_access::{AccessArgs, told};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the iSCSI targets: those that volumes are, and made ones.
    #[command(visible_alias = "ls")]
    List,
    /// Show the target that a volume or a moment of it is, or a made one, and how to log in to it.
    Show {
        /// A volume, or a moment of it: NAME or NAME@MOMENT; or a made target.
        #[arg(value_name = "NAME[@MOMENT]")]
        name: String,
    },
    /// Make a target of several units: volumes, or moments of them, each with a number.
    Create(CreateArgs),
    /// Say who may log in to a volume and its moments, or to a made target, from the next login on;
    /// add units to a made target, or take them out.
    Set(SetArgs),
    /// Delete a made target; its volumes stay.
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The volume, or the made target.
    name: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    luns: LunArgs,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List => {
            let client = session.client()?;
            let (targets, made) = (client.targets()?, client.made_targets()?);
            let all = targets.iter().map(|target| json!(target));
            let all: Vec<_> = all.chain(made.iter().map(|made| json!(made))).collect();
            session.answer(&all, |_| match made.is_empty() {
                true => list(&targets),
                false => format!("{}\n{}", list(&targets), made_target::list(&made)),
            })?;
        }
        Verb::Show { name } => {
            let client = session.client()?;
            match client.made_targets()?.iter().find(|made| made.name == name) {
                Some(made) => session.answer(made, made_target::shown)?,
                None => show(session, &client.targets()?, &name)?,
            }
        }
        Verb::Create(args) => made_target::create(session, args)?,
        Verb::Set(args) => set(session, args)?,
        Verb::Delete(args) => made_target::delete(session, &args)?,
    }
    Ok(ExitCode::Done)
}

fn set(session: &Session, args: SetArgs) -> anyhow::Result<()> {
    let change = args.access.change()?;
    if change == ChangeTarget::default() && !args.luns.is_some() {
        let hint = "give one of --chap-user, --mutual-user, --allow, --add-lun, --remove-lun";
        return Err(Failure::usage("no setting is named").with_hint(hint).into());
    }
    let client = session.client()?;
    if client.made_targets()?.iter().any(|made| made.name == args.name) {
        return made_target::set(session, &args.name, args.luns, &args.access);
    }
    if args.luns.is_some() {
        return Err(made_target::refuse_luns(&args.name));
    }
    let access = client.change_target(&args.name, &change)?;
    session.answer(&access, |access| pairs(&told(access)))
}

/// Who is registered, and who holds the volume.
fn reserved(reservations: &IscsiReservations) -> Vec<(&'static str, String)> {
    let until = if reservations.kept { "kept over restarts" } else { "until the server ends" };
    let registered = reservations.registered.iter();
    let mut told: Vec<_> = registered
        .map(|it| ("registered", format!("{} key 0x{}, {until}", it.initiator, it.key)))
        .collect();
    let held = reservations.held.iter();
    told.extend(held.map(|it| ("reserved", format!("{} by {}", it.kind, it.initiator))));
    told
}

fn list(targets: &[IscsiTarget]) -> String {
    Table::of(targets)
        .left("VOLUME", |target| target.volume.clone())
        .right("SESSIONS", |target| target.sessions.len().to_string())
        .left("TARGET", |target| target.name.clone())
        .text()
}

fn missing(message: String, hint: &str) -> anyhow::Error {
    Failure { code: ExitCode::NotFound, message, hint: Some(hint.to_owned()) }.into()
}

fn show(session: &Session, targets: &[IscsiTarget], wanted: &str) -> anyhow::Result<()> {
    let (volume, moment) = made_target::split(wanted);
    let found = targets.iter().find(|target| target.volume == volume);
    let Some(found) = found else {
        let hint = "iSCSI is served where `serve --iscsi` says; `target list` has the volumes";
        return Err(missing(format!("there is no target {volume}"), hint));
    };
    // A name of what cannot be opened would be refused at each login.
    if let Some(moment) = moment {
        session.client()?.resolve(volume, moment)?;
    }
    let base = names::escape(volume).and_then(|own| found.name.strip_suffix(&format!(":{own}")));
    let Some(name) = base.and_then(|base| names::join(base, volume, moment)) else {
        let hint = "an iSCSI name has no `+`: give times in UTC, or seq:N";
        return Err(missing(format!("{wanted} has no name as a target"), hint));
    };
    let is_this = |s: &&api::IscsiSession| s.target == name;
    let sessions: Vec<&api::IscsiSession> = found.sessions.iter().filter(is_this).collect();
    let uri = found.uri.replace(&found.name, &name);
    let portal = uri.trim_start_matches("iscsi://").split('/').next().unwrap_or_default();
    // Linux is rather not on this machine.
    let known = found.announced.first().map_or(portal, String::as_str);
    let log_in = format!("iscsiadm -m node -T {name} -p {known} --login");
    let discover = format!("iscsiadm -m discovery -t sendtargets -p {known}");
    let qemu = match moment {
        None => format!("-drive file={uri},format=raw,if=virtio"),
        Some(_) => format!("-drive file={uri},format=raw,if=virtio,readonly=on"),
    };
    // Those of a moment are told to nobody: it takes no writes.
    let reservations = found.reservations.as_ref().filter(|_| moment.is_none());
    let answer = json!({
        "volume": volume, "name": name, "uri": uri, "access": found.access, "sessions": sessions,
        "reservations": reservations,
        "discover": discover, "log_in": log_in, "qemu": qemu,
    });
    session.answer(&answer, |_| {
        let mut shown = vec![("target", name.clone()), ("url", uri.clone())];
        // A moment is not listed: it is logged in to by name.
        let steps = if moment.is_none() { vec![&discover, &log_in] } else { vec![&log_in] };
        shown.extend(steps.into_iter().map(|step| ("linux", step.clone())));
        if moment.is_some() {
            shown.push(("mount", "-o ro,noload (ext4), -o ro,norecovery,nouuid (XFS)".to_owned()));
        }
        shown.push(("qemu", qemu.clone()));
        shown.extend(told(&found.access));
        shown.extend(sessions.iter().map(|s| ("session", format!("{} {}", s.id, s.initiator))));
        shown.extend(reservations.into_iter().flat_map(reserved));
        pairs(&shown)
    })
}
