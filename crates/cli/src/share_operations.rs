//! `hindsight share ops`, `share log`, `share repair`: who changed a share, and the share without
//! that.

use std::collections::BTreeSet;
use std::path::PathBuf;

use api::{
    Client, ExitCode, Operation, OperationsQuery, RepairShare, ShareRepair, VersionsOfQuery,
};
use units::{Granularity, Moment};

use crate::moment;
use crate::output::{Table, count, human, pairs};
use crate::session::{Session, say, tell};
use crate::share_files::text_of;

/// Operations of a page.
const PAGE: usize = 10_000;

#[derive(Debug, clap::Args)]
pub struct OpsArgs {
    /// Name of the share.
    name: String,
    /// Not before this moment.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    since: Option<String>,
    /// Not after this moment.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    until: Option<String>,
    /// Of a client: an address or a network.
    #[arg(long, value_name = "HOST|CIDR")]
    client: Option<String>,
    /// Of a user.
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// On a path, or below it.
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Of procedures: CREATE, LINK, MKDIR, MKNOD, REMOVE, RENAME, RMDIR, SETATTR, SYMLINK, WRITE.
    #[arg(long, value_name = "OP,...")]
    op: Option<String>,
    /// More conditions, as `share repair --undo` has them.
    #[arg(long = "where", value_name = "CONDITIONS")]
    conditions: Option<String>,
    /// How many at most, the newest first; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// The share, and a moment at which the file had the path; the share alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    of: String,
    /// The path of the file, from the top of the share.
    path: PathBuf,
    /// How many operations at most, the newest first; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// Name of the share.
    name: String,
    /// The operations to undo: conditions with `and` or `or` between them, such as
    /// `client=10.0.0.7 and time>=-2h and path~/docs/*`; of client, uid, time, path, op, number,
    /// repair, restore, import.
    #[arg(long, value_name = "CONDITIONS")]
    undo: String,
    /// What is undone with them: nothing, so that one on which another stands is kept; names: the
    /// others that stand on them; bytes: also writes over bytes of theirs; reads: also all that a
    /// client's user did after it had read a file that one of them wrote, which takes a share with
    /// `--log-reads on` [default: nothing].
    #[arg(long, value_name = "nothing|names|bytes|reads")]
    follow: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// Up to so many operations of the pages that `page` gets; and whether there are more.
fn all(
    limit: usize,
    mut page: impl FnMut(usize, Option<u64>) -> Result<api::Page<Operation>, api::ClientError>,
) -> anyhow::Result<(Vec<Operation>, bool)> {
    let (most, mut all, mut next) = (if limit == 0 { usize::MAX } else { limit }, Vec::new(), None);
    loop {
        let found = page((most - all.len()).min(PAGE), next)?;
        all.extend(found.entries);
        next = found.next;
        if next.is_none() || all.len() >= most {
            return Ok((all, next.is_some()));
        }
    }
}

pub fn ops(session: &Session, args: &OpsArgs) -> anyhow::Result<()> {
    let client = session.client()?;
    let mut query = OperationsQuery {
        since: args.since.as_deref().map(read_moment).transpose()?,
        until: args.until.as_deref().map(read_moment).transpose()?,
        client: args.client.clone(),
        uid: args.uid,
        path: args.path.as_deref().map(text_of),
        op: args.op.clone(),
        conditions: args.conditions.clone(),
        ..OperationsQuery::default()
    };
    let found = all(args.limit, |limit, next| {
        (query.limit, query.next) = (Some(limit), next);
        client.operations(&args.name, &query)
    });
    show_all(session, &found?)
}

/// A moment as the server reads it: local times are the command's.
fn read_moment(text: &str) -> anyhow::Result<String> {
    Ok(moment::read(text)?.to_string())
}

pub fn log(session: &Session, args: &LogArgs) -> anyhow::Result<()> {
    let of = moment::read_of_volume(&args.of)?;
    let client = session.client()?;
    let path = text_of(&args.path);
    let at = Some(of.moment).filter(|at| *at != Moment::Latest).map(|at| at.to_string());
    let mut query = VersionsOfQuery { path, at, ..VersionsOfQuery::default() };
    let found = all(args.limit, |limit, next| {
        (query.limit, query.next) = (Some(limit), next);
        client.versions_of(&of.volume, &query)
    });
    show_all(session, &found?)
}

fn show_all(session: &Session, (all, has_more): &(Vec<Operation>, bool)) -> anyhow::Result<()> {
    session.answer(all, |all| list(all))?;
    if *has_more {
        say("there are more: --limit N");
    }
    Ok(())
}

/// The client, or the command of this server.
fn by(operation: &Operation) -> String {
    operation.client.clone().or_else(|| operation.cause.clone()).unwrap_or_default()
}

fn list(operations: &[Operation]) -> String {
    Table::of(operations)
        .right("NUMBER", |one| one.number.to_string())
        .left("TIME", |one| one.time.to_string())
        .left("CLIENT", |one| by(one))
        .right("UID", |one| one.uid.to_string())
        .left("OP", |one| one.procedure.clone())
        .left("BEFORE", |one| format!("seq:{}", one.seq_before))
        .left("WHAT", |one| about(one))
        .text()
}

/// The path, and what became of it.
fn about(one: &Operation) -> String {
    let mut text = one.path.clone().unwrap_or_else(|| "(no name any more)".to_owned());
    if let Some(to) = &one.to {
        text.push_str(&format!(" -> {to}"));
    }
    let mut parts = Vec::new();
    if let (Some(offset), Some(bytes)) = (one.offset, one.bytes) {
        parts.push(format!("{bytes} bytes at {offset}"));
    }
    if let Some(size) = one.size {
        parts.push(format!("size {size}"));
    }
    parts.extend(one.mode.iter().map(|mode| format!("mode {mode}")));
    parts.extend(one.set_uid.map(|uid| format!("uid {uid}")));
    parts.extend(one.set_gid.map(|gid| format!("gid {gid}")));
    if !parts.is_empty() {
        text.push_str(&format!(" ({})", parts.join(", ")));
    }
    text
}

pub fn repair(session: &Session, args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let body =
        RepairShare { undo: args.undo.clone(), follow: args.follow.clone(), dry_run: args.dry_run };
    let repair = session.client()?.repair_share(&args.name, &body)?;
    session.answer(&repair, show)?;
    if repair.undone == 0 && repair.kept == 0 {
        say("no operation is as it was named");
    }
    let more = repair.changes_total - repair.changes.len() as u64;
    if more > 0 {
        say(&format!("{} more", count(more, "change")));
    }
    match repair.number {
        _ if args.dry_run => tell(&repair.would),
        None => say("nothing had to be changed"),
        Some(number) => {
            let own = format!("repair={number}");
            say(&undo(&session.client()?, &args.name, repair.before, &own));
        }
    }
    if repair.kept == 0 {
        return Ok(ExitCode::Done);
    }
    let kept = count(repair.kept, "operation");
    say(&format!("{kept} not undone, since others stand on them: --follow names undoes both"));
    let causes = repair.dependents.iter().filter_map(|one| one.operation.cause.as_deref());
    let repairs: BTreeSet<&str> = causes.filter(|cause| cause.starts_with("repair=")).collect();
    if !repairs.is_empty() {
        let all = repairs.into_iter().collect::<Vec<_>>().join(" or ");
        say(&format!("repairs stand on them: add `or {all}`, and name again what these undid"));
    }
    Ok(if args.dry_run { ExitCode::Done } else { ExitCode::Partly })
}

/// How to undo a command on a share. Where not every write is retained there are no moments within
/// it, by which a repair could undo it.
pub fn undo(client: &Client, share: &str, before: u64, command: &str) -> String {
    let granularity = client.share(share).map(|share| share.granularity);
    match granularity {
        Ok(Granularity::Interval(_) | Granularity::OnDemand) => {
            format!("to undo: hindsight share restore {share}@seq:{before} / --delete")
        }
        _ => format!("to undo: hindsight share repair {share} --undo {command}"),
    }
}

fn show(repair: &ShareRepair) -> String {
    let mut shown = vec![
        ("share", repair.share.clone()),
        ("undone", repair.undone.to_string()),
        ("kept", repair.kept.to_string()),
        ("followed", repair.followed.to_string()),
        ("changes", repair.changes_total.to_string()),
        ("bytes", human(repair.bytes)),
        ("before", format!("seq:{}", repair.before)),
    ];
    shown.extend(repair.number.map(|number| ("number", number.to_string())));
    let mut text = pairs(&shown);
    if !repair.changes.is_empty() && !repair.dry_run {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        text.push('\n');
        text += &Table::of(&repair.changes)
            .left("CHANGE", |one| one.change.clone())
            .right("BYTES", |one| bytes(one.bytes))
            .left("PATH", |one| one.path.clone())
            .text();
    }
    if !repair.dependents.is_empty() {
        let on = |one: &api::DependentOperation| {
            let mut on: Vec<String> = one.on.iter().take(3).map(u64::to_string).collect();
            on.extend((one.on.len() > 3).then(|| "...".to_owned()));
            on.join(",")
        };
        text.push('\n');
        text += &Table::of(&repair.dependents)
            .right("OPERATION", |one| one.operation.number.to_string())
            .left("CLIENT", |one| by(&one.operation))
            .left("OP", |one| one.operation.procedure.clone())
            .left("WHAT", |one| about(&one.operation))
            .left("STANDS ON", |one| on(one))
            .left("SINCE", |one| one.reason.clone())
            .text();
    }
    text
}
