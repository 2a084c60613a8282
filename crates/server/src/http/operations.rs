//! The operation log of shares: who changed what and when, and the history of one file.

use ::share::{Cause, Logged, Naming, OperationPaths, Past, Procedure, Tree, ViewBlocks, Wait};
use api::{API_PREFIX, Operation, OperationsQuery, ProblemKind, Time, VersionsOfQuery, path_text};
use axum::extract::State;
use units::{FileId, Moment, WallTime};

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Named};
use super::context::{Context, PAGE_ENTRIES, moment, page_entries};
use super::files::{bytes_of, in_url, open, path_of, refusal};
use super::selection::{PROCEDURES, Selection, client_of};
use crate::nfs::Opened;

/// Lists operations on a share, the newest first.
#[utoipa::path(get, path = "/shares/{share}/ops", tag = "shares",
    params(OperationsQuery),
    responses(
        (status = 200, body = Vec<Operation>, headers(("Link" = String))),
        (status = 410, description = "A moment lies outside the window"),
        (status = 422),
    ))]
pub(super) async fn list(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<OperationsQuery>,
) -> Answer<Listed<Operation>> {
    let limit = page_entries(query.limit, PAGE_ENTRIES)?;
    context
        .engine(move |context| {
            let opened = open(context, &name)?;
            let selection = selection(&query, &opened)?;
            let newest = query.next.unwrap_or(u64::MAX);
            let found = newest_first(&opened, (newest, limit), &mut Wanted::Selected(&selection));
            let (entries, next) = found.map_err(|error| refusal(error, &name, b"/"))?;
            let next = next.map(|next| {
                let fields = serde_json::to_value(&query).expect("plain values serialise");
                let fields = fields.as_object().cloned().unwrap_or_default();
                let kept = fields.iter().filter(|(field, value)| {
                    !value.is_null() && !matches!(&field[..], "limit" | "next")
                });
                let kept = kept.map(|(field, value)| {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    format!("{field}={}&", in_url(&text))
                });
                let kept: String = kept.collect();
                format!("{API_PREFIX}/shares/{name}/ops?{kept}limit={limit}&next={next}")
            });
            Ok(Listed { entries, next })
        })
        .await
}

fn selection(query: &OperationsQuery, opened: &Opened) -> Answer<Selection> {
    let volume = opened.volume();
    let mut selection = match &query.conditions {
        Some(text) => Selection::parse(text, volume)?,
        None => Selection::default(),
    };
    let uid = query.uid.map(|uid| uid.to_string());
    let fields = [
        ("time", ">=", &query.since),
        ("time", "<=", &query.until),
        ("client", "=", &query.client),
        ("uid", "=", &uid),
        ("path", "=", &query.path),
        ("op", "=", &query.op),
    ];
    for (key, operator, value) in fields {
        if let Some(value) = value {
            selection.add(key, operator, value, volume)?;
        }
    }
    Ok(selection)
}

/// Lists the operations on one path, the newest first: those on the object that has it, and on
/// others that had its name before.
#[utoipa::path(get, path = "/shares/{share}/versions-of", tag = "shares",
    params(VersionsOfQuery),
    responses(
        (status = 200, body = Vec<Operation>, headers(("Link" = String))),
        (status = 404, description = "There is no such share, or no such path at the moment"),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422),
    ))]
pub(super) async fn versions_of(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<VersionsOfQuery>,
) -> Answer<Listed<Operation>> {
    let at = query.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let limit = page_entries(query.limit, PAGE_ENTRIES)?;
    let bytes = bytes_of(&query.path)?;
    context
        .engine(move |context| {
            let opened = open(context, &name)?;
            let refused = |error| refusal(error, &name, &bytes);
            let (at, past) = opened.open_to_read(&at).map_err(refused)?;
            let mut file = named_file(&past, &bytes).map_err(refused)??;
            // Operations after that moment are not of its past.
            let newest = past.state().operation;
            check_past(&opened, &past, &name)?;
            let from = query.next.unwrap_or(newest);
            let found = newest_first(&opened, (from, limit), &mut Wanted::Of(&mut file, newest));
            let (entries, next) = found.map_err(refused)?;
            let next = next.map(|next| {
                let path = in_url(&query.path);
                let shares = format!("{API_PREFIX}/shares/{name}/versions-of");
                format!("{shares}?path={path}&at={at}&limit={limit}&next={next}")
            });
            Ok(Listed { entries, next })
        })
        .await
}

/// Refuses a moment whose log is another than that of the present: of before a revert, and not of
/// what was reverted to.
fn check_past(opened: &Opened, past: &Past<ViewBlocks>, name: &str) -> Answer<()> {
    let state = past.state();
    let log = opened.share().operation_log();
    let own = log.block_of(state.operation).and_then(|block| log.operations(block));
    let own = own.map_err(|error| refusal(error, name, b"/"))?;
    let is_other = |logged: &Logged| {
        logged.number() == state.operation && logged.record.incarnation != state.incarnation
    };
    if own.iter().any(is_other) {
        let text = "a revert has left that moment, and its operations with it";
        let hint = format!("clone it: hindsight clone {name}@MOMENT NEW");
        return Err(Refusal::new(ProblemKind::OutsideWindow, text).with_hint(hint));
    }
    Ok(())
}

/// A name, and the object that has it.
struct NamedFile {
    directory: Option<FileId>,
    name: Vec<u8>,
    object: Option<FileId>,
}

fn named_file(past: &Past<ViewBlocks>, bytes: &[u8]) -> ::share::Result<Answer<NamedFile>> {
    let path = match path_of(bytes) {
        Ok(path) => path,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let tree = past.tree(Wait::May);
    let object = path.find(&tree)?.id;
    let directory = path.parent().map(|parent| parent.find(&tree)).transpose()?;
    let name = path.names().last().map_or_else(Vec::new, |name| name.to_vec());
    Ok(Ok(NamedFile { directory: directory.map(|found| found.id), name, object: Some(object) }))
}

impl NamedFile {
    /// Goes back before an operation; whether that was about it.
    fn goes_back(&mut self, logged: &Logged) -> bool {
        let record = &logged.record;
        let is_named = |directory: FileId, name: &[u8]| {
            Some(directory) == self.directory && *name == self.name[..]
        };
        let (other, before) = (record.other, record.before.is_some());
        match record.procedure {
            Procedure::Read | Procedure::Write | Procedure::SetAttributes => {
                Some(record.object) == self.object
            }
            Procedure::Create if before => other == self.object,
            Procedure::Rename => {
                let target = record.target.expect("records were verified");
                let is_to = is_named(target.directory, &logged.new_name);
                let is_from = is_named(record.object, &logged.name);
                // With another name of its own it is the same object.
                let is_own = other.is_some() && other == self.object;
                if is_to {
                    self.object = target.victim;
                } else if is_from {
                    self.object = other;
                }
                is_to || is_from || is_own
            }
            _ if is_named(record.object, &logged.name) => {
                let is_taken =
                    matches!(record.procedure, Procedure::Remove | Procedure::RemoveDirectory);
                self.object = if is_taken { other } else { None };
                true
            }
            _ => other.is_some() && other == self.object,
        }
    }
}

/// The operations that are told.
enum Wanted<'a> {
    /// Those that are selected.
    Selected(&'a Selection),
    /// Those on a file, which has its path after the operation with that number.
    Of(&'a mut NamedFile, u64),
}

impl Wanted<'_> {
    /// Whether an operation is told, from a number on downwards. It is asked of each, from the
    /// newest on.
    fn has<T: Tree>(
        &mut self,
        logged: &Logged,
        newest: u64,
        naming: &mut Naming<'_, T>,
    ) -> ::share::Result<bool> {
        let is_in_page = logged.number() <= newest;
        match self {
            Wanted::Selected(selection) => Ok(is_in_page && selection.takes(logged, naming)?),
            // The name goes back through all of them.
            Wanted::Of(file, own) => {
                Ok(logged.number() <= *own && file.goes_back(logged) && is_in_page)
            }
        }
    }

    fn since(&self) -> WallTime {
        match self {
            Wanted::Selected(selection) => selection.since(),
            Wanted::Of(..) => WallTime::EPOCH,
        }
    }
}

/// Tells the operations that are wanted, from a number on downwards; and where the next page
/// begins.
fn newest_first(
    opened: &Opened,
    (newest, limit): (u64, usize),
    wanted: &mut Wanted<'_>,
) -> ::share::Result<(Vec<Operation>, Option<u64>)> {
    let (_, past) = opened.open_to_read(&Moment::Latest)?;
    let tree = past.tree(Wait::May);
    let mut naming = Naming::new(&tree);
    let log = opened.share().operation_log();
    let since = wanted.since();
    let oldest = log.block_since(since)?;
    let mut told = Vec::new();
    for block in (oldest..=*log.blocks().end()).rev() {
        let operations = match log.operations(block) {
            // The window went on meanwhile.
            Err(_) if block < *opened.share().operation_log().blocks().start() => break,
            operations => operations?,
        };
        for logged in operations.iter().rev() {
            naming.see(logged);
            if logged.record.time < since {
                return Ok((told, None));
            }
            if !wanted.has(logged, newest, &mut naming)? {
                continue;
            }
            if told.len() == limit {
                return Ok((told, Some(logged.number())));
            }
            let paths = naming.of_operation(logged)?;
            told.push(operation(logged, &paths));
        }
    }
    Ok((told, None))
}

/// An operation as it is told.
pub(super) fn operation(logged: &Logged, paths: &OperationPaths) -> Operation {
    let record = &logged.record;
    let named = PROCEDURES.iter().find(|(_, procedure)| *procedure == record.procedure);
    let procedure = match named {
        Some((name, _)) => (*name).to_owned(),
        None => format!("{}", record.procedure.number()),
    };
    let (is_write, is_read) =
        (record.procedure == Procedure::Write, record.procedure == Procedure::Read);
    let text = |path: &Option<Vec<u8>>| path.as_deref().map(path_text);
    let set = record.set.unwrap_or_default();
    let range = record.range;
    Operation {
        number: record.number,
        time: Time(record.time),
        seq_before: record.seq_before.0,
        procedure,
        client: record.cause.is_none().then(|| client_of(record.origin.client).to_string()),
        uid: record.origin.uid,
        gid: record.origin.gid,
        path: text(&paths.path),
        to: text(&paths.to),
        offset: range.filter(|_| is_write).map(|(offset, _)| offset),
        bytes: range.filter(|_| is_write).map(|(_, bytes)| bytes),
        size: range.filter(|_| !is_write && !is_read).map(|(size, _)| size),
        size_before: record.before.map(|before| before.size),
        mode: set.mode.map(|mode| format!("{mode:04o}")),
        set_uid: set.uid,
        set_gid: set.gid,
        cause: record.cause.map(cause),
    }
}

fn cause(cause: Cause) -> String {
    format!("{}={}", cause.kind, cause.number)
}
