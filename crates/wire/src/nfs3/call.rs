//! Calls: procedures and their arguments (3.3).

use super::types::{Access, FileHandle, Name, Nfspath3, Nfstime3, Specdata3, StableHow, Verifier};
use crate::xdr::numbered;

numbered! {
    /// The procedures.
    Procedure {
        Null = 0, "NULL", "nothing";
        Getattr = 1, "GETATTR", "the attributes of a file";
        Setattr = 2, "SETATTR", "sets attributes";
        Lookup = 3, "LOOKUP", "the handle of a name";
        Access = 4, "ACCESS", "who may do what";
        Readlink = 5, "READLINK", "the text of a symbolic link";
        Read = 6, "READ", "reads data";
        Write = 7, "WRITE", "writes data";
        Create = 8, "CREATE", "makes a regular file";
        Mkdir = 9, "MKDIR", "makes a directory";
        Symlink = 10, "SYMLINK", "makes a symbolic link";
        Mknod = 11, "MKNOD", "makes a file of another type";
        Remove = 12, "REMOVE", "removes a name";
        Rmdir = 13, "RMDIR", "removes an empty directory";
        Rename = 14, "RENAME", "moves a name";
        Link = 15, "LINK", "makes a hard link";
        Readdir = 16, "READDIR", "lists a directory";
        Readdirplus = 17, "READDIRPLUS", "lists a directory, with attributes and handles";
        Fsstat = 18, "FSSTAT", "the space of a file system";
        Fsinfo = 19, "FSINFO", "the abilities of a file system";
        Pathconf = 20, "PATHCONF", "the limits of names and links";
        Commit = 21, "COMMIT", "makes durable what was written";
    }
}

/// `diropargs3`: a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOpArgs<'a> {
    /// The directory.
    pub dir: FileHandle,
    /// The name.
    pub name: Name<'a>,
}

/// `set_atime` and `set_mtime`: how a time is to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// `DONT_CHANGE`
    #[default]
    DontChange,
    /// `SET_TO_SERVER_TIME`: who may write the file may do it.
    ToServerTime,
    /// `SET_TO_CLIENT_TIME`: the owner may do it.
    ToClientTime(Nfstime3),
}

/// `sattr3`: the attributes to be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sattr3 {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of the file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
}

/// `createhow3`: how CREATE makes a file (3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// `UNCHECKED`: also if there is one.
    Unchecked(Sattr3),
    /// `GUARDED`: only if there is none.
    Guarded(Sattr3),
    /// `EXCLUSIVE`: only if there is none, or it was made with this verifier.
    Exclusive(Verifier),
}

/// `mknoddata3`: the file that MKNOD makes (3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MknodData {
    /// `NF3CHR`
    Chr(Sattr3, Specdata3),
    /// `NF3BLK`
    Blk(Sattr3, Specdata3),
    /// `NF3SOCK`
    Sock(Sattr3),
    /// `NF3FIFO`
    Fifo(Sattr3),
    /// Any other number, which gets
    /// [`Nfsstat3::BadType`](super::types::Nfsstat3::BadType).
    Other(u32),
}

/// A call: the procedure and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's arguments, by their names")]
pub enum Call<'a> {
    /// 3.3.0
    Null,
    /// 3.3.1
    Getattr { object: FileHandle },
    /// 3.3.2; with a guard only if that is the object's ctime.
    Setattr { object: FileHandle, new_attributes: Sattr3, guard: Option<Nfstime3> },
    /// 3.3.3
    Lookup { what: DirOpArgs<'a> },
    /// 3.3.4
    Access { object: FileHandle, access: Access },
    /// 3.3.5
    Readlink { symlink: FileHandle },
    /// 3.3.6
    Read { file: FileHandle, offset: u64, count: u32 },
    /// 3.3.7; `count` is the length of the data.
    Write { file: FileHandle, offset: u64, stable: StableHow, data: &'a [u8] },
    /// 3.3.8
    Create { place: DirOpArgs<'a>, how: CreateHow },
    /// 3.3.9
    Mkdir { place: DirOpArgs<'a>, attributes: Sattr3 },
    /// 3.3.10
    Symlink { place: DirOpArgs<'a>, attributes: Sattr3, data: Nfspath3<'a> },
    /// 3.3.11
    Mknod { place: DirOpArgs<'a>, what: MknodData },
    /// 3.3.12
    Remove { object: DirOpArgs<'a> },
    /// 3.3.13
    Rmdir { object: DirOpArgs<'a> },
    /// 3.3.14
    Rename { from: DirOpArgs<'a>, to: DirOpArgs<'a> },
    /// 3.3.15
    Link { file: FileHandle, link: DirOpArgs<'a> },
    /// 3.3.16
    Readdir { dir: FileHandle, cookie: u64, cookieverf: Verifier, count: u32 },
    /// 3.3.17
    Readdirplus {
        dir: FileHandle,
        cookie: u64,
        cookieverf: Verifier,
        /// Most bytes of file ids, names and cookies.
        dircount: u32,
        /// Most bytes of all.
        maxcount: u32,
    },
    /// 3.3.18
    Fsstat { fsroot: FileHandle },
    /// 3.3.19
    Fsinfo { fsroot: FileHandle },
    /// 3.3.20
    Pathconf { object: FileHandle },
    /// 3.3.21; a count of 0 is to the end.
    Commit { file: FileHandle, offset: u64, count: u32 },
}
