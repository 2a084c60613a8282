//! The superblock: how an XFS is laid out, and what it uses.

use super::header::{SUPERBLOCK, checksum};
use crate::bytes::{be16, be32, be64, byte, le32, text, uuid};
use crate::error::{Error, Result};

/// What of the superblock is read to know the rest, in bytes.
pub const BYTES: usize = 512;
const CHECKSUM_AT: usize = 224;

/// Read-only features that are known: the tree of free inodes, reverse maps, shared blocks, counts
/// of the blocks of inode trees.
const RO_COMPAT_KNOWN: u32 = 0xF;
const KINDS: u32 = 0x1;
const METADATA_UUID: u32 = 0x4;
const NEEDS_REPAIR: u32 = 0x10;
/// Incompatible ones: kinds in names, sparse chunks of inodes, an identity of the metadata, times
/// beyond 2038, counts of extents of 64 bits, exchange of ranges, parents in attributes.
const INCOMPAT_KNOWN: u32 = KINDS | 0x2 | METADATA_UUID | 0x8 | NEEDS_REPAIR | 0x20 | 0x40 | 0x80;
/// Attributes as steps in the log.
const LOG_INCOMPAT_KNOWN: u32 = 0x1;

/// Clusters of inodes are read and written at once: so many bytes for inodes of 256.
const CLUSTER_BYTES: u64 = 8192;
const SMALL_INODE_BYTES: u64 = 256;
/// Of one directory block, in bytes.
const DIRECTORY_BYTES_MAX: u64 = 65536;

/// What the superblock says.
#[derive(Clone, Debug)]
pub struct Shape {
    pub block_bytes: u64,
    pub blocks: u64,
    pub groups: u64,
    pub group_blocks: u64,
    /// Bits of a block's number that tell it within its group.
    group_bits: u32,
    pub inode_bytes: usize,
    /// Bits of an inode's number that tell it within its block.
    inode_bits: u32,
    /// Blocks of inodes that are written at once.
    pub cluster_blocks: u64,
    /// The length of a block of names.
    pub directory_bytes: usize,
    /// The inode of the directory at the top.
    pub top: u64,
    /// Where the log is, and its length, in bytes.
    pub log: (u64, u64),
    pub label: Vec<u8>,
    pub uuid: String,
    /// The identity as records of the log have it, and as blocks have it.
    pub own_uuid: [u8; 16],
    pub metadata_uuid: [u8; 16],
    /// Names have the kind of their object beside them.
    pub has_kinds: bool,
}

/// Whether it is a superblock at all.
pub fn is_one(bytes: &[u8]) -> bool {
    be32(bytes, 0) == SUPERBLOCK
}

/// The length of the superblock's sector, if it can be one.
pub fn sector_bytes(bytes: &[u8]) -> Option<usize> {
    let length = usize::from(be16(bytes, 102));
    (length.is_power_of_two() && (512..=32768).contains(&length)).then_some(length)
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("the superblock of this XFS {what}"))
}

fn uuid_at(bytes: &[u8], at: usize) -> [u8; 16] {
    let mut found = [0; 16];
    found.copy_from_slice(&bytes[at..at + 16]);
    found
}

impl Shape {
    /// Reads a superblock, which is a whole sector, of a disk of so many bytes.
    pub fn read(bytes: &[u8], disk_bytes: u64) -> Result<Shape> {
        let incompat = features(bytes)?;
        let block_bytes = u64::from(be32(bytes, 4));
        let inode_bytes = u64::from(be16(bytes, 104));
        let cluster_bytes = CLUSTER_BYTES * (inode_bytes / SMALL_INODE_BYTES).max(1);
        let is_aligned = u64::from(be32(bytes, 180)) >= cluster_bytes / block_bytes.max(1);
        let cluster_bytes = if is_aligned { cluster_bytes } else { CLUSTER_BYTES };
        let has_own = incompat & METADATA_UUID != 0;
        let mut shape = Shape {
            block_bytes,
            blocks: be64(bytes, 8),
            groups: u64::from(be32(bytes, 88)),
            group_blocks: u64::from(be32(bytes, 84)),
            group_bits: u32::from(byte(bytes, 124)),
            inode_bytes: inode_bytes as usize,
            inode_bits: u32::from(byte(bytes, 123)),
            cluster_blocks: (cluster_bytes / block_bytes.max(1)).max(1),
            directory_bytes: 0,
            top: be64(bytes, 56),
            log: (0, 0),
            label: text(&bytes[108..120]).to_vec(),
            uuid: uuid(&bytes[32..48]),
            own_uuid: uuid_at(bytes, 32),
            metadata_uuid: uuid_at(bytes, if has_own { 248 } else { 32 }),
            has_kinds: incompat & KINDS != 0,
        };
        let directory_bits = u32::from(byte(bytes, 192)).min(16);
        shape.check(bytes, directory_bits, disk_bytes)?;
        shape.directory_bytes = (block_bytes << directory_bits) as usize;
        let (log, log_blocks) = (be64(bytes, 48), u64::from(be32(bytes, 96)));
        if log == 0 {
            return Err(Error::unsupported("this XFS has its log elsewhere"));
        }
        let place =
            shape.place(log, log_blocks).map_err(|_| damaged("has no place for its log"))?;
        shape.log = (place, log_blocks * block_bytes);
        Ok(shape)
    }

    fn check(&self, bytes: &[u8], directory_bits: u32, disk_bytes: u64) -> Result<()> {
        let is_power = |number: u64, from: u64, to: u64| {
            number.is_power_of_two() && (from..=to).contains(&number)
        };
        let sector = u64::from(be16(bytes, 102));
        let is_sound = is_power(self.block_bytes, 512, 65536)
            && is_power(sector, 512, self.block_bytes)
            && is_power(self.inode_bytes as u64, 512, self.block_bytes.min(2048))
            && self.block_bytes << directory_bits <= DIRECTORY_BYTES_MAX
            && self.block_bytes / self.inode_bytes as u64 == 1 << self.inode_bits.min(63)
            && (1..=31).contains(&self.group_bits)
            && self.group_blocks.checked_next_power_of_two() == Some(1 << self.group_bits)
            && self.groups > 0
            && self.blocks > (self.groups - 1) * self.group_blocks
            && self.blocks <= self.groups * self.group_blocks;
        if byte(bytes, 126) != 0 {
            return Err(damaged("says that it is not made yet"));
        }
        if !is_sound {
            return Err(damaged("contradicts itself"));
        }
        if self.blocks.checked_mul(self.block_bytes).is_none_or(|bytes| bytes > disk_bytes) {
            return Err(Error::damaged(format!(
                "XFS has {} blocks of {} bytes, and its part {disk_bytes} bytes",
                self.blocks, self.block_bytes
            )));
        }
        Ok(())
    }

    /// Takes the length from a superblock of the log, if it is larger there.
    pub fn grow(&mut self, bytes: &[u8], disk_bytes: u64) -> Result<()> {
        let (blocks, groups) = (be64(bytes, 8), u64::from(be32(bytes, 88)));
        if blocks <= self.blocks {
            return Ok(());
        }
        let (all, before) = (groups.checked_mul(self.group_blocks), groups.saturating_sub(1));
        let is_sound = all.is_some_and(|all| blocks <= all)
            && blocks > before * self.group_blocks
            && blocks.checked_mul(self.block_bytes).is_some_and(|bytes| bytes <= disk_bytes);
        if !is_sound {
            return Err(damaged("has a length in the log that it cannot have"));
        }
        (self.blocks, self.groups) = (blocks, groups);
        Ok(())
    }

    /// Whether what recovery relied on is the same.
    pub fn is_laid_out_as(&self, other: &Shape) -> bool {
        let layout = |shape: &Shape| {
            let group = (shape.group_blocks, shape.group_bits, shape.inode_bits);
            let bytes = (shape.block_bytes, shape.inode_bytes, shape.directory_bytes);
            (group, bytes, shape.top, shape.log, shape.metadata_uuid)
        };
        layout(self) == layout(other)
    }

    /// Where blocks are, in bytes of the disk; they are of one group.
    pub fn place(&self, block: u64, count: u64) -> Result<u64> {
        let (group, within) = (block >> self.group_bits, block & ((1 << self.group_bits) - 1));
        let outside = || Error::damaged("there are blocks outside of the disk");
        let is_within = within.checked_add(count).is_some_and(|end| end <= self.group_blocks);
        if group >= self.groups || !is_within {
            return Err(outside());
        }
        let first = group * self.group_blocks + within;
        if first == 0 || first + count > self.blocks {
            return Err(outside());
        }
        Ok(first * self.block_bytes)
    }

    /// The number of the block that is so far within a group, as [`Shape::place`] takes it.
    pub fn block_in_group(&self, group: u32, within: u32) -> u64 {
        u64::from(group) << self.group_bits | u64::from(within)
    }

    /// The number of the first inode of a block.
    pub fn first_inode(&self, block: u64) -> u64 {
        block << self.inode_bits
    }

    /// Where an inode is, in bytes of the disk.
    pub fn inode_at(&self, inode: u64) -> Result<u64> {
        let block = self.place(inode >> self.inode_bits, 1);
        let block = block.map_err(|_| Error::damaged(format!("there is no inode {inode}")))?;
        let index = inode & ((1 << self.inode_bits) - 1);
        Ok(block + index * self.inode_bytes as u64)
    }
}

/// The incompatible features; all that is used is known to us.
fn features(bytes: &[u8]) -> Result<u32> {
    if bytes.len() < BYTES || !is_one(bytes) {
        return Err(damaged("is none"));
    }
    let version = be16(bytes, 100) & 0xF;
    if version != 5 {
        return Err(Error::unsupported(format!("this XFS is of version {version}, without sums")));
    }
    if sector_bytes(bytes) != Some(bytes.len()) {
        return Err(damaged("contradicts itself"));
    }
    if checksum(bytes, CHECKSUM_AT) != le32(bytes, CHECKSUM_AT) {
        return Err(damaged("has a checksum that does not match"));
    }
    let (compat, ro_compat) = (be32(bytes, 208), be32(bytes, 212));
    let (incompat, in_log) = (be32(bytes, 216), be32(bytes, 220));
    let unknown = [
        compat,
        ro_compat & !RO_COMPAT_KNOWN,
        incompat & !INCOMPAT_KNOWN,
        in_log & !LOG_INCOMPAT_KNOWN,
    ];
    if unknown != [0; 4] {
        return Err(Error::unsupported(format!("this XFS uses unknown features ({unknown:x?})")));
    }
    if incompat & NEEDS_REPAIR != 0 {
        return Err(Error::unsupported("this XFS says that it needs xfs_repair"));
    }
    Ok(incompat)
}
