//! A client of NFS version 3 and MOUNT (RFC 1813, RFC 5531), written apart from `wire`: calls as
//! values, replies as values, and a connection that behaves as a hard mount does.
//!
//! It follows no links, keeps nothing in memory, and takes a reply that is not exactly as the RFC
//! says for an error.

mod calls;
mod connection;
mod replies;
mod xdr;

pub use connection::{Address, Manner, Nfs};

/// A server's name for a file.
pub type Handle = Vec<u8>;
/// Seconds and nanoseconds.
pub type Time = (u32, u32);
/// By which a client sees that uncommitted writes are lost.
pub type Verifier = [u8; 8];

/// Statuses, as far as anybody asks for one of them.
pub mod status {
    /// Done.
    pub const OK: u32 = 0;
    /// Not the owner.
    pub const PERM: u32 = 1;
    /// No such name.
    pub const NOENT: u32 = 2;
    /// No right.
    pub const ACCES: u32 = 13;
    /// The name is taken.
    pub const EXIST: u32 = 17;
    /// No directory.
    pub const NOTDIR: u32 = 20;
    /// A directory.
    pub const ISDIR: u32 = 21;
    /// Not for this object.
    pub const INVAL: u32 = 22;
    /// Nothing can be changed here.
    pub const ROFS: u32 = 30;
    /// The directory has entries.
    pub const NOTEMPTY: u32 = 66;
    /// The object is gone.
    pub const STALE: u32 = 70;
    /// To be asked again later.
    pub const JUKEBOX: u32 = 10008;
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// How durable a WRITE is to be, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// After a COMMIT.
    Unstable,
    /// Its data.
    DataSync,
    /// All of it.
    FileSync,
}

/// Attributes that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Mode.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the content.
    pub mtime: Option<Time>,
}

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Whether it is there or not.
    Unchecked(Set),
    /// Only if it is not there.
    Guarded(Set),
    /// Only if it is not there, or was made by this very call.
    Exclusive([u8; 8]),
}

/// A call.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "names and arguments are those of RFC 1813")]
pub enum Call {
    Mount { path: Vec<u8> },
    Getattr { object: Handle },
    Setattr { object: Handle, set: Set },
    Lookup { dir: Handle, name: Vec<u8> },
    Readlink { link: Handle },
    Read { file: Handle, offset: u64, count: u32 },
    Write { file: Handle, offset: u64, stable: Stable, data: Vec<u8> },
    Create { dir: Handle, name: Vec<u8>, how: How },
    Mkdir { dir: Handle, name: Vec<u8>, set: Set },
    Symlink { dir: Handle, name: Vec<u8>, set: Set, target: Vec<u8> },
    Remove { dir: Handle, name: Vec<u8> },
    Rmdir { dir: Handle, name: Vec<u8> },
    Rename { from: Handle, name: Vec<u8>, to: Handle, new_name: Vec<u8> },
    Link { file: Handle, dir: Handle, name: Vec<u8> },
    Readdir { dir: Handle, cookie: u64, verifier: Verifier, count: u32 },
    Readdirplus { dir: Handle, cookie: u64, verifier: Verifier, count: u32 },
    Fsstat { root: Handle },
    Commit { file: Handle },
}

/// Attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names are those of RFC 1813")]
pub struct Attr {
    pub kind: Kind,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "names are those of RFC 1813")]
pub struct Entry {
    pub fileid: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    /// Of READDIRPLUS.
    pub attr: Option<Attr>,
    /// Of READDIRPLUS.
    pub handle: Option<Handle>,
}

/// A reply: of what it is about, that what calls of its kind have.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// 0, or why not.
    pub status: u32,
    /// What was found or made.
    pub handle: Option<Handle>,
    /// The attributes of the object, after the call.
    pub attr: Option<Attr>,
    /// Those of the directory, or of both.
    pub dirs: Vec<Attr>,
    /// Bytes read, or where a link leads.
    pub data: Vec<u8>,
    /// Whether that was the end.
    pub is_end: bool,
    /// Bytes that a WRITE wrote.
    pub count: u32,
    /// How durable they are.
    pub committed: Option<Stable>,
    /// Of a WRITE, COMMIT, or a directory.
    pub verifier: Verifier,
    /// Of a directory.
    pub entries: Vec<Entry>,
    /// Bytes and files that there can be, and are free.
    pub room: (u64, u64, u64, u64),
}
