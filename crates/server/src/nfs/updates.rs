//! Calls that change something: those that a session received together, of one share, are one
//! transaction, or as few as it takes.
//!
//! Invariants
//! 1. A call is answered only after its transaction is written, and flushed if it asked for that.
//! 2. A transaction that could not be written because something has to be waited for is made again
//!    from its calls: nothing of it was written, and nobody was answered.

#![expect(clippy::result_large_err, reason = "failures carry attributes as successes do")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use share::{
    Attributes, Caller, Create, Credentials, Error, ErrorKind, Lack, Place, SetAttributes, Special,
    Transaction, Tree, VolumeBlocks, Wait,
};
use units::FileId;
use volume::Metadata;
use wire::nfs3::{
    self, Call, CreateHow, CreateOk, DirOpArgs, Fail, FileHandle, LinkAttributes, MknodData,
    Nfsstat3, Procedure, RenameWcc, Results, StableHow, WccData, WriteOk,
};
use wire::rpc;

use super::answer::{Scope, results, set_attributes, status, wall_time};
use super::context::NfsContext;
use super::earlier::Done;
use super::exports::Peer;
use super::handles::Handle;
use super::located::{Fault, admitted};
use super::moments::LIST_NAME;
use super::replay::Entered;
use super::shares::Opened;
use crate::attach::VolumeId;

type Change<'s, 'd> = Transaction<'s, 'd, VolumeBlocks>;

/// A call as it was received.
pub(crate) struct Update {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) body: Range<usize>,
    /// Its entry in the duplicate request cache.
    pub(crate) entered: Entered,
    pub(crate) arguments_crc: u32,
}

/// Calls of one client that change one share, in the order in which they came.
pub(crate) struct Batch {
    pub(crate) peer: Peer,
    pub(crate) volume: VolumeId,
    /// Those that are not answered.
    pub(crate) updates: VecDeque<Update>,
}

/// How far a batch came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// All of it is answered.
    Through,
    /// It has to wait for a device, or for somebody else.
    ToAWait,
    /// Its share's volume has to have this first.
    ToALack(Lack),
}

/// A call, decoded.
struct Decoded<'d> {
    asked: rpc::Call<'d>,
    call: Call<'d>,
    procedure: Procedure,
    subject: FileHandle,
}

/// The procedure of a call that changes something, and its first handle; none of others.
pub(crate) fn subject(call: &Call<'_>) -> Option<(Procedure, FileHandle)> {
    Some(match *call {
        Call::Setattr { object, .. } => (Procedure::Setattr, object),
        Call::Write { file, .. } => (Procedure::Write, file),
        Call::Create { place, .. } => (Procedure::Create, place.dir),
        Call::Mkdir { place, .. } => (Procedure::Mkdir, place.dir),
        Call::Symlink { place, .. } => (Procedure::Symlink, place.dir),
        Call::Mknod { place, .. } => (Procedure::Mknod, place.dir),
        Call::Remove { object } => (Procedure::Remove, object.dir),
        Call::Rmdir { object } => (Procedure::Rmdir, object.dir),
        Call::Rename { from, .. } => (Procedure::Rename, from.dir),
        Call::Link { file, .. } => (Procedure::Link, file),
        _ => return None,
    })
}

impl Batch {
    /// Carries out as much of it as can be. Answers go to `out`; the number of those that say no.
    pub(crate) fn go_on(
        &mut self,
        context: &NfsContext,
        wait: Wait,
        goes_on: &dyn Fn() -> bool,
        out: &mut Vec<u8>,
    ) -> (Came, u64) {
        let mut errors = 0;
        while !self.updates.is_empty() {
            let (came, answers) = self.transact(context, wait, goes_on);
            let answered = answers.len();
            for (update, answer) in self.updates.drain(..answered).zip(answers) {
                errors += u64::from(answer.is_error);
                match answer.holds {
                    true => update.entered.answer(&answer.bytes),
                    false => update.entered.pass(&answer.bytes),
                }
                out.extend_from_slice(&answer.bytes);
            }
            if came != Came::Through {
                return (came, errors);
            }
        }
        (Came::Through, errors)
    }

    /// All that is left fails.
    pub(crate) fn fail(&mut self, status: Nfsstat3, out: &mut Vec<u8>) -> u64 {
        let count = self.updates.len() as u64;
        for update in self.updates.drain(..) {
            let answer = failure(&decode(&update), status);
            out.extend_from_slice(&answer.bytes);
            update.entered.pass(&answer.bytes);
        }
        count
    }

    /// Makes one transaction of the calls from the first on; the answers to those in it.
    fn transact(
        &self,
        context: &NfsContext,
        wait: Wait,
        goes_on: &dyn Fn() -> bool,
    ) -> (Came, Vec<Answer>) {
        let decoded: Vec<Decoded<'_>> = self.updates.iter().map(decode).collect();
        let nobody = |status| decoded.iter().map(|call| failure(call, status)).collect();
        let opened = match (context.shares.opened(self.volume), wait) {
            (Some(opened), _) => opened,
            (None, Wait::MayNot) => return (Came::ToAWait, Vec::new()),
            (None, Wait::May) => match context.shares.open(self.volume) {
                Ok(opened) => opened,
                Err(error) => return (Came::Through, nobody(status(&error))),
            },
        };
        let is_flushed = is_flushed(&opened, &decoded);
        if is_flushed && wait == Wait::MayNot {
            return (Came::ToAWait, Vec::new());
        }
        match self.commit(context, &opened, &decoded, wait) {
            Ok(answers) => {
                // Those that fail have changed nothing.
                let is_flushed = is_flushed && answers.iter().any(|answer| !answer.is_error);
                let flushed = match is_flushed {
                    true => opened.volume().flush_while(goes_on).map_err(Error::from),
                    false => Ok(()),
                };
                match flushed {
                    Ok(()) => (Came::Through, answers),
                    Err(error) => {
                        let status = status(&error);
                        let failed = decoded[..answers.len()].iter();
                        (Came::Through, failed.map(|call| failure(call, status)).collect())
                    }
                }
            }
            Err((_, error)) if error.kind == ErrorKind::WouldWait && wait == Wait::MayNot => {
                (Came::ToAWait, Vec::new())
            }
            Err((count, error)) => match error.kind {
                ErrorKind::Lacks(lack) => (Came::ToALack(lack), Vec::new()),
                _ => {
                    let status = status(&error);
                    let failed = decoded[..count].iter().map(|call| failure(call, status));
                    (Came::Through, failed.collect())
                }
            },
        }
    }

    /// Applies calls until the transaction is full, and writes it. If that fails: how many calls
    /// were in it.
    fn commit(
        &self,
        context: &NfsContext,
        opened: &Opened,
        decoded: &[Decoded<'_>],
        wait: Wait,
    ) -> Result<Vec<Answer>, (usize, Error)> {
        let all = decoded.len();
        let begun = match wait {
            Wait::May => opened.share().begin(wait).map(Some),
            Wait::MayNot => opened.share().try_begin(wait),
        };
        let begun = begun.map_err(|error| (all, error))?;
        let mut change = begun.ok_or((all, Error::from(ErrorKind::WouldWait)))?;
        let (now, verifier) = (opened.volume().now(), change.incarnation());
        let mut answers = Vec::new();
        for (call, update) in decoded.iter().zip(&self.updates) {
            let applied = self.object(context, opened, call).map_err(Fault::Status);
            let applied = applied.and_then(|(id, user)| {
                let caller = Caller {
                    user: &user,
                    client: self.peer.client(),
                    xid: call.asked.xid,
                    arguments_crc: update.arguments_crc,
                    now,
                    cause: None,
                    followed_at: None,
                };
                let mut applying = Applying {
                    change: &mut change,
                    scope: Scope { opened, moment: None },
                    caller,
                    verifier: verifier.to_be_bytes(),
                    stopped: None,
                };
                let earlier = opened.earlier().find(&applying.caller, call.procedure);
                let results = match earlier {
                    Some(done) => applying.again(&done, &call.call),
                    None => applying.apply(id, &call.call),
                };
                match applying.stopped {
                    Some(kind) => Err(Fault::from(Error::from(kind))),
                    None => Ok(results),
                }
            });
            match applied {
                Ok(results) => answers.push(Answer::of(call, &results)),
                Err(Fault::WouldWait) => {
                    return Err((answers.len() + 1, Error::from(ErrorKind::WouldWait)));
                }
                // It is the first of the next one.
                Err(Fault::Status(Nfsstat3::Jukebox)) if change.operations() > 0 => break,
                Err(Fault::Status(status)) => answers.push(failure(call, status)),
            }
        }
        let count = answers.len();
        change.commit().map_err(|error| (count, error))?;
        Ok(answers)
    }

    /// The object that a call is about, if its sender may change it, and as whom.
    fn object(
        &self,
        context: &NfsContext,
        opened: &Opened,
        call: &Decoded<'_>,
    ) -> Result<(FileId, Credentials), Nfsstat3> {
        let (handle, hash) = Handle::read(&call.subject).ok_or(Nfsstat3::BadHandle)?;
        let admitted = admitted(opened, (&handle, hash), self.peer, &call.asked.credentials)?;
        let is_follower = context.shares.is_follower(self.volume);
        let is_past = handle.moment.is_some() || handle.is_moments;
        if is_past || admitted.is_read_only || is_follower {
            return Err(Nfsstat3::Rofs);
        }
        Ok((handle.file, admitted.user))
    }
}

/// A reply, as a record.
struct Answer {
    bytes: Vec<u8>,
    is_error: bool,
    /// The same call gets it again.
    holds: bool,
}

impl Answer {
    fn of(call: &Decoded<'_>, of: &Results<'_>) -> Answer {
        let bytes = results(call.asked.xid, of);
        Answer { bytes, is_error: is_error(of), holds: true }
    }
}

fn failure(call: &Decoded<'_>, status: Nfsstat3) -> Answer {
    let bytes = results(call.asked.xid, &Results::failed(call.procedure, status));
    let passes = matches!(status, Nfsstat3::Jukebox | Nfsstat3::Io | Nfsstat3::NoSpc);
    Answer { bytes, is_error: true, holds: !passes }
}

fn decode(update: &Update) -> Decoded<'_> {
    let body = &update.bytes[update.body.clone()];
    let asked = rpc::decode::call(body).expect("it was decoded before");
    let call = nfs3::decode::call(asked.procedure, asked.arguments).expect("it was decoded before");
    let (procedure, subject) = subject(&call).expect("it changes something");
    Decoded { asked, call, procedure, subject }
}

/// Whether the answers have to wait for a flush.
fn is_flushed(opened: &Opened, decoded: &[Decoded<'_>]) -> bool {
    let metadata = opened.volume().share().map(|setting| setting.metadata);
    decoded.iter().any(|decoded| match decoded.call {
        Call::Write { stable, .. } => stable != StableHow::Unstable,
        _ => metadata != Some(Metadata::Server),
    })
}

fn is_error(results: &Results<'_>) -> bool {
    match results {
        Results::Setattr(res) => res.is_err(),
        Results::Write(res) => res.is_err(),
        Results::Create(res)
        | Results::Mkdir(res)
        | Results::Symlink(res)
        | Results::Mknod(res) => res.is_err(),
        Results::Remove(res) | Results::Rmdir(res) => res.is_err(),
        Results::Rename(res) => res.is_err(),
        Results::Link(res) => res.is_err(),
        _ => unreachable!("it changes nothing"),
    }
}

/// A call that is being applied.
struct Applying<'a, 's, 'd> {
    change: &'a mut Change<'s, 'd>,
    scope: Scope<'a>,
    caller: Caller<'a>,
    verifier: nfs3::Verifier,
    /// It did not come to results for this.
    stopped: Option<ErrorKind>,
}

impl<'d> Applying<'_, '_, 'd> {
    fn apply(&mut self, id: FileId, call: &Call<'d>) -> Results<'static> {
        match *call {
            Call::Setattr { new_attributes, guard, .. } => {
                let done = self.around(id, |change, caller| {
                    let set = set_attributes(&new_attributes)?;
                    let guard = guard.map(|g| wall_time(g).ok_or(Nfsstat3::Inval)).transpose()?;
                    Ok(change.set_attributes(caller, id, &set, guard)?)
                });
                Results::Setattr(done.map(|(_, wcc)| wcc))
            }
            Call::Write { offset, stable, data, .. } => {
                Results::Write(self.write(id, offset, stable, data))
            }
            Call::Create { place, how } => {
                Results::Create(self.make(id, place, |c, caller, name| {
                    let set;
                    let how = match how {
                        CreateHow::Unchecked(ref attributes) => {
                            set = set_attributes(attributes)?;
                            Create::Unchecked(&set)
                        }
                        CreateHow::Guarded(ref attributes) => {
                            set = set_attributes(attributes)?;
                            Create::Guarded(&set)
                        }
                        CreateHow::Exclusive(verifier) => Create::Exclusive(verifier),
                    };
                    Ok(c.create(caller, id, name, how)?)
                }))
            }
            Call::Mkdir { place, attributes } => {
                Results::Mkdir(self.make(id, place, |c, caller, name| {
                    Ok(c.make_directory(caller, id, name, &set_attributes(&attributes)?)?)
                }))
            }
            Call::Symlink { place, attributes, data } => {
                Results::Symlink(self.make(id, place, |c, caller, name| {
                    let target = data.within_limit().ok_or(Nfsstat3::NameTooLong)?;
                    Ok(c.make_symlink(caller, id, name, &set_attributes(&attributes)?, target)?)
                }))
            }
            Call::Mknod { place, what } => {
                Results::Mknod(self.make(id, place, |c, caller, name| {
                    let (set, special) = special(&what)?;
                    Ok(c.make_node(caller, id, name, &set, special)?)
                }))
            }
            Call::Remove { object } => {
                let remove = |c: &mut Change<'_, 'd>, caller: &Caller<'_>, name: &[u8]| {
                    c.remove(caller, id, name)
                };
                Results::Remove(self.take(id, object, remove))
            }
            Call::Rmdir { object } => {
                let remove = |c: &mut Change<'_, 'd>, caller: &Caller<'_>, name: &[u8]| {
                    c.remove_directory(caller, id, name)
                };
                Results::Rmdir(self.take(id, object, remove))
            }
            Call::Rename { from, to } => Results::Rename(self.rename(id, from, to)),
            Call::Link { link, .. } => Results::Link(self.link(id, link)),
            _ => unreachable!("it changes something"),
        }
    }

    /// The answer to a call that an earlier server carried out.
    fn again(&self, done: &Done, call: &Call<'_>) -> Results<'static> {
        let wcc = |id| self.scope.wcc(None, self.attributes(id));
        let of_other = || {
            let found = done.other.and_then(|id| self.attributes(id));
            found.map(|found| self.scope.fattr(&found))
        };
        let made = || {
            let obj = done.other.map(|id| self.scope.handle(id));
            Ok(CreateOk { obj, obj_attributes: of_other(), dir_wcc: wcc(done.object) })
        };
        match call {
            Call::Setattr { .. } => Results::Setattr(Ok(wcc(done.object))),
            Call::Create { .. } => Results::Create(made()),
            Call::Mkdir { .. } => Results::Mkdir(made()),
            Call::Symlink { .. } => Results::Symlink(made()),
            Call::Mknod { .. } => Results::Mknod(made()),
            Call::Remove { .. } => Results::Remove(Ok(wcc(done.object))),
            Call::Rmdir { .. } => Results::Rmdir(Ok(wcc(done.object))),
            Call::Rename { .. } => {
                let todir_wcc = done.to.map(wcc).unwrap_or_default();
                Results::Rename(Ok(RenameWcc { fromdir_wcc: wcc(done.object), todir_wcc }))
            }
            Call::Link { .. } => Results::Link(Ok(LinkAttributes {
                file_attributes: of_other(),
                linkdir_wcc: wcc(done.object),
            })),
            _ => unreachable!("a WRITE is none of an earlier server's"),
        }
    }

    /// The status of a failure, unless it means that the transaction ends before this call.
    fn status(&mut self, fault: Refused) -> Nfsstat3 {
        match fault {
            Refused::Status(status) => status,
            Refused::Share(error) => {
                let kind = error.kind;
                if matches!(kind, ErrorKind::WouldWait | ErrorKind::TransactionFull) {
                    self.stopped = Some(kind);
                }
                status(&error)
            }
        }
    }

    /// Does something to an object, and says its attributes before and after.
    fn around<T>(
        &mut self,
        id: FileId,
        apply: impl FnOnce(&mut Change<'_, 'd>, &Caller<'_>) -> Result<T, Refused>,
    ) -> Result<(T, WccData), Fail<WccData>> {
        let before = self.attributes(id);
        let applied = apply(self.change, &self.caller);
        let attributes = self.scope.wcc(before, self.attributes(id));
        match applied {
            Ok(value) => Ok((value, attributes)),
            Err(fault) => Err(Fail { status: self.status(fault), attributes }),
        }
    }

    fn attributes(&self, id: FileId) -> Option<Attributes> {
        self.change.attributes(id).ok()
    }

    fn write(
        &mut self,
        id: FileId,
        offset: u64,
        stable: StableHow,
        data: &'d [u8],
    ) -> Result<WriteOk, Fail<WccData>> {
        // A client may give more than it was told; the rest it writes then.
        let data = &data[..data.len().min(self.scope.opened.share().write_bytes_max())];
        let verf = self.verifier;
        let (_, file_wcc) =
            self.around(id, |change, caller| Ok(change.write(caller, id, offset, data)?))?;
        let committed = match stable {
            StableHow::Unstable => StableHow::Unstable,
            StableHow::DataSync | StableHow::FileSync => StableHow::FileSync,
        };
        let count = u32::try_from(data.len()).expect("a WRITE is short");
        Ok(WriteOk { file_wcc, count, committed, verf })
    }

    /// Makes an object in a directory.
    fn make(
        &mut self,
        id: FileId,
        place: DirOpArgs<'d>,
        make: impl FnOnce(&mut Change<'_, 'd>, &Caller<'_>, &[u8]) -> Result<Attributes, Refused>,
    ) -> Result<CreateOk, Fail<WccData>> {
        let (made, dir_wcc) =
            self.around(id, |change, caller| make(change, caller, new_name(place)?))?;
        Ok(CreateOk {
            obj: Some(self.scope.handle(made.id)),
            obj_attributes: Some(self.scope.fattr(&made)),
            dir_wcc,
        })
    }

    /// Takes a name away from a directory.
    fn take(
        &mut self,
        id: FileId,
        object: DirOpArgs<'d>,
        take: impl FnOnce(&mut Change<'_, 'd>, &Caller<'_>, &[u8]) -> share::Result<()>,
    ) -> Result<WccData, Fail<WccData>> {
        let done = self.around(id, |change, caller| Ok(take(change, caller, name(object)?)?));
        done.map(|((), wcc)| wcc)
    }

    /// The object of another handle of the same call: of the present of the same share.
    fn second(&self, handle: &FileHandle) -> Result<FileId, Refused> {
        let (handle, hash) = Handle::read(handle).ok_or(Nfsstat3::BadHandle)?;
        let opened = self.scope.opened;
        if handle.volume != opened.volume().id() {
            return Err(Refused::Status(Nfsstat3::Xdev));
        }
        if opened.share().sign(&handle.signed()) != hash {
            return Err(Refused::Status(Nfsstat3::Stale));
        }
        if handle.moment.is_some() || handle.is_moments {
            return Err(Refused::Status(Nfsstat3::Rofs));
        }
        Ok(handle.file)
    }

    fn rename(
        &mut self,
        id: FileId,
        from: DirOpArgs<'d>,
        to: DirOpArgs<'d>,
    ) -> Result<RenameWcc, Fail<RenameWcc>> {
        let second = self.second(&to.dir);
        let before = second.as_ref().ok().and_then(|id| self.attributes(*id));
        let other = second.as_ref().ok().copied();
        let done = self.around(id, |change, caller| {
            let from = Place { directory: id, name: name(from)? };
            let to = Place { directory: second?, name: new_name(to)? };
            Ok(change.rename(caller, from, to)?)
        });
        let todir_wcc = self.scope.wcc(before, other.and_then(|id| self.attributes(id)));
        match done {
            Ok(((), fromdir_wcc)) => Ok(RenameWcc { fromdir_wcc, todir_wcc }),
            Err(Fail { status, attributes: fromdir_wcc }) => {
                Err(Fail { status, attributes: RenameWcc { fromdir_wcc, todir_wcc } })
            }
        }
    }

    fn link(
        &mut self,
        id: FileId,
        link: DirOpArgs<'d>,
    ) -> Result<LinkAttributes, Fail<LinkAttributes>> {
        let directory = match self.second(&link.dir) {
            Ok(directory) => directory,
            Err(fault) => {
                let status = self.status(fault);
                return Err(Fail { status, attributes: LinkAttributes::default() });
            }
        };
        let done = self.around(directory, |change, caller| {
            Ok(change.link(caller, id, directory, new_name(link)?)?)
        });
        let file_attributes = self.attributes(id).map(|found| self.scope.fattr(&found));
        match done {
            Ok((_, linkdir_wcc)) => Ok(LinkAttributes { file_attributes, linkdir_wcc }),
            Err(Fail { status, attributes: linkdir_wcc }) => {
                Err(Fail { status, attributes: LinkAttributes { file_attributes, linkdir_wcc } })
            }
        }
    }
}

/// Why a call fails.
enum Refused {
    Share(Error),
    Status(Nfsstat3),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Share(error)
    }
}

impl From<Nfsstat3> for Refused {
    fn from(status: Nfsstat3) -> Refused {
        Refused::Status(status)
    }
}

fn name(of: DirOpArgs<'_>) -> Result<&[u8], Nfsstat3> {
    of.name.within_limit().ok_or(Nfsstat3::NameTooLong)
}

/// A name that an entry may get: the list of moments has one that nobody else gets.
fn new_name(of: DirOpArgs<'_>) -> Result<&[u8], Nfsstat3> {
    let name = name(of)?;
    if name == LIST_NAME { Err(Nfsstat3::Acces) } else { Ok(name) }
}

fn special(what: &MknodData) -> Result<(SetAttributes, Special), Nfsstat3> {
    Ok(match what {
        MknodData::Chr(set, device) => {
            (set_attributes(set)?, Special::CharacterDevice(device.specdata1, device.specdata2))
        }
        MknodData::Blk(set, device) => {
            (set_attributes(set)?, Special::BlockDevice(device.specdata1, device.specdata2))
        }
        MknodData::Sock(set) => (set_attributes(set)?, Special::Socket),
        MknodData::Fifo(set) => (set_attributes(set)?, Special::Fifo),
        MknodData::Other(_) => return Err(Nfsstat3::BadType),
    })
}
