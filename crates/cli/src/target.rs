//! `hindsight target`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{ChangeTarget, ChapCredential, ExitCode, IscsiAccess, IscsiTarget};
use clap::{Args, Subcommand};
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
    /// Say who may log in to a volume and its moments over iSCSI, from the next login on.
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The volume.
    name: String,
    /// The name by which initiators prove themselves (CHAP); none asks for no proof any more.
    #[arg(long, value_name = "NAME|none")]
    chap_user: Option<String>,
    /// A file with the secret of that name: 12 to 16 characters.
    #[arg(long, value_name = "FILE")]
    chap_secret_file: Option<PathBuf>,
    /// The name by which the target proves itself to initiators that ask for it, or none.
    #[arg(long, value_name = "NAME|none")]
    mutual_user: Option<String>,
    /// A file with the secret of that name, which is another than that of initiators.
    #[arg(long, value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
    /// The name of an initiator that may log in (several times for several), or all.
    #[arg(long, value_name = "IQN|all")]
    allow: Vec<String>,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List => {
            let targets = session.client()?.targets()?;
            session.answer(&targets, |targets| list(targets))?;
        }
        Verb::Show { name } => show(session, &session.client()?.targets()?, &name)?,
        Verb::Set(args) => set(session, &args)?,
    }
    Ok(ExitCode::Done)
}

fn set(session: &Session, args: &SetArgs) -> anyhow::Result<()> {
    let allow = match &args.allow[..] {
        [] => None,
        [all] if all == "all" => Some(Vec::new()),
        some if some.iter().any(|name| name == "all") => {
            return Err(Failure::usage("--allow all stands alone").into());
        }
        some => Some(some.to_vec()),
    };
    let change = ChangeTarget {
        chap: credential("chap", args.chap_user.as_deref(), args.chap_secret_file.as_deref())?,
        mutual: credential(
            "mutual",
            args.mutual_user.as_deref(),
            args.mutual_secret_file.as_deref(),
        )?,
        allow,
    };
    if change == ChangeTarget::default() {
        let hint = "give one of --chap-user, --mutual-user, --allow";
        return Err(Failure::usage("no setting is named").with_hint(hint).into());
    }
    let access = session.client()?.change_target(&args.name, &change)?;
    session.answer(&access, |access| pairs(&told(access)))?;
    Ok(())
}

/// A name and its secret, which comes from a file: arguments are seen by everybody.
fn credential(
    which: &str,
    user: Option<&str>,
    file: Option<&Path>,
) -> anyhow::Result<Option<Option<ChapCredential>>> {
    match (user, file) {
        (None, None) => Ok(None),
        (Some("none"), None) => Ok(Some(None)),
        (Some(user), Some(file)) if user != "none" => {
            let read = fs::read_to_string(file);
            let text = read.with_context(|| format!("{} cannot be read", file.display()))?;
            let secret = text.trim_end_matches(['\r', '\n']).to_owned();
            Ok(Some(Some(ChapCredential { user: user.to_owned(), secret })))
        }
        _ => {
            let what = format!("--{which}-user NAME and --{which}-secret-file go together");
            Err(Failure::usage(what).into())
        }
    }
}

/// Who may log in.
fn told(access: &IscsiAccess) -> Vec<(&'static str, String)> {
    let user = |user: &Option<String>| user.clone().unwrap_or_else(|| "none".to_owned());
    let allow = if access.allow.is_empty() { vec!["all".to_owned()] } else { access.allow.clone() };
    let mut told = vec![("chap", user(&access.chap_user)), ("mutual", user(&access.mutual_user))];
    told.extend(allow.into_iter().map(|initiator| ("allowed", initiator)));
    told
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
    let log_in = format!("iscsiadm -m node -T {name} -p {portal} --login");
    let discover = format!("iscsiadm -m discovery -t sendtargets -p {portal}");
    let qemu = match moment {
        None => format!("-drive file={uri},format=raw,if=virtio"),
        Some(_) => format!("-drive file={uri},format=raw,if=virtio,readonly=on"),
    };
    let answer = json!({
        "volume": volume, "name": name, "uri": uri, "access": found.access, "sessions": sessions,
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
        pairs(&shown)
    })?;
    Ok(())
}
