//! Answers of a share in the words of NFS: the one function from failures to statuses, attributes,
//! and replies as records.

use share::{Attributes, ErrorKind, FileKind, SetAttributes};
use units::{FileId, Seq, WallTime};
use wire::nfs3::{
    Fattr3, FileHandle, Ftype3, Nfsstat3, Nfstime3, Results, Sattr3, SetTime, Specdata3, WccAttr,
    WccData, encode,
};
use wire::rpc::{self, Accepted, Reply, record};

use super::handles::Handle;
use super::shares::{Opened, answer_words};

const SECOND_NS: u64 = 1_000_000_000;

/// The status of a failure.
pub(crate) fn status(error: &share::Error) -> Nfsstat3 {
    if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Storage) {
        tracing::error!(error = %answer_words(error), "a call failed");
    }
    status_of(error.kind)
}

fn status_of(kind: ErrorKind) -> Nfsstat3 {
    match kind {
        ErrorKind::NotFound => Nfsstat3::NoEnt,
        ErrorKind::Exists => Nfsstat3::Exist,
        ErrorKind::Stale => Nfsstat3::Stale,
        ErrorKind::Access => Nfsstat3::Acces,
        ErrorKind::NotPermitted => Nfsstat3::Perm,
        ErrorKind::NotDirectory => Nfsstat3::NotDir,
        ErrorKind::IsDirectory => Nfsstat3::IsDir,
        ErrorKind::NotEmpty => Nfsstat3::NotEmpty,
        ErrorKind::NameTooLong => Nfsstat3::NameTooLong,
        ErrorKind::TooManyLinks => Nfsstat3::Mlink,
        ErrorKind::FileTooLarge => Nfsstat3::Fbig,
        ErrorKind::NoSpace | ErrorKind::Full => Nfsstat3::NoSpc,
        ErrorKind::NotSync => Nfsstat3::NotSync,
        ErrorKind::Invalid => Nfsstat3::Inval,
        ErrorKind::ReadOnly => Nfsstat3::Rofs,
        ErrorKind::Corrupt | ErrorKind::Storage => Nfsstat3::Io,
        // All of these pass.
        ErrorKind::Unusable
        | ErrorKind::TransactionFull
        | ErrorKind::WouldWait
        | ErrorKind::Lacks(_) => Nfsstat3::Jukebox,
    }
}

/// A share at a moment, as its answers show it.
pub(crate) struct Scope<'s> {
    pub(crate) opened: &'s Opened,
    pub(crate) moment: Option<Seq>,
}

impl Scope<'_> {
    /// The handle of an object.
    pub(crate) fn handle(&self, file: FileId) -> FileHandle {
        self.handle_at(self.moment, file, false)
    }

    /// The handle of an object at another moment, or of the list of moments beside it.
    pub(crate) fn handle_at(
        &self,
        moment: Option<Seq>,
        file: FileId,
        is_moments: bool,
    ) -> FileHandle {
        let volume = self.opened.volume().id();
        let handle = Handle { volume, moment, file, is_moments };
        handle.file_handle(self.opened.share().sign(&handle.signed()))
    }

    /// The attributes of an object.
    pub(crate) fn fattr(&self, attributes: &Attributes) -> Fattr3 {
        let (specdata1, specdata2) = attributes.device;
        Fattr3 {
            ftype: ftype(attributes.kind),
            mode: u32::from(attributes.mode),
            nlink: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            used: attributes.used_bytes,
            rdev: Specdata3 { specdata1, specdata2 },
            fsid: self.opened.volume().id(),
            fileid: Handle::file_number(self.moment, attributes.id.inode, false),
            atime: time(attributes.accessed),
            mtime: time(attributes.modified),
            ctime: time(attributes.changed),
        }
    }

    /// Attributes before and after.
    pub(crate) fn wcc(&self, before: Option<Attributes>, after: Option<Attributes>) -> WccData {
        let before = before.map(|before| WccAttr::from(&self.fattr(&before)));
        WccData { before, after: after.map(|after| self.fattr(&after)) }
    }
}

fn ftype(kind: FileKind) -> Ftype3 {
    match kind {
        FileKind::File => Ftype3::Reg,
        FileKind::Directory => Ftype3::Dir,
        FileKind::Symlink => Ftype3::Lnk,
        FileKind::Fifo => Ftype3::Fifo,
        FileKind::Socket => Ftype3::Sock,
        FileKind::CharacterDevice => Ftype3::Chr,
        FileKind::BlockDevice => Ftype3::Blk,
    }
}

/// A time; those beyond 2106 are the last one that there is.
pub(crate) fn time(time: WallTime) -> Nfstime3 {
    let nanos = time.as_nanos();
    match u32::try_from(nanos / SECOND_NS) {
        Ok(seconds) => Nfstime3 { seconds, nseconds: (nanos % SECOND_NS) as u32 },
        Err(_) => Nfstime3 { seconds: u32::MAX, nseconds: SECOND_NS as u32 - 1 },
    }
}

/// The time that a client named; none if it is no time.
pub(crate) fn wall_time(time: Nfstime3) -> Option<WallTime> {
    let nanos = u64::from(time.seconds) * SECOND_NS + u64::from(time.nseconds);
    time.is_valid().then(|| WallTime::from_nanos(nanos))
}

/// Attributes to be set.
///
/// # Errors
/// `Inval` of a time that is none.
pub(crate) fn set_attributes(set: &Sattr3) -> Result<SetAttributes, Nfsstat3> {
    let time = |how| match how {
        SetTime::DontChange => Ok(None),
        SetTime::ToServerTime => Ok(Some(share::SetTime::Now)),
        SetTime::ToClientTime(time) => {
            wall_time(time).map(|time| Some(share::SetTime::To(time))).ok_or(Nfsstat3::Inval)
        }
    };
    Ok(SetAttributes {
        mode: set.mode.map(|mode| (mode & 0o7777) as u16),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: time(set.atime)?,
        modified: time(set.mtime)?,
    })
}

/// A reply as a record: `fill` puts what stands behind the header.
pub(crate) fn reply(xid: u32, outcome: &Reply, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; rpc::limits::MARK_BYTES];
    rpc::encode::reply(xid, outcome, &mut bytes);
    fill(&mut bytes);
    let mark = record::last_mark(bytes.len() - rpc::limits::MARK_BYTES);
    bytes[..mark.len()].copy_from_slice(&mark);
    bytes
}

/// A reply of a program that has the procedure.
pub(crate) fn success(xid: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    reply(xid, &Reply::Accepted(Accepted::Success), fill)
}

/// A reply with results of NFS.
pub(crate) fn results(xid: u32, results: &Results<'_>) -> Vec<u8> {
    success(xid, |out| encode::results(results, out))
}

#[cfg(test)]
mod tests {
    use units::WallTime;
    use wire::nfs3::Nfstime3;

    use super::{time, wall_time};

    #[test]
    fn times_are_the_same_there_and_back_up_to_the_last_one() {
        let last = u64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 1_795_255_200_123_456_789, last] {
            let wall = WallTime::from_nanos(nanos);
            assert_eq!(wall_time(time(wall)), Some(wall));
        }
        assert_eq!(time(WallTime::from_nanos(last + 1)), time(WallTime::from_nanos(last)));
        assert_eq!(wall_time(Nfstime3 { seconds: 1, nseconds: 1_000_000_000 }), None);
    }
}
