//! Directories: names within the inode, or in blocks one after the other. The trees of hashes and
//! the lists of free space lie behind them in the directory's own offsets, and are not looked at.
//! The targets of symbolic links are here too.

use std::collections::BTreeSet;

use super::base::Xfs;
use super::header::{DIRECTORY_BLOCK, DIRECTORY_DATA, LINK};
use super::inode::{Format, Inode};
use crate::bytes::{be16, be32, be64, byte};
use crate::error::{Error, Result};
use crate::pieces::read_pieces;
use crate::tree::{ENTRIES_MAX, Entry, Kind, check_name};

/// Where names end and hashes begin, in bytes of the directory.
const NAMES_END: u64 = 32 << 30;
const HEAD_BYTES: usize = 64;
/// At the end of a single block: a count, one that is void, and before them an entry for each name.
const TAIL_BYTES: usize = 8;
const LEAF_BYTES: usize = 8;
const UNUSED: u16 = 0xFFFF;
/// Before a name its inode and its length; behind it its kind, and where the record is.
const NAME_AT: usize = 9;
const TAG_BYTES: usize = 2;
const ALIGNMENT: usize = 8;
/// The head of a part of a target.
const LINK_HEAD_BYTES: usize = 56;
const TARGET_BYTES_MAX: u64 = 1024;

fn add(entries: &mut Vec<Entry>, name: &[u8], node: u64) -> Result<()> {
    if name == b"." || name == b".." {
        return Ok(());
    }
    check_name(name)?;
    if entries.len() == ENTRIES_MAX {
        return Err(Error::limit(format!("a directory of more than {ENTRIES_MAX} names")));
    }
    entries.push(Entry { name: name.to_vec(), node });
    Ok(())
}

impl Xfs {
    pub fn names(&self, inode: &Inode) -> Result<Vec<Entry>> {
        if inode.kind()? != Kind::Directory {
            return Err(Error::wrong_kind(format!("inode {} is no directory", inode.number)));
        }
        let fork = inode.data()?;
        if fork.format == Format::Local {
            return self.short(inode, fork.bytes);
        }
        let pieces = self.places(inode, fork)?;
        let mut entries = Vec::new();
        let bytes = self.shape.directory_bytes;
        let is_single = inode.size() == bytes as u64;
        let hole = || inode.damaged("is a directory with a hole in a block");
        let (mut past, mut seen) = (0, BTreeSet::new());
        for piece in &pieces {
            // A block may be in several pieces; it begins in one of them.
            let first = piece.offset.next_multiple_of(bytes as u64);
            if first != piece.offset && piece.offset != past {
                return Err(hole());
            }
            past = piece.offset + piece.length;
            for offset in (first..past.min(NAMES_END)).step_by(bytes) {
                let place = piece.place.ok_or_else(hole)? + (offset - piece.offset);
                if !seen.insert(place) {
                    return Err(inode.damaged("is a directory that has a block twice"));
                }
                let mut block = vec![0; bytes];
                read_pieces(&pieces, offset, &mut block, &|at, bytes| self.over.read(at, bytes))?;
                self.check_block(inode, &block, place)?;
                self.collect(inode, &block, is_single, &mut entries)?;
            }
        }
        Ok(entries)
    }

    /// Names within the inode.
    fn short(&self, inode: &Inode, fork: &[u8]) -> Result<Vec<Entry>> {
        let wrong = || inode.damaged("is a directory whose names are longer than it is");
        let size = usize::try_from(inode.size()).ok();
        let bytes = size.and_then(|size| fork.get(..size)).ok_or_else(wrong)?;
        let number_bytes = if byte(bytes, 1) == 0 { 4 } else { 8 };
        let kind_bytes = usize::from(self.shape.has_kinds);
        let mut entries = Vec::new();
        let mut at = 2 + number_bytes;
        for _ in 0..byte(bytes, 0) {
            let name_at = at + 3;
            let number_at = name_at + usize::from(byte(bytes, at)) + kind_bytes;
            let end = number_at + number_bytes;
            if end > bytes.len() {
                return Err(wrong());
            }
            let node = match number_bytes {
                4 => u64::from(be32(bytes, number_at)),
                _ => be64(bytes, number_at),
            };
            add(&mut entries, &bytes[name_at..number_at - kind_bytes], node)?;
            at = end;
        }
        if at != bytes.len() {
            return Err(inode.damaged("is a directory with bytes behind its names"));
        }
        Ok(entries)
    }

    /// Adds the names of one block.
    fn collect(
        &self,
        inode: &Inode,
        block: &[u8],
        is_single: bool,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let wrong = || inode.damaged("is a directory with a record that is too long");
        let end = match be32(block, 0) {
            DIRECTORY_DATA => block.len(),
            DIRECTORY_BLOCK if is_single => {
                let tail = block.len() - TAIL_BYTES;
                let leaves = (be32(block, tail) as usize).checked_mul(LEAF_BYTES);
                leaves.and_then(|leaves| tail.checked_sub(leaves)).ok_or_else(wrong)?
            }
            _ => return Err(inode.damaged("is a directory with a block that is none of its own")),
        };
        let mut at = HEAD_BYTES;
        while at < end {
            let length = if be16(block, at) == UNUSED {
                usize::from(be16(block, at + 2))
            } else {
                let name = usize::from(byte(block, at + 8));
                let kind_bytes = usize::from(self.shape.has_kinds);
                let length = (NAME_AT + name + kind_bytes + TAG_BYTES).next_multiple_of(ALIGNMENT);
                if at + length <= end {
                    let name = &block[at + NAME_AT..at + NAME_AT + name];
                    add(entries, name, be64(block, at))?;
                }
                length
            };
            let is_sound = length > 0
                && length.is_multiple_of(ALIGNMENT)
                && at + length <= end
                && usize::from(be16(block, at + length - TAG_BYTES)) == at;
            if !is_sound {
                return Err(wrong());
            }
            at += length;
        }
        Ok(())
    }

    /// Where a symbolic link leads.
    pub fn target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let size = inode.size();
        if size == 0 || size > TARGET_BYTES_MAX {
            return Err(inode.damaged("is a symbolic link of a length that none has"));
        }
        let fork = inode.data()?;
        let size = size as usize;
        if fork.format == Format::Local {
            let target = fork.bytes.get(..size).map(<[u8]>::to_vec);
            return target.ok_or_else(|| inode.damaged("is longer than it is"));
        }
        let mut target = Vec::new();
        for piece in self.places(inode, fork)? {
            let place = piece.place.filter(|_| piece.length <= TARGET_BYTES_MAX * 64);
            let place = place.ok_or_else(|| inode.damaged("is a symbolic link with a hole"))?;
            let block = self.block_of(inode, place, piece.length as usize)?;
            let length = (size - target.len()).min(block.len() - LINK_HEAD_BYTES);
            let is_next = be32(&block, 0) == LINK
                && be32(&block, 4) as usize == target.len()
                && be32(&block, 8) as usize == length;
            if !is_next {
                return Err(inode.damaged("is a symbolic link whose parts do not fit"));
            }
            target.extend(&block[LINK_HEAD_BYTES..LINK_HEAD_BYTES + length]);
            if target.len() == size {
                return Ok(target);
            }
        }
        Err(inode.damaged("is a symbolic link that is shorter than it is"))
    }
}
