//! Repairs of shares: the tree as it would be without some operations.

use std::sync::Arc;

use ::share::repair::{self, Change, Dependent, Entangled, Follow, Moments, Plan, Reason, Request};
use ::share::{
    Cause, CauseKind, Changer, Error, ErrorKind, Logged, Naming, Past, Tree, ViewBlocks,
    VolumeBlocks, Wait,
};
use api::{
    DependentOperation, ProblemKind, RepairChange, RepairShare, ShareRepair, Would, path_text,
};
use axum::Json;
use axum::extract::State;
use units::{Moment, Seq, WallTime};

use super::answer::{Answer, Refusal};
use super::ask::{Body, Named};
use super::changing::{change, undo_line};
use super::context::Context;
use super::files::{open, refusal};
use super::operations::operation;
use super::selection::Selection;
use crate::nfs::Opened;

/// Changes, and dependents, that are told.
const TOLD_MAX: usize = 1000;
/// Operations that a dependent is told to stand on.
const ON_MAX: usize = 100;
/// How often a repair is planned if the share changes meanwhile.
const TRIES: usize = 3;

/// Undoes some operations on a share and keeps all others (RFS). A repair is in the history, and
/// can be undone by another.
#[utoipa::path(post, path = "/shares/{share}/repairs", tag = "shares",
    request_body = RepairShare,
    responses(
        (status = 200, body = ShareRepair),
        (status = 409, description = "The share changes too fast, or another command changes it"),
        (status = 410, description = "A moment that is needed is not kept any more"),
        (status = 507, description = "The pool is full"),
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
        Some("reads") => Follow::Reads,
        Some(other) => {
            let text = format!("`{other:.64}` is no value of follow");
            let hint = "it has nothing, names, bytes, reads";
            return Err(Refusal::new(ProblemKind::Invalid, text).with_hint(hint));
        }
    };
    context.json(move |context| repair(context, &name, &body, follow)).await
}

fn repair(
    context: &Context,
    name: &str,
    body: &RepairShare,
    follow: Follow,
) -> Answer<ShareRepair> {
    let opened = open(context, name)?;
    let selection = Selection::parse(&body.undo, opened.volume())?;
    let goes_on = || context.is_ready() && opened.volume().is_served();
    let planning = Planning {
        opened: &opened,
        selection: &selection,
        newest: opened.share().statistics().operations,
        follow,
        goes_on: &goes_on,
    };
    if body.dry_run {
        let (_, _, planned) = planning.plan(None).map_err(|error| failed(error, name))?;
        let would = planned.changes.iter().map(|change| would(name, change)).collect();
        return Ok(ShareRepair { would, dry_run: true, ..planned });
    }
    let kind = (CauseKind::Repair, false);
    let (before, done) = change(context, &opened, kind, |changer, before| {
        (before, planning.apply(changer, before))
    })?;
    done.map_err(|(error, is_begun, number)| {
        let refusal = failed(error, name);
        if !is_begun {
            return refusal;
        }
        let undo = undo_line(opened.volume(), &format!("repair={number}"), before);
        refusal.with_hint(format!(
            "a part may have been done, to undo it: {undo}; the same repair with `or \
             repair={number}` does the rest"
        ))
    })
}

/// All that a repair is planned by.
struct Planning<'a> {
    opened: &'a Opened,
    selection: &'a Selection,
    /// The last operation that may be named.
    newest: u64,
    follow: Follow,
    goes_on: &'a dyn Fn() -> bool,
}

/// The present that a plan is of.
type Present = (Arc<Past<ViewBlocks>>, Seq);

impl Planning<'_> {
    fn moment(&self, seq: Seq) -> ::share::Result<Arc<Past<ViewBlocks>>> {
        self.opened.open_moment(&Moment::Seq(seq)).map(|(_, past)| past)
    }

    /// Plans the repair; what one of that number has done already is undone by the plan, and done
    /// again as far as it is still to be done.
    fn plan(&self, own: Option<u64>) -> ::share::Result<(Present, Plan, ShareRepair)> {
        let present = self.opened.present()?;
        let at = |seq| self.moment(seq);
        let moments = Moments { present: Arc::clone(&present.0), seq: present.1, at: &at };
        let tree = present.0.tree(Wait::May);
        let mut naming = Naming::new(&tree);
        let since = self.selection.since();
        let log = self.opened.share().operation_log();
        if self.selection.has_paths() {
            for block in (log.block_since(since)?..=*log.blocks().end()).rev() {
                log.operations(block)?.iter().rev().for_each(|logged| naming.see(logged));
            }
        }
        let own = own.map(|number| Cause { kind: CauseKind::Repair, number });
        let mut named = |logged: &Logged| {
            if own.is_some() && logged.record.cause == own {
                return Ok(true);
            }
            Ok(logged.number() <= self.newest && self.selection.takes(logged, &mut naming)?)
        };
        let (follow, goes_on) = (self.follow, self.goes_on);
        let setting = self.opened.volume().share();
        let reads_since = setting.and_then(|setting| setting.reads_since_ns);
        let reads_since = reads_since.map(WallTime::from_nanos);
        let mut request = Request { since, named: &mut named, follow, reads_since, goes_on };
        let plan = repair::plan(self.opened.share(), &moments, &mut request)?;
        let told = self.told(&plan, present.1, &mut naming)?;
        Ok((present, plan, told))
    }

    /// Plans and does it, again if the share changed meanwhile. An error has the number of it, and
    /// says whether a part was done.
    fn apply(
        &self,
        changer: &Changer<'_, VolumeBlocks>,
        before: Seq,
    ) -> Result<ShareRepair, (Error, bool, u64)> {
        let number = changer.cause.number;
        let mut is_begun = false;
        for attempt in 1.. {
            let failed = |error, is_begun| (error, is_begun, number);
            let planned = self.plan(is_begun.then_some(number));
            let ((present, seq), plan, mut told) = planned.map_err(|e| failed(e, is_begun))?;
            let at = |seq| self.moment(seq);
            let moments = Moments { present, seq, at: &at };
            is_begun |= !plan.difference.changes.is_empty();
            let applied = repair::apply(&plan.difference, changer, &moments, self.goes_on);
            match applied {
                Ok(_) => {
                    told.number = is_begun.then_some(number);
                    told.before = before.0;
                    return Ok(told);
                }
                Err(error) if error.kind == ErrorKind::NotSync && attempt < TRIES => {}
                Err(error) => return Err(failed(error, is_begun)),
            }
        }
        unreachable!("the last try returns")
    }

    /// A plan as it is told.
    fn told<T: Tree>(
        &self,
        plan: &Plan,
        seq: Seq,
        naming: &mut Naming<'_, T>,
    ) -> ::share::Result<ShareRepair> {
        let mut dependents = Vec::new();
        for Dependent { operation: logged, reason, on } in plan.dependents.iter().take(TOLD_MAX) {
            let paths = naming.of_operation(logged)?;
            let on = on.iter().take(ON_MAX).copied().collect();
            let reason = words(*reason).to_owned();
            dependents.push(DependentOperation {
                operation: operation(logged, &paths),
                reason,
                on,
            });
        }
        let all = &plan.difference.changes;
        let bytes = all.iter().filter_map(|change| match change {
            Change::Written(_, bytes) => Some(*bytes),
            _ => None,
        });
        Ok(ShareRepair {
            share: self.opened.volume().name().to_owned(),
            dry_run: false,
            number: None,
            before: seq.0,
            undone: plan.undone.range(..=self.newest).count() as u64,
            kept: plan.kept.range(..=self.newest).count() as u64,
            followed: plan.followed.len() as u64,
            dependents,
            changes: all.iter().take(TOLD_MAX).map(changed).collect(),
            changes_total: all.len() as u64,
            bytes: bytes.sum(),
            would: Vec::new(),
        })
    }
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

fn would(share: &str, change: &RepairChange) -> Would {
    let path = &change.path;
    let (action, text) = match (&change.change[..], change.bytes) {
        ("restored", _) => ("restore", format!("{path} would be restored")),
        ("removed", _) => ("remove", format!("{path} would be removed")),
        ("renamed", _) => ("rename", format!("{path} would be another object")),
        ("written", bytes) => {
            ("write", format!("{} bytes of {path} would be written", bytes.unwrap_or_default()))
        }
        _ => ("set", format!("attributes of {path} would be set")),
    };
    Would::new(action, format!("{share} {path}"), text)
}

fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Object => "the object that it changes would not be there",
        Reason::Directory => "the directory that it makes a name in would not be there",
        Reason::NameTaken => "its name would have another object",
        Reason::NameGone => "its name would not have its object",
        Reason::NotEmpty => "the directory that it removes would have entries",
        Reason::Bytes => "it wrote over their bytes, or took them away",
        Reason::Reads => "its sender had read a file that they wrote",
    }
}

fn failed(error: Error, name: &str) -> Refusal {
    match (error.kind, &error.source) {
        (ErrorKind::NotFound, Some(source)) if !source.is::<volume::Error>() => {
            let text = format!("{name} cannot be repaired so: {source}");
            Refusal::new(ProblemKind::OutsideWindow, text)
                .with_hint("name later operations, with time>=")
        }
        (ErrorKind::NotSync, _) => {
            let text = format!("{name} changes faster than it can be repaired");
            let hint = "ask again when less is going on there";
            Refusal::new(ProblemKind::Busy, text).with_hint(hint)
        }
        (ErrorKind::Invalid, Some(source)) if source.is::<Entangled>() => {
            let text = format!("{name} cannot be repaired so: {source}");
            let refused = Refusal::new(ProblemKind::Invalid, text);
            match source.downcast_ref() {
                Some(Entangled::Reads) => refused.with_hint(format!(
                    "`hindsight share show {name}` says since when reads are logged, `hindsight \
                     share set {name} --log-reads on` logs them from now on"
                )),
                _ => refused,
            }
        }
        _ => refusal(error, name, b"/"),
    }
}
