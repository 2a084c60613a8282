//! The superblock: how an ext4 is laid out, and what it uses.

use crate::bytes::{byte, halves, le16, le32, text, uuid};
use crate::crc::{crc16, crc32c};
use crate::error::{Error, Result};

/// Where the superblock is, in bytes, and its length.
pub const OFFSET: u64 = 1024;
pub const BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;

const HAS_JOURNAL: u32 = 0x4;
const SPARSE_SUPER2: u32 = 0x200;

const RECOVER: u32 = 0x4;
const META_BG: u32 = 0x10;
const BITS64: u32 = 0x80;
const EA_INODE: u32 = 0x400;
const CSUM_SEED: u32 = 0x2000;
/// What may be there: file types in names, recovery, meta block groups, extents, 64 bit, multiple
/// mount protection, flexible groups, attributes in inodes, the seed, large directories, inline
/// data, encryption (refused file by file), case folding.
const INCOMPAT_KNOWN: u32 = 0x2
    | RECOVER
    | META_BG
    | 0x40
    | BITS64
    | 0x100
    | 0x200
    | EA_INODE
    | CSUM_SEED
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x2_0000;

const SPARSE_SUPER: u32 = 0x1;
const GROUP_CRC16: u32 = 0x10;
const BIGALLOC: u32 = 0x200;
const METADATA_CSUM: u32 = 0x400;

/// What the superblock says.
#[derive(Clone, Debug)]
pub struct Shape {
    pub block_bytes: u64,
    pub blocks: u64,
    pub inodes: u32,
    pub inodes_per_group: u32,
    pub inode_bytes: usize,
    pub label: Vec<u8>,
    pub uuid: String,
    /// Where every checksum of metadata begins; none without them.
    pub seed: Option<u32>,
    /// Of a journal within; none without.
    pub journal: Option<u32>,
    /// The journal is elsewhere.
    pub has_journal_elsewhere: bool,
    /// The journal holds what the disk lacks.
    pub needs_recovery: bool,
    /// `ext2`, `ext3`, `ext4`: as `blkid` tells them apart.
    pub kind: &'static str,
    first_block: u64,
    blocks_per_group: u64,
    descriptor_bytes: usize,
    is_64bit: bool,
    first_meta_group: Option<u64>,
    /// Groups with a copy of the superblock, as `has_copy` reads it.
    ro_compat: u32,
    copies: Option<[u32; 2]>,
    /// Of the older checksum of groups.
    group_crc16: Option<u16>,
}

/// Whether it is a superblock at all.
pub fn is_one(bytes: &[u8]) -> bool {
    le16(bytes, 0x38) == MAGIC
}

impl Shape {
    /// Reads a superblock of a disk of so many bytes.
    pub fn read(bytes: &[u8], disk_bytes: u64) -> Result<Shape> {
        let (compat, incompat, ro_compat) = features(bytes)?;
        let full_uuid = &bytes[0x68..0x78];
        let seed = seed_of(bytes, incompat, ro_compat)?;
        let is_64bit = incompat & BITS64 != 0;
        let has_dynamic = le32(bytes, 0x4C) != 0;
        let journal = (compat & HAS_JOURNAL != 0).then(|| le32(bytes, 0xE0));
        let shape = Shape {
            block_bytes: 1024 << le32(bytes, 0x18).min(31),
            blocks: halves(le32(bytes, 4), if is_64bit { le32(bytes, 0x150) } else { 0 }),
            inodes: le32(bytes, 0),
            inodes_per_group: le32(bytes, 0x28),
            inode_bytes: if has_dynamic { usize::from(le16(bytes, 0x58)) } else { 128 },
            label: text(&bytes[0x78..0x88]).to_vec(),
            uuid: uuid(full_uuid),
            seed,
            journal: journal.filter(|&inode| inode != 0),
            has_journal_elsewhere: journal == Some(0),
            needs_recovery: incompat & RECOVER != 0,
            kind: kind(compat, incompat, ro_compat),
            first_block: u64::from(le32(bytes, 0x14)),
            blocks_per_group: u64::from(le32(bytes, 0x20)),
            descriptor_bytes: if is_64bit { usize::from(le16(bytes, 0xFE)) } else { 32 },
            is_64bit,
            first_meta_group: (incompat & META_BG != 0).then(|| u64::from(le32(bytes, 0x104))),
            ro_compat,
            copies: (compat & SPARSE_SUPER2 != 0).then(|| [le32(bytes, 0x24C), le32(bytes, 0x250)]),
            group_crc16: (ro_compat & GROUP_CRC16 != 0 && seed.is_none())
                .then(|| crc16(u16::MAX, full_uuid)),
        };
        shape.check(disk_bytes)?;
        Ok(shape)
    }

    fn check(&self, disk_bytes: u64) -> Result<()> {
        let is_sound = (1024..=65536).contains(&self.block_bytes)
            && self.blocks > 0
            && self.inodes > 0
            && self.inodes_per_group > 0
            && (8..=self.block_bytes * 8).contains(&self.blocks_per_group)
            && (128..=self.block_bytes as usize).contains(&self.inode_bytes)
            && self.inode_bytes.is_power_of_two()
            && (32..=1024).contains(&self.descriptor_bytes)
            && (!self.is_64bit || self.descriptor_bytes >= 64)
            && self.descriptor_bytes.is_power_of_two()
            && self.first_block == u64::from(self.block_bytes == 1024);
        if !is_sound {
            return Err(Error::damaged("the superblock of ext4 contradicts itself"));
        }
        if self.blocks.checked_mul(self.block_bytes).is_none_or(|bytes| bytes > disk_bytes) {
            return Err(Error::damaged(format!(
                "ext4 has {} blocks of {} bytes, and its part {disk_bytes} bytes",
                self.blocks, self.block_bytes
            )));
        }
        Ok(())
    }

    /// Where the descriptor of a group is, in bytes.
    fn descriptor_at(&self, group: u64) -> u64 {
        let per_block = self.block_bytes / self.descriptor_bytes as u64;
        let (number, within) = (group / per_block, group % per_block);
        let block = match self.first_meta_group {
            Some(first) if number >= first => {
                let head = number * per_block;
                self.first_block + head * self.blocks_per_group + u64::from(self.has_copy(head))
            }
            _ => self.first_block + 1 + number,
        };
        block * self.block_bytes + within * self.descriptor_bytes as u64
    }

    /// Whether a group begins with a copy of the superblock.
    fn has_copy(&self, group: u64) -> bool {
        let is_power = |of: u64| {
            let mut power = of;
            while power < group {
                power *= of;
            }
            power == group
        };
        if group == 0 {
            return true;
        }
        if let Some(copies) = self.copies {
            return copies.iter().any(|&copy| u64::from(copy) == group);
        }
        self.ro_compat & SPARSE_SUPER == 0 || group == 1 || [3, 5, 7].into_iter().any(is_power)
    }

    /// Where an inode is, in bytes; `read` reads bytes at an offset.
    pub fn inode_at(
        &self,
        inode: u32,
        read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<u64> {
        if inode == 0 || inode > self.inodes {
            return Err(Error::damaged(format!("there is no inode {inode} of {}", self.inodes)));
        }
        let (group, within) =
            ((inode - 1) / self.inodes_per_group, (inode - 1) % self.inodes_per_group);
        let mut descriptor = vec![0; self.descriptor_bytes];
        read(self.descriptor_at(u64::from(group)), &mut descriptor)?;
        self.check_descriptor(group, &descriptor)?;
        let high = if self.is_64bit { le32(&descriptor, 0x28) } else { 0 };
        let table = halves(le32(&descriptor, 8), high);
        let offset = table
            .checked_mul(self.block_bytes)
            .and_then(|table| table.checked_add(u64::from(within) * self.inode_bytes as u64))
            .filter(|offset| offset / self.block_bytes < self.blocks);
        let outside = || Error::damaged(format!("the inodes of group {group} are outside"));
        offset.filter(|_| table != 0).ok_or_else(outside)
    }

    fn check_descriptor(&self, group: u32, descriptor: &[u8]) -> Result<()> {
        let told = le16(descriptor, 0x1E);
        let number = group.to_le_bytes();
        let found = if let Some(seed) = self.seed {
            let crc = crc32c(crc32c(seed, &number), &descriptor[..0x1E]);
            crc32c(crc32c(crc, &[0, 0]), &descriptor[0x20..]) as u16
        } else if let Some(crc) = self.group_crc16 {
            let crc = crc16(crc16(crc, &number), &descriptor[..0x1E]);
            crc16(crc, if self.is_64bit { &descriptor[0x20..] } else { &[] })
        } else {
            return Ok(());
        };
        if found == told {
            return Ok(());
        }
        Err(Error::damaged(format!("the checksum of group {group} does not match")))
    }
}

/// What is used, all of it known to us.
fn features(bytes: &[u8]) -> Result<(u32, u32, u32)> {
    if bytes.len() < BYTES || !is_one(bytes) {
        return Err(Error::damaged("there is no superblock of ext4"));
    }
    if le32(bytes, 0x4C) == 0 {
        return Ok((0, 0, 0));
    }
    let (compat, incompat, ro_compat) = (le32(bytes, 0x5C), le32(bytes, 0x60), le32(bytes, 0x64));
    let named = [(0x1, "compression"), (0x8, "a journal of another disk"), (0x1000, "dirdata")];
    for (bit, name) in named {
        if incompat & bit != 0 {
            return Err(Error::unsupported(format!("this ext4 uses {name}")));
        }
    }
    if incompat & !INCOMPAT_KNOWN != 0 {
        let bits = incompat & !INCOMPAT_KNOWN;
        return Err(Error::unsupported(format!("this ext4 uses unknown features ({bits:#x})")));
    }
    if ro_compat & BIGALLOC != 0 {
        return Err(Error::unsupported("this ext4 uses bigalloc"));
    }
    Ok((compat, incompat, ro_compat))
}

/// Where checksums begin; the superblock's own is checked.
fn seed_of(bytes: &[u8], incompat: u32, ro_compat: u32) -> Result<Option<u32>> {
    if ro_compat & METADATA_CSUM == 0 {
        return Ok(None);
    }
    if byte(bytes, 0x175) != 1 {
        return Err(Error::unsupported("this ext4 uses an unknown kind of checksum"));
    }
    if crc32c(u32::MAX, &bytes[..0x3FC]) != le32(bytes, 0x3FC) {
        return Err(Error::damaged("the checksum of ext4's superblock does not match"));
    }
    Ok(Some(if incompat & CSUM_SEED != 0 {
        le32(bytes, 0x270)
    } else {
        crc32c(u32::MAX, &bytes[0x68..0x78])
    }))
}

fn kind(compat: u32, incompat: u32, ro_compat: u32) -> &'static str {
    // What ext3 knows: file types, recovery, meta groups; sparse copies, large files.
    if incompat & !(0x2 | RECOVER | META_BG) != 0 || ro_compat & !0x7 != 0 {
        "ext4"
    } else if compat & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    }
}
