//! Changing attributes: the rules of who may, and what else changes then.

use format::share::inode::{FileKind, InodeBlock};
use format::share::operation::{Operation, Procedure, Set};
use units::{FileId, WallTime};

use crate::attributes::{Attributes, SetAttributes, SetTime, before};
use crate::blocks::Present;
use crate::content_change::resize;
use crate::error::{ErrorKind, Result, require};
use crate::permission::{WRITE, permits};
use crate::source::Source;
use crate::transaction::{Caller, Transaction};
use crate::work::Work;

const SETUID: u16 = 0o4000;
pub(super) const SETGID: u16 = 0o2000;
const EXECUTE_BY_GROUP: u16 = 0o010;

impl<P: Present> Transaction<'_, '_, P> {
    /// Changes attributes, if any are given; with a guard only if the object did not change since
    /// that time.
    ///
    /// # Errors
    /// `Stale`, `NotSync`, `NotPermitted`, `Access`, `IsDirectory` and `Invalid` of a size,
    /// `FileTooLarge`, `NoSpace`; `TransactionFull`; those of reading.
    pub fn set_attributes(
        &mut self,
        caller: &Caller<'_>,
        id: FileId,
        set: &SetAttributes,
        guard: Option<WallTime>,
    ) -> Result<Attributes> {
        self.update(caller, 1, |work| {
            let old = work.layer.object(id)?;
            require(guard.is_none_or(|guard| guard == old.changed), ErrorKind::NotSync)?;
            if *set == SetAttributes::default() {
                return Ok((Attributes::of(id.inode, &old), None));
            }
            if set.size.is_some() {
                work.touched.push(id.inode);
            }
            let mut inode = (*old).clone();
            apply(work, &mut inode, set)?;
            inode.verifier = None;
            let mode = inode.mode;
            work.put(id.inode, inode);
            let record = Operation {
                range: set.size.map(|size| (size, 0)),
                before: Some(before(&old)),
                set: named(set, mode, work.now),
                ..work.record(Procedure::SetAttributes, id)
            };
            Ok((Attributes::of(id.inode, &*work.layer.object(id)?), Some(record)))
        })
    }
}

/// The attributes that are set besides the size, as a record keeps them: of the mode what came of
/// it.
fn named(set: &SetAttributes, mode: u16, now: WallTime) -> Option<Set> {
    let at = |time| match time {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    let named = Set {
        mode: set.mode.map(|_| mode),
        uid: set.uid,
        gid: set.gid,
        accessed: set.accessed.map(at),
        modified: set.modified.map(at),
    };
    Some(named).filter(|named| *named != Set::default())
}

/// Changes the attributes of an inode, which the caller puts back.
///
/// # Errors
/// As [`Transaction::set_attributes`].
pub(super) fn apply(
    work: &mut Work<'_, '_, '_>,
    inode: &mut InodeBlock,
    set: &SetAttributes,
) -> Result<()> {
    let user = work.user;
    let is_owner = user.owns(inode);
    let may_write = is_owner || permits(inode, user, WRITE);
    if let Some(uid) = set.uid {
        require(user.is_root() || is_owner && uid == inode.uid, ErrorKind::NotPermitted)?;
    }
    if let Some(gid) = set.gid {
        let is_theirs = is_owner && (gid == inode.gid || user.is_in(gid));
        require(user.is_root() || is_theirs, ErrorKind::NotPermitted)?;
    }
    require(set.mode.is_none() || is_owner, ErrorKind::NotPermitted)?;
    for time in [set.accessed, set.modified].into_iter().flatten() {
        match time {
            SetTime::To(_) => require(is_owner, ErrorKind::NotPermitted)?,
            SetTime::Now => require(may_write, ErrorKind::Access)?,
        }
    }
    if let Some(size) = set.size {
        require(inode.kind != FileKind::Directory, ErrorKind::IsDirectory)?;
        require(inode.kind == FileKind::File, ErrorKind::Invalid)?;
        require(may_write, ErrorKind::Access)?;
        resize(&mut work.layer, inode, size)?;
        inode.modified = work.now;
        if set.mode.is_none() {
            drop_set_id(work, inode);
        }
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    if let Some(mode) = set.mode {
        let keeps_group = user.is_root() || user.is_in(inode.gid);
        inode.mode = mode & 0o7777 & if keeps_group { !0 } else { !SETGID };
    } else if set.uid.or(set.gid).is_some() && inode.kind != FileKind::Directory {
        inode.mode &= without_set_id(inode.mode);
    }
    let at = |time| match time {
        SetTime::Now => work.now,
        SetTime::To(time) => time,
    };
    inode.accessed = set.accessed.map_or(inode.accessed, at);
    inode.modified = set.modified.map_or(inode.modified, at);
    Ok(())
}

/// A file that somebody changes who is not root no longer runs as another.
pub(super) fn drop_set_id(work: &Work<'_, '_, '_>, inode: &mut InodeBlock) {
    if !work.user.is_root() {
        inode.mode &= without_set_id(inode.mode);
    }
}

/// The bits that stay of a mode: setgid without the right to execute means something else.
pub(crate) fn without_set_id(mode: u16) -> u16 {
    if mode & EXECUTE_BY_GROUP == 0 { !SETUID } else { !(SETUID | SETGID) }
}
