//! ext2, ext3 and ext4, with what the journal holds laid over the disk.
//!
//! 1. The tree is that of the kernel after a mount that replays.
//! 2. Every checksum that the file system has is checked where it is read: superblock, groups,
//!    inodes, trees of extents, directories, extended attributes, and those of the journal.
//! 3. Refused by name: fast commits and checksums of version 1 in a journal that is needed, a
//!    journal elsewhere that is needed, encrypted files, bigalloc, compression.
//!
//! Not known here: whether blocks are free. Orphans (removed while they were open) have no name.

mod base;
mod directory;
mod extended;
mod inode;
mod journal;
mod overlay;
mod places;
mod shape;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::pieces::read_pieces;
use crate::source::Source;
use crate::system::FileSystem;
use crate::tree::{Attributes, Entry, Kind, LINK_BYTES_MAX, Node, Piece, State, Tree};
pub use base::Ext4;
use inode::{BLOCK_BYTES, INLINE, Inode};
use overlay::Overlay;
use shape::Shape;

const TOP: u64 = 2;

/// What a source is, if it is an ext2, ext3 or ext4.
pub fn recognise(source: &dyn Source) -> Result<Option<FileSystem>> {
    if source.size() < shape::OFFSET + shape::BYTES as u64 {
        return Ok(None);
    }
    let bytes = superblock(source)?;
    if !shape::is_one(&bytes) {
        return Ok(None);
    }
    Ok(Some(match Shape::read(&bytes, source.size()) {
        Ok(shape) => {
            FileSystem { kind: shape.kind, label: shape.label, uuid: shape.uuid, is_readable: true }
        }
        // What is wrong with it is said when it is opened.
        Err(_) => {
            let (label, uuid) = (Vec::new(), String::new());
            FileSystem { kind: "ext4", label, uuid, is_readable: false }
        }
    }))
}

fn superblock(source: &dyn Source) -> Result<Vec<u8>> {
    let mut bytes = vec![0; shape::BYTES];
    let read = source.read_at(shape::OFFSET, &mut bytes);
    read.map_err(|error| Error::source(shape::OFFSET, error))?;
    Ok(bytes)
}

impl Ext4 {
    /// Opens it, and recovers its journal in memory.
    pub fn open(disk: Rc<dyn Source>) -> Result<Ext4> {
        let shape = Shape::read(&superblock(&*disk)?, disk.size())?;
        let over = Overlay { disk, block_bytes: shape.block_bytes, blocks: BTreeMap::new() };
        let mut opened = Ext4 { over, shape, state: State::Clean, last: RefCell::new(None) };
        if !opened.shape.needs_recovery {
            if opened.shape.journal.is_none() && !opened.shape.has_journal_elsewhere {
                opened.state = State::Unreplayed;
            }
            return Ok(opened);
        }
        let Some(journal) = opened.shape.journal else {
            return Err(Error::unsupported("this ext4 needs its journal, which is elsewhere"));
        };
        let inode = opened.inode(u64::from(journal))?;
        let recovered = journal::recover(&opened.over, &opened.places(&inode)?)?;
        opened.state = match recovered.transactions {
            0 => State::Clean,
            transactions => State::Replayed(transactions),
        };
        opened.over.blocks = recovered.blocks;
        let mut bytes = vec![0; shape::BYTES];
        opened.over.read(shape::OFFSET, &mut bytes)?;
        let after = Shape::read(&bytes, opened.over.disk.size())?;
        if after.block_bytes != opened.shape.block_bytes {
            return Err(Error::damaged("the journal has a superblock of other blocks"));
        }
        opened.shape = after;
        Ok(opened)
    }

    /// Reads of pieces; holes and what was never written are zeros.
    fn read_places(&self, pieces: &[Piece], offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_pieces(pieces, offset, bytes, &|at, bytes| self.over.read(at, bytes))
    }

    fn file(&self, node: Node) -> Result<Inode> {
        let inode = self.inode(node)?;
        if inode.kind()? != Kind::File {
            return Err(Error::wrong_kind(format!("inode {node} is no file")));
        }
        Ok(inode)
    }

    fn places_of(&self, inode: &Inode) -> Result<Rc<Vec<Piece>>> {
        let node = u64::from(inode.number);
        if let Some((last, places)) = &*self.last.borrow()
            && *last == node
        {
            return Ok(places.clone());
        }
        let places = Rc::new(self.places(inode)?);
        *self.last.borrow_mut() = Some((node, places.clone()));
        Ok(places)
    }
}

impl Tree for Ext4 {
    fn state(&self) -> State {
        self.state
    }

    fn top(&self) -> Node {
        TOP
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
        inode.refuse_encrypted()?;
        let length = inode.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..length];
        if inode.has(INLINE) {
            let data = self.inline_bytes(&inode)?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            bytes.copy_from_slice(&data[from..from + length]);
        } else {
            self.read_places(&self.places_of(&inode)?, offset, bytes)?;
        }
        Ok(length)
    }

    fn link(&self, symlink: Node) -> Result<Vec<u8>> {
        let inode = self.inode(symlink)?;
        if inode.kind()? != Kind::Symlink {
            return Err(Error::wrong_kind(format!("inode {symlink} is no symbolic link")));
        }
        inode.refuse_encrypted()?;
        let size = inode.size();
        if size > LINK_BYTES_MAX {
            return Err(inode.damaged("is a symbolic link that is too long"));
        }
        if inode.has(INLINE) {
            return self.inline_bytes(&inode);
        }
        if size < BLOCK_BYTES as u64 {
            return Ok(inode.block()[..size as usize].to_vec());
        }
        let mut target = vec![0; size as usize];
        self.read_places(&self.places(&inode)?, 0, &mut target)?;
        Ok(target)
    }

    fn extended(&self, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.attributes_of(&self.inode(node)?)
    }
}
