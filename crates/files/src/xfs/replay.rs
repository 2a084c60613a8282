//! Recovery of the log, in memory: what it holds that the disk lacks.
//!
//! 1. Two passes over whole transactions: which buffers are cancelled, how often; then the changes,
//!    in order. A buffer that is cancelled later is not replayed before that.
//! 2. A change is left out if its block, or inode, is of that change or a later one already.
//! 3. What is changed is stamped with its change, and gets its checksum, once all that began in the
//!    same record are replayed.
//! 4. Left out altogether: quotas, allocation groups, the lists of inodes that were removed while
//!    they were open. No name or byte depends on them.
//! 5. What is done in several steps tells its intent first. An intent without its end is refused if
//!    files would show what is left to do; what only frees or counts blocks is left.

use std::collections::{BTreeMap, BTreeSet};

use super::header::{Header, SECTOR_BYTES, SUPERBLOCK, checksum};
use super::log::Log;
use super::overlay::Overlay;
use super::shape::Shape;
use super::transactions::{Item, Transaction, Transactions};
use crate::bytes::{be32, be64, le16, le32, le64};
use crate::error::{Error, Result};

const INODE: u16 = 0x123B;
const BUFFER: u16 = 0x123C;
const QUOTA: [u16; 2] = [0x123D, 0x123E];
const INODES: u16 = 0x123F;
/// Of freeing blocks, of the reverse map, of the counts of sharers: intents and ends.
const OF_SPACE: [u16; 6] = [0x1236, 0x1237, 0x1240, 0x1241, 0x1242, 0x1243];
/// Intents that files show, each with its end behind it.
const OF_EXTENTS: u16 = 0x1244;
const OF_ATTRIBUTES: u16 = 0x1246;
const OF_EXCHANGE: u16 = 0x1248;
/// The steps of attributes that are names of parents, which are not shown.
const OF_PARENTS: [u32; 3] = [4, 5, 6];

const OF_INODES: u16 = 1;
const CANCELLED: u16 = 2;
const OF_QUOTA: u16 = 4 | 8 | 16;
const KIND_SHIFT: u32 = 11;
/// Kinds of buffers: the heads of allocation groups, and blocks of names.
const OF_GROUPS: [u16; 3] = [5, 6, 7];
const OF_NAMES: [u16; 2] = [10, 11];
/// A buffer is changed in chunks, of which a map has a bit each.
const CHUNK_BYTES: usize = 128;
const MAP_AT: usize = 20;
/// The longest buffer, in bytes: a cluster of the largest inodes, or a block of the largest.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The longest sector that a superblock has, in bytes.
const SUPERBLOCK_BYTES_MAX: usize = 32 << 10;
/// Buffers that are cancelled, and intents without their end, at most.
const REMEMBERED_MAX: usize = 1 << 22;

/// What recovery found.
pub struct Recovered {
    /// All was written, so nothing was recovered.
    pub is_clean: bool,
    pub transactions: u64,
    /// The end of the log.
    pub newest: u64,
}

pub struct Replay<'a> {
    pub shape: &'a Shape,
    pub over: &'a mut Overlay,
    /// How often a buffer (its first sector, and their count) is cancelled from here on.
    cancelled: BTreeMap<(u64, u64), u32>,
    /// The change that is replayed.
    pub lsn: u64,
    /// Buffers that are of this change now: where they are, and their length in bytes.
    changed: BTreeSet<(u64, usize)>,
    /// Inodes that were made new.
    pub made: u64,
    /// Intents without their end yet.
    intents: BTreeMap<(u16, u64), &'static str>,
}

pub fn damaged(what: &str) -> Error {
    Error::damaged(format!("the log: {what}"))
}

/// Lays over the disk what the log holds.
pub fn recover(shape: &Shape, over: &mut Overlay) -> Result<Recovered> {
    let log_disk =
        Overlay { disk: over.disk.clone(), block_bytes: over.block_bytes, blocks: BTreeMap::new() };
    let log = Log::new(shape, &log_disk)?;
    let mut live = log.live()?;
    let newest = live.newest;
    if live.is_clean {
        return Ok(Recovered { is_clean: true, transactions: 0, newest });
    }
    let sector = over.get(0, SUPERBLOCK_BYTES_MAX)?;
    let (cancelled, shape) = loop {
        let (mut cancelled, mut superblock) = (BTreeMap::new(), sector.clone());
        let mut shape = shape.clone();
        let mut open = Transactions::default();
        let bad = log.records(&live, &mut |record| {
            open.take((record.lsn, record.operations), &record.data, &mut |whole| {
                cancels(&whole, &mut cancelled)?;
                grows(&whole, &mut superblock, &mut shape, over.disk.size())
            })
        })?;
        match bad {
            None => break (cancelled, shape),
            Some(bad) => log.begin_behind(&mut live, bad)?,
        }
    };
    let (lsn, changed, intents) = (0, BTreeSet::new(), BTreeMap::new());
    let mut replay = Replay { shape: &shape, over, cancelled, lsn, changed, made: 0, intents };
    let mut open = Transactions::default();
    let mut transactions = 0;
    let bad = log.records(&live, &mut |record| {
        open.take((record.lsn, record.operations), &record.data, &mut |whole| {
            transactions += 1;
            replay.transaction(&whole)
        })
    })?;
    if bad.is_some() {
        return Err(damaged("it reads otherwise than before"));
    }
    replay.seal()?;
    if let Some(what) = replay.intents.values().next() {
        return Err(Error::unsupported(format!("the log of this XFS ends within {what}")));
    }
    Ok(Recovered { is_clean: false, transactions, newest })
}

/// The first pass.
fn cancels(whole: &Transaction, cancelled: &mut BTreeMap<(u64, u64), u32>) -> Result<()> {
    for item in &whole.items {
        if item.kind() == BUFFER {
            let buffer = Buffer::of(item)?;
            if buffer.flags & CANCELLED != 0 {
                *cancelled.entry(buffer.key).or_insert(0) += 1;
            }
        }
    }
    if cancelled.len() > REMEMBERED_MAX {
        return Err(Error::limit("the log cancels more buffers than are remembered"));
    }
    Ok(())
}

/// The file system may have been made larger by what the log holds, which tells of blocks beyond
/// the end that the disk has on record.
fn grows(
    whole: &Transaction,
    superblock: &mut [u8],
    shape: &mut Shape,
    disk_bytes: u64,
) -> Result<()> {
    for item in whole.items.iter().filter(|item| item.kind() == BUFFER) {
        let buffer = Buffer::of(item)?;
        if buffer.key.0 == 0 && buffer.flags & CANCELLED == 0 {
            buffer.lay(item, superblock)?;
            shape.grow(superblock, disk_bytes)?;
        }
    }
    Ok(())
}

/// What the first region of a buffer's item tells.
struct Buffer<'a> {
    flags: u16,
    /// Its first sector, and their count.
    key: (u64, u64),
    map: &'a [u8],
}

impl Buffer<'_> {
    fn of(item: &Item) -> Result<Buffer<'_>> {
        let wrong = || damaged("a buffer contradicts itself");
        let bytes = &item.regions[0];
        let map_bytes = (le32(bytes, 16) as usize).checked_mul(4);
        let map = map_bytes.and_then(|map| bytes.get(MAP_AT..)?.get(..map));
        let key = (le64(bytes, 8), u64::from(le16(bytes, 6)));
        let map = map.filter(|_| key.1 > 0).ok_or_else(wrong)?;
        Ok(Buffer { flags: le16(bytes, 4), key, map })
    }

    fn has(&self, chunk: usize) -> bool {
        self.map.get(chunk / 8).is_some_and(|byte| byte >> (chunk % 8) & 1 != 0)
    }

    /// How many bytes of it the item has.
    fn told_bytes(&self) -> usize {
        self.map.iter().map(|byte| byte.count_ones() as usize).sum::<usize>() * CHUNK_BYTES
    }

    /// Lays what the item has over the bytes of the buffer.
    fn lay(&self, item: &Item, bytes: &mut [u8]) -> Result<()> {
        let wrong = || damaged("a buffer is longer than it is");
        let mut regions = item.regions[1..].iter();
        let mut chunk = 0;
        while chunk < self.map.len() * 8 {
            if !self.has(chunk) {
                chunk += 1;
                continue;
            }
            let region = regions.next().ok_or_else(wrong)?;
            let chunks = region.len() / CHUNK_BYTES;
            let from = chunk * CHUNK_BYTES;
            let target = bytes.get_mut(from..from + region.len()).ok_or_else(wrong)?;
            let is_in_map = chunks > 0 && (chunk..chunk + chunks).all(|chunk| self.has(chunk));
            if !is_in_map || !region.len().is_multiple_of(CHUNK_BYTES) {
                return Err(damaged("a buffer contradicts itself"));
            }
            target.copy_from_slice(region);
            chunk += chunks;
        }
        Ok(())
    }
}

impl Replay<'_> {
    pub fn is_cancelled(&self, key: (u64, u64)) -> bool {
        self.cancelled.contains_key(&key)
    }

    /// Where a buffer of so many sectors is, in bytes, if there is one.
    pub fn within(&self, sector: u64, sectors: u64) -> Result<(u64, usize)> {
        let end = sector.checked_add(sectors).and_then(|end| end.checked_mul(SECTOR_BYTES));
        let is_within = end.is_some_and(|end| end <= self.shape.blocks * self.shape.block_bytes);
        let length = sectors.saturating_mul(SECTOR_BYTES);
        if !is_within || length > BUFFER_BYTES_MAX as u64 {
            return Err(damaged("a buffer is outside of the disk"));
        }
        Ok((sector * SECTOR_BYTES, length as usize))
    }

    /// The second pass: buffers and new inodes first, then inodes, then what is cancelled.
    fn transaction(&mut self, whole: &Transaction) -> Result<()> {
        if self.lsn != whole.lsn {
            self.seal()?;
            self.lsn = whole.lsn;
        }
        for item in &whole.items {
            match item.kind() {
                BUFFER => self.buffer(item)?,
                INODES => self.inodes(&item.regions[0])?,
                _ => {}
            }
        }
        for item in &whole.items {
            match item.kind() {
                BUFFER | INODES => {}
                INODE => self.inode(item)?,
                kind if QUOTA.contains(&kind) || OF_SPACE.contains(&kind) => {}
                kind => self.intent(kind, &item.regions[0])?,
            }
        }
        for item in whole.items.iter().filter(|item| item.kind() == BUFFER) {
            let buffer = Buffer::of(item)?;
            if buffer.flags & CANCELLED != 0
                && let Some(times) = self.cancelled.get_mut(&buffer.key)
            {
                *times -= 1;
                if *times == 0 {
                    self.cancelled.remove(&buffer.key);
                }
            }
        }
        Ok(())
    }

    fn intent(&mut self, kind: u16, bytes: &[u8]) -> Result<()> {
        let number = le64(bytes, 8);
        let what = match kind {
            OF_EXTENTS => "a change of extents",
            OF_ATTRIBUTES if OF_PARENTS.contains(&(le32(bytes, 24) & 0xFF)) => return Ok(()),
            OF_ATTRIBUTES => "a change of extended attributes",
            OF_EXCHANGE => "an exchange of extents",
            end if [OF_EXTENTS, OF_ATTRIBUTES, OF_EXCHANGE].contains(&end.wrapping_sub(1)) => {
                self.intents.remove(&(end - 1, number));
                return Ok(());
            }
            _ => {
                let text = format!("the log of this XFS has items of an unknown kind ({kind:#x})");
                return Err(Error::unsupported(text));
            }
        };
        self.intents.insert((kind, number), what);
        if self.intents.len() > REMEMBERED_MAX {
            return Err(Error::limit("the log has more intents than are remembered"));
        }
        Ok(())
    }

    fn buffer(&mut self, item: &Item) -> Result<()> {
        let buffer = Buffer::of(item)?;
        let kind = buffer.flags >> KIND_SHIFT;
        let is_left_out = buffer.flags & (CANCELLED | OF_INODES | OF_QUOTA) != 0
            || OF_GROUPS.contains(&kind)
            || self.is_cancelled(buffer.key)
            || buffer.told_bytes() == 0;
        if is_left_out {
            return Ok(());
        }
        let (at, length) = self.within(buffer.key.0, buffer.key.1)?;
        if OF_NAMES.contains(&kind) && length != self.shape.directory_bytes {
            return Err(Error::unsupported("the log of this XFS has directory blocks in pieces"));
        }
        let mut bytes = self.over.get(at, length)?;
        if self.is_done(&bytes) {
            return Ok(());
        }
        self.check_whole(at, &bytes, buffer.told_bytes())?;
        buffer.lay(item, &mut bytes)?;
        self.over.write(at, &bytes)?;
        self.changed.insert((at, length));
        Ok(())
    }

    /// A block of which only a part is changed gets its checksum anew, so what it had must be
    /// right. One of several blocks of the disk may be left over from another in part.
    fn check_whole(&self, at: u64, block: &[u8], changed_bytes: usize) -> Result<()> {
        let (length, is_one) = (block.len(), block.len() as u64 <= self.shape.block_bytes);
        let Some(header) = Header::of(block).filter(|_| is_one && changed_bytes < length) else {
            return Ok(());
        };
        let is_ours = match be32(block, 0) {
            SUPERBLOCK => at == 0,
            _ => {
                block.get(header.uuid..header.uuid + 16) == Some(&self.shape.metadata_uuid)
                    && be64(block, header.number) == at / SECTOR_BYTES
            }
        };
        // What else is there was not written as metadata of this place.
        if !is_ours {
            return Ok(());
        }
        let is_open = self.changed.range((at.saturating_sub(BUFFER_BYTES_MAX as u64), 0)..);
        let mut is_open = is_open.take_while(|(start, _)| *start < at + length as u64);
        // Its checksum comes with those that are of the same change.
        if is_open.any(|(start, bytes)| start + *bytes as u64 > at) {
            return Ok(());
        }
        match checksum(block, header.crc) == le32(block, header.crc) {
            true => Ok(()),
            false => Err(damaged("it changes a block whose checksum does not match")),
        }
    }

    /// Whether a block is of this change, or of a later one, already.
    fn is_done(&self, block: &[u8]) -> bool {
        let Some(header) = Header::of(block) else { return false };
        // A superblock has two identities; the second is only there if they differ.
        let has_own = self.shape.metadata_uuid != self.shape.own_uuid;
        let uuid = if be32(block, 0) == SUPERBLOCK && !has_own { 32 } else { header.uuid };
        let is_ours = block.get(uuid..uuid + 16);
        if is_ours != Some(&self.shape.metadata_uuid) {
            return false;
        }
        let lsn = be64(block, header.lsn);
        lsn != 0 && lsn != u64::MAX && lsn >= self.lsn
    }

    /// All that is of one change is in its place: stamps and checksums.
    fn seal(&mut self) -> Result<()> {
        for (at, length) in std::mem::take(&mut self.changed) {
            let mut bytes = self.over.get(at, length)?;
            if let Some(header) = Header::of(&bytes) {
                header.seal(&mut bytes, self.lsn);
                self.over.write(at, &bytes)?;
            }
        }
        Ok(())
    }
}
