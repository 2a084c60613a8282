//! The order in which names change.

use std::collections::BTreeMap;

use format::share::inode::FileKind;
use units::FileId;

use super::difference::NameChange;
use crate::blocks::Present;
use crate::error::{Error, ErrorKind, Result, require};
use crate::operations::rename::Place;
use crate::source::Source;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;

/// One change of a name. Names in the stage are numbers.
#[derive(Clone, Debug)]
pub(super) enum Step<'a> {
    /// Nobody but the operation with that number changed the object last.
    Check(FileId, u64),
    Out(&'a NameChange, u64),
    In(u64, FileId, &'a [u8]),
    Link(FileId, FileId, &'a [u8]),
    Drop(u64, bool),
}

/// Changes of names, numbered.
type Group<'a> = Vec<(u64, &'a NameChange)>;

/// The steps from the names as they are to those as they would be, in parts: each is all the names
/// of some objects that change places. In a part all names that change go out of the tree, those
/// that are to be come in, and what is left goes. A directory goes after all that was in it.
pub(super) fn parts<'a>(
    names: &'a [NameChange],
    made: &BTreeMap<FileId, (FileId, u64)>,
) -> Vec<Vec<Step<'a>>> {
    let (mut waiting, mut parts) = (groups(names), Vec::new());
    while !waiting.is_empty() {
        // Directories out of which names have yet to go, and by which group.
        let mut left: BTreeMap<FileId, Vec<usize>> = BTreeMap::new();
        for (index, group) in waiting.iter().enumerate() {
            let directories = group.iter().filter(|(_, change)| change.from.is_some());
            directories.for_each(|(_, change)| left.entry(change.key.0).or_default().push(index));
        }
        let is_ready = |index: usize, group: &Group<'_>| {
            let going = going(group);
            let mut others = going.iter().filter_map(|directory| left.get(directory)).flatten();
            others.all(|other| *other == index)
        };
        let ready: Vec<bool> =
            waiting.iter().enumerate().map(|(index, group)| is_ready(index, group)).collect();
        if !ready.contains(&true) {
            // Each waits for another: they change together.
            let all: Group<'_> = std::mem::take(&mut waiting).into_iter().flatten().collect();
            parts.push(steps(&all, made));
            break;
        }
        let mut is_ready = ready.iter();
        let go: Vec<Group<'_>> =
            waiting.extract_if(.., |_| *is_ready.next().expect("one for each")).collect();
        parts.extend(go.iter().map(|group| steps(group, made)));
    }
    parts
}

/// The directories that a group takes away.
fn going(group: &Group<'_>) -> Vec<FileId> {
    let comes = |id: FileId| group.iter().any(|(_, change)| change.to == Some(id));
    let from = group.iter().filter_map(|(_, change)| change.from);
    let directories = from.filter(|(_, kind)| *kind == FileKind::Directory).map(|(id, _)| id);
    directories.filter(|id| !comes(*id)).collect()
}

/// The changes of names, numbered, in groups that have no object in common.
fn groups(names: &[NameChange]) -> Vec<Group<'_>> {
    // Each name is in the group of the first of its objects; groups are joined by their objects.
    let mut group_of: BTreeMap<FileId, usize> = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (change, number) in names.iter().zip(0..) {
        let objects = [change.from.map(|(id, _)| id), change.to];
        let known: Vec<usize> =
            objects.iter().flatten().filter_map(|id| group_of.get(id).copied()).collect();
        let group = known.first().copied().unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        for other in known.into_iter().filter(|other| *other != group) {
            let joined = std::mem::take(&mut groups[other]);
            groups[group].extend(joined);
            group_of.values_mut().filter(|of| **of == other).for_each(|of| *of = group);
        }
        groups[group].push((number, change));
        group_of.extend(objects.into_iter().flatten().map(|id| (id, group)));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn steps<'a>(
    group: &[(u64, &'a NameChange)],
    made: &BTreeMap<FileId, (FileId, u64)>,
) -> Vec<Step<'a>> {
    let first = made.len() as u64;
    let mut steps = Vec::new();
    // The names in the stage that objects have there.
    let mut staged: BTreeMap<FileId, Vec<(u64, bool)>> = BTreeMap::new();
    let restored = group.iter().filter_map(|(_, change)| change.to);
    for id in restored {
        if let Some((_, number)) = made.get(&id) {
            staged.insert(id, vec![(*number, false)]);
        }
    }
    // A name that goes changes its object: all are looked at before.
    let last: BTreeMap<FileId, u64> =
        group.iter().filter_map(|(_, change)| Some((change.from?.0, change.last?))).collect();
    steps.extend(last.into_iter().map(|(id, last)| Step::Check(id, last)));
    for (number, change) in group {
        let Some((id, kind)) = change.from else { continue };
        steps.push(Step::Out(change, first + number));
        staged.entry(id).or_default().push((first + number, kind == FileKind::Directory));
    }
    let now = |id: FileId| made.get(&id).map_or(id, |(new, _)| *new);
    for (_, change) in group {
        let Some(to) = change.to else { continue };
        let (directory, name) = (now(change.key.0), &change.key.1[..]);
        steps.push(match staged.get_mut(&to).and_then(Vec::pop) {
            Some((number, _)) => Step::In(number, directory, name),
            None => Step::Link(now(to), directory, name),
        });
    }
    let left = staged.into_values().flatten();
    steps.extend(left.map(|(number, is_directory)| Step::Drop(number, is_directory)));
    steps
}

impl Step<'_> {
    /// # Errors
    /// `NotSync` if names are not as they were seen.
    pub(super) fn apply<P: Present>(
        &self,
        transaction: &mut Transaction<'_, '_, P>,
        caller: &Caller<'_>,
        stage: FileId,
    ) -> Result<()> {
        match *self {
            Step::Check(id, last) => {
                let found = transaction.object(id).map_err(changed_since)?;
                require(found.operation == last, ErrorKind::NotSync)
            }
            Step::Out(change, number) => {
                let (directory, name) = (change.key.0, &change.key.1[..]);
                let expected = change.from.map(|(id, _)| id);
                let found = transaction.look_up(caller.user, directory, name);
                let found = found.map_err(changed_since)?;
                require(Some(found.id) == expected, ErrorKind::NotSync)?;
                let number = number.to_string();
                let to = Place { directory: stage, name: number.as_bytes() };
                transaction.rename(caller, Place { directory, name }, to)
            }
            Step::In(number, directory, name) => {
                let number = number.to_string();
                let from = Place { directory: stage, name: number.as_bytes() };
                require_free(transaction, caller, directory, name)?;
                transaction.rename(caller, from, Place { directory, name })
            }
            Step::Link(id, directory, name) => {
                require_free(transaction, caller, directory, name)?;
                transaction.link(caller, id, directory, name).map_err(changed_since).map(drop)
            }
            Step::Drop(number, is_directory) => {
                let name = number.to_string();
                let done = if is_directory {
                    transaction.remove_directory(caller, stage, name.as_bytes())
                } else {
                    transaction.remove(caller, stage, name.as_bytes())
                };
                done.map_err(changed_since)
            }
        }
    }
}

/// Fails if a name is there.
fn require_free<P: Present>(
    transaction: &Transaction<'_, '_, P>,
    caller: &Caller<'_>,
    directory: FileId,
    name: &[u8],
) -> Result<()> {
    match transaction.look_up(caller.user, directory, name) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(changed_since(error)),
        Ok(_) => Err(Error::from(ErrorKind::NotSync)),
    }
}

/// The error of a share that is not as the plan saw it.
pub(super) fn changed_since(error: Error) -> Error {
    match error.kind {
        ErrorKind::Stale
        | ErrorKind::NotFound
        | ErrorKind::NotEmpty
        | ErrorKind::NotDirectory
        | ErrorKind::Exists => Error::from(ErrorKind::NotSync),
        _ => error,
    }
}
