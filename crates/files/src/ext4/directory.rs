//! Directories: names one after the other. The tree of hashes lies in blocks that look empty to
//! this, and is skipped; its checksums are checked with the others.

use super::base::Ext4;
use super::inode::{INDEXED, INLINE, Inode};
use crate::bytes::{byte, le16, le32};
use crate::crc::crc32c;
use crate::error::{Error, Result};
use crate::tree::{ENTRIES_MAX, Entry, check_name};

const HEAD_BYTES: usize = 8;
const TAIL_BYTES: usize = 12;
const TAIL_TYPE: u8 = 0xDE;
/// Entries of the tree of hashes, in bytes.
const HASH_BYTES: usize = 8;
/// Where the top of a tree of hashes, and each block below it, has its count.
const TOP_COUNT_AT: usize = 0x20;
const NODE_COUNT_AT: usize = 8;
/// Of a directory within its inode, the number of its parent.
const PARENT_BYTES: usize = 4;

impl Ext4 {
    pub fn names(&self, inode: &Inode) -> Result<Vec<Entry>> {
        if !inode.is_directory() {
            return Err(Error::wrong_kind(format!("inode {} is no directory", inode.number)));
        }
        inode.refuse_encrypted()?;
        let mut entries = Vec::new();
        if inode.has(INLINE) {
            let block = inode.block().get(PARENT_BYTES..).unwrap_or_default();
            self.collect(inode, block, &mut entries)?;
            if let Some(more) = self.inline_rest(inode)? {
                self.collect(inode, &more, &mut entries)?;
            }
            return Ok(entries);
        }
        let size = inode.size();
        if !size.is_multiple_of(self.shape.block_bytes) {
            return Err(inode.damaged("is a directory of a part of a block"));
        }
        for piece in self.places(inode)? {
            let Some(place) = piece.place else {
                return Err(inode.damaged("is a directory with blocks that were never written"));
            };
            let first = place / self.shape.block_bytes;
            for index in 0..piece.length / self.shape.block_bytes {
                let offset = piece.offset + index * self.shape.block_bytes;
                if offset >= size {
                    return Ok(entries);
                }
                let block = self.over.block(first + index)?;
                self.check_block(inode, &block, offset == 0)?;
                self.collect(inode, &block, &mut entries)?;
            }
        }
        Ok(entries)
    }

    /// Adds the entries of one block.
    fn collect(&self, inode: &Inode, block: &[u8], entries: &mut Vec<Entry>) -> Result<()> {
        let mut at = 0;
        while at + HEAD_BYTES <= block.len() {
            let length = record_bytes(le16(block, at + 4), self.shape.block_bytes);
            let name_bytes = usize::from(byte(block, at + 6));
            let record = block.get(at..at.saturating_add(length));
            let record = record.filter(|record| record.len() >= HEAD_BYTES + name_bytes);
            let Some(record) = record.filter(|_| length.is_multiple_of(4)) else {
                return Err(inode.damaged("is a directory with a record that is too long"));
            };
            at += length;
            let node = le32(record, 0);
            let name = &record[HEAD_BYTES..HEAD_BYTES + name_bytes];
            if node == 0 || name == b"." || name == b".." {
                continue;
            }
            check_name(name)?;
            if entries.len() == ENTRIES_MAX {
                return Err(Error::limit(format!("a directory of more than {ENTRIES_MAX} names")));
            }
            entries.push(Entry { name: name.to_vec(), node: u64::from(node) });
        }
        Ok(())
    }

    /// The checksum of a block of names, or of a part of the tree of hashes.
    fn check_block(&self, inode: &Inode, block: &[u8], is_first: bool) -> Result<()> {
        let Some(seed) = inode.seed else { return Ok(()) };
        let wrong = || inode.damaged("is a directory with a checksum that does not match");
        let first_record = record_bytes(le16(block, 4), self.shape.block_bytes);
        let count_at = match inode.has(INDEXED) {
            true if is_first => Some(TOP_COUNT_AT),
            true if first_record == block.len() => Some(NODE_COUNT_AT),
            _ => None,
        };
        if let Some(count_at) = count_at {
            let limit = usize::from(le16(block, count_at));
            let count = usize::from(le16(block, count_at + 2));
            let (end, tail) = (count_at + count * HASH_BYTES, count_at + limit * HASH_BYTES);
            if count > limit || tail + 8 > block.len() {
                return Err(wrong());
            }
            let crc = crc32c(crc32c(seed, &block[..end]), &block[tail..tail + 4]);
            let is_right = crc32c(crc, &[0; 4]) == le32(block, tail + 4);
            return if is_right { Ok(()) } else { Err(wrong()) };
        }
        let (names, tail) = block.split_at(block.len() - TAIL_BYTES);
        let is_tail = le32(tail, 0) == 0
            && usize::from(le16(tail, 4)) == TAIL_BYTES
            && byte(tail, 7) == TAIL_TYPE;
        if is_tail && crc32c(seed, names) == le32(tail, 8) { Ok(()) } else { Err(wrong()) }
    }
}

/// The length of a record: in blocks of 64 KiB the largest does not fit its field.
fn record_bytes(field: u16, block_bytes: u64) -> usize {
    match field {
        0 | 65535 if block_bytes == 65536 => 65536,
        field => usize::from(field),
    }
}
