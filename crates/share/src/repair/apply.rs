//! Doing a repair: content of files that are there, then objects that come back, beside the tree,
//! and at last the names.
//!
//! 1. Names that hang together change in one transaction; what goes through the stage leaves it in
//!    the same. So at any time the stage holds nothing but objects that come back.
//! 2. Each step finds what it changes as the plan saw it, or nothing is changed by it.

use std::collections::BTreeMap;

use format::share::inode::FileKind;
use units::FileId;

use super::content::Piece;
use super::difference::{Difference, FileChange, PIECE_BYTES, Restored};
use super::kinds::Entangled;
use super::moments::{Moments, steps};
use super::steps::{changed_since, parts};
use crate::attributes::SetAttributes;
use crate::blocks::{Blocks, Present, Wait};
use crate::changer::Changer;
use crate::error::{Error, ErrorKind, Result, require};
use crate::operations::create::Like;
use crate::permission::Credentials;
use crate::source::Source;
use crate::transaction::Transaction;
use crate::tree::Tree;

/// Parts of the names that are tried in one transaction.
const PARTS_MAX: usize = 1000;

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

/// Does a repair as it was planned, as long as `goes_on`.
///
/// # Errors
/// `NotSync` if somebody changed what it changes since the plan: plan again. Then, and after
/// every other error, a part of it may have been done: all of that has the cause. `Unusable` if it
/// is not to go on. Those of planning and of writing.
pub fn apply<P: Present, B: Blocks>(
    difference: &Difference,
    changer: &Changer<'_, P>,
    moments: &Moments<'_, B>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Applied> {
    let mut applying = Applying { changer, moments, goes_on, applied: Applied::default() };
    for file in &difference.files {
        applying.change_file(file)?;
    }
    if difference.names.is_empty() {
        return Ok(applying.applied);
    }
    let stage = applying.make_stage()?;
    let done = applying.restore_and_name(difference, stage);
    let removed = applying.remove_stage(stage);
    done?;
    removed?;
    Ok(applying.applied)
}

struct Applying<'a, P, B> {
    changer: &'a Changer<'a, P>,
    moments: &'a Moments<'a, B>,
    goes_on: &'a dyn Fn() -> bool,
    applied: Applied,
}

impl<P: Present, B: Blocks> Applying<'_, P, B> {
    fn check(&self) -> Result<()> {
        require((self.goes_on)(), ErrorKind::Unusable)
    }

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

    /// Copies a piece of a file as it was into a file that an operation changed last, or into a new
    /// one, which is all zeros; the last operation that does it.
    fn copy(
        &mut self,
        (from, to): (FileId, FileId),
        mut last: Option<u64>,
        (start, end, at): Piece,
    ) -> Result<u64> {
        let step = (self.changer.share.write_bytes_max() as u64).min(PIECE_BYTES);
        let mut offset = start;
        while offset < end {
            self.check()?;
            let next = end.min((offset / step + 1) * step);
            let mut bytes = vec![0; (next - offset) as usize];
            self.moments.read((from, at), offset, &mut bytes)?;
            let is_hole = last.is_none() && bytes.iter().all(|byte| *byte == 0);
            let bytes = &bytes[..];
            if !is_hole {
                let is_new = last.is_none();
                let done = self.changer.change(|transaction, caller| {
                    if let Some(last) = last {
                        require_last(transaction, to, last)?;
                    }
                    Ok(transaction.write(caller, to, offset, bytes)?.operation)
                })?;
                last = Some(done).filter(|_| !is_new);
                self.applied.bytes += next - offset;
            }
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

    /// Nobody can take the name before: it cannot be guessed.
    fn stage_name(&self) -> Vec<u8> {
        let number = self.changer.cause.number;
        let mark = self.changer.share.sign(&[b"repair", &number.to_le_bytes()[..]].concat());
        format!(".repair-{number}-{mark:016x}").into_bytes()
    }

    /// Removes it, with objects that came back and did not get their names.
    fn remove_stage(&self, stage: FileId) -> Result<()> {
        let name = self.stage_name();
        for name in &self.listed(stage)? {
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
            self.check()?;
            made.insert(object.id, (self.restore(object, stage, index as u64)?, index as u64));
        }
        let parts = parts(&difference.names, &made);
        let (mut rest, mut most) = (&parts[..], PARTS_MAX);
        while !rest.is_empty() {
            self.check()?;
            let (some, after) = rest.split_at(most.min(rest.len()));
            let done = self.changer.change(|transaction, caller| {
                let mut steps = some.iter().flatten();
                steps.try_for_each(|step| step.apply(transaction, caller, stage))
            });
            match done {
                Ok(()) => rest = after,
                // It left nothing: fewer at a time.
                Err(error) if error.kind == ErrorKind::TransactionFull && some.len() > 1 => {
                    most = some.len() / 2;
                }
                Err(error) if error.kind == ErrorKind::TransactionFull => {
                    return Err(Error::with_source(ErrorKind::Invalid, Entangled::Names));
                }
                Err(error) => return Err(error),
            }
        }
        self.applied.restored = made.len() as u64;
        self.applied.names = difference.names.len() as u64;
        Ok(())
    }

    /// Makes an object again, in the stage.
    fn restore(&mut self, object: &Restored, stage: FileId, number: u64) -> Result<FileId> {
        let (name, none) = (number.to_string(), SetAttributes::default());
        let name = name.as_bytes();
        let mut target = Vec::new();
        if object.kind == FileKind::Symlink {
            let past = self.moments.open(object.base)?;
            target = past.tree(Wait::May).read_link(object.id)?;
        }
        let like = Like { kind: object.kind, target: &target, device: object.device };
        let made = self.changer.change(|transaction, caller| {
            Ok(transaction.make_like(caller, stage, name, &none, like)?.id)
        })?;
        if object.kind == FileKind::File {
            for (start, end, at) in object.pieces.iter().filter(|(.., at)| at.is_some()) {
                for (start, end) in steps(*start, *end) {
                    if self.moments.has_data((object.id, *at), start, end)? {
                        self.copy((object.id, made), None, (start, end, *at))?;
                    }
                }
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
pub(super) fn require_last<P: Present>(
    transaction: &Transaction<'_, '_, P>,
    id: FileId,
    last: u64,
) -> Result<()> {
    let found = transaction.object(id).map_err(changed_since)?;
    require(found.operation == last, ErrorKind::NotSync)
}
