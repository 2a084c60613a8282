//! Requests, and what answers are made of.

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// There is no such name.
    pub const NOENT: Errno = Errno(2);
    /// It is there, and cannot be read.
    pub const IO: Errno = Errno(5);
    /// It is no directory, or another thing that was asked for.
    pub const INVALID: Errno = Errno(22);
    /// Nothing can be changed here.
    pub const READ_ONLY: Errno = Errno(30);
    /// The answer is larger than the room for it.
    pub const RANGE: Errno = Errno(34);
    /// There is nothing behind a place in a file.
    pub const NO_DATA_BEHIND: Errno = Errno(6);
    /// There is no such request; the kernel asks for it no more.
    pub const NO_SUCH_REQUEST: Errno = Errno(38);
    /// There is no such extended attribute.
    pub const NO_DATA: Errno = Errno(61);
    /// The versions do not fit.
    pub const PROTOCOL: Errno = Errno(71);
    /// It is there, and no way is known to read it.
    pub const UNSUPPORTED: Errno = Errno(95);
}

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Bytes that are no hole.
    Data,
    /// A hole, or the end.
    Hole,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Told with the answer.
    pub unique: u64,
    /// The object that is asked for.
    pub node: u64,
    /// The user who asks.
    pub uid: u32,
    /// The thing that is asked for.
    pub operation: Operation<'a>,
}

/// A thing that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first request.
    Init {
        /// The kernel's versions.
        major: u32,
        /// Likewise.
        minor: u32,
        /// So much it reads ahead, at most.
        readahead_bytes: u32,
        /// Its abilities.
        flags: u32,
    },
    /// A name in a directory.
    LookUp {
        /// The name.
        name: &'a [u8],
    },
    /// The attributes of an object.
    Attributes,
    /// Where a symbolic link leads.
    Link,
    /// Bytes of a file.
    Read {
        /// From here.
        offset: u64,
        /// So many at most.
        length: u32,
    },
    /// Bytes for a file.
    Write {
        /// From here.
        offset: u64,
        /// These.
        data: &'a [u8],
    },
    /// To have durable what was written.
    Sync,
    /// The size of it all.
    Space,
    /// The value of an extended attribute; its length where there is no room.
    Extended {
        /// Its name.
        name: &'a [u8],
        /// Room for the answer.
        room: u32,
    },
    /// The names of the extended attributes; their length where there is no room.
    ExtendedNames {
        /// Room for the answer.
        room: u32,
    },
    /// The names in a directory.
    Entries {
        /// Behind so many.
        after: u64,
        /// Room for the answer.
        room: u32,
        /// With what is known of each.
        is_plus: bool,
    },
    /// The next bytes, or the next hole, in a file.
    Seek {
        /// From here on.
        offset: u64,
        /// Which of them.
        whence: Whence,
    },
    /// Something that has no answer.
    Unanswered,
    /// The end.
    Destroy,
    /// Something that would change names or attributes.
    Change,
    /// Anything else.
    Other(u32),
}

/// The attributes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The number that people see.
    pub inode: u64,
    /// In bytes.
    pub size: u64,
    /// The space that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Access, modification and change: seconds since 1970, and nanoseconds.
    pub times: [(i64, u32); 3],
    /// Kind and permissions.
    pub mode: u32,
    /// Names it has.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Told to programs as the best length of reads.
    pub block_bytes: u32,
}
