//! What a journal of jbd2 holds that the disk lacks: recovery, in memory.
//!
//! 1. Three passes: which transactions are whole; which blocks are revoked, up to which
//!    transaction; where the newest version of each other block is.
//! 2. A transaction counts if its commit block is right, and all before it count. What looks like
//!    the log and is older than it, left from a turn before, ends it; anything else that is wrong
//!    is refused, as the kernel refuses it.

use std::collections::BTreeMap;

use super::overlay::{ESCAPED, InJournal, Overlay};
use crate::bytes::{be16, be32, byte, halves};
use crate::crc::crc32c;
use crate::error::{Error, Result};
use crate::tree::Piece;

const MAGIC: u32 = 0xC03B_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOKE: u32 = 5;

const SUPERBLOCK_BYTES: usize = 1024;
const HEADER_BYTES: usize = 12;
const REVOKE_HEADER_BYTES: usize = 16;
const COMMIT_BYTES: usize = 64;
const TAIL_BYTES: usize = 4;

const CHECKSUM_V1: u32 = 0x1;
const BITS64: u32 = 0x2;
const CSUM_V2: u32 = 0x8;
const CSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;
/// Commit blocks are not written behind what they commit.
const ASYNC_COMMIT: u32 = 0x4;
/// Revokes, 64 bit, commits that are not waited for, checksums.
const INCOMPAT_KNOWN: u32 = 0x1 | BITS64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3;

const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

/// Whether one transaction's number is that of a later one: numbers go round.
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// What recovery found.
pub struct Recovered {
    pub blocks: BTreeMap<u64, InJournal>,
    pub transactions: u64,
}

/// A block that a descriptor names.
struct Tag {
    block: u64,
    flags: u32,
    checksum: u32,
}

/// A journal that is recovered.
struct Journal<'a> {
    disk: &'a Overlay,
    /// Where its blocks are: index of the first, count, block on the disk.
    runs: Vec<(u64, u64, u64)>,
    first: u32,
    length: u32,
    start: u32,
    sequence: u32,
    incompat: u32,
    /// Where checksums begin; none without them.
    seed: Option<u32>,
}

/// What a pass meets, in order.
enum Met {
    /// A descriptor, and the position of the first block behind it.
    Descriptor(Vec<u8>, u32),
    Revoke(Vec<u8>),
}

/// What the journal in these pieces of the disk holds.
pub fn recover(disk: &Overlay, pieces: &[Piece]) -> Result<Recovered> {
    let nothing = Recovered { blocks: BTreeMap::new(), transactions: 0 };
    let Some(journal) = Journal::open(disk, pieces)? else { return Ok(nothing) };
    let (end, transactions) = journal.scan()?;
    let mut revoked = BTreeMap::new();
    journal.pass(end, &mut |sequence, met| match met {
        Met::Revoke(block) => journal.revoke(&block, sequence, &mut revoked),
        Met::Descriptor(..) => Ok(()),
    })?;
    let mut blocks = BTreeMap::new();
    journal.pass(end, &mut |sequence, met| match met {
        Met::Descriptor(block, at) => journal.replay(&block, at, sequence, &revoked, &mut blocks),
        Met::Revoke(_) => Ok(()),
    })?;
    Ok(Recovered { blocks, transactions })
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("the journal: {what}"))
}

impl<'a> Journal<'a> {
    /// None if there is nothing to recover.
    fn open(disk: &'a Overlay, pieces: &[Piece]) -> Result<Option<Journal<'a>>> {
        let block_bytes = disk.block_bytes;
        let mut runs = Vec::new();
        for piece in pieces {
            let place = piece.place.ok_or_else(|| damaged("a part of it was never written"))?;
            let count = piece.length / block_bytes;
            runs.push((piece.offset / block_bytes, count, place / block_bytes));
        }
        let mut journal = Journal {
            disk,
            runs,
            first: 0,
            length: 1,
            start: 0,
            sequence: 0,
            incompat: 0,
            seed: None,
        };
        let block = journal.block(0)?;
        if be32(&block, 0) != MAGIC || u64::from(be32(&block, 12)) != block_bytes {
            return Err(damaged("its superblock is none"));
        }
        match be32(&block, 4) {
            SUPERBLOCK_V2 => journal.read_features(&block)?,
            SUPERBLOCK_V1 => {}
            _ => return Err(damaged("its superblock is none")),
        }
        journal.length = be32(&block, 16);
        journal.first = be32(&block, 20);
        journal.sequence = be32(&block, 24);
        journal.start = be32(&block, 28);
        let blocks: u64 = journal.runs.iter().map(|run| run.1).sum();
        if journal.start == 0 {
            return Ok(None);
        }
        let is_sound = (1..journal.length).contains(&journal.first)
            && u64::from(journal.length) <= blocks
            && (journal.first..journal.length).contains(&journal.start);
        if is_sound { Ok(Some(journal)) } else { Err(damaged("its superblock contradicts itself")) }
    }

    fn read_features(&mut self, block: &[u8]) -> Result<()> {
        let (compat, incompat) = (be32(block, 36), be32(block, 40));
        let is_in_use = be32(block, 28) != 0;
        if is_in_use && incompat & FAST_COMMIT != 0 {
            return Err(Error::unsupported("the journal of this ext4 uses fast commits"));
        }
        if is_in_use && compat & CHECKSUM_V1 != 0 {
            return Err(Error::unsupported("the journal of this ext4 uses checksums of version 1"));
        }
        if incompat & !(INCOMPAT_KNOWN | FAST_COMMIT) != 0 || be32(block, 44) != 0 {
            return Err(Error::unsupported("the journal of this ext4 uses unknown features"));
        }
        self.incompat = incompat;
        if incompat & (CSUM_V2 | CSUM_V3) == 0 {
            return Ok(());
        }
        let mut bytes = block[..SUPERBLOCK_BYTES].to_vec();
        bytes[252..256].fill(0);
        if byte(block, 80) != 4 || incompat & CSUM_V2 != 0 && incompat & CSUM_V3 != 0 {
            return Err(Error::unsupported("the journal of this ext4 uses unknown checksums"));
        }
        if crc32c(u32::MAX, &bytes) != be32(block, 252) {
            return Err(damaged("the checksum of its superblock does not match"));
        }
        self.seed = Some(crc32c(u32::MAX, &block[48..64]));
        Ok(())
    }

    /// The place on the disk of a block of the journal, in bytes.
    fn place(&self, index: u32) -> Result<u64> {
        let index = u64::from(index);
        let after = self.runs.partition_point(|run| run.0 <= index);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        let block = run.filter(|run| index - run.0 < run.1).map(|run| run.2 + (index - run.0));
        let hole = || damaged("there is a hole in it");
        block.map(|block| block * self.disk.block_bytes).ok_or_else(hole)
    }

    fn block(&self, index: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.disk.block_bytes as usize];
        self.disk.read_disk(self.place(index)?, &mut bytes)?;
        Ok(bytes)
    }

    /// The position so many blocks on, round the end.
    fn on(&self, index: u32, count: u32) -> u32 {
        let around = u64::from(self.length - self.first);
        let from = u64::from(index - self.first);
        self.first + ((from + u64::from(count)) % around) as u32
    }

    /// The first pass: the number behind the last whole transaction, and how many there are.
    fn scan(&self) -> Result<(u32, u64)> {
        let (mut sequence, mut at) = (self.sequence, self.start);
        let mut transactions = 0;
        let mut last_commit_time = 0;
        // A descriptor or revoke block whose checksum does not match: left from a turn before, or
        // damage. The time of the commit behind it tells which.
        let mut is_in_doubt = false;
        let mut left = self.length - self.first;
        while left > 0 {
            let block = self.block(at)?;
            if be32(&block, 0) != MAGIC || be32(&block, 8) != sequence {
                break;
            }
            let mut passed = 1;
            match be32(&block, 4) {
                DESCRIPTOR => {
                    is_in_doubt |= !self.is_tail_right(&block);
                    passed += self.tags(&block).len() as u32;
                }
                REVOKE => is_in_doubt |= !self.is_tail_right(&block),
                COMMIT => {
                    let time = halves(be32(&block, 52), be32(&block, 48));
                    let is_right = !is_in_doubt && self.is_commit_right(&block);
                    // Older than what came before it: left from a turn before.
                    let is_left = time < last_commit_time;
                    let may_be_torn = !is_in_doubt && self.incompat & ASYNC_COMMIT != 0;
                    match is_right {
                        true => {}
                        false if is_left || may_be_torn => break,
                        false => return Err(damaged("a checksum does not match")),
                    }
                    last_commit_time = time;
                    sequence = sequence.wrapping_add(1);
                    transactions += 1;
                }
                _ => break,
            }
            left = left.saturating_sub(passed);
            at = self.on(at, passed);
        }
        Ok((sequence, transactions))
    }

    /// A later pass, over the transactions before `end`.
    fn pass(&self, end: u32, each: &mut dyn FnMut(u32, Met) -> Result<()>) -> Result<()> {
        let (mut sequence, mut at) = (self.sequence, self.start);
        while is_after(end, sequence) {
            let block = self.block(at)?;
            if be32(&block, 0) != MAGIC || be32(&block, 8) != sequence {
                return Err(damaged("a transaction ends before its commit"));
            }
            let behind = self.on(at, 1);
            at = behind;
            match be32(&block, 4) {
                COMMIT => sequence = sequence.wrapping_add(1),
                kind @ (DESCRIPTOR | REVOKE) => {
                    if !self.is_tail_right(&block) {
                        return Err(damaged("a checksum does not match"));
                    }
                    if kind == DESCRIPTOR {
                        at = self.on(behind, self.tags(&block).len() as u32);
                        each(sequence, Met::Descriptor(block, behind))?;
                    } else {
                        each(sequence, Met::Revoke(block))?;
                    }
                }
                _ => return Err(damaged("a block of an unknown kind")),
            }
        }
        Ok(())
    }

    /// The bytes at the end of descriptors and revoke blocks that are their checksum.
    fn tail_bytes(&self) -> usize {
        if self.seed.is_some() { TAIL_BYTES } else { 0 }
    }

    fn is_tail_right(&self, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let (bytes, tail) = block.split_at(block.len() - TAIL_BYTES);
        crc32c(crc32c(seed, bytes), &[0; TAIL_BYTES]) == be32(tail, 0)
    }

    fn is_commit_right(&self, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let told = be32(block, 16);
        let mut bytes = block.to_vec();
        bytes[16..20].fill(0);
        if crc32c(seed, &bytes) == told {
            return true;
        }
        // Some kernels left what was there behind the commit's own bytes.
        bytes[COMMIT_BYTES..].fill(0);
        crc32c(seed, &bytes) == told
    }

    fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let is_64bit = self.incompat & BITS64 != 0;
        let is_v3 = self.incompat & CSUM_V3 != 0;
        let bytes = match (is_v3, self.incompat & CSUM_V2 != 0) {
            (true, _) => 16,
            (false, true) => 10,
            (false, false) => 8,
        } + if is_64bit && !is_v3 { 4 } else { 0 };
        let end = block.len() - self.tail_bytes();
        let mut tags = Vec::new();
        let mut at = HEADER_BYTES;
        while at + bytes <= end {
            let (flags, checksum) = if is_v3 {
                (be32(block, at + 4), be32(block, at + 12))
            } else {
                (u32::from(be16(block, at + 6)), u32::from(be16(block, at + 4)))
            };
            let high = if is_64bit { be32(block, at + 8) } else { 0 };
            tags.push(Tag { block: halves(be32(block, at), high), flags, checksum });
            at += bytes;
            if flags & TAG_SAME_UUID == 0 {
                at += 16;
            }
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    fn is_tag_right(&self, tag: &Tag, sequence: u32, block: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let crc = crc32c(crc32c(seed, &sequence.to_be_bytes()), block);
        if self.incompat & CSUM_V3 != 0 {
            crc == tag.checksum
        } else {
            crc & 0xFFFF == tag.checksum
        }
    }

    /// The second pass: blocks that are revoked, each up to its latest transaction.
    fn revoke(&self, block: &[u8], sequence: u32, revoked: &mut BTreeMap<u64, u32>) -> Result<()> {
        let end = be32(block, 12) as usize;
        if !(REVOKE_HEADER_BYTES..=block.len() - self.tail_bytes()).contains(&end) {
            return Err(damaged("a revoke block is longer than it is"));
        }
        let bytes = if self.incompat & BITS64 != 0 { 8 } else { 4 };
        for record in block[REVOKE_HEADER_BYTES..end].chunks_exact(bytes) {
            let number = match bytes {
                8 => halves(be32(record, 4), be32(record, 0)),
                _ => u64::from(be32(record, 0)),
            };
            let latest = revoked.entry(number).or_insert(sequence);
            if is_after(sequence, *latest) {
                *latest = sequence;
            }
        }
        Ok(())
    }

    /// The third pass: where the blocks of a descriptor are.
    fn replay(
        &self,
        descriptor: &[u8],
        mut at: u32,
        sequence: u32,
        revoked: &BTreeMap<u64, u32>,
        blocks: &mut BTreeMap<u64, InJournal>,
    ) -> Result<()> {
        for tag in self.tags(descriptor) {
            let place = self.place(at)?;
            let index = at;
            at = self.on(at, 1);
            if revoked.get(&tag.block).is_some_and(|latest| !is_after(sequence, *latest)) {
                continue;
            }
            if self.seed.is_some() && !self.is_tag_right(&tag, sequence, &self.block(index)?) {
                let what = format!("the checksum of block {} does not match", tag.block);
                return Err(damaged(&what));
            }
            let is_escaped = tag.flags & TAG_ESCAPED != 0;
            blocks.insert(tag.block, InJournal { at: place, is_escaped });
        }
        Ok(())
    }
}

const _: () = assert!(u32::from_be_bytes(ESCAPED) == MAGIC);
