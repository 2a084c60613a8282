//! Calls that the primary carried out, on the follower.

use share::{
    Caller, Create, Credentials, Error, ErrorKind, Place, Present, SetAttributes, SetTime, Special,
    Transaction, Tree,
};
use units::{FileId, WallTime};
use wire::nfs3::{
    self, Call, CreateHow, DirOpArgs, Fattr3, FileHandle, Ftype3, MknodData, Nfstime3, Results,
    Sattr3,
};
use wire::rpc;

use crate::known::{Found, Known};
use crate::primary::{Object, Primary, Trouble};
use crate::update::{Record, Update};

const SECOND_NS: u64 = 1_000_000_000;

/// Why a record was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The follower is not as it would have to be: it has to be compared.
    #[error("the follower differs")]
    Differs,
    /// Nothing that is followed.
    #[error("another file system, or an object that is left out")]
    Foreign,
    /// It is to end, or has taken long enough.
    #[error("stopped")]
    Stopped,
    /// The share failed.
    #[error(transparent)]
    Share(#[from] Error),
    /// The primary failed.
    #[error(transparent)]
    Primary(#[from] Trouble),
}

/// A time of the primary's.
pub(crate) fn wall_time(time: Nfstime3) -> WallTime {
    let nanos = u64::from(time.nseconds).min(SECOND_NS - 1);
    WallTime::from_nanos(u64::from(time.seconds) * SECOND_NS + nanos)
}

/// Of two writes at once the replies may come in another order; but a file may also have been given
/// a time in the future.
fn latest(reply: WallTime, ours: WallTime) -> WallTime {
    let ahead = ours.as_nanos().saturating_sub(reply.as_nanos());
    if (1..60 * SECOND_NS).contains(&ahead) { ours } else { reply }
}

/// What a new object gets that the primary has with these attributes; its size is a matter of what
/// is written.
pub(crate) fn owned(attributes: &Fattr3) -> SetAttributes {
    SetAttributes {
        mode: Some((attributes.mode & 0o7777) as u16),
        uid: Some(attributes.uid),
        gid: Some(attributes.gid),
        modified: Some(SetTime::To(wall_time(attributes.mtime))),
        ..SetAttributes::default()
    }
}

/// Records that are being carried out in one transaction.
pub(crate) struct Applying<'a, 's, 'd, P> {
    pub(crate) change: &'a mut Transaction<'s, 'd, P>,
    pub(crate) known: &'a mut Known,
    pub(crate) primary: &'a mut Primary,
    pub(crate) now: WallTime,
    /// Bytes that one WRITE may have.
    pub(crate) write_bytes_max: usize,
    /// Bytes of the record that is first that an earlier transaction wrote.
    pub(crate) written: usize,
}

impl<'d, P: Present> Applying<'_, '_, 'd, P> {
    /// Carries out a record, or nothing of it; of a WRITE as much as the transaction has room for.
    pub(crate) fn apply(&mut self, record: &'d Record) -> Result<(), Fault> {
        let Some(update) = record.update() else { return Ok(()) };
        let user = user(&update.asked.credentials);
        let now = self.now;
        let caller = Caller {
            user: &user,
            client: record.client,
            xid: update.asked.xid,
            arguments_crc: 0,
            now,
            cause: None,
            followed_at: Some(update.after().map_or(now, |after| wall_time(after.mtime))),
        };
        match self.update(&caller, &update) {
            Err(Fault::Share(error)) if is_difference(error.kind) => Err(Fault::Differs),
            Err(Fault::Foreign) => {
                self.written = 0;
                Ok(())
            }
            Err(fault) => Err(fault),
            Ok(()) => {
                self.written = 0;
                Ok(())
            }
        }
    }

    fn update(&mut self, caller: &Caller<'_>, update: &Update<'d>) -> Result<(), Fault> {
        match (update.call, update.results) {
            (Call::Setattr { object, new_attributes, .. }, _) => {
                let id = self.find(object)?;
                let set = set(&new_attributes, update.after().as_ref());
                self.change.set_attributes(caller, id, &set, None)?;
                self.own(caller, id, update)?;
            }
            (Call::Write { file, offset, data, .. }, Results::Write(Ok(written))) => {
                let id = self.find(file)?;
                let data = data.get(..written.count as usize).ok_or(Fault::Differs)?;
                let before = self.change.attributes(id)?.modified;
                let followed_at = caller.followed_at.map(|at| latest(at, before));
                let caller = &Caller { followed_at, ..*caller };
                let begun = self.written;
                for piece in data[begun..].chunks(self.write_bytes_max) {
                    let at = offset.checked_add(self.written as u64).ok_or(Fault::Differs)?;
                    self.change.write(caller, id, at, piece)?;
                    self.written += piece.len();
                }
                self.own(caller, id, update)?;
            }
            (Call::Create { place, how }, _) => self.create(caller, &place, &how, update)?,
            (Call::Mkdir { place, .. }, _) => {
                let (dir, name, object) = self.new_place(&place, update)?;
                let set = owned(&object.attributes);
                let made = self.change.make_directory(caller, dir, name, &set)?;
                self.known.is(&object, made.id);
            }
            (Call::Symlink { place, data, .. }, _) => {
                let (dir, name, object) = self.new_place(&place, update)?;
                let set = owned(&object.attributes);
                let target = data.of_any_length();
                let made = self.change.make_symlink(caller, dir, name, &set, target)?;
                self.known.is(&object, made.id);
            }
            (Call::Mknod { place, what }, _) => {
                let (dir, name, object) = self.new_place(&place, update)?;
                let special = special(&what).ok_or(Fault::Differs)?;
                let set = owned(&object.attributes);
                let made = self.change.make_node(caller, dir, name, &set, special)?;
                self.known.is(&object, made.id);
            }
            (Call::Remove { object }, _) => {
                let dir = self.find(object.dir)?;
                self.change.remove(caller, dir, object.name.of_any_length())?;
            }
            (Call::Rmdir { object }, _) => {
                let dir = self.find(object.dir)?;
                self.change.remove_directory(caller, dir, object.name.of_any_length())?;
            }
            (Call::Rename { from, to }, _) => {
                let (from_dir, to_dir) = (self.find(from.dir)?, self.find(to.dir)?);
                let from = Place { directory: from_dir, name: from.name.of_any_length() };
                let to = Place { directory: to_dir, name: to.name.of_any_length() };
                self.change.rename(caller, from, to)?;
            }
            (Call::Link { file, link }, Results::Link(Ok(linked))) => {
                let (id, dir) = (self.find(file)?, self.find(link.dir)?);
                // The time is the directory's.
                let after = linked.linkdir_wcc.after.map(|after| wall_time(after.mtime));
                let caller = &Caller { followed_at: after.or(caller.followed_at), ..*caller };
                self.change.link(caller, id, dir, link.name.of_any_length())?;
            }
            _ => return Err(Fault::Differs),
        }
        Ok(())
    }

    /// Mode and owner are what they came to be: a WRITE may have dropped a bit.
    fn own(&mut self, caller: &Caller<'_>, id: FileId, update: &Update<'_>) -> Result<(), Fault> {
        let Some(after) = update.after() else { return Ok(()) };
        let (ours, set) = (self.change.attributes(id)?, owned(&after));
        if (Some(ours.mode), Some(ours.uid), Some(ours.gid)) != (set.mode, set.uid, set.gid) {
            let set = SetAttributes { modified: None, ..set };
            self.change.set_attributes(caller, id, &set, None)?;
        }
        Ok(())
    }

    /// The object of the follower that is the primary's with a handle.
    fn find(&mut self, handle: FileHandle) -> Result<FileId, Fault> {
        match self.known.find(self.primary, handle)? {
            Found::File(id) => Ok(id),
            Found::Foreign => Err(Fault::Foreign),
            Found::Nothing => Err(Fault::Differs),
        }
    }

    /// Where something is made, and what the primary made there.
    fn new_place(
        &mut self,
        place: &DirOpArgs<'d>,
        update: &Update<'_>,
    ) -> Result<(FileId, &'d [u8], Object), Fault> {
        let Some((Some(handle), Some(attributes))) = update.made() else {
            return Err(Fault::Differs);
        };
        let dir = self.find(place.dir)?;
        match self.known.is_own(&attributes) {
            true => Ok((dir, place.name.of_any_length(), Object { handle, attributes })),
            false => Err(Fault::Foreign),
        }
    }

    /// CREATE may have opened what was there, and cut it.
    fn create(
        &mut self,
        caller: &Caller<'_>,
        place: &DirOpArgs<'d>,
        how: &CreateHow,
        update: &Update<'_>,
    ) -> Result<(), Fault> {
        let (dir, name, object) = self.new_place(place, update)?;
        let there = match self.change.look_up(&Credentials::root(), dir, name) {
            Ok(there) => Some(there.id),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let known = self.known.file(object.attributes.fileid);
        match there {
            None => {
                let set = owned(&object.attributes);
                let made = self.change.create(caller, dir, name, Create::Guarded(&set))?;
                self.known.is(&object, made.id);
                // What it holds was written before by another name, or is not known.
                if object.attributes.size > 0 {
                    return Err(Fault::Differs);
                }
            }
            Some(there) if known == Some(there) => {
                self.known.is(&object, there);
                if let CreateHow::Unchecked(attributes) = how {
                    let set = set(attributes, Some(&object.attributes));
                    self.change.set_attributes(caller, there, &set, None)?;
                }
                // A new one has another number, unless that was given again.
                if self.change.attributes(there)?.size != object.attributes.size {
                    return Err(Fault::Differs);
                }
            }
            Some(_) => return Err(Fault::Differs),
        }
        Ok(())
    }
}

/// A failure by which the follower shows that it is not as the primary was.
fn is_difference(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::NotFound
            | K::Exists
            | K::Stale
            | K::NotDirectory
            | K::IsDirectory
            | K::NotEmpty
            | K::NameTooLong
            | K::TooManyLinks
            | K::FileTooLarge
            | K::Invalid
            | K::NotPermitted
            | K::Access
            | K::NotSync
    )
}

/// The user as the client named it; the primary may have taken it for another.
fn user(credentials: &rpc::Credentials<'_>) -> Credentials {
    match credentials {
        rpc::Credentials::Sys(sys) => {
            Credentials { uid: sys.uid, gid: sys.gid, groups: sys.gids.as_slice().to_vec() }
        }
        _ => Credentials { uid: u32::MAX, gid: u32::MAX, groups: Vec::new() },
    }
}

/// What SETATTR set, as it came to be.
fn set(asked: &Sattr3, after: Option<&Fattr3>) -> SetAttributes {
    let time = |how, after: Option<Nfstime3>| match (how, after) {
        (nfs3::SetTime::DontChange, _) => None,
        (_, Some(after)) => Some(SetTime::To(wall_time(after))),
        (nfs3::SetTime::ToClientTime(time), None) => Some(SetTime::To(wall_time(time))),
        (nfs3::SetTime::ToServerTime, None) => Some(SetTime::Now),
    };
    let is_owned = asked.mode.is_some() || asked.uid.is_some() || asked.gid.is_some();
    let owner = after.filter(|_| is_owned);
    SetAttributes {
        mode: owner.map(|after| (after.mode & 0o7777) as u16).or(asked.mode.map(|m| m as u16)),
        uid: owner.map(|after| after.uid).or(asked.uid),
        gid: owner.map(|after| after.gid).or(asked.gid),
        size: asked.size,
        accessed: time(asked.atime, after.map(|after| after.atime)),
        modified: time(asked.mtime, after.map(|after| after.mtime)),
    }
}

fn special(what: &MknodData) -> Option<Special> {
    Some(match what {
        MknodData::Chr(_, device) => Special::CharacterDevice(device.specdata1, device.specdata2),
        MknodData::Blk(_, device) => Special::BlockDevice(device.specdata1, device.specdata2),
        MknodData::Sock(_) => Special::Socket,
        MknodData::Fifo(_) => Special::Fifo,
        MknodData::Other(_) => return None,
    })
}

/// What a new object of the primary's is made as.
pub(crate) fn special_of(attributes: &Fattr3) -> Option<Special> {
    let (major, minor) = (attributes.rdev.specdata1, attributes.rdev.specdata2);
    match attributes.ftype {
        Ftype3::Chr => Some(Special::CharacterDevice(major, minor)),
        Ftype3::Blk => Some(Special::BlockDevice(major, minor)),
        Ftype3::Sock => Some(Special::Socket),
        Ftype3::Fifo => Some(Special::Fifo),
        Ftype3::Reg | Ftype3::Dir | Ftype3::Lnk => None,
    }
}
