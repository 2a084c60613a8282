//! Rights of users, by mode, owner and group. Root may do everything but execute what nobody may.

use format::share::inode::{FileKind, InodeBlock};

/// A user, after squashing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; 0 is root.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Root.
    pub fn root() -> Credentials {
        Credentials::default()
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it belongs to a group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it is root or the owner of an object.
    pub(crate) fn owns(&self, inode: &InodeBlock) -> bool {
        self.is_root() || self.uid == inode.uid
    }
}

/// To read a file, or to list a directory.
pub(crate) const READ: u16 = 4;
/// To write a file, or to change the entries of a directory.
pub(crate) const WRITE: u16 = 2;
/// To execute a file, or to look up names in a directory.
pub(crate) const EXECUTE: u16 = 1;

/// Whether a user may do all of `wanted` (`READ`, `WRITE`, `EXECUTE`) with an object.
pub(crate) fn permits(inode: &InodeBlock, user: &Credentials, wanted: u16) -> bool {
    if user.is_root() {
        let may_execute = inode.kind == FileKind::Directory || inode.mode & 0o111 != 0;
        return wanted & EXECUTE == 0 || may_execute;
    }
    let shift = if user.uid == inode.uid {
        6
    } else if user.is_in(inode.gid) {
        3
    } else {
        0
    };
    (inode.mode >> shift) & wanted == wanted
}

/// Whether a user may take the name of an object away from a directory, as far as its sticky bit
/// says.
pub(crate) fn may_take_from(
    directory: &InodeBlock,
    object: &InodeBlock,
    user: &Credentials,
) -> bool {
    directory.mode & 0o1000 == 0 || user.owns(directory) || user.uid == object.uid
}

/// Rights of a user to an object: the bits are those of NFSv3's ACCESS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// To read a file or list a directory.
    pub const READ: Access = Access(1);
    /// To look up names.
    pub const LOOKUP: Access = Access(2);
    /// To write over content, or change entries.
    pub const MODIFY: Access = Access(4);
    /// To write beyond the end, or add entries.
    pub const EXTEND: Access = Access(8);
    /// To remove entries.
    pub const DELETE: Access = Access(16);
    /// To execute a file.
    pub const EXECUTE: Access = Access(32);

    /// All that a user may do with an object.
    pub(crate) fn of(inode: &InodeBlock, user: &Credentials) -> Access {
        let is_directory = inode.kind == FileKind::Directory;
        let bits = |wanted, bits: u32| if permits(inode, user, wanted) { bits } else { 0 };
        let write = Access::MODIFY.0 | Access::EXTEND.0;
        Access(if is_directory {
            bits(READ, Access::READ.0)
                | bits(EXECUTE, Access::LOOKUP.0)
                | bits(WRITE, write | Access::DELETE.0)
        } else {
            bits(READ, Access::READ.0) | bits(EXECUTE, Access::EXECUTE.0) | bits(WRITE, write)
        })
    }

    /// Whether all of `other` is in it.
    pub fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}
