//! Moving a name: RENAME, with all that may be in the way.

use format::share::inode::FileKind;
use format::share::operation::{Operation, Procedure, Target};
use units::{FileId, FileName, Inode};

use crate::attributes::before;
use crate::blocks::Present;
use crate::directory::is_empty;
use crate::error::{Error, ErrorKind, Result, require};
use crate::path::DEPTH_MAX;
use crate::permission::{WRITE, permits};
use crate::source::Source;
use crate::transaction::{Caller, Transaction};
use crate::work::{Named, Work};

/// A directory, and a name in it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory.
    pub directory: FileId,
    /// The name.
    pub name: &'a [u8],
}

impl<P: Present> Transaction<'_, '_, P> {
    /// Moves a name; what has the new one loses it. If both name one object, nothing happens.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `IsDirectory`, `Access`, `NotPermitted`, `NotFound`, `NotEmpty`,
    /// `NameTooLong`, also of more than 4,096 directories, `TooManyLinks`, `NoSpace`;
    /// `Invalid` also if a directory would come into itself; `TransactionFull`; those of reading.
    pub fn rename(&mut self, caller: &Caller<'_>, from: Place<'_>, to: Place<'_>) -> Result<()> {
        let names = (FileName::new(from.name)?, FileName::new(to.name)?);
        self.update(caller, 0, |work| {
            let old = work.directory(from.directory)?;
            let new = work.directory(to.directory)?;
            let source = work.entry(from.directory, &old, names.0)?;
            let source = source.ok_or(Error::from(ErrorKind::NotFound))?;
            let victim = work.entry(to.directory, &new, names.1)?;
            if victim
                .as_ref()
                .is_some_and(|victim| victim.found.object.inode == source.found.object.inode)
            {
                return Ok(((), None));
            }
            work.may_take(&old, &source.inode)?;
            match &victim {
                Some(victim) => work.may_take(&new, &victim.inode)?,
                None => work.may_change(&new)?,
            }
            check_kinds(&source, victim.as_ref())?;
            if source.inode.kind == FileKind::Directory {
                check_move(work, &source, from.directory, to.directory)?;
            }
            move_name(work, &source, victim.as_ref(), (from.directory, to.directory), names.1)?;
            let target = Target { directory: to.directory, victim: victim.as_ref().map(Named::id) };
            let record = Operation {
                other: Some(source.id()),
                target: Some(target),
                before: victim.as_ref().map(|victim| before(&victim.inode)),
                name: from.name,
                new_name: to.name,
                ..work.record(Procedure::Rename, from.directory)
            };
            Ok(((), Some(record)))
        })
    }
}

/// A directory replaces only a directory without entries, and nothing else replaces a directory.
fn check_kinds(source: &Named, victim: Option<&Named>) -> Result<()> {
    let Some(victim) = victim else { return Ok(()) };
    let is_directory = victim.inode.kind == FileKind::Directory;
    if source.inode.kind == FileKind::Directory {
        require(is_directory, ErrorKind::NotDirectory)?;
        return require(is_empty(&victim.inode), ErrorKind::NotEmpty);
    }
    require(!is_directory, ErrorKind::IsDirectory)
}

/// Whether a directory may be moved: not below itself; and elsewhere only by those who may write
/// it, as its `..` changes.
fn check_move(work: &Work<'_, '_, '_>, source: &Named, from: FileId, to: FileId) -> Result<()> {
    if from.inode == to.inode {
        return Ok(());
    }
    let mut above = to.inode;
    // The way up has an end.
    let mut left = DEPTH_MAX;
    while above != Inode::ROOT {
        require(above != source.found.object.inode, ErrorKind::Invalid)?;
        above = work.layer.known(above)?.parent;
        left = left.checked_sub(1).ok_or(Error::from(ErrorKind::NameTooLong))?;
    }
    require(permits(&source.inode, work.user, WRITE), ErrorKind::Access)
}

fn move_name(
    work: &mut Work<'_, '_, '_>,
    source: &Named,
    victim: Option<&Named>,
    (from, to): (FileId, FileId),
    name: FileName<'_>,
) -> Result<()> {
    let kind = source.inode.kind;
    // A directory that is replaced by one leaves the count of its parent's links as it is, but for
    // the link that the moved one takes along.
    work.take(from.inode, source.found.key, kind)?;
    match victim {
        None => work.add(to.inode, name, source.found.object)?,
        Some(victim) => {
            let mut new = work.inode(to.inode)?;
            work.entries(to.inode, &mut new).replace(victim.found.key, source.found.object)?;
            work.put_modified(to.inode, new);
            work.unlink(victim.found.object.inode)?;
        }
    }
    let mut moved = work.inode(source.found.object.inode)?;
    moved.parent = to.inode;
    work.put(source.found.object.inode, moved);
    Ok(())
}
