//! Repairs of shares: the tree as it would be without some operations.

use ::share::repair::{self, Change, Dependent, Follow, Plan, Reason};
use ::share::{CauseKind, Error, ErrorKind, Logged, Naming, Tree, Wait};
use api::{DependentOperation, ProblemKind, RepairChange, RepairShare, ShareRepair, path_text};
use axum::Json;
use axum::extract::State;
use units::Moment;

use super::answer::{Answer, Refusal};
use super::ask::{Body, Named};
use super::changing::change;
use super::context::Context;
use super::files::{open, refusal};
use super::operations::operation;
use super::selection::Selection;
use crate::nfs::Opened;

/// Changes, and dependents, that are told.
const TOLD_MAX: usize = 1000;
/// How often a repair is planned anew because the share changed meanwhile.
const TRIES: usize = 3;

/// Undoes some operations on a share and keeps all others (RFS). What it does is in the history, and
/// can be undone by another repair.
#[utoipa::path(post, path = "/shares/{share}/repairs", tag = "shares",
    request_body = RepairShare,
    params(("share" = String, Path, description = "Name of the share")),
    responses(
        (status = 200, body = ShareRepair),
        (status = 400, body = api::Problem, content_type = "application/problem+json"),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The share changes faster than it can be repaired, or is being reverted",
            body = api::Problem, content_type = "application/problem+json"),
        (status = 410, description = "A moment that is needed lies outside the window, or is not retained",
            body = api::Problem, content_type = "application/problem+json"),
        (status = 422, body = api::Problem, content_type = "application/problem+json"),
        (status = 507, description = "The pool is full", body = api::Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<RepairShare>,
) -> Answer<Json<ShareRepair>> {
    let follow = match body.follow.as_deref() {
        None | Some("nothing") => Follow::Nothing,
        Some("names") => Follow::Names,
        Some("bytes") => Follow::Bytes,
        Some("reads") => {
            let text = "reads are not logged, so nothing follows them";
            return Err(Refusal::new(ProblemKind::Invalid, text).with_hint("names or bytes"));
        }
        Some(other) => {
            let text = format!("`{other:.64}` is no value of follow");
            let hint = "it has nothing, names, bytes";
            return Err(Refusal::new(ProblemKind::Invalid, text).with_hint(hint));
        }
    };
    context.engine(move |context| repair(context, &name, &body, follow)).await.map(Json)
}

fn repair(
    context: &Context,
    name: &str,
    body: &RepairShare,
    follow: Follow,
) -> Answer<ShareRepair> {
    let opened = open(context, name)?;
    let selection = Selection::parse(&body.undo, opened.volume())?;
    let refused = |error: Error| failed(error, name);
    let moments = |seq| opened.open_moment(&Moment::Seq(seq)).map(|(_, past)| past);
    let newest = opened.share().statistics().operations;
    for attempt in 1.. {
        let before = opened.volume().last_seq();
        let (plan, mut told) = plan(&opened, &selection, (newest, follow)).map_err(refused)?;
        (told.share, told.dry_run, told.before) = (name.to_owned(), body.dry_run, before.0);
        if body.dry_run || plan.difference.changes.is_empty() {
            return Ok(told);
        }
        let applied = change(context, &opened, CauseKind::Repair, |changer| {
            (changer.cause.number, repair::apply(&plan.difference, changer, &moments))
        })?;
        match applied {
            (number, Ok(_)) => {
                told.number = Some(number);
                return Ok(told);
            }
            (_, Err(error)) if error.kind == ErrorKind::NotSync && attempt < TRIES => {}
            (_, Err(error)) => return Err(refused(error)),
        }
    }
    unreachable!("the last try returns")
}

/// Plans a repair of the operations up to one; and how it is told.
fn plan(
    opened: &Opened,
    selection: &Selection,
    (newest, follow): (u64, Follow),
) -> ::share::Result<(Plan, ShareRepair)> {
    let moments = |seq| opened.open_moment(&Moment::Seq(seq)).map(|(_, past)| past);
    let (_, past) = opened.open_to_read(&Moment::Latest)?;
    let tree = past.tree(Wait::May);
    let mut naming = Naming::new(&tree);
    let log = opened.share().operation_log();
    if selection.has_paths() {
        for block in log.blocks().rev() {
            log.operations(block)?.iter().rev().for_each(|logged| naming.see(logged));
        }
    }
    let mut named =
        |logged: &Logged| Ok(logged.number() <= newest && selection.takes(logged, &mut naming)?);
    let plan = repair::plan(opened.share(), &moments, &mut named, follow)?;
    let told = told(&plan, &mut naming)?;
    Ok((plan, told))
}

fn told<T: Tree>(plan: &Plan, naming: &mut Naming<'_, T>) -> ::share::Result<ShareRepair> {
    let mut dependents = Vec::new();
    for Dependent { operation: logged, reason, on } in plan.dependents.iter().take(TOLD_MAX) {
        let paths = naming.of_operation(logged)?;
        let (reason, on) = (words(*reason).to_owned(), on.iter().copied().collect());
        dependents.push(DependentOperation { operation: operation(logged, &paths), reason, on });
    }
    let all = &plan.difference.changes;
    let bytes = all.iter().filter_map(|change| match change {
        Change::Written(_, bytes) => Some(*bytes),
        _ => None,
    });
    Ok(ShareRepair {
        share: String::new(),
        dry_run: false,
        number: None,
        before: 0,
        undone: plan.undone.len() as u64,
        kept: plan.kept.len() as u64,
        followed: plan.followed.len() as u64,
        dependents,
        changes: all.iter().take(TOLD_MAX).map(changed).collect(),
        changes_total: all.len() as u64,
        bytes: bytes.sum(),
    })
}

fn changed(change: &Change) -> RepairChange {
    let (word, bytes) = match change {
        Change::Restored(_) => ("restored", None),
        Change::Removed(_) => ("removed", None),
        Change::Renamed(_) => ("renamed", None),
        Change::Written(_, bytes) => ("written", Some(*bytes)),
        Change::Set(_) => ("set", None),
    };
    RepairChange { change: word.to_owned(), path: path_text(change.path()), bytes }
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Object => "the object that it changes would not be there",
        Reason::Directory => "the directory that it makes a name in would not be there",
        Reason::NameTaken => "its name would have another object",
        Reason::NameGone => "its name would not have its object",
        Reason::NotEmpty => "the directory that it removes would have entries",
        Reason::Bytes => "it wrote over their bytes, or took them away",
    }
}

fn failed(error: Error, name: &str) -> Refusal {
    match (error.kind, &error.source) {
        (ErrorKind::NotFound, Some(source)) => {
            let text = format!("{name} cannot be repaired so: {source}");
            Refusal::new(ProblemKind::OutsideWindow, text)
                .with_hint("name later operations, with time>=")
        }
        (ErrorKind::NotSync, _) => {
            let text = format!("{name} changes faster than it can be repaired");
            let hint = "ask again: what was done of it stays, and the rest is done then";
            Refusal::new(ProblemKind::Busy, text).with_hint(hint)
        }
        (ErrorKind::Invalid, None) => {
            let text = "a directory would come into itself: name more operations, or fewer";
            Refusal::new(ProblemKind::Invalid, text)
        }
        _ => refusal(error, name, b"/"),
    }
}
