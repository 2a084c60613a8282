//! Inodes: what is known of an object, its two forks (data, and extended attributes), and its own
//! checksum.

use super::base::Xfs;
use super::header::checksum;
use crate::bytes::{be16, be32, be64, byte, le32};
use crate::error::{Error, Result};
use crate::tree::{Attributes, Identity, Kind, Time};

pub const MAGIC: u16 = 0x494E;
pub const VERSION: u8 = 3;
/// What an inode has before its forks.
pub const CORE_BYTES: usize = 176;
pub const CHECKSUM_AT: usize = 100;
pub const LSN_AT: usize = 112;
pub const FORK_AT: usize = 82;
pub const FLAGS2_AT: usize = 120;

const REALTIME: u16 = 0x1;
/// Times are nanoseconds since 1901.
pub const BIG_TIMES: u64 = 0x8;
/// Counts of extents are of 64 and 32 bits.
const BIG_COUNTS: u64 = 0x10;
const NANOS: u64 = 1_000_000_000;

/// How a fork holds what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The number of a device.
    Device,
    /// The bytes themselves.
    Local,
    /// A list of extents.
    Extents,
    /// The top of a tree of extents.
    Tree,
}

/// One of the two forks of an inode.
#[derive(Clone, Copy)]
pub struct Fork<'a> {
    pub format: Format,
    pub bytes: &'a [u8],
    /// Extents that it has, all in all.
    pub extents: u64,
}

/// An inode.
pub struct Inode {
    pub number: u64,
    pub bytes: Vec<u8>,
}

/// Where the second fork begins, from the first.
pub fn fork_at(bytes: &[u8]) -> usize {
    usize::from(byte(bytes, FORK_AT)) * 8
}

impl Inode {
    pub fn size(&self) -> u64 {
        be64(&self.bytes, 56)
    }

    pub fn kind(&self) -> Result<Kind> {
        Kind::of_mode(be16(&self.bytes, 2)).ok_or_else(|| self.damaged("is of no kind"))
    }

    pub fn damaged(&self, what: &str) -> Error {
        Error::damaged(format!("inode {} {what}", self.number))
    }

    fn flags2(&self) -> u64 {
        be64(&self.bytes, FLAGS2_AT)
    }

    fn format(&self, at: usize) -> Result<Format> {
        Ok(match byte(&self.bytes, at) {
            0 => Format::Device,
            1 => Format::Local,
            2 => Format::Extents,
            3 => Format::Tree,
            _ => return Err(self.damaged("has a fork of no format")),
        })
    }

    /// The fork of its data.
    pub fn data(&self) -> Result<Fork<'_>> {
        if be16(&self.bytes, 90) & REALTIME != 0 {
            let number = self.number;
            return Err(Error::unsupported(format!("inode {number} is on a realtime device")));
        }
        let has_big = self.flags2() & BIG_COUNTS != 0;
        let extents =
            if has_big { be64(&self.bytes, 24) } else { u64::from(be32(&self.bytes, 76)) };
        let forks = &self.bytes[CORE_BYTES..];
        let end = if fork_at(&self.bytes) == 0 { forks.len() } else { fork_at(&self.bytes) };
        Ok(Fork { format: self.format(5)?, bytes: &forks[..end], extents })
    }

    /// The fork of its extended attributes, if it has one.
    pub fn attribute_fork(&self) -> Result<Option<Fork<'_>>> {
        let start = fork_at(&self.bytes);
        if start == 0 {
            return Ok(None);
        }
        let has_big = self.flags2() & BIG_COUNTS != 0;
        let extents =
            if has_big { be32(&self.bytes, 76) } else { u32::from(be16(&self.bytes, 80)) };
        let bytes = &self.bytes[CORE_BYTES + start..];
        Ok(Some(Fork { format: self.format(83)?, bytes, extents: u64::from(extents) }))
    }

    fn time(&self, at: usize) -> Result<Time> {
        if self.flags2() & BIG_TIMES == 0 {
            let (seconds, nanos) = (be32(&self.bytes, at) as i32, be32(&self.bytes, at + 4));
            if u64::from(nanos) >= NANOS {
                return Err(self.damaged("has a time that is none"));
            }
            return Ok(Time { seconds: i64::from(seconds), nanos });
        }
        let since = be64(&self.bytes, at);
        let seconds = (since / NANOS) as i64 + i64::from(i32::MIN);
        Ok(Time { seconds, nanos: (since % NANOS) as u32 })
    }

    pub fn attributes(&self) -> Result<Attributes> {
        let bytes = &self.bytes;
        let kind = self.kind()?;
        let device = be32(&self.bytes, CORE_BYTES);
        let is_device = matches!(kind, Kind::BlockDevice | Kind::CharacterDevice);
        Ok(Attributes {
            kind,
            mode: be16(bytes, 2) & 0o7777,
            owner: Some((be32(bytes, 8), be32(bytes, 12))),
            size: self.size(),
            links: be32(bytes, 16),
            identity: Identity { inode: self.number, generation: be32(bytes, 92) },
            modified: Some(self.time(40)?),
            changed: Some(self.time(48)?),
            accessed: Some(self.time(32)?),
            device: is_device.then_some((device >> 18, device & 0x3_FFFF)),
        })
    }
}

impl Xfs {
    /// An inode that is in use.
    pub fn inode(&self, number: u64) -> Result<Inode> {
        let at = self.shape.inode_at(number)?;
        let inode = Inode { number, bytes: self.over.get(at, self.shape.inode_bytes)? };
        let bytes = &inode.bytes;
        if be16(bytes, 0) != MAGIC || byte(bytes, 4) != VERSION {
            return Err(inode.damaged("is none"));
        }
        if checksum(bytes, CHECKSUM_AT) != le32(bytes, CHECKSUM_AT) {
            return Err(inode.damaged("has a checksum that does not match"));
        }
        if be64(bytes, 152) != number || bytes[160..176] != self.shape.metadata_uuid {
            return Err(inode.damaged("is another one"));
        }
        if be64(bytes, LSN_AT) > self.newest {
            return Err(inode.damaged("is newer than the log"));
        }
        if be16(bytes, 2) == 0 || be32(bytes, 16) == 0 {
            return Err(inode.damaged("has a name and is not in use"));
        }
        if CORE_BYTES + fork_at(bytes) > bytes.len() || inode.size() > i64::MAX as u64 {
            return Err(inode.damaged("is larger than it is"));
        }
        Ok(inode)
    }
}
