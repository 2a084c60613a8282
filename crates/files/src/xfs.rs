//! XFS with checksums (version 5), with what its log holds laid over the disk.
//!
//! 1. The tree is that of the kernel after a mount that recovers the log.
//! 2. Every checksum is checked where it is read, and with it that a block is of this file system,
//!    of its place, and of its owner. What the log made of a block gets its checksum anew, if that
//!    was right before; of a directory block that is longer than a block of the disk this is not
//!    asked, as a part of it may be left over from another.
//! 3. Refused by name: version 4, a log elsewhere, realtime files, features that are not known, and
//!    a log that ends within a change of several steps which would show in files.
//!
//! Not known here: whether blocks are free, quotas, and reverse maps. What was removed while it was
//! open has no name. A block that two files share is read like any other.

mod base;
mod block;
mod directory;
mod extended;
mod header;
mod inode;
mod log;
mod overlay;
mod places;
mod replay;
mod replay_inode;
mod shape;
mod transactions;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::pieces::read_pieces;
use crate::source::Source;
use crate::system::FileSystem;
use crate::tree::{Attributes, Entry, Kind, Node, Piece, State, Tree};
pub use base::Xfs;
use inode::Inode;
use overlay::Overlay;
use shape::Shape;

/// What a source is, if it is an XFS.
pub fn recognise(source: &dyn Source) -> Result<Option<FileSystem>> {
    if source.size() < shape::BYTES as u64 {
        return Ok(None);
    }
    let read = |at, bytes: &mut [u8]| source.read_at(at, bytes).map_err(|e| Error::source(at, e));
    let bytes = superblock(read, source.size())?;
    if !shape::is_one(&bytes) {
        return Ok(None);
    }
    let kind = "xfs";
    Ok(Some(match Shape::read(&bytes, source.size()) {
        Ok(shape) => FileSystem { kind, label: shape.label, uuid: shape.uuid, is_readable: true },
        // Why not is said when it is opened.
        Err(_) => FileSystem { kind, label: Vec::new(), uuid: String::new(), is_readable: false },
    }))
}

/// The sector of the superblock of a disk of so many bytes.
fn superblock(read: impl Fn(u64, &mut [u8]) -> Result<()>, disk_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; shape::BYTES];
    read(0, &mut bytes)?;
    if shape::is_one(&bytes)
        && let Some(length) = shape::sector_bytes(&bytes)
        && length as u64 <= disk_bytes
    {
        bytes.resize(length, 0);
        read(0, &mut bytes)?;
    }
    Ok(bytes)
}

impl Xfs {
    /// Opens it, and recovers its log in memory.
    pub fn open(disk: Rc<dyn Source>) -> Result<Xfs> {
        let read = |at, bytes: &mut [u8]| disk.read_at(at, bytes).map_err(|e| Error::source(at, e));
        let shape = Shape::read(&superblock(read, disk.size())?, disk.size())?;
        let block_bytes = shape.block_bytes;
        let mut over = Overlay { disk, block_bytes, blocks: BTreeMap::new() };
        let recovered = replay::recover(&shape, &mut over)?;
        let after = superblock(|at, bytes| over.read(at, bytes), over.disk.size())?;
        let after = Shape::read(&after, over.disk.size())?;
        if !after.is_laid_out_as(&shape) {
            return Err(Error::damaged("the log has a superblock of another file system"));
        }
        let state = match recovered.is_clean {
            true => State::Clean,
            // Even if none of them was whole.
            false => State::Replayed(recovered.transactions),
        };
        let (newest, last) = (recovered.newest, RefCell::new(None));
        Ok(Xfs { over, shape: after, state, newest, last })
    }

    fn file(&self, node: Node) -> Result<Inode> {
        let inode = self.inode(node)?;
        if inode.kind()? != Kind::File {
            return Err(Error::wrong_kind(format!("inode {node} is no file")));
        }
        Ok(inode)
    }

    fn places_of(&self, inode: &Inode) -> Result<Rc<Vec<Piece>>> {
        if let Some((last, places)) = &*self.last.borrow()
            && *last == inode.number
        {
            return Ok(places.clone());
        }
        let places = Rc::new(self.places(inode, inode.data()?)?);
        *self.last.borrow_mut() = Some((inode.number, places.clone()));
        Ok(places)
    }
}

impl Tree for Xfs {
    fn state(&self) -> State {
        self.state
    }

    fn top(&self) -> Node {
        self.shape.top
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        self.inode(node)?.attributes()
    }

    fn entries(&self, directory: Node) -> Result<Vec<Entry>> {
        self.names(&self.inode(directory)?)
    }

    fn pieces(&self, file: Node) -> Result<Vec<Piece>> {
        Ok(self.places_of(&self.file(file)?)?.to_vec())
    }

    fn read(&self, file: Node, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let inode = self.file(file)?;
        let length = inode.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..length];
        let places = self.places_of(&inode)?;
        read_pieces(&places, offset, bytes, &|at, bytes| self.over.read(at, bytes))?;
        Ok(length)
    }

    fn link(&self, symlink: Node) -> Result<Vec<u8>> {
        let inode = self.inode(symlink)?;
        if inode.kind()? != Kind::Symlink {
            return Err(Error::wrong_kind(format!("inode {symlink} is no symbolic link")));
        }
        self.target(&inode)
    }

    fn extended(&self, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.attributes_of(&self.inode(node)?)
    }
}
