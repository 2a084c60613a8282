//! Calls and results (5.1 and 5.2).

use super::limits::PATH_BYTES_MAX;
use crate::nfs3::FileHandle;
use crate::rpc::Flavor;
use crate::xdr::{Text, numbered};

/// `dirpath`: a path; one that is too long gets [`Mountstat3::NameTooLong`].
pub type Path<'a> = Text<'a, PATH_BYTES_MAX>;

numbered! {
    /// The procedures.
    Procedure {
        Null = 0, "NULL", "nothing";
        Mnt = 1, "MNT", "the file handle of a path";
        Dump = 2, "DUMP", "who has mounted";
        Umnt = 3, "UMNT", "the client unmounts a path";
        Umntall = 4, "UMNTALL", "the client unmounts all";
        Export = 5, "EXPORT", "the paths that can be mounted";
    }
}

numbered! {
    /// `mountstat3` (5.1.5), but for `MNT3_OK`, which is the `Ok` of a result.
    Mountstat3 {
        Perm = 1, "MNT3ERR_PERM", "not the owner";
        NoEnt = 2, "MNT3ERR_NOENT", "no such path";
        Io = 5, "MNT3ERR_IO", "an error of the device";
        Acces = 13, "MNT3ERR_ACCES", "not allowed";
        NotDir = 20, "MNT3ERR_NOTDIR", "not a directory";
        Inval = 22, "MNT3ERR_INVAL", "not a valid argument";
        NameTooLong = 63, "MNT3ERR_NAMETOOLONG", "the path is too long";
        NotSupp = 10004, "MNT3ERR_NOTSUPP", "not supported";
        ServerFault = 10006, "MNT3ERR_SERVERFAULT", "the server failed";
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// NULL (5.2.0).
    Null,
    /// MNT (5.2.1).
    Mnt(Path<'a>),
    /// DUMP (5.2.2).
    Dump,
    /// UMNT (5.2.3).
    Umnt(Path<'a>),
    /// UMNTALL (5.2.4).
    Umntall,
    /// EXPORT (5.2.5).
    Export,
}

/// `mountres3_ok`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MntOk<'a> {
    /// The handle of the path's directory.
    pub fhandle: FileHandle,
    /// Flavors of credentials with which the handle can be used, the preferred one first.
    pub auth_flavors: &'a [Flavor],
}

/// `mountbody`: a client that has mounted a path. Strings are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountBody<'a> {
    /// The client.
    pub hostname: &'a [u8],
    /// The path.
    pub directory: &'a [u8],
}

/// `exportnode`: a path that can be mounted. Strings are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportNode<'a> {
    /// The path.
    pub dir: &'a [u8],
    /// Hosts that may; all, when none is named.
    pub groups: &'a [&'a [u8]],
}

/// The results of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// Of NULL, UMNT and UMNTALL.
    Nothing,
    /// Of MNT.
    Mnt(Result<MntOk<'a>, Mountstat3>),
    /// Of DUMP.
    Dump(&'a [MountBody<'a>]),
    /// Of EXPORT.
    Export(&'a [ExportNode<'a>]),
}
