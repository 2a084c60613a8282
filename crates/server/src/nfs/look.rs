//! Calls that change nothing: the same of the present and of the past.

use std::sync::atomic::Ordering;

use share::{Attributes, Error, ErrorKind, Listed, Tree, Wait};
use wire::nfs3::{
    self, Access, AccessOk, Call, CommitOk, DirList, DirOpArgs, Entry3, EntryPlus3, Fail,
    FileHandle, LookupOk, Nfsstat3, PostOpAttr, Procedure, ReadOk, ReadlinkOk, Results, Verifier,
    limits,
};
use wire::rpc;
use wire::xdr::padding;

use super::answer::{results, status, success};
use super::context::NfsContext;
use super::exports::Peer;
use super::file_system::{about_the_file_system, listing};
use super::handles::Handle;
use super::located::{Fault, Located};
use super::{moments, reads};

/// Carries out a call that changes nothing.
///
/// # Errors
/// The call back, if it would have to wait.
pub(crate) fn look(
    context: &NfsContext,
    peer: Peer,
    asked: &rpc::Call<'_>,
    call: &Call<'_>,
    wait: Wait,
) -> Option<Vec<u8>> {
    let (handle, procedure) = subject(call);
    let done = Located::find(context, peer, &asked.credentials, &handle, wait)
        .and_then(|located| answer(context, &located, asked.xid, call, wait));
    match done {
        Ok(bytes) => Some(bytes),
        Err(Fault::WouldWait) if wait == Wait::MayNot => None,
        Err(fault) => {
            context.counters.errors.fetch_add(1, Ordering::Relaxed);
            let status = match fault {
                Fault::WouldWait => Nfsstat3::Jukebox,
                Fault::Status(status) => status,
            };
            Some(results(asked.xid, &Results::failed(procedure, status)))
        }
    }
}

/// The handle that a call is about.
fn subject(call: &Call<'_>) -> (FileHandle, Procedure) {
    match *call {
        Call::Getattr { object } => (object, Procedure::Getattr),
        Call::Lookup { what } => (what.dir, Procedure::Lookup),
        Call::Access { object, .. } => (object, Procedure::Access),
        Call::Readlink { symlink } => (symlink, Procedure::Readlink),
        Call::Read { file, .. } => (file, Procedure::Read),
        Call::Readdir { dir, .. } => (dir, Procedure::Readdir),
        Call::Readdirplus { dir, .. } => (dir, Procedure::Readdirplus),
        Call::Fsstat { fsroot } => (fsroot, Procedure::Fsstat),
        Call::Fsinfo { fsroot } => (fsroot, Procedure::Fsinfo),
        Call::Pathconf { object } => (object, Procedure::Pathconf),
        Call::Commit { file, .. } => (file, Procedure::Commit),
        _ => unreachable!("it changes something"),
    }
}

fn answer(
    context: &NfsContext,
    located: &Located,
    xid: u32,
    call: &Call<'_>,
    wait: Wait,
) -> Result<Vec<u8>, Fault> {
    if located.handle.is_moments {
        return moments::answer(context, located, xid, call, wait);
    }
    if let Call::Lookup { what } = call {
        return look_up(located, xid, *what, wait);
    }
    if let (Call::Read { offset, count, .. }, None) = (call, &located.past) {
        return read(located, xid, wait, *count, |buffer| {
            let id = located.handle.file;
            let read = located.share().read(located.user(), id, *offset, buffer, wait)?;
            let reader = (located.client, located.user(), xid);
            reads::log(&located.opened, reader, (id, &read), wait)?;
            Ok(read)
        });
    }
    let mut verifier = Verifier::default();
    if let (Call::Commit { .. }, None) = (call, &located.past) {
        if wait == Wait::MayNot {
            return Err(Fault::WouldWait);
        }
        // Before the flush: of what a revert takes away meanwhile nobody is told that it is safe.
        verifier = located.share().tree(wait)?.incarnation().to_be_bytes();
        located.opened.volume().flush_while(&|| true).map_err(Error::from)?;
    }
    if matches!(call, Call::Fsstat { .. } | Call::Fsinfo { .. } | Call::Pathconf { .. }) {
        let here = attributes_after(located, wait)?;
        return about_the_file_system(context, located, xid, call, here, wait);
    }
    match &located.past {
        Some(past) => in_tree(located, &past.tree(wait), (xid, verifier), call, wait),
        None => in_tree(located, &located.share().tree(wait)?, (xid, verifier), call, wait),
    }
}

fn in_tree<T: Tree>(
    located: &Located,
    tree: &T,
    (xid, verf): (u32, Verifier),
    call: &Call<'_>,
    wait: Wait,
) -> Result<Vec<u8>, Fault> {
    let (scope, user, id) = (located.scope(), located.user(), located.handle.file);
    let attributes = tree.attributes(id)?;
    let here: PostOpAttr = Some(scope.fattr(&attributes));
    Ok(match *call {
        Call::Getattr { .. } => results(xid, &Results::Getattr(Ok(scope.fattr(&attributes)))),
        Call::Access { access, .. } => {
            let granted = Access(tree.access(user, id)?.0 & access.0 & may(located));
            results(xid, &Results::Access(Ok(AccessOk { obj_attributes: here, access: granted })))
        }
        Call::Readlink { .. } => {
            let target = tree.read_link(id)?;
            let ok = ReadlinkOk { symlink_attributes: here, data: &target };
            results(xid, &Results::Readlink(Ok(ok)))
        }
        Call::Read { offset, count, .. } => {
            return read(located, xid, wait, count, |buffer| {
                Ok(tree.read(user, id, offset, buffer)?)
            });
        }
        Call::Readdir { cookie, count, .. } => {
            let list = DirList::readdir(count);
            list_directory(located, tree, xid, (cookie, list), here, false)?
        }
        Call::Readdirplus { cookie, dircount, maxcount, .. } => {
            let list = DirList::readdirplus(dircount, maxcount);
            list_directory(located, tree, xid, (cookie, list), here, true)?
        }
        Call::Commit { .. } => {
            let file_wcc = scope.wcc(Some(attributes), Some(attributes));
            let ok = CommitOk { file_wcc, verf };
            results(xid, &Results::Commit(Ok(ok)))
        }
        _ => unreachable!("all others are answered"),
    })
}

/// The rights that there can be: in the past nobody changes anything.
fn may(located: &Located) -> u32 {
    let writes = Access::MODIFY.with(Access::EXTEND).with(Access::DELETE).0;
    let is_fixed = located.handle.moment.is_some() || located.admitted.is_read_only;
    if is_fixed { !writes } else { !0 }
}

/// The object of a name, or what a directory shows beside its entries.
fn look_up(located: &Located, xid: u32, what: DirOpArgs<'_>, wait: Wait) -> Result<Vec<u8>, Fault> {
    let scope = located.scope();
    let (directory, found) = match &located.past {
        Some(past) => look_up_in(located, &past.tree(wait), what)?,
        None => look_up_in(located, &located.share().tree(wait)?, what)?,
    };
    // Nothing of the tree is held here: a moment may be opened.
    let found = match found {
        Err(error) if error.kind == ErrorKind::NotFound => {
            let name = what.name.of_any_length();
            moments::look_up_beside(located, &directory, name, wait)?.ok_or(Nfsstat3::NoEnt)
        }
        Err(error) if error.kind == ErrorKind::WouldWait => return Err(Fault::WouldWait),
        Err(error) => Err(status(&error)),
        Ok(found) => Ok(LookupOk {
            object: scope.handle(found.id),
            obj_attributes: Some(scope.fattr(&found)),
            dir_attributes: None,
        }),
    };
    let here = Some(scope.fattr(&directory));
    let found = found.map(|ok| LookupOk { dir_attributes: here, ..ok });
    let found = found.map_err(|status| Fail { status, attributes: here });
    Ok(results(xid, &Results::Lookup(found)))
}

/// The attributes of a directory, and the object of a name in it.
fn look_up_in<T: Tree>(
    located: &Located,
    tree: &T,
    what: DirOpArgs<'_>,
) -> share::Result<(Attributes, share::Result<Attributes>)> {
    let id = located.handle.file;
    let found = match what.name.within_limit() {
        Some(name) => tree.look_up(located.user(), id, name),
        None => Err(Error::from(ErrorKind::NameTooLong)),
    };
    Ok((tree.attributes(id)?, found))
}

fn read(
    located: &Located,
    xid: u32,
    wait: Wait,
    count: u32,
    read: impl FnOnce(&mut [u8]) -> Result<share::ReadBytes, Fault>,
) -> Result<Vec<u8>, Fault> {
    let count = usize::try_from(count)
        .map_or(limits::TRANSFER_BYTES_MAX, |count| count.min(limits::TRANSFER_BYTES_MAX));
    let mut data = vec![0; count];
    let found = read(&mut data)?;
    data.truncate(found.count);
    let attributes = attributes_after(located, wait)?;
    let ok = ReadOk {
        file_attributes: attributes,
        count: u32::try_from(found.count).expect("a READ is short"),
        eof: found.is_end,
    };
    Ok(success(xid, |out| {
        nfs3::encode::results(&Results::Read(Ok(ok)), out);
        out.extend_from_slice(&data);
        out.extend_from_slice(padding(data.len()));
    }))
}

/// The attributes of the object now.
fn attributes_after(located: &Located, wait: Wait) -> Result<PostOpAttr, Fault> {
    let id = located.handle.file;
    let attributes = match &located.past {
        Some(past) => past.tree(wait).attributes(id)?,
        None => located.share().tree(wait)?.attributes(id)?,
    };
    Ok(Some(located.scope().fattr(&attributes)))
}

/// A part of a directory, from a cookie on.
fn list_directory<T: Tree>(
    located: &Located,
    tree: &T,
    xid: u32,
    (cookie, mut list): (u64, DirList),
    dir_attributes: PostOpAttr,
    plus: bool,
) -> Result<Vec<u8>, Fault> {
    let (scope, user, id) = (located.scope(), located.user(), located.handle.file);
    let mut failed = None;
    let is_end = tree.read_directory(user, id, cookie, &mut |listed: Listed<'_>| {
        let fileid = Handle::file_number(located.handle.moment, listed.inode, false);
        let entry = Entry3 { fileid, name: listed.name, cookie: listed.cookie };
        if !plus {
            return list.add(&entry);
        }
        match tree.attributes_of(listed.inode) {
            Ok(attributes) => list.add_plus(&EntryPlus3 {
                entry,
                name_attributes: Some(scope.fattr(&attributes)),
                name_handle: Some(scope.handle(attributes.id)),
            }),
            // The rest of the directory can be listed all the same.
            Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Stale) => {
                list.add_plus(&EntryPlus3 { entry, name_attributes: None, name_handle: None })
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    Ok(listing(xid, list, is_end, dir_attributes, plus))
}
