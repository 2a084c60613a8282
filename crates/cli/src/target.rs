//! `hindsight target`.

use api::{ExitCode, IscsiTarget};
use clap::Subcommand;
use serde_json::json;
use wire::iscsi::names;

use crate::failure::Failure;
use crate::output::{Align, pairs, table};
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the iSCSI targets that volumes are.
    #[command(visible_alias = "ls")]
    List,
    /// Show the target that a volume or a moment of it is, and how to log in to it.
    Show {
        /// A volume, or a moment of it: NAME or NAME@MOMENT.
        #[arg(value_name = "NAME[@MOMENT]")]
        name: String,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    let targets = session.client()?.targets()?;
    match verb {
        Verb::List => session.answer(&targets, |targets| list(targets))?,
        Verb::Show { name } => show(session, &targets, &name)?,
    }
    Ok(ExitCode::Done)
}

fn list(targets: &[IscsiTarget]) -> String {
    let heading = [("VOLUME", Align::Left), ("SESSIONS", Align::Right), ("TARGET", Align::Left)];
    let row = |target: &IscsiTarget| {
        vec![target.volume.clone(), target.sessions.len().to_string(), target.name.clone()]
    };
    table(&heading, &targets.iter().map(row).collect::<Vec<_>>())
}

fn missing(message: String, hint: &str) -> anyhow::Error {
    Failure { code: ExitCode::NotFound, message, hint: Some(hint.to_owned()) }.into()
}

fn show(session: &Session, targets: &[IscsiTarget], wanted: &str) -> anyhow::Result<()> {
    let (volume, moment) = match wanted.split_once('@') {
        Some((volume, moment)) => (volume, Some(moment)),
        None => (wanted, None),
    };
    let found = targets.iter().find(|target| target.volume == volume);
    let Some(found) = found else {
        let hint = "iSCSI is served where `serve --iscsi` says; `target list` has the volumes";
        return Err(missing(format!("there is no target {volume}"), hint));
    };
    let base = names::escape(volume).and_then(|own| found.name.strip_suffix(&format!(":{own}")));
    let Some(name) = base.and_then(|base| names::join(base, volume, moment)) else {
        let hint = "an iSCSI name has no `+`: give times in UTC, or seq:N";
        return Err(missing(format!("{wanted} has no name as a target"), hint));
    };
    let is_this = |s: &&api::IscsiSession| s.target == name;
    let sessions: Vec<&api::IscsiSession> = found.sessions.iter().filter(is_this).collect();
    let uri = found.uri.replace(&found.name, &name);
    let portal = uri.trim_start_matches("iscsi://").split('/').next().unwrap_or_default();
    let log_in = format!("iscsiadm -m node -T {name} -p {portal} --login");
    let discover = format!("iscsiadm -m discovery -t sendtargets -p {portal}");
    let qemu = match moment {
        None => format!("-drive file={uri},format=raw,if=virtio"),
        Some(_) => format!("-drive file={uri},format=raw,if=virtio,readonly=on"),
    };
    let answer = json!({
        "volume": volume, "name": name, "uri": uri, "sessions": sessions,
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
        shown.extend(sessions.iter().map(|s| ("session", format!("{} {}", s.id, s.initiator))));
        pairs(&shown)
    })?;
    Ok(())
}
