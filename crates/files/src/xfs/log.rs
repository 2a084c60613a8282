//! The log: a ring of sectors with records, each of them a head and data. Where it begins and ends.
//!
//! 1. The first word of each sector is the number of the turn in which it was written (in heads it
//!    is the second). Turns fall by one at the end of the log, and nowhere else; but several writes
//!    are under way at once, so just before it a sector may be left from the turn before.
//! 2. A record of which the checksum does not match ends the log, if it is one of the last that can
//!    have been under way. At the other end, one that the last writes may have been laid over is
//!    passed over. Anywhere else it is damage.

use super::header::SECTOR_BYTES;
use super::overlay::Overlay;
use super::shape::Shape;
use crate::bytes::{be32, be64, byte, le32};
use crate::crc::crc32c;
use crate::error::{Error, Result};

const MAGIC: u32 = 0xFEED_BABE;
const SECTOR: usize = SECTOR_BYTES as usize;
/// Of a head, what its checksum covers, as machines of 64 and of 32 bits have it; and of each
/// further sector of it.
const HEAD_BYTES: [usize; 2] = [328, 324];
const MORE_BYTES: usize = 260;
const CHECKSUM_AT: usize = 32;
/// Where heads, and their further sectors, have the first words of the data.
const WORDS_AT: usize = 44;
const MORE_WORDS_AT: usize = 4;
/// Sectors of data whose first words one sector of a head has.
const WORDS: usize = 64;
const LITTLE_ENDIAN: u32 = 1;
/// The data of a record, in bytes.
const RECORD_BYTES_MAX: usize = 256 << 10;
/// The longest log that the kernel takes, in sectors.
const SECTORS_MAX: u64 = (2 << 30) / SECTOR_BYTES;
const RECORD_SECTORS_MAX: u64 = (RECORD_BYTES_MAX / SECTOR + 8) as u64;
/// Records that are written at once, at most, and their sectors.
const AT_ONCE: usize = 8;
const AT_ONCE_SECTORS: u64 = (AT_ONCE * RECORD_BYTES_MAX / SECTOR) as u64;
/// What an operation has before its data, and of the one that says that all is written.
pub const OPERATION_BYTES: usize = 12;
const UNMOUNT: u8 = 0x20;
/// Sectors that are read at once when the log is gone through backwards.
const BACK_SECTORS: u64 = 128;

/// A record of the log.
pub struct Record {
    pub lsn: u64,
    pub operations: u32,
    pub data: Vec<u8>,
    /// The sector behind it.
    end: u64,
    tail: u64,
    /// The length that records may have, in bytes.
    size: u64,
    is_little_endian: bool,
    is_ours: bool,
}

/// What of the log is live.
pub struct Live {
    tail: u64,
    head: u64,
    /// The length that records may have, in bytes.
    record_bytes: u64,
    /// The end as changes are numbered.
    pub newest: u64,
    pub is_clean: bool,
}

pub struct Log<'a> {
    disk: &'a Overlay,
    at: u64,
    sectors: u64,
    uuid: [u8; 16],
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("the log: {what}"))
}

fn is_head(sector: &[u8]) -> bool {
    be32(sector, 0) == MAGIC
}

/// The turn in which a sector was written.
fn turn(sector: &[u8]) -> u32 {
    if is_head(sector) { be32(sector, 4) } else { be32(sector, 0) }
}

/// The sectors of a head.
fn head_sectors(head: &[u8]) -> u64 {
    let parts = (be32(head, 320) as usize).div_ceil(WORDS * SECTOR);
    if be32(head, 8) & 2 == 0 { 1 } else { parts.max(1) as u64 }
}

impl<'a> Log<'a> {
    pub fn new(shape: &Shape, disk: &'a Overlay) -> Result<Log<'a>> {
        let sectors = shape.log.1 / SECTOR_BYTES;
        if sectors < 2 * RECORD_SECTORS_MAX {
            return Err(damaged("it is too short"));
        }
        if sectors > SECTORS_MAX {
            return Err(damaged("it is longer than any"));
        }
        Ok(Log { disk, at: shape.log.0, sectors, uuid: shape.own_uuid })
    }

    /// The sector so many behind another, round the end.
    fn on(&self, sector: u64, count: u64) -> u64 {
        (sector + count) % self.sectors
    }

    /// How far it is from one sector on to another.
    fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.sectors - from) % self.sectors
    }

    /// Reads sectors, round the end.
    fn read(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        let until_end = ((self.sectors - first).min(count) * SECTOR_BYTES) as usize;
        let (before, behind) = bytes.split_at_mut(until_end);
        self.disk.read_disk(self.at + first * SECTOR_BYTES, before)?;
        if !behind.is_empty() {
            self.disk.read_disk(self.at, behind)?;
        }
        Ok(bytes)
    }

    fn turn_of(&self, sector: u64) -> Result<u32> {
        Ok(turn(&self.read(sector, 1)?))
    }

    /// Where the newest sectors end, by their turns alone.
    fn end_of_turn(&self) -> Result<u64> {
        let (first, last) = (self.turn_of(0)?, self.turn_of(self.sectors - 1)?);
        if first == 0 || last == 0 && first != 1 {
            return Err(damaged("it was never made"));
        }
        let mut end = self.sectors;
        if first != last {
            let mut before = 0;
            end -= 1;
            while end - before > 1 {
                let middle = before + (end - before) / 2;
                if self.turn_of(middle)? == last { end = middle } else { before = middle }
            }
        }
        // What was left out of what was written at once. In front of the log's beginning is its
        // end, of the turn before.
        let left = if first == last { last.wrapping_sub(1) } else { last };
        let count = AT_ONCE_SECTORS.min(self.sectors);
        let start = self.on(end, self.sectors - count);
        let bytes = self.read(start, count)?;
        for (index, sector) in (0..).zip(bytes.chunks_exact(SECTOR)) {
            let is_before_beginning = end + index < count;
            let left = if is_before_beginning { left.wrapping_sub(1) } else { left };
            if turn(sector) == left {
                return Ok(self.on(start, index));
            }
        }
        Ok(end % self.sectors)
    }

    /// The last head before a sector, among so many.
    fn head_before(&self, sector: u64, within: u64) -> Result<Option<u64>> {
        let mut left = within.min(self.sectors);
        let mut end = sector;
        while left > 0 {
            let count = BACK_SECTORS.min(left);
            let start = self.on(end, self.sectors - count);
            let bytes = self.read(start, count)?;
            if let Some(index) = bytes.chunks_exact(SECTOR).rposition(is_head) {
                return Ok(Some(self.on(start, index as u64)));
            }
            (left, end) = (left - count, start);
        }
        Ok(None)
    }

    /// The first head from a sector on, before another.
    fn head_from(&self, mut sector: u64, end: u64) -> Result<Option<u64>> {
        let mut left = self.distance(sector, end);
        while left > 0 {
            let count = BACK_SECTORS.min(left);
            let bytes = self.read(sector, count)?;
            if let Some(index) = bytes.chunks_exact(SECTOR).position(is_head) {
                return Ok(Some(self.on(sector, index as u64)));
            }
            (left, sector) = (left - count, self.on(sector, count));
        }
        Ok(None)
    }

    /// Reads a record; none if there is none, or one whose checksum does not match.
    fn record(&self, start: u64) -> Result<Option<Record>> {
        let head = self.read(start, 1)?;
        let length = be32(&head, 12) as usize;
        let size = u64::from(be32(&head, 320));
        let (operations, tail) = (be32(&head, 40), be64(&head, 24) & 0xFFFF_FFFF);
        let is_sound = is_head(&head)
            && matches!(be32(&head, 8), 1..=3)
            && (1..=RECORD_BYTES_MAX).contains(&length)
            && size <= RECORD_BYTES_MAX as u64
            && length as u64 <= size.max(SECTOR_BYTES * WORDS as u64)
            && tail < self.sectors;
        if !is_sound {
            return Ok(None);
        }
        let heads = head_sectors(&head);
        let sectors = (length as u64).div_ceil(SECTOR_BYTES);
        let bytes = self.read(start, heads + sectors)?;
        let (heads_bytes, data) = bytes.split_at((heads * SECTOR_BYTES) as usize);
        let is_right = HEAD_BYTES.iter().any(|&bytes| {
            record_checksum(heads_bytes, bytes, &data[..length]) == le32(&head, CHECKSUM_AT)
        });
        if !is_right {
            return Ok(None);
        }
        Ok(Some(Record {
            lsn: be64(&head, 16),
            operations,
            data: unpack(heads_bytes, &data[..length]),
            end: self.on(start, heads + sectors),
            tail,
            size,
            is_little_endian: be32(&head, 300) == LITTLE_ENDIAN,
            is_ours: head[304..320] == self.uuid,
        }))
    }

    /// Finds what is live.
    pub fn live(&self) -> Result<Live> {
        let lost = || damaged("there is no record before its end");
        let mut head = self.end_of_turn()?;
        let mut last = self.head_before(head, RECORD_SECTORS_MAX)?.ok_or_else(lost)?;
        if self.end_of(last)? != head {
            // The last record was not written whole.
            head = last;
            last = self.head_before(head, self.sectors)?.ok_or_else(lost)?;
        }
        let newest = |last: u64, head: u64| -> Result<u64> {
            // Round the end a turn more has begun.
            let turn = turn(&self.read(last, 1)?);
            let turn = if last >= head { turn.wrapping_add(1) } else { turn };
            Ok(u64::from(turn) << 32 | head)
        };
        let clean = |last, head| -> Result<Option<Live>> {
            if !self.is_unmount(last, head)? {
                return Ok(None);
            }
            let newest = newest(last, head)?;
            Ok(Some(Live { tail: head, head, record_bytes: 0, newest, is_clean: true }))
        };
        if let Some(live) = clean(last, head)? {
            return Ok(live);
        }
        let tail = be64(&self.read(last, 1)?, 24) & 0xFFFF_FFFF;
        if let Some(torn) = self.first_torn(last, head, tail)? {
            head = torn;
            let before = self.distance(tail % self.sectors, head);
            last = self.head_before(head, before)?.ok_or_else(lost)?;
            if let Some(live) = clean(last, head)? {
                return Ok(live);
            }
        }
        let record = self.record(last)?.ok_or_else(|| damaged("its last record is none"))?;
        if record.tail == head {
            return Err(damaged("it ends where it begins"));
        }
        let tail = self.head_from(record.tail, head)?.ok_or_else(lost)?;
        let newest = newest(last, head)?;
        Ok(Live { tail, head, record_bytes: record.size, newest, is_clean: false })
    }

    /// The sector behind a record, as its head says.
    fn end_of(&self, start: u64) -> Result<u64> {
        let head = self.read(start, 1)?;
        let sectors = u64::from(be32(&head, 12)).div_ceil(SECTOR_BYTES);
        Ok(self.on(start, head_sectors(&head) + sectors))
    }

    /// Whether a record says that all is written, and ends the log.
    fn is_unmount(&self, last: u64, head: u64) -> Result<bool> {
        let bytes = self.read(last, 1)?;
        if self.end_of(last)? != head || be32(&bytes, 40) != 1 {
            return Ok(false);
        }
        let data = self.read(self.on(last, head_sectors(&bytes)), 1)?;
        Ok(byte(&data, 9) & UNMOUNT != 0)
    }

    /// The first of the last records that was not written whole.
    fn first_torn(&self, last: u64, head: u64, tail: u64) -> Result<Option<u64>> {
        let mut starts = vec![last];
        while starts.len() < AT_ONCE {
            let first = starts[starts.len() - 1];
            let within = self.distance(tail % self.sectors, first);
            match self.head_before(first, within)? {
                Some(start) => starts.push(start),
                None => break,
            }
        }
        let mut at = starts[starts.len() - 1];
        while at != head {
            match self.record(at)? {
                Some(record) => {
                    let is_past = self.distance(at, record.end) > self.distance(at, head);
                    if is_past {
                        return Ok(Some(at));
                    }
                    at = record.end;
                }
                None => return Ok(Some(at)),
            }
        }
        Ok(None)
    }

    /// Goes through the live records; the sector of one that cannot be read ends it.
    pub fn records(
        &self,
        live: &Live,
        each: &mut dyn FnMut(Record) -> Result<()>,
    ) -> Result<Option<u64>> {
        let mut at = live.tail;
        while at != live.head {
            let left = self.distance(at, live.head);
            let record = self.record(at)?;
            let Some(record) = record.filter(|record| self.distance(at, record.end) <= left) else {
                return Ok(Some(at));
            };
            if !record.is_ours {
                return Err(damaged("it has a record of another file system"));
            }
            if !record.is_little_endian {
                return Err(Error::unsupported("the log of this XFS is of a big-endian machine"));
            }
            at = record.end;
            each(record)?;
        }
        Ok(None)
    }

    /// The log begins behind a record that cannot be read, if the last writes may have been laid
    /// over it.
    pub fn begin_behind(&self, live: &mut Live, bad: u64) -> Result<()> {
        let behind = self.distance(live.head, bad) * SECTOR_BYTES;
        if behind > AT_ONCE as u64 * live.record_bytes {
            return Err(damaged("a checksum does not match"));
        }
        let next = self.head_from(self.on(bad, 1), live.head)?;
        live.tail = next.ok_or_else(|| damaged("no record of it can be read"))?;
        Ok(())
    }
}

/// The checksum of a record: of its head without the checksum, of the further sectors of the head
/// that have words of its data (a short record may have more sectors than that), and of the data.
fn record_checksum(heads: &[u8], head_bytes: usize, data: &[u8]) -> u32 {
    let mut crc = crc32c(crc32c(u32::MAX, &heads[..CHECKSUM_AT]), &[0; 4]);
    crc = crc32c(crc, &heads[CHECKSUM_AT + 4..head_bytes]);
    let used = data.len().div_ceil(WORDS * SECTOR);
    for more in heads.chunks_exact(SECTOR).take(used).skip(1) {
        crc = crc32c(crc, &more[..MORE_BYTES]);
    }
    !crc32c(crc, data)
}

/// The data of a record with the first words of its sectors, which the heads have.
fn unpack(heads: &[u8], data: &[u8]) -> Vec<u8> {
    let mut unpacked = data.to_vec();
    for (index, sector) in unpacked.chunks_mut(SECTOR).enumerate() {
        let (part, word) = (index / WORDS, index % WORDS);
        let words_at = if part == 0 { WORDS_AT } else { MORE_WORDS_AT };
        let at = part * SECTOR + words_at + word * 4;
        if let (Some(word), Some(target)) = (heads.get(at..at + 4), sector.get_mut(..4)) {
            target.copy_from_slice(word);
        }
    }
    unpacked
}
