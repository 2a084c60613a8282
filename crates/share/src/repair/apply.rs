//! Doing a repair: content of files that are there, then objects that come back, beside the tree,
//! and at last the names, all in one transaction if it has room for them.

use std::collections::BTreeMap;

use units::FileId;

use super::difference::{FileChange, NameChange, PIECE_BYTES, Restored, changed_since, read_at};
use super::{Difference, Moments};
use crate::attributes::SetAttributes;
use crate::blocks::{Blocks, Present, Wait};
use crate::changer::Changer;
use crate::error::{ErrorKind, Result, require};
use crate::operations::create::{Create, Special};
use crate::operations::rename::Place;
use crate::permission::Credentials;
use crate::source::Source;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;
use format::share::inode::FileKind;

/// A repair that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes that were written.
    pub bytes: u64,
    /// Objects that came back.
    pub restored: u64,
    /// Names that changed.
    pub names: u64,
}

/// Does a repair as it was planned.
///
/// # Errors
/// `NotSync` if somebody changed what it changes since the plan: plan again. Then, and after
/// every other error, a part of it may have been done: a repair with the same operations does the
/// rest, and one of the cause undoes what was done. Those of planning and of writing.
pub fn apply<P: Present, B: Blocks>(
    difference: &Difference,
    changer: &Changer<'_, P>,
    moments: Moments<'_, B>,
) -> Result<Applied> {
    let mut applying = Applying { changer, moments, applied: Applied::default() };
    for file in &difference.files {
        applying.change_file(file)?;
    }
    if difference.names.is_empty() {
        return Ok(applying.applied);
    }
    let stage = applying.make_stage()?;
    let done = applying.restore_and_name(difference, stage);
    applying.remove_stage(stage)?;
    done?;
    Ok(applying.applied)
}

struct Applying<'a, P, B> {
    changer: &'a Changer<'a, P>,
    moments: Moments<'a, B>,
    applied: Applied,
}

/// One change of a name. Names in the stage are numbers.
#[derive(Clone, Debug)]
enum Step<'a> {
    Out(&'a NameChange, u64),
    In(u64, FileId, &'a [u8]),
    Link(FileId, FileId, &'a [u8]),
    Drop(u64, bool),
}

impl<P: Present, B: Blocks> Applying<'_, P, B> {
    fn change_file(&mut self, file: &FileChange) -> Result<()> {
        let mut last = file.operation;
        let resize = file.size.map(|size| SetAttributes { size: Some(size), ..Default::default() });
        for set in resize.iter() {
            last = self.set(file.id, last, set)?;
        }
        for piece in &file.pieces {
            last = self.copy((file.id, file.id), Some(last), *piece)?;
        }
        for set in file.set.iter() {
            last = self.set(file.id, last, set)?;
        }
        Ok(())
    }

    /// Sets attributes of an object that an operation changed last; the operation that does it.
    fn set(&self, id: FileId, last: u64, set: &SetAttributes) -> Result<u64> {
        self.changer.change(|transaction, caller| {
            require_last(transaction, id, last)?;
            Ok(transaction.set_attributes(caller, id, set, None)?.operation)
        })
    }

    /// Copies a piece of a file as it was into a file; the last operation that does it.
    fn copy(
        &mut self,
        (from, to): (FileId, FileId),
        mut last: Option<u64>,
        (start, end, at): (u64, u64, Option<crate::operation_log::At>),
    ) -> Result<u64> {
        let step = (self.changer.share.write_bytes_max() as u64).min(PIECE_BYTES);
        let mut offset = start;
        while offset < end {
            let next = end.min((offset / step + 1) * step);
            let mut bytes = vec![0; (next - offset) as usize];
            if let Some(at) = at {
                read_at(self.moments, (from, at), offset, &mut bytes)?;
            }
            let bytes = &bytes[..];
            last = Some(self.changer.change(|transaction, caller| {
                if let Some(last) = last {
                    require_last(transaction, to, last)?;
                }
                Ok(transaction.write(caller, to, offset, bytes)?.operation)
            })?);
            self.applied.bytes += next - offset;
            offset = next;
        }
        Ok(last.unwrap_or_default())
    }

    /// The directory in which objects wait for their names; only root looks into it.
    fn make_stage(&self) -> Result<FileId> {
        let name = self.stage_name();
        let mode = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
        self.changer.change(|transaction, caller| {
            let top = transaction.top()?;
            Ok(transaction.make_directory(caller, top, &name, &mode)?.id)
        })
    }

    fn stage_name(&self) -> Vec<u8> {
        format!(".repair-{}", self.changer.cause.number).into_bytes()
    }

    /// Removes it, with what a repair that failed left in it.
    fn remove_stage(&self, stage: FileId) -> Result<()> {
        let name = self.stage_name();
        let left = self.listed(stage)?;
        for name in &left {
            self.changer.change(|transaction, caller| {
                match transaction.remove(caller, stage, name) {
                    Err(error) if error.kind == ErrorKind::IsDirectory => {
                        transaction.remove_directory(caller, stage, name)
                    }
                    done => done,
                }
            })?;
        }
        self.changer.change(|transaction, caller| {
            let top = transaction.top()?;
            transaction.remove_directory(caller, top, &name)
        })
    }

    fn listed(&self, directory: FileId) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let tree = self.changer.share.tree(Wait::May)?;
        tree.read_directory(&Credentials::root(), directory, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        Ok(names)
    }

    fn restore_and_name(&mut self, difference: &Difference, stage: FileId) -> Result<()> {
        let mut made = BTreeMap::new();
        for (index, object) in difference.restored.iter().enumerate() {
            made.insert(object.id, (self.restore(object, stage, index as u64)?, index as u64));
        }
        self.applied.restored = made.len() as u64;
        let steps = steps(difference, &made);
        let mut done = 0;
        while done < steps.len() {
            let from = done;
            done += self.changer.change(|transaction, caller| {
                let mut count = 0;
                for step in &steps[from..] {
                    match step.apply(transaction, caller, stage) {
                        Err(error) if error.kind == ErrorKind::TransactionFull && count > 0 => {
                            break;
                        }
                        applied => applied?,
                    }
                    count += 1;
                }
                Ok(count)
            })?;
        }
        self.applied.names = difference.names.len() as u64;
        Ok(())
    }

    /// Makes an object again, in the stage.
    fn restore(&mut self, object: &Restored, stage: FileId, number: u64) -> Result<FileId> {
        let (name, none) = (number.to_string(), SetAttributes::default());
        let name = name.as_bytes();
        let mut target = Vec::new();
        if object.kind == FileKind::Symlink {
            let past = super::difference::open(self.moments, object.base)?;
            target = past.tree(Wait::May).read_link(object.id)?;
        }
        let (major, minor) = object.device;
        let made = self.changer.change(|transaction, caller| {
            let special = match object.kind {
                FileKind::File => {
                    let how = Create::Guarded(&none);
                    return Ok(transaction.create(caller, stage, name, how)?.id);
                }
                FileKind::Directory => {
                    return Ok(transaction.make_directory(caller, stage, name, &none)?.id);
                }
                FileKind::Symlink => {
                    return Ok(transaction.make_symlink(caller, stage, name, &none, &target)?.id);
                }
                FileKind::Fifo => Special::Fifo,
                FileKind::Socket => Special::Socket,
                FileKind::CharacterDevice => Special::CharacterDevice(major, minor),
                FileKind::BlockDevice => Special::BlockDevice(major, minor),
            };
            Ok(transaction.make_node(caller, stage, name, &none, special)?.id)
        })?;
        if object.kind == FileKind::File {
            let there = object.pieces.iter().filter(|(.., at)| at.is_some());
            for piece in there {
                self.copy((object.id, made), None, *piece)?;
            }
        }
        let size = Some(object.size).filter(|_| object.kind == FileKind::File);
        let set = SetAttributes { size, ..object.set };
        self.changer.change(|transaction, caller| {
            transaction.set_attributes(caller, made, &set, None).map(drop)
        })?;
        Ok(made)
    }
}

/// Fails unless an operation was the last to change an object.
fn require_last<P: Present>(
    transaction: &Transaction<'_, '_, P>,
    id: FileId,
    last: u64,
) -> Result<()> {
    let found = transaction.object(id).map_err(|error| match error.kind {
        ErrorKind::Stale => changed_since(),
        _ => error,
    })?;
    require(found.operation == last, ErrorKind::NotSync)
}

/// The steps from the names as they are to those as they would be: all that change go out of the
/// tree, those that are to be come in, and what is left goes.
fn steps<'a>(difference: &'a Difference, made: &BTreeMap<FileId, (FileId, u64)>) -> Vec<Step<'a>> {
    let first = made.len() as u64;
    let mut steps = Vec::new();
    // The names in the stage that objects have there.
    let mut staged: BTreeMap<FileId, Vec<(u64, bool)>> = BTreeMap::new();
    staged.extend(made.iter().map(|(old, (_, number))| (*old, vec![(*number, false)])));
    for (change, number) in difference.names.iter().zip(first..) {
        let Some((id, kind)) = change.from else { continue };
        steps.push(Step::Out(change, number));
        staged.entry(id).or_default().push((number, kind == FileKind::Directory));
    }
    let now = |id: FileId| made.get(&id).map_or(id, |(new, _)| *new);
    for change in &difference.names {
        let Some(to) = change.to else { continue };
        let (directory, name) = (now(change.key.0), &change.key.1[..]);
        steps.push(match staged.get_mut(&to).and_then(Vec::pop) {
            Some((number, _)) => Step::In(number, directory, name),
            None => Step::Link(now(to), directory, name),
        });
    }
    let left: Vec<(u64, bool)> = staged.into_values().flatten().collect();
    // Directories may hold what goes before them only outside of the stage.
    steps.extend(left.into_iter().map(|(number, is_directory)| Step::Drop(number, is_directory)));
    steps
}

impl Step<'_> {
    fn apply<P: Present>(
        &self,
        transaction: &mut Transaction<'_, '_, P>,
        caller: &Caller<'_>,
        stage: FileId,
    ) -> Result<()> {
        match *self {
            Step::Out(change, number) => {
                let (directory, name) = (change.key.0, &change.key.1[..]);
                let expected = change.from.map(|(id, _)| id);
                let found = transaction.look_up(caller.user, directory, name);
                let is_there = found.is_ok_and(|there| Some(there.id) == expected);
                require(is_there, ErrorKind::NotSync)?;
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
                transaction.link(caller, id, directory, name).map(drop)
            }
            Step::Drop(number, is_directory) => {
                let name = number.to_string();
                if is_directory {
                    transaction.remove_directory(caller, stage, name.as_bytes())
                } else {
                    transaction.remove(caller, stage, name.as_bytes())
                }
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
        Err(error) => Err(error),
        Ok(_) => Err(changed_since()),
    }
}
