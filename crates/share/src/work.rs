//! One update under way: what all operations do with objects and directories.

use std::sync::Arc;

use format::share::directory::{Entries, EntryObject};
use format::share::inode::{Content, FileKind, InodeBlock};
use units::{BLOCK_BYTES, FileId, FileName, Generation, Inode, WallTime};

use crate::allocation::{allocate_inode, free_inode};
use crate::content_change::free;
use crate::directory::{Found, find};
use crate::directory_change::Changed;
use crate::error::{ErrorKind, Result, require};
use crate::layered::Layered;
use crate::permission::{Credentials, EXECUTE, WRITE, may_take_from, permits};
use crate::source::Source;

/// Links that a file has at most.
pub const LINKS_MAX: u32 = 65_000;

/// An update under way.
pub struct Work<'u, 'b, 'd> {
    /// Its changes over the transaction.
    pub layer: Layered<'b, 'd>,
    /// The user who asks for it.
    pub user: &'u Credentials,
    /// The time by the clock.
    pub now: WallTime,
    /// The time of its changes, which rises.
    pub time: WallTime,
    /// Its number.
    pub operation: u64,
    /// The generation of what it makes.
    pub generation: Generation,
    /// Objects that it makes, whose content it changes, or that it takes a name from.
    pub touched: Vec<Inode>,
}

/// An entry, and the object that it names.
pub struct Named {
    /// Where the entry is.
    pub found: Found,
    /// The object.
    pub inode: Arc<InodeBlock>,
}

impl Named {
    /// The object's number and generation.
    pub fn id(&self) -> FileId {
        FileId { inode: self.found.object.inode, generation: self.inode.generation }
    }
}

impl<'b, 'd> Work<'_, 'b, 'd> {
    /// A directory in which the user may look up names.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `Access`; those of reading.
    pub fn directory(&self, id: FileId) -> Result<Arc<InodeBlock>> {
        let directory = self.layer.object(id)?;
        require(directory.kind == FileKind::Directory, ErrorKind::NotDirectory)?;
        require(permits(&directory, self.user, EXECUTE), ErrorKind::Access)?;
        Ok(directory)
    }

    /// The entry of a name.
    ///
    /// # Errors
    /// Those of reading.
    pub fn entry(
        &self,
        id: FileId,
        directory: &InodeBlock,
        name: FileName<'_>,
    ) -> Result<Option<Named>> {
        let Some(found) = find(&self.layer, id.inode, directory, name)? else { return Ok(None) };
        Ok(Some(Named { found, inode: self.layer.named(found.object)? }))
    }

    /// Fails unless the user may change the entries of a directory.
    ///
    /// # Errors
    /// `Access`.
    pub fn may_change(&self, directory: &InodeBlock) -> Result<()> {
        require(permits(directory, self.user, WRITE), ErrorKind::Access)
    }

    /// Fails unless the user may take the name of an object away from a directory.
    ///
    /// # Errors
    /// `Access`, `NotPermitted`.
    pub fn may_take(&self, directory: &InodeBlock, object: &InodeBlock) -> Result<()> {
        self.may_change(directory)?;
        require(may_take_from(directory, object, self.user), ErrorKind::NotPermitted)
    }

    /// An inode as it is now.
    ///
    /// # Errors
    /// Those of reading.
    pub fn inode(&self, inode: Inode) -> Result<InodeBlock> {
        Ok(Arc::unwrap_or_clone(self.layer.known(inode)?))
    }

    /// Puts an inode back, of which anything changed.
    pub fn put(&mut self, number: Inode, mut inode: InodeBlock) {
        inode.changed = self.time;
        inode.operation = self.operation;
        self.layer.put_inode(number, inode);
    }

    /// Puts an inode back, of which the content changed.
    pub fn put_modified(&mut self, number: Inode, mut inode: InodeBlock) {
        inode.modified = self.now;
        self.put(number, inode);
    }

    /// The entries of a directory, to be changed.
    pub fn entries<'l>(
        &'l mut self,
        number: Inode,
        directory: &'l mut InodeBlock,
    ) -> Changed<'l, 'b, 'd> {
        Changed { layer: &mut self.layer, number, directory }
    }

    /// A new inode of the user's, in a directory. The caller puts it.
    ///
    /// # Errors
    /// `NoSpace`; those of reading.
    pub fn make(
        &mut self,
        kind: FileKind,
        mode: u16,
        parent: (Inode, &InodeBlock),
    ) -> Result<(FileId, InodeBlock)> {
        let inode = allocate_inode(&mut self.layer)?;
        self.touched.push(inode);
        let is_directory = kind == FileKind::Directory;
        let has_group = parent.1.mode & 0o2000 != 0;
        let inherited = if has_group && is_directory { 0o2000 } else { 0 };
        let made = InodeBlock {
            generation: self.generation,
            kind,
            mode: mode & 0o7777 | inherited,
            links: if is_directory { 2 } else { 1 },
            uid: self.user.uid,
            gid: if has_group { parent.1.gid } else { self.user.gid },
            size: if is_directory { BLOCK_BYTES } else { 0 },
            used: 0,
            accessed: self.now,
            modified: self.now,
            changed: self.time,
            created: self.now,
            parent: parent.0,
            entries: 0,
            verifier: None,
            device: (0, 0),
            operation: self.operation,
            content: match kind {
                FileKind::Directory => Content::Entries(Entries::default()),
                _ if kind.has_content() => Content::Inline(Vec::new()),
                _ => Content::None,
            },
        };
        Ok((FileId { inode, generation: self.generation }, made))
    }

    /// Adds the entry of a new or linked object to a directory; a new directory counts as a link.
    ///
    /// # Errors
    /// `TooManyLinks`, `NoSpace`; those of reading.
    pub fn add(&mut self, directory: Inode, name: FileName<'_>, object: EntryObject) -> Result<()> {
        let mut parent = self.inode(directory)?;
        self.entries(directory, &mut parent).add(name, object)?;
        if object.kind == FileKind::Directory {
            add_link(&mut parent)?;
        }
        self.put_modified(directory, parent);
        Ok(())
    }

    /// Takes an entry away from a directory; one of a directory counted as a link.
    ///
    /// # Errors
    /// Those of reading.
    pub fn take(&mut self, directory: Inode, key: u64, kind: FileKind) -> Result<()> {
        let mut parent = self.inode(directory)?;
        self.entries(directory, &mut parent).remove(key)?;
        if kind == FileKind::Directory {
            parent.links = parent.links.saturating_sub(1).max(2);
        }
        self.put_modified(directory, parent);
        Ok(())
    }

    /// An object lost a name: with the last one it goes, with all that it holds.
    ///
    /// # Errors
    /// Those of reading.
    pub fn unlink(&mut self, number: Inode) -> Result<()> {
        self.touched.push(number);
        let mut inode = self.inode(number)?;
        if inode.kind == FileKind::Directory || inode.links <= 1 {
            free(&mut self.layer, &mut inode)?;
            return free_inode(&mut self.layer, number);
        }
        inode.links -= 1;
        self.put(number, inode);
        Ok(())
    }
}

/// One link more.
///
/// # Errors
/// `TooManyLinks`.
pub fn add_link(inode: &mut InodeBlock) -> Result<()> {
    let most = if inode.kind == FileKind::Directory { u32::MAX } else { LINKS_MAX };
    require(inode.links < most, ErrorKind::TooManyLinks)?;
    inode.links += 1;
    Ok(())
}
