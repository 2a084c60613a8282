//! Basic types (2.3 to 2.6).

use std::fmt;

use super::limits::{FILE_HANDLE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, VERIFIER_BYTES};
use crate::xdr::{Text, numbered};

/// `filename3`: a name in a directory; one that is too long gets [`Nfsstat3::NameTooLong`].
pub type Name<'a> = Text<'a, NAME_BYTES_MAX>;
/// `nfspath3`: the text of a symbolic link, likewise.
pub type Nfspath3<'a> = Text<'a, PATH_BYTES_MAX>;
/// `cookieverf3`, `createverf3` and `writeverf3`.
pub type Verifier = [u8; VERIFIER_BYTES];
/// `post_op_attr`: attributes after an operation, if the server has them.
pub type PostOpAttr = Option<Fattr3>;

numbered! {
    /// `nfsstat3` (2.6), but for `NFS3_OK`, which is the `Ok` of a result.
    Nfsstat3 {
        Perm = 1, "NFS3ERR_PERM", "only the owner, or root, may";
        NoEnt = 2, "NFS3ERR_NOENT", "no such name";
        Io = 5, "NFS3ERR_IO", "an error of the device";
        Nxio = 6, "NFS3ERR_NXIO", "no such device";
        Acces = 13, "NFS3ERR_ACCES", "not allowed";
        Exist = 17, "NFS3ERR_EXIST", "the name is there already";
        Xdev = 18, "NFS3ERR_XDEV", "a link to another file system";
        NoDev = 19, "NFS3ERR_NODEV", "no such device here";
        NotDir = 20, "NFS3ERR_NOTDIR", "not a directory";
        IsDir = 21, "NFS3ERR_ISDIR", "a directory";
        Inval = 22, "NFS3ERR_INVAL", "an argument that is not valid or not supported";
        Fbig = 27, "NFS3ERR_FBIG", "the file would be too large";
        NoSpc = 28, "NFS3ERR_NOSPC", "no space is left";
        Rofs = 30, "NFS3ERR_ROFS", "the file system is read-only";
        Mlink = 31, "NFS3ERR_MLINK", "too many links";
        NameTooLong = 63, "NFS3ERR_NAMETOOLONG", "the name is too long";
        NotEmpty = 66, "NFS3ERR_NOTEMPTY", "the directory is not empty";
        Dquot = 69, "NFS3ERR_DQUOT", "the quota is used up";
        Stale = 70, "NFS3ERR_STALE", "the handle's file is gone";
        Remote = 71, "NFS3ERR_REMOTE", "the handle's file is on another server";
        BadHandle = 10001, "NFS3ERR_BADHANDLE", "no handle of this server";
        NotSync = 10002, "NFS3ERR_NOT_SYNC", "the guard of SETATTR does not hold";
        BadCookie = 10003, "NFS3ERR_BAD_COOKIE", "the cookie is stale";
        NotSupp = 10004, "NFS3ERR_NOTSUPP", "not supported";
        TooSmall = 10005, "NFS3ERR_TOOSMALL", "the answer has no room";
        ServerFault = 10006, "NFS3ERR_SERVERFAULT", "the server failed";
        BadType = 10007, "NFS3ERR_BADTYPE", "files of that type are not made here";
        Jukebox = 10008, "NFS3ERR_JUKEBOX", "not now: to be tried again later";
    }
}

numbered! {
    /// `ftype3`: types of files.
    Ftype3 {
        Reg = 1, "NF3REG", "a regular file";
        Dir = 2, "NF3DIR", "a directory";
        Blk = 3, "NF3BLK", "a block device";
        Chr = 4, "NF3CHR", "a character device";
        Lnk = 5, "NF3LNK", "a symbolic link";
        Sock = 6, "NF3SOCK", "a socket";
        Fifo = 7, "NF3FIFO", "a named pipe";
    }
}

numbered! {
    /// `stable_how`: how safe data is before WRITE is answered (3.3.7).
    StableHow {
        Unstable = 0, "UNSTABLE", "not at all, before COMMIT";
        DataSync = 1, "DATA_SYNC", "the data, and the attributes it needs to be read";
        FileSync = 2, "FILE_SYNC", "the data and all attributes";
    }
}

/// `nfs_fh3`: a server's name for a file. Clients look only whether two are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    bytes: [u8; FILE_HANDLE_BYTES_MAX],
    length: usize,
}

impl FileHandle {
    /// A handle of these bytes; `None` when there are more than 64.
    #[must_use]
    pub fn new(handle: &[u8]) -> Option<FileHandle> {
        let mut bytes = [0; FILE_HANDLE_BYTES_MAX];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(FileHandle { bytes, length: handle.len() })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// `nfstime3`: time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nfstime3 {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds in the second; a client may send any number.
    pub nseconds: u32,
}

impl Nfstime3 {
    /// Whether the nanoseconds are less than a second.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.nseconds < 1_000_000_000
    }
}

/// `specdata3`: the numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specdata3 {
    /// Major.
    pub specdata1: u32,
    /// Minor.
    pub specdata2: u32,
}

/// `fattr3`: the attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fattr3 {
    /// Type.
    pub ftype: Ftype3,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes that it takes.
    pub used: u64,
    /// Of a device: its numbers.
    pub rdev: Specdata3,
    /// File system.
    pub fsid: u64,
    /// Number of the file in its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Nfstime3,
    /// Last change of the data.
    pub mtime: Nfstime3,
    /// Last change of the attributes.
    pub ctime: Nfstime3,
}

/// `wcc_attr`: attributes before an operation, for weak cache consistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttr {
    /// Bytes of the file.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Nfstime3,
    /// Last change of the attributes.
    pub ctime: Nfstime3,
}

impl From<&Fattr3> for WccAttr {
    fn from(attributes: &Fattr3) -> WccAttr {
        let Fattr3 { size, mtime, ctime, .. } = *attributes;
        WccAttr { size, mtime, ctime }
    }
}

/// `wcc_data`: attributes before and after an operation, between which nothing else happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WccData {
    /// Before (`pre_op_attr`).
    pub before: Option<WccAttr>,
    /// After.
    pub after: PostOpAttr,
}

/// Rights that ACCESS asks for or grants (3.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// To read the data, or list the directory.
    pub const READ: Access = Access(0x01);
    /// To look up names in the directory.
    pub const LOOKUP: Access = Access(0x02);
    /// To write over data, or change entries.
    pub const MODIFY: Access = Access(0x04);
    /// To write behind the data, or add entries.
    pub const EXTEND: Access = Access(0x08);
    /// To remove entries of the directory.
    pub const DELETE: Access = Access(0x10);
    /// To execute the file.
    pub const EXECUTE: Access = Access(0x20);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// Whether every right of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `properties` of FSINFO (3.3.19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsProperties(pub u32);

impl FsProperties {
    /// Hard links.
    pub const LINK: FsProperties = FsProperties(0x01);
    /// Symbolic links.
    pub const SYMLINK: FsProperties = FsProperties(0x02);
    /// PATHCONF says the same of every file.
    pub const HOMOGENEOUS: FsProperties = FsProperties(0x08);
    /// SETATTR sets times as exactly as `time_delta` says.
    pub const CANSETTIME: FsProperties = FsProperties(0x10);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: FsProperties) -> FsProperties {
        FsProperties(self.0 | other.0)
    }
}
