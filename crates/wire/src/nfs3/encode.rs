//! Results to bytes.

use super::{
    Access, AccessOk, CommitOk, CreateOk, Entry3, EntryPlus3, Fail, Fattr3, FileHandle,
    FsProperties, FsinfoOk, FsstatOk, LinkAttributes, LookupOk, Nfstime3, PathconfOk, ReadOk,
    ReaddirOk, ReadlinkOk, RenameWcc, Res, Results, Specdata3, WccAttr, WccData, WriteOk,
};
use crate::xdr::{Encode, Writer, fields_in_order};

const NFS3_OK: u32 = 0;

/// The results of a call, behind what `out` holds. Data of READ and the list of READDIR and
/// READDIRPLUS are the caller's.
pub fn results(results: &Results<'_>, out: &mut Vec<u8>) {
    Writer::new(out).put(results);
}

impl<T: Encode, A: Encode> Encode for Res<T, A> {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Ok(ok) => out.put(&NFS3_OK).put(ok),
            Err(Fail { status, attributes }) => out.put(status).put(attributes),
        };
    }
}

impl Encode for FileHandle {
    fn encode(&self, out: &mut Writer<'_>) {
        self.as_bytes().encode(out);
    }
}

impl Encode for Access {
    fn encode(&self, out: &mut Writer<'_>) {
        self.0.encode(out);
    }
}

impl Encode for FsProperties {
    fn encode(&self, out: &mut Writer<'_>) {
        self.0.encode(out);
    }
}

fields_in_order! {
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
    // The second count is the length of the data that follows.
    ReadOk { file_attributes, count, eof, count }
    WriteOk { file_wcc, count, committed, verf }
    CreateOk { obj, obj_attributes, dir_wcc }
    RenameWcc { fromdir_wcc, todir_wcc }
    LinkAttributes { file_attributes, linkdir_wcc }
    ReaddirOk { dir_attributes, cookieverf }
    Entry3<'a> { fileid, name, cookie }
    EntryPlus3<'a> { entry, name_attributes, name_handle }
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
