//! Making objects and names: CREATE, MKDIR, SYMLINK, MKNOD, LINK.

use format::share::directory::EntryObject;
use format::share::inode::{FileKind, InodeBlock, SYMLINK_BYTES_MAX};
use format::share::operation::{Operation, Procedure};
use units::{FileId, FileName, FileNameError};

use crate::attributes::{Attributes, SetAttributes, before};
use crate::blocks::Present;
use crate::content_change;
use crate::error::{Error, ErrorKind, Result, require};
use crate::operations::set_attributes::{SETGID, apply};
use crate::source::Source;
use crate::transaction::{Caller, Transaction};
use crate::work::{Named, Work, add_link};

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create<'a> {
    /// Whether or not it is there; a size that is set cuts one that is.
    Unchecked(&'a SetAttributes),
    /// Only if it is not there.
    Guarded(&'a SetAttributes),
    /// Only if it is not there, or was made by this very request.
    Exclusive([u8; 8]),
}

/// The kinds that MKNOD makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, major and minor number. By root.
    CharacterDevice(u32, u32),
    /// A block device. By root.
    BlockDevice(u32, u32),
}

/// An object of any kind, as far as it is made at once.
#[derive(Clone, Copy, Debug)]
pub struct Like<'d> {
    /// Its kind.
    pub kind: FileKind,
    /// The content of a symbolic link.
    pub target: &'d [u8],
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

/// A name that may be made; `.` and `..` are there.
fn new_name(name: &[u8]) -> Result<FileName<'_>> {
    FileName::new(name).map_err(|error| match error {
        FileNameError::Dots => Error::from(ErrorKind::Exists),
        other => Error::from(other),
    })
}

impl<'d, P: Present> Transaction<'_, 'd, P> {
    /// Creates a file, or opens one that is there.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`, `Access`, `Exists`, `NameTooLong`, `Invalid`, `NoSpace`; those of
    /// [`Transaction::set_attributes`] for the attributes; `TransactionFull`; those of reading.
    pub fn create(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        how: Create<'_>,
    ) -> Result<Attributes> {
        self.update(caller, 1, |work| {
            let parent = work.directory(directory)?;
            let file_name = new_name(name)?;
            if let Some(there) = work.entry(directory, &parent, file_name)? {
                return open_existing(work, (directory, name), &there, how);
            }
            let default = SetAttributes::default();
            let (set, verifier) = match how {
                Create::Unchecked(set) | Create::Guarded(set) => (set, None),
                Create::Exclusive(verifier) => (&default, Some(verifier)),
            };
            let made = make(work, (directory, &parent), file_name, FileKind::File, set, |_, i| {
                i.verifier = verifier;
                Ok(())
            })?;
            Ok((made, Some(made_record(work, Procedure::Create, directory, &made, name))))
        })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Transaction::create`]; `TooManyLinks` of the directory that it is made in.
    pub fn make_directory(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.make_new(caller, directory, name, Procedure::MakeDirectory, |work, parent, name| {
            make(work, parent, name, FileKind::Directory, set, |_, _| Ok(()))
        })
    }

    /// Makes a symbolic link that holds `target`.
    ///
    /// # Errors
    /// As [`Transaction::create`]; `NameTooLong` of what it is to hold, `Invalid` if that is empty.
    pub fn make_symlink(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        target: &'d [u8],
    ) -> Result<Attributes> {
        require(target.len() as u64 <= SYMLINK_BYTES_MAX, ErrorKind::NameTooLong)?;
        require(!target.is_empty() && !target.contains(&0), ErrorKind::Invalid)?;
        self.make_new(caller, directory, name, Procedure::MakeSymlink, |work, parent, name| {
            make(work, parent, name, FileKind::Symlink, set, |work, inode| {
                content_change::write(&mut work.layer, inode, 0, target)
            })
        })
    }

    /// Makes a fifo, a socket or a device.
    ///
    /// # Errors
    /// As [`Transaction::create`]; `NotPermitted` of a device that another than root makes.
    pub fn make_node(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        special: Special,
    ) -> Result<Attributes> {
        let (kind, device) = match special {
            Special::Fifo => (FileKind::Fifo, None),
            Special::Socket => (FileKind::Socket, None),
            Special::CharacterDevice(major, minor) => {
                (FileKind::CharacterDevice, Some((major, minor)))
            }
            Special::BlockDevice(major, minor) => (FileKind::BlockDevice, Some((major, minor))),
        };
        self.make_new(caller, directory, name, Procedure::MakeNode, |work, parent, name| {
            require(device.is_none() || work.user.is_root(), ErrorKind::NotPermitted)?;
            make(work, parent, name, kind, set, |_, inode| {
                inode.device = device.unwrap_or_default();
                Ok(())
            })
        })
    }

    /// Makes an object like another one, without the content of files and directories.
    ///
    /// # Errors
    /// Those of making such an object.
    pub fn make_like(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        like: Like<'d>,
    ) -> Result<Attributes> {
        let (major, minor) = like.device;
        let special = match like.kind {
            FileKind::File => return self.create(caller, directory, name, Create::Guarded(set)),
            FileKind::Directory => return self.make_directory(caller, directory, name, set),
            FileKind::Symlink => {
                return self.make_symlink(caller, directory, name, set, like.target);
            }
            FileKind::Fifo => Special::Fifo,
            FileKind::Socket => Special::Socket,
            FileKind::CharacterDevice => Special::CharacterDevice(major, minor),
            FileKind::BlockDevice => Special::BlockDevice(major, minor),
        };
        self.make_node(caller, directory, name, set, special)
    }

    /// Gives an object another name.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `NotDirectory`, `Access`, `Exists`, `NameTooLong`, `Invalid`,
    /// `TooManyLinks`, `NoSpace`; `TransactionFull`; those of reading.
    pub fn link(
        &mut self,
        caller: &Caller<'_>,
        id: FileId,
        directory: FileId,
        name: &[u8],
    ) -> Result<Attributes> {
        self.update(caller, 0, |work| {
            let mut inode = (*work.layer.object(id)?).clone();
            require(inode.kind != FileKind::Directory, ErrorKind::IsDirectory)?;
            let parent = work.directory(directory)?;
            let new = new_name(name)?;
            require(work.entry(directory, &parent, new)?.is_none(), ErrorKind::Exists)?;
            work.may_change(&parent)?;
            add_link(&mut inode)?;
            work.add(directory.inode, new, EntryObject::of(id.inode, inode.kind, id.generation))?;
            work.put(id.inode, inode);
            let linked = Attributes::of(id.inode, &*work.layer.object(id)?);
            let record = made_record(work, Procedure::Link, directory, &linked, name);
            Ok((linked, Some(record)))
        })
    }

    /// Makes something of a name that is not there.
    fn make_new(
        &mut self,
        caller: &Caller<'_>,
        directory: FileId,
        name: &[u8],
        procedure: Procedure,
        make: impl FnOnce(
            &mut Work<'_, '_, 'd>,
            (FileId, &InodeBlock),
            FileName<'_>,
        ) -> Result<Attributes>,
    ) -> Result<Attributes> {
        self.update(caller, 1, |work| {
            let parent = work.directory(directory)?;
            let new = new_name(name)?;
            require(work.entry(directory, &parent, new)?.is_none(), ErrorKind::Exists)?;
            let made = make(work, (directory, &parent), new)?;
            let record = made_record(work, procedure, directory, &made, name);
            Ok((made, Some(record)))
        })
    }
}

/// CREATE of a name that is there.
fn open_existing<'n>(
    work: &mut Work<'_, '_, '_>,
    (directory, name): (FileId, &'n [u8]),
    there: &Named,
    how: Create<'_>,
) -> Result<(Attributes, Option<Operation<'n>>)> {
    let id = there.id();
    let is_file = there.inode.kind == FileKind::File;
    let size = match how {
        Create::Unchecked(set) if is_file => set.size,
        Create::Exclusive(verifier) if there.inode.verifier == Some(verifier) => None,
        _ => return Err(Error::from(ErrorKind::Exists)),
    };
    let Some(new_size) = size else {
        return Ok((Attributes::of(id.inode, &there.inode), None));
    };
    let set = SetAttributes { size, ..SetAttributes::default() };
    let mut inode = (*there.inode).clone();
    apply(work, &mut inode, &set)?;
    work.touched.push(id.inode);
    work.put(id.inode, inode);
    let record = Operation {
        other: Some(id),
        range: Some((new_size, 0)),
        before: Some(before(&there.inode)),
        name,
        ..work.record(Procedure::Create, directory)
    };
    Ok((Attributes::of(id.inode, &*work.layer.object(id)?), Some(record)))
}

/// Makes an object with attributes, and what `finish` adds, and its name.
fn make<'b, 'd>(
    work: &mut Work<'_, 'b, 'd>,
    (directory, parent): (FileId, &InodeBlock),
    name: FileName<'_>,
    kind: FileKind,
    set: &SetAttributes,
    finish: impl FnOnce(&mut Work<'_, 'b, 'd>, &mut InodeBlock) -> Result<()>,
) -> Result<Attributes> {
    work.may_change(parent)?;
    let mode = set.mode.unwrap_or_default();
    let (id, mut inode) = work.make(kind, mode, (directory.inode, parent))?;
    // Somebody may make a file that only others may write; its attributes are part of making it.
    let size = set.size.filter(|_| kind == FileKind::File);
    let inherited = if kind == FileKind::Directory { parent.mode & SETGID } else { 0 };
    apply(work, &mut inode, &SetAttributes { size, ..*set })?;
    inode.mode |= inherited;
    finish(work, &mut inode)?;
    work.add(directory.inode, name, EntryObject::of(id.inode, kind, id.generation))?;
    work.layer.put_inode(id.inode, inode);
    Ok(Attributes::of(id.inode, &*work.layer.object(id)?))
}

fn made_record<'n>(
    work: &Work<'_, '_, '_>,
    procedure: Procedure,
    directory: FileId,
    made: &Attributes,
    name: &'n [u8],
) -> Operation<'n> {
    Operation { other: Some(made.id), name, ..work.record(procedure, directory) }
}
