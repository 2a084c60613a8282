//! The attributes of an object, as they are told and as they are set.

use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::operation::Before;
use units::{BLOCK_BYTES, FileId, Inode, WallTime};

/// The attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number and generation.
    pub id: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// Permissions and the bits above them: 12 bits.
    pub mode: u16,
    /// Names that it has; of a directory 2 and its directories.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of blocks that it holds; content in the inode counts as a block, since archivers take
    /// what has none for a hole.
    pub used_bytes: u64,
    /// Of a device: major and minor number.
    pub device: (u32, u32),
    /// Last access that somebody told of.
    pub accessed: WallTime,
    /// Last change of the content.
    pub modified: WallTime,
    /// Last change of anything.
    pub changed: WallTime,
    /// Its birth.
    pub created: WallTime,
    /// The number of the operation that changed it last.
    pub operation: u64,
}

impl Attributes {
    /// Those of an inode.
    pub(crate) fn of(number: Inode, inode: &InodeBlock) -> Attributes {
        let is_inside = matches!(inode.content, Content::Inline(_)) && inode.size > 0;
        let is_directory = inode.kind == FileKind::Directory && inode.used == 0;
        Attributes {
            id: FileId { inode: number, generation: inode.generation },
            kind: inode.kind,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            used_bytes: (inode.used + u64::from(is_inside || is_directory)) * BLOCK_BYTES,
            device: inode.device,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
            operation: inode.operation,
        }
    }
}

/// The attributes before, as a record keeps them.
pub(crate) fn before(inode: &InodeBlock) -> Before {
    Before {
        kind: inode.kind,
        mode: inode.mode,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        accessed: inode.accessed,
        modified: inode.modified,
        changed: inode.changed,
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// That of the operation.
    Now,
    /// This one.
    To(WallTime),
}

/// Attributes to be set; the rest stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions and the bits above them; others are cut off.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Bytes of content.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of the content.
    pub modified: Option<SetTime>,
}
