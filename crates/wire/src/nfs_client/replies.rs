//! Replies to values.

use crate::mount::Mountstat3;
use crate::nfs3::limits::{FILE_HANDLE_BYTES_MAX, PATH_BYTES_MAX};
use crate::nfs3::{
    Access, AccessOk, CommitOk, CreateOk, Fail, Fattr3, FileHandle, FsProperties, FsinfoOk,
    FsstatOk, Ftype3, LinkAttributes, LookupOk, Nfsstat3, Nfstime3, PathconfOk, PostOpAttr,
    Procedure, ReadOk, ReaddirOk, ReadlinkOk, RenameWcc, Res, Results, Specdata3, StableHow,
    WccAttr, WccData, WriteOk,
};
use crate::rpc::limits::AUTH_BYTES_MAX;
use crate::rpc::{Accepted, AuthStat, Denied, Flavor, Reply};
use crate::xdr::{Reader, XdrError};

/// A value that can be read.
pub trait Decode<'a>: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// When the bytes are no such value.
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError>;
}

/// The xid and the reply; the results are left.
///
/// # Errors
/// When the bytes are none.
pub fn rpc_reply(from: &mut Reader<'_>) -> Result<(u32, Reply), XdrError> {
    let xid = from.u32()?;
    from.one_of("reply", |number| (number == 1).then_some(()))?;
    let is_denied = from.bool()?;
    if is_denied {
        let is_auth = from.bool()?;
        let denied = if is_auth {
            Denied::AuthError(from.one_of("auth_stat", AuthStat::from_number)?)
        } else {
            let _versions = [from.u32()?, from.u32()?];
            Denied::RpcMismatch
        };
        return Ok((xid, Reply::Denied(denied)));
    }
    // Its verifier may be of any kind.
    let (_flavor, _verifier) = (from.u32()?, from.opaque(AUTH_BYTES_MAX)?);
    let accepted = match from.u32()? {
        0 => Accepted::Success,
        1 => Accepted::ProgUnavail,
        2 => Accepted::ProgMismatch { low: from.u32()?, high: from.u32()? },
        3 => Accepted::ProcUnavail,
        4 => Accepted::GarbageArgs,
        5 => Accepted::SystemErr,
        value => return Err(XdrError::Value { what: "accept_stat", value }),
    };
    Ok((xid, Reply::Accepted(accepted)))
}

/// The results of MNT.
pub type Mounted = Result<(FileHandle, Vec<Flavor>), Mountstat3>;

/// The results of MNT.
///
/// # Errors
/// When the bytes are none.
pub fn mnt(from: &mut Reader<'_>) -> Result<Mounted, XdrError> {
    let status = from.u32()?;
    if status != 0 {
        let value = XdrError::Value { what: "mountstat3", value: status };
        return Ok(Err(Mountstat3::from_number(status).ok_or(value)?));
    }
    let handle = FileHandle::decode(from)?;
    let count = from.length(16)?;
    let flavors = (0..count).map(|_| from.u32().map(Flavor)).collect::<Result<_, _>>()?;
    Ok(Ok((handle, flavors)))
}

/// A list, and whatever follows it is left.
///
/// # Errors
/// When the bytes are none.
pub fn list<'a, T>(
    from: &mut Reader<'a>,
    mut element: impl FnMut(&mut Reader<'a>) -> Result<T, XdrError>,
) -> Result<Vec<T>, XdrError> {
    let mut elements = Vec::new();
    while let Some(element) = from.optional(&mut element)? {
        elements.push(element);
    }
    Ok(elements)
}

/// An entry of READDIRPLUS; of READDIR it has neither attributes nor handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Number of the file.
    pub fileid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// From where the listing goes on behind it.
    pub cookie: u64,
    /// Its attributes.
    pub attributes: PostOpAttr,
    /// Its handle.
    pub handle: Option<FileHandle>,
}

/// The list behind the results of READDIR or READDIRPLUS: entries, and whether it is the end.
///
/// # Errors
/// When the bytes are none.
pub fn dir_list(bytes: &[u8], is_plus: bool) -> Result<(Vec<Listed>, bool), XdrError> {
    let mut from = Reader::new(bytes);
    let entries = list(&mut from, |from| {
        let (fileid, name, cookie) = (from.u64()?, from.opaque(1024)?.to_vec(), from.u64()?);
        let (attributes, handle) =
            if is_plus { (Decode::decode(from)?, Decode::decode(from)?) } else { (None, None) };
        Ok(Listed { fileid, name, cookie, attributes, handle })
    })?;
    let eof = from.bool()?;
    Ok((entries, eof))
}

/// The results of a call to NFS; the data of READ and lists are left.
///
/// # Errors
/// When the bytes are none.
pub fn results<'a>(procedure: Procedure, from: &mut Reader<'a>) -> Result<Results<'a>, XdrError> {
    Ok(match procedure {
        Procedure::Null => Results::Null,
        Procedure::Getattr => Results::Getattr(Decode::decode(from)?),
        Procedure::Setattr => Results::Setattr(Decode::decode(from)?),
        Procedure::Lookup => Results::Lookup(Decode::decode(from)?),
        Procedure::Access => Results::Access(Decode::decode(from)?),
        Procedure::Readlink => Results::Readlink(Decode::decode(from)?),
        Procedure::Read => Results::Read(Decode::decode(from)?),
        Procedure::Write => Results::Write(Decode::decode(from)?),
        Procedure::Create => Results::Create(Decode::decode(from)?),
        Procedure::Mkdir => Results::Mkdir(Decode::decode(from)?),
        Procedure::Symlink => Results::Symlink(Decode::decode(from)?),
        Procedure::Mknod => Results::Mknod(Decode::decode(from)?),
        Procedure::Remove => Results::Remove(Decode::decode(from)?),
        Procedure::Rmdir => Results::Rmdir(Decode::decode(from)?),
        Procedure::Rename => Results::Rename(Decode::decode(from)?),
        Procedure::Link => Results::Link(Decode::decode(from)?),
        Procedure::Readdir => Results::Readdir(Decode::decode(from)?),
        Procedure::Readdirplus => Results::Readdirplus(Decode::decode(from)?),
        Procedure::Fsstat => Results::Fsstat(Decode::decode(from)?),
        Procedure::Fsinfo => Results::Fsinfo(Decode::decode(from)?),
        Procedure::Pathconf => Results::Pathconf(Decode::decode(from)?),
        Procedure::Commit => Results::Commit(Decode::decode(from)?),
    })
}

macro_rules! read_by {
    ($($name:ty: $from:ident => $value:expr;)+) => { $(
        impl<'a> Decode<'a> for $name {
            fn decode($from: &mut Reader<'a>) -> Result<Self, XdrError> {
                $value
            }
        }
    )+ };
}

macro_rules! read_in_order {
    ($($name:ty { $($field:ident),+ $(,)? })+) => { $(
        impl<'a> Decode<'a> for $name {
            fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
                Ok(Self { $($field: Decode::decode(from)?),+ })
            }
        }
    )+ };
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        from.optional(T::decode)
    }
}

impl<'a, T: Decode<'a>, A: Decode<'a>> Decode<'a> for Res<T, A> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, XdrError> {
        let status = from.u32()?;
        if status == 0 {
            return T::decode(from).map(Ok);
        }
        let value = XdrError::Value { what: "nfsstat3", value: status };
        let status = Nfsstat3::from_number(status).ok_or(value)?;
        Ok(Err(Fail { status, attributes: A::decode(from)? }))
    }
}

read_by! {
    (): _from => Ok(());
    u32: from => from.u32();
    u64: from => from.u64();
    bool: from => from.bool();
    [u8; 8]: from => from.fixed();
    &'a [u8]: from => from.opaque(PATH_BYTES_MAX);
    Access: from => from.u32().map(Access);
    FsProperties: from => from.u32().map(FsProperties);
    FileHandle: from => {
        let bytes = from.opaque(FILE_HANDLE_BYTES_MAX)?;
        Ok(FileHandle::new(bytes).expect("the limit is a handle's"))
    };
    Ftype3: from => from.one_of("ftype3", Ftype3::from_number);
    StableHow: from => from.one_of("stable_how", StableHow::from_number);
    ReadOk: from => {
        let (file_attributes, count) = (Decode::decode(from)?, from.u32()?);
        let eof = from.bool()?;
        if from.u32()? != count {
            return Err(XdrError::Contradiction("the length of the data is not the count"));
        }
        Ok(ReadOk { file_attributes, count, eof })
    };
}

read_in_order! {
    Nfstime3 { seconds, nseconds }
    Specdata3 { specdata1, specdata2 }
    Fattr3 {
        ftype, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime,
    }
    WccAttr { size, mtime, ctime }
    WccData { before, after }
    LookupOk { object, obj_attributes, dir_attributes }
    AccessOk { obj_attributes, access }
    ReadlinkOk<'a> { symlink_attributes, data }
    WriteOk { file_wcc, count, committed, verf }
    CreateOk { obj, obj_attributes, dir_wcc }
    RenameWcc { fromdir_wcc, todir_wcc }
    LinkAttributes { file_attributes, linkdir_wcc }
    ReaddirOk { dir_attributes, cookieverf }
    FsstatOk { obj_attributes, tbytes, fbytes, abytes, tfiles, ffiles, afiles, invarsec }
    FsinfoOk {
        obj_attributes, rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, maxfilesize,
        time_delta, properties,
    }
    PathconfOk {
        obj_attributes, linkmax, name_max, no_trunc, chown_restricted, case_insensitive,
        case_preserving,
    }
    CommitOk { file_wcc, verf }
}
