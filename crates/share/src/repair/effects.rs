//! The things that operations change, as their records have it.

use format::share::operation::Procedure;
use units::FileId;

use crate::operation_log::Logged;

/// A name in a directory.
pub(crate) type Key = (FileId, Box<[u8]>);

/// Names that an operation changed: what they named before it, and after.
pub(crate) fn effects(logged: &Logged) -> Vec<(Key, Option<FileId>, Option<FileId>)> {
    let record = &logged.record;
    let key = (record.object, logged.name.clone());
    match record.procedure {
        Procedure::Create if record.before.is_some() => Vec::new(),
        Procedure::Create
        | Procedure::MakeDirectory
        | Procedure::MakeSymlink
        | Procedure::MakeNode
        | Procedure::Link => vec![(key, None, record.other)],
        Procedure::Remove | Procedure::RemoveDirectory => vec![(key, record.other, None)],
        Procedure::Rename => {
            let target = record.target.expect("records were verified");
            let new = (target.directory, logged.new_name.clone());
            vec![(key, record.other, None), (new, target.victim, record.other)]
        }
        Procedure::Read | Procedure::Write | Procedure::SetAttributes | Procedure::Other(_) => {
            Vec::new()
        }
    }
}

/// Whether it made an object, the `other` of the record.
pub(crate) fn is_made(logged: &Logged) -> bool {
    match logged.record.procedure {
        Procedure::Create => logged.record.before.is_none(),
        Procedure::MakeDirectory | Procedure::MakeSymlink | Procedure::MakeNode => true,
        _ => false,
    }
}

/// The object of which the record has attributes before: whose content or attributes it changed, or
/// that lost a name.
pub(crate) fn subject(logged: &Logged) -> Option<FileId> {
    let record = &logged.record;
    record.before?;
    match record.procedure {
        Procedure::Write | Procedure::SetAttributes => Some(record.object),
        Procedure::Create | Procedure::Remove | Procedure::RemoveDirectory => record.other,
        Procedure::Rename => record.target.and_then(|target| target.victim),
        _ => None,
    }
}

/// The object whose content it made or changed.
pub(crate) fn written(logged: &Logged) -> Option<FileId> {
    let record = &logged.record;
    let is_content = match record.procedure {
        Procedure::Write | Procedure::Create => true,
        Procedure::SetAttributes => record.range.is_some(),
        _ => false,
    };
    if is_made(logged) { record.other } else { subject(logged).filter(|_| is_content) }
}

/// The object that it made, changed the content of, or took a name from. Of all that one sender did
/// with it in one transaction only the first state before and the last after are kept, so all of
/// that is undone together.
pub(crate) fn touched(logged: &Logged) -> Option<FileId> {
    let record = &logged.record;
    let is_content = record.procedure != Procedure::SetAttributes || record.range.is_some();
    if is_made(logged) { record.other } else { subject(logged).filter(|_| is_content) }
}
