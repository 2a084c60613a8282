//! Reading the tree: the same for the present, for a moment of the past, and within a transaction.

use format::share::inode::{FileKind, InodeBlock, SYMLINK_BYTES_MAX};
use format::share::name_hash::KEYS_OF_A_HASH;
use units::{FileId, FileName, Inode};

use crate::attributes::Attributes;
use crate::content;
use crate::directory;
use crate::error::{Error, ErrorKind, Result, require};
use crate::permission::{Access, Credentials, EXECUTE, READ, permits};
use crate::source::Source;

/// An entry of a directory, as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// A listing that begins with this cookie goes on after this entry.
    pub cookie: u64,
    /// The inode that it names.
    pub inode: Inode,
    /// The name; `.` and `..` too.
    pub name: &'a [u8],
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBytes {
    /// How many bytes were read.
    pub count: usize,
    /// Whether these are the last ones.
    pub is_end: bool,
    /// The operation that had changed the file last.
    pub operation: u64,
}

/// The cookies of `.` and `..`; those of entries are larger.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const _: () = assert!(DOT_DOT < KEYS_OF_A_HASH);

/// The tree of a share at one moment.
///
/// All methods fail with `Stale` if the object is gone, with `WouldWait` if the caller does not
/// wait and blocks are not in memory, and with `Corrupt` and `Storage`.
pub trait Tree: Source + Sized {
    /// The directory at the top.
    ///
    /// # Errors
    /// See the trait.
    fn top(&self) -> Result<FileId> {
        Ok(Attributes::of(Inode::ROOT, &*self.known(Inode::ROOT)?).id)
    }

    /// The attributes of an object.
    ///
    /// # Errors
    /// See the trait.
    fn attributes(&self, id: FileId) -> Result<Attributes> {
        Ok(Attributes::of(id.inode, &*self.object(id)?))
    }

    /// The attributes of the object that has a number now: what a listing names.
    ///
    /// # Errors
    /// See the trait.
    fn attributes_of(&self, inode: Inode) -> Result<Attributes> {
        let found = self.inode(inode)?.ok_or(Error::from(ErrorKind::Stale))?;
        Ok(Attributes::of(inode, &found))
    }

    /// Rights of a user to an object.
    ///
    /// # Errors
    /// See the trait.
    fn access(&self, user: &Credentials, id: FileId) -> Result<Access> {
        Ok(Access::of(&*self.object(id)?, user))
    }

    /// The object of a name; `.` and `..` are names.
    ///
    /// # Errors
    /// `NotDirectory`, `Access`, `NotFound`, `NameTooLong`, `Invalid`; see the trait.
    fn look_up(&self, user: &Credentials, id: FileId, name: &[u8]) -> Result<Attributes> {
        let parent = self.object(id)?;
        require(parent.kind == FileKind::Directory, ErrorKind::NotDirectory)?;
        require(permits(&parent, user, EXECUTE), ErrorKind::Access)?;
        let inode = match name {
            b"." => id.inode,
            b".." => parent.parent,
            _ => {
                let found = directory::find(self, id.inode, &parent, FileName::new(name)?)?;
                let object = found.ok_or(Error::from(ErrorKind::NotFound))?.object;
                return Ok(Attributes::of(object.inode, &*self.named(object)?));
            }
        };
        Ok(Attributes::of(inode, &*self.known(inode)?))
    }

    /// Reads a file into a buffer.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` of what is no file, `Access`; see the trait.
    fn read(
        &self,
        user: &Credentials,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadBytes> {
        let inode = self.object(id)?;
        check_read(&inode, user)?;
        read_content(self, &inode, offset, buffer)
    }

    /// The content of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` of what is none; see the trait.
    fn read_link(&self, id: FileId) -> Result<Vec<u8>> {
        let inode = self.object(id)?;
        require(inode.kind == FileKind::Symlink, ErrorKind::Invalid)?;
        let mut target = vec![0; inode.size.min(SYMLINK_BYTES_MAX) as usize];
        content::read(self, &inode, 0, &mut target)?;
        Ok(target)
    }

    /// Tells of the entries after a cookie (0: from the first on) until `tell` refuses one; whether
    /// it came to the end. No cookie is refused.
    ///
    /// # Errors
    /// `NotDirectory`, `Access`; see the trait.
    fn read_directory(
        &self,
        user: &Credentials,
        id: FileId,
        cookie: u64,
        tell: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<bool> {
        let inode = self.object(id)?;
        require(inode.kind == FileKind::Directory, ErrorKind::NotDirectory)?;
        require(permits(&inode, user, READ), ErrorKind::Access)?;
        let dots = [(DOT, id.inode, &b"."[..]), (DOT_DOT, inode.parent, b"..")];
        for (own, inode, name) in dots.into_iter().filter(|(own, ..)| *own > cookie) {
            if !tell(Listed { cookie: own, inode, name }) {
                return Ok(false);
            }
        }
        let from = cookie.saturating_add(1);
        directory::for_each_from(self, id.inode, &inode, from, &mut |entry| {
            tell(Listed {
                cookie: entry.key,
                inode: entry.object.inode,
                name: entry.name.as_bytes(),
            })
        })
    }
}

impl<T: Source> Tree for T {}

/// Whether a user may read this as a file. The owner may, whatever the mode, since a client that
/// has it open may; and who may execute it has to read it.
pub(crate) fn check_read(inode: &InodeBlock, user: &Credentials) -> Result<()> {
    require(inode.kind != FileKind::Directory, ErrorKind::IsDirectory)?;
    require(inode.kind == FileKind::File, ErrorKind::Invalid)?;
    let may = user.owns(inode) || permits(inode, user, READ) || permits(inode, user, EXECUTE);
    require(may, ErrorKind::Access)
}

/// Reads a file's bytes.
pub(crate) fn read_content(
    source: &dyn Source,
    inode: &InodeBlock,
    offset: u64,
    buffer: &mut [u8],
) -> Result<ReadBytes> {
    let count = content::read(source, inode, offset, buffer)?;
    let is_end = offset.saturating_add(count as u64) >= inode.size;
    Ok(ReadBytes { count, is_end, operation: inode.operation })
}
