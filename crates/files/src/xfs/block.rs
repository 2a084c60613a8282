//! Blocks of metadata that say what they are: where each kind has its checksum, its place, the
//! change it is of, and its owner.

use super::base::Xfs;
use super::inode::Inode;
use crate::bytes::{be16, be32, be64, le32, put};
use crate::crc::crc32c;
use crate::error::Result;

/// Sectors are what places in headers and in the log count, in bytes.
pub const SECTOR_BYTES: u64 = 512;
/// The change of a block that was written without the log.
const UNLOGGED: u64 = u64::MAX;

/// Where the fields of a header are.
pub struct Header {
    pub crc: usize,
    pub uuid: usize,
    pub lsn: usize,
    number: usize,
    owner: usize,
}

pub const DIRECTORY_BLOCK: u32 = 0x5844_4233;
pub const DIRECTORY_DATA: u32 = 0x5844_4433;
const DIRECTORY_FREE: u32 = 0x5844_4633;
pub const LINK: u32 = 0x5853_4C4D;
pub const VALUE: u32 = 0x5841_524D;
pub const EXTENTS: u32 = 0x424D_4133;
pub const SUPERBLOCK: u32 = 0x5846_5342;
/// Trees of allocation groups: free space twice, inodes twice, reverse maps, counts of sharers.
const GROUP_TREES: [u32; 6] =
    [0x4142_3342, 0x4142_3343, 0x4941_4233, 0x4649_4233, 0x524D_4233, 0x5233_4643];

pub const NODE: u16 = 0x3EBE;
pub const ATTRIBUTES: u16 = 0x3BEE;
const DIRECTORY_LEAVES: [u16; 2] = [0x3DF1, 0x3DFF];

const OF_NAMES: Header = Header { crc: 4, number: 8, lsn: 16, uuid: 24, owner: 40 };
const OF_BYTES: Header = Header { crc: 12, uuid: 16, owner: 32, number: 40, lsn: 48 };
const OF_EXTENTS: Header = Header { number: 24, lsn: 32, uuid: 40, owner: 56, crc: 64 };
const OF_HASHES: Header = Header { crc: 12, number: 16, lsn: 24, uuid: 32, owner: 48 };
const OF_GROUP: Header = Header { number: 16, lsn: 24, uuid: 32, owner: 48, crc: 52 };
/// It has neither place nor owner.
const OF_SUPERBLOCK: Header = Header { crc: 224, lsn: 240, uuid: 248, number: 0, owner: 0 };

impl Header {
    /// That of a block, if it has one that is known.
    pub fn of(block: &[u8]) -> Option<&'static Header> {
        let (word, half) = (be32(block, 0), be16(block, 8));
        Some(match word {
            DIRECTORY_BLOCK | DIRECTORY_DATA | DIRECTORY_FREE => &OF_NAMES,
            LINK | VALUE => &OF_BYTES,
            EXTENTS => &OF_EXTENTS,
            SUPERBLOCK => &OF_SUPERBLOCK,
            _ if GROUP_TREES.contains(&word) => &OF_GROUP,
            _ if half == NODE || half == ATTRIBUTES || DIRECTORY_LEAVES.contains(&half) => {
                &OF_HASHES
            }
            _ => return None,
        })
    }

    /// Stamps a block with the change that it is of now, and its checksum.
    pub fn seal(&self, block: &mut [u8], lsn: u64) {
        put(block, self.lsn, &lsn.to_be_bytes());
        let crc = checksum(block, self.crc);
        put(block, self.crc, &crc.to_le_bytes());
    }
}

/// The checksum of a structure that has it within; zeros stand in its place.
pub fn checksum(bytes: &[u8], at: usize) -> u32 {
    let at = at.min(bytes.len());
    let behind = (at + 4).min(bytes.len());
    let crc = crc32c(crc32c(u32::MAX, &bytes[..at]), &[0; 4]);
    !crc32c(crc, &bytes[behind..])
}

impl Xfs {
    /// Reads a block of metadata of an inode at a place of the disk, and checks its header.
    pub fn block_of(&self, inode: &Inode, place: u64, length: usize) -> Result<Vec<u8>> {
        let block = self.over.get(place, length)?;
        self.check_block(inode, &block, place)?;
        Ok(block)
    }

    /// Checks the header of a block that was read from there.
    pub fn check_block(&self, inode: &Inode, block: &[u8], place: u64) -> Result<()> {
        let Some(header) = Header::of(block) else {
            return Err(inode.damaged("has a block of metadata that is none"));
        };
        if checksum(block, header.crc) != le32(block, header.crc) {
            return Err(inode.damaged("has a block whose checksum does not match"));
        }
        let is_ours = block[header.uuid..header.uuid + 16] == self.shape.metadata_uuid
            && be64(block, header.number) == place / SECTOR_BYTES
            && be64(block, header.owner) == inode.number;
        if !is_ours {
            return Err(inode.damaged("has a block that belongs elsewhere"));
        }
        let lsn = be64(block, header.lsn);
        if lsn > self.newest && lsn != UNLOGGED {
            return Err(inode.damaged("has a block that is newer than the log"));
        }
        Ok(())
    }
}
