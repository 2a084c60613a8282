//! Taking names away: REMOVE and RMDIR.

use format::share::inode::FileKind;
use format::share::operation::{Operation, Procedure};
use units::{FileId, FileName, FileNameError};

use crate::attributes::before;
use crate::blocks::Present;
use crate::directory::is_empty;
use crate::error::{Error, ErrorKind, Result, require};
use crate::transaction::{Caller, Transaction};
use crate::work::Named;

impl<P: Present> Transaction<'_, '_, P> {
    /// Takes the name of anything but a directory away; with its last name it goes.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `Access`, `NotPermitted`, `NotFound`, `IsDirectory`, `NameTooLong`,
    /// `Invalid`; `TransactionFull`; those of reading.
    pub fn remove(&mut self, caller: &Caller<'_>, directory: FileId, name: &[u8]) -> Result<()> {
        FileName::new(name)?;
        self.take(caller, directory, name, Procedure::Remove, |there| {
            require(there.inode.kind != FileKind::Directory, ErrorKind::IsDirectory)
        })
    }

    /// Takes a directory without entries away.
    ///
    /// # Errors
    /// As [`Transaction::remove`], but `NotDirectory` of what is none; `NotEmpty`.
    pub fn remove_directory(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
    ) -> Result<()> {
        match FileName::new(name) {
            Err(FileNameError::Dots) if name == b".." => {
                return Err(Error::from(ErrorKind::NotEmpty));
            }
            checked => checked?,
        };
        self.take(caller, directory, name, Procedure::RemoveDirectory, |there| {
            require(there.inode.kind == FileKind::Directory, ErrorKind::NotDirectory)?;
            require(is_empty(&there.inode), ErrorKind::NotEmpty)
        })
    }

    fn take(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        procedure: Procedure,
        check: impl FnOnce(&Named) -> Result<()>,
    ) -> Result<()> {
        self.update(caller, 0, |work| {
            let parent = work.directory(directory)?;
            let there = work.entry(directory, &parent, FileName::new(name)?)?;
            let there = there.ok_or(Error::from(ErrorKind::NotFound))?;
            work.may_take(&parent, &there.inode)?;
            check(&there)?;
            work.take(directory.inode, there.found.key, there.inode.kind)?;
            work.unlink(there.found.object.inode)?;
            let record = Operation {
                other: Some(there.id()),
                before: Some(before(&there.inode)),
                name,
                ..work.record(procedure, directory)
            };
            Ok(((), Some(record)))
        })
    }
}
