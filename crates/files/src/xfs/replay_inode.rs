//! Inodes of the log: chunks that are new, and changes of single ones. Their fields are as the
//! machine had them, least byte first.

use super::header::checksum;
use super::inode::{
    BIG_TIMES, CHECKSUM_AT, CORE_BYTES, FLAGS2_AT, LSN_AT, MAGIC, VERSION, fork_at,
};
use super::places::{NODE_BYTES, TOP_BYTES};
use super::replay::{Replay, damaged};
use super::transactions::Item;
use crate::bytes::{be16, be32, be64, byte, le16, le32, le64, put};
use crate::error::{Error, Result};

/// The first region of an inode's item, of machines of 64 bits.
const FORMAT_BYTES: usize = 56;
const CORE: u32 = 0x001;
const DEVICE: u32 = 0x010;
/// Bytes, extents, or a tree's top: of the data, and of the attributes.
const DATA: [u32; 3] = [0x002, 0x004, 0x008];
const ATTRIBUTES: [u32; 3] = [0x040, 0x080, 0x100];
/// Trees were given to another inode.
const OWNERS: u32 = 0x600;

/// Fields of an inode: where they are, and their bytes. The times, and what is not here, follow.
const FIELDS: [(usize, usize); 25] = [
    (0, 2),
    (2, 2),
    (4, 1),
    (5, 1),
    (6, 2),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (24, 8),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 4),
    (80, 2),
    (82, 1),
    (83, 1),
    (84, 4),
    (88, 2),
    (90, 2),
    (92, 4),
    (104, 8),
    (120, 8),
    (128, 4),
];
const TIMES: [usize; 4] = [32, 40, 48, 144];
const NUMBER_AT: usize = 152;
const UUID_AT: usize = 160;
const NEXT_AT: usize = 96;
const GENERATION_AT: usize = 92;
/// Inodes of a chunk, where a block does not have more; and of all that one log makes.
const CHUNK_INODES: u64 = 64;
const MADE_MAX: u64 = 1 << 23;
const ENTRY_BYTES: usize = 16;
const KEY_BYTES: usize = 8;

/// Copies a field the other way round.
fn turn(from: &[u8], to: &mut [u8], at: usize, bytes: usize) {
    let mut field = from[at..at + bytes].to_vec();
    field.reverse();
    put(to, at, &field);
}

fn seal(inode: &mut [u8]) {
    let crc = checksum(inode, CHECKSUM_AT);
    put(inode, CHECKSUM_AT, &crc.to_le_bytes());
}

impl Replay<'_> {
    /// A chunk of inodes that nobody uses yet.
    pub fn inodes(&mut self, bytes: &[u8]) -> Result<()> {
        let (group, within) = (be32(bytes, 4), be32(bytes, 8));
        let (count, blocks) = (u64::from(be32(bytes, 12)), u64::from(be32(bytes, 20)));
        let (inode_bytes, block_bytes) = (self.shape.inode_bytes, self.shape.block_bytes);
        let most = CHUNK_INODES.max(block_bytes / inode_bytes as u64);
        let is_sound = (1..=most).contains(&count)
            && be32(bytes, 16) as usize == inode_bytes
            && count * inode_bytes as u64 == blocks * block_bytes;
        if !is_sound {
            return Err(damaged("new inodes contradict themselves"));
        }
        let first = self.shape.block_in_group(group, within);
        let at = self.shape.place(first, blocks)?;
        let cluster = self.shape.cluster_blocks;
        let sectors = |blocks: u64| blocks * block_bytes / super::header::SECTOR_BYTES;
        let mut starts = (0..blocks / cluster).map(|index| index * cluster);
        let start = sectors(at / block_bytes);
        if starts.any(|from| self.is_cancelled((start + sectors(from), sectors(cluster)))) {
            return Ok(());
        }
        self.made += count;
        if self.made > MADE_MAX {
            return Err(Error::limit(format!("the log makes more than {MADE_MAX} inodes")));
        }
        for index in 0..count {
            let number = self.shape.first_inode(first) + index;
            let mut inode = vec![0; inode_bytes];
            put(&mut inode, 0, &MAGIC.to_be_bytes());
            put(&mut inode, 4, &[VERSION]);
            put(&mut inode, GENERATION_AT, &be32(bytes, 24).to_be_bytes());
            put(&mut inode, NEXT_AT, &u32::MAX.to_be_bytes());
            put(&mut inode, NUMBER_AT, &number.to_be_bytes());
            put(&mut inode, UUID_AT, &self.shape.metadata_uuid);
            seal(&mut inode);
            self.over.write(at + index * inode_bytes as u64, &inode)?;
        }
        Ok(())
    }

    /// A change of one inode.
    pub fn inode(&mut self, item: &Item) -> Result<()> {
        let format = &item.regions[0];
        if format.len() != FORMAT_BYTES {
            return Err(Error::unsupported("the log of this XFS is of a machine of 32 bits"));
        }
        let (fields, number) = (le32(format, 4), le64(format, 16));
        let (sector, sectors) = (le64(format, 40), u64::from(le32(format, 48)));
        if self.is_cancelled((sector, sectors)) {
            return Ok(());
        }
        let at = self.within(sector, sectors)?.0 + u64::from(le32(format, 52));
        if self.shape.inode_at(number)? != at {
            return Err(damaged("an inode is in another place than its own"));
        }
        let mut inode = self.over.get(at, self.shape.inode_bytes)?;
        if be16(&inode, 0) != MAGIC || byte(&inode, 4) != VERSION {
            return Err(damaged("an inode is changed that is none"));
        }
        // It gets its checksum anew, so what it had must be right.
        if checksum(&inode, CHECKSUM_AT) != le32(&inode, CHECKSUM_AT) {
            return Err(damaged("it changes an inode whose checksum does not match"));
        }
        if fields & OWNERS != 0 {
            return Err(Error::unsupported("the log of this XFS swaps the extents of files"));
        }
        // An inode may be changed several times within one record.
        let lsn = be64(&inode, LSN_AT);
        if lsn != 0 && lsn != u64::MAX && lsn > self.lsn {
            return Ok(());
        }
        let mut rest = item.regions[1..].iter();
        let core = rest.next().filter(|core| core.len() == CORE_BYTES && fields & CORE != 0);
        let core = core.ok_or_else(|| damaged("an inode is changed without its core"))?;
        if le16(core, 0) != MAGIC || le64(core, NUMBER_AT) != number {
            return Err(damaged("an inode is changed to another one"));
        }
        core_to_disk(core, &mut inode, self.lsn);
        put(&mut inode, UUID_AT, &self.shape.metadata_uuid);
        let split = match fork_at(&inode) {
            0 => inode.len(),
            fork => CORE_BYTES + fork,
        };
        let forks = inode
            .get_mut(CORE_BYTES..)
            .and_then(|forks| forks.split_at_mut_checked(split.saturating_sub(CORE_BYTES)));
        let (data, attributes) = forks.ok_or_else(|| damaged("an inode has too long a fork"))?;
        if fields & DEVICE != 0 {
            put(data, 0, &le32(format, 24).to_be_bytes());
        }
        for (fork, kinds) in [(data, DATA), (attributes, ATTRIBUTES)] {
            let is_tree = fields & kinds[2] != 0;
            if kinds.iter().any(|kind| fields & kind != 0) {
                let region = rest.next().ok_or_else(|| damaged("an inode lacks a fork"))?;
                fork_to_disk(region, fork, is_tree)?;
            }
        }
        seal(&mut inode);
        self.over.write(at, &inode)
    }
}

/// What an inode has before its forks, as disks have it.
fn core_to_disk(core: &[u8], inode: &mut [u8], lsn: u64) {
    for (at, bytes) in FIELDS {
        turn(core, inode, at, bytes);
    }
    for at in TIMES {
        if le64(core, FLAGS2_AT) & BIG_TIMES != 0 {
            turn(core, inode, at, 8);
        } else {
            turn(core, inode, at, 4);
            turn(core, inode, at + 4, 4);
        }
    }
    turn(core, inode, NUMBER_AT, 8);
    put(inode, LSN_AT, &lsn.to_be_bytes());
    put(inode, 132, &[0; 12]);
}

/// A fork, as disks have it. The top of a tree has a longer head in the log, and keys and places
/// are packed for the room that it has there.
fn fork_to_disk(region: &[u8], fork: &mut [u8], is_tree: bool) -> Result<()> {
    let wrong = || damaged("an inode has too long a fork");
    if !is_tree {
        fork.get_mut(..region.len()).ok_or_else(wrong)?.copy_from_slice(region);
        return Ok(());
    }
    let count = usize::from(be16(region, 6));
    let room_there = region.len().saturating_sub(NODE_BYTES) / ENTRY_BYTES;
    let room_here = fork.len().saturating_sub(TOP_BYTES) / ENTRY_BYTES;
    if region.len() < NODE_BYTES || count > room_there || count > room_here {
        return Err(wrong());
    }
    put(fork, 0, &region[4..8]);
    put(fork, TOP_BYTES, &region[NODE_BYTES..NODE_BYTES + count * KEY_BYTES]);
    let places = &region[NODE_BYTES + room_there * KEY_BYTES..][..count * 8];
    put(fork, TOP_BYTES + room_here * KEY_BYTES, places);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fork_to_disk;

    #[test]
    fn a_top_of_a_tree_that_is_too_short_or_too_long_is_damage() {
        let mut fork = [0; 4 + 2 * 16];
        let top = |count: u8, bytes: usize| {
            let mut top = vec![0; bytes];
            top[5] = 1;
            top[7] = count;
            top
        };
        for (count, bytes) in [(0, 16), (0, 71), (1, 72), (1, 87), (3, 72 + 3 * 16)] {
            assert!(fork_to_disk(&top(count, bytes), &mut fork, true).is_err(), "{count}, {bytes}");
        }
        assert!(fork_to_disk(&[0; 37], &mut fork, false).is_err());
        let mut whole = top(1, 72 + 3 * 16);
        whole[72..80].fill(5);
        whole[72 + 3 * 8..][..8].fill(6);
        fork_to_disk(&whole, &mut fork, true).unwrap();
        let expected = [&[0, 1, 0, 1][..], &[5; 8], &[0; 8], &[6; 8], &[0; 8]].concat();
        assert_eq!(fork[..], expected[..]);
    }
}
