//! Blocks of metadata, which say what they are: reading one is checking it.

use super::base::Xfs;
use super::header::{Header, SECTOR_BYTES, checksum};
use super::inode::Inode;
use crate::bytes::{be64, le32};
use crate::error::Result;

/// The change of a block that was written without the log.
const UNLOGGED: u64 = u64::MAX;

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
