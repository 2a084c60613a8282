//! Inodes: what is known of an object, its time stamps, and its own checksum.

use super::base::Ext4;
use crate::bytes::{halves, le16, le32};
use crate::crc::crc32c;
use crate::error::{Error, Result};
use crate::tree::{Attributes, Identity, Kind, Time};

/// Inodes of old have this length; what is behind it is only there if the inode says so.
pub const OLD_BYTES: usize = 128;
/// Where an inode has the places of its blocks, or its few bytes, and their length.
pub const BLOCK_AT: usize = 0x28;
pub const BLOCK_BYTES: usize = 60;

pub const ENCRYPTED: u32 = 0x800;
pub const INDEXED: u32 = 0x1000;
pub const EXTENTS: u32 = 0x8_0000;
pub const INLINE: u32 = 0x1000_0000;

/// An inode.
pub struct Inode {
    pub number: u32,
    pub bytes: Vec<u8>,
    /// Where it is, in bytes of the disk.
    pub at: u64,
    /// Where the checksums of what belongs to it begin.
    pub seed: Option<u32>,
}

impl Inode {
    pub fn flags(&self) -> u32 {
        le32(&self.bytes, 0x20)
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    pub fn size(&self) -> u64 {
        halves(le32(&self.bytes, 4), le32(&self.bytes, 0x6C))
    }

    pub fn kind(&self) -> Result<Kind> {
        Kind::of_mode(le16(&self.bytes, 0)).ok_or_else(|| self.damaged("is of no kind"))
    }

    pub fn is_directory(&self) -> bool {
        self.kind().is_ok_and(|kind| kind == Kind::Directory)
    }

    /// The sixty bytes that are places, a tree's top, or data.
    pub fn block(&self) -> &[u8] {
        &self.bytes[BLOCK_AT..BLOCK_AT + BLOCK_BYTES]
    }

    /// Where the extended attributes within it begin.
    pub fn extra_end(&self) -> usize {
        OLD_BYTES + self.extra()
    }

    fn extra(&self) -> usize {
        if self.bytes.len() > OLD_BYTES { usize::from(le16(&self.bytes, 0x80)) } else { 0 }
    }

    /// Refuses names and bytes that only a key could read.
    pub fn refuse_encrypted(&self) -> Result<()> {
        if self.has(ENCRYPTED) {
            let number = self.number;
            return Err(Error::unsupported(format!("inode {number} is encrypted")));
        }
        Ok(())
    }

    pub fn damaged(&self, what: &str) -> Error {
        Error::damaged(format!("inode {} {what}", self.number))
    }

    fn time(&self, at: usize, extra_at: usize) -> Result<Time> {
        // The seconds are signed; two bits of the extra field go on with them past 2038.
        let seconds = i64::from(le32(&self.bytes, at) as i32);
        if self.extra_end() < extra_at + 4 {
            return Ok(Time { seconds, nanos: 0 });
        }
        let extra = le32(&self.bytes, extra_at);
        if extra >> 2 >= 1_000_000_000 {
            return Err(self.damaged("has a time that is none"));
        }
        Ok(Time { seconds: seconds + (i64::from(extra & 3) << 32), nanos: extra >> 2 })
    }

    fn device(&self, kind: Kind) -> Option<(u32, u32)> {
        if !matches!(kind, Kind::BlockDevice | Kind::CharacterDevice) {
            return None;
        }
        let (old, new) = (le32(self.block(), 0), le32(self.block(), 4));
        Some(if old != 0 {
            (old >> 8 & 0xFF, old & 0xFF)
        } else {
            (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xFFF00)
        })
    }

    pub fn attributes(&self) -> Result<Attributes> {
        let bytes = &self.bytes;
        let kind = self.kind()?;
        let owner = |low, high| u32::from(le16(bytes, high)) << 16 | u32::from(le16(bytes, low));
        Ok(Attributes {
            kind,
            mode: le16(bytes, 0) & 0o7777,
            owner: Some((owner(2, 0x78), owner(0x18, 0x7A))),
            size: self.size(),
            links: u32::from(le16(bytes, 0x1A)),
            identity: Identity { inode: u64::from(self.number), generation: le32(bytes, 0x64) },
            modified: Some(self.time(0x10, 0x88)?),
            changed: Some(self.time(0xC, 0x84)?),
            accessed: Some(self.time(8, 0x8C)?),
            device: self.device(kind),
        })
    }
}

impl Ext4 {
    /// An inode that is in use.
    pub fn inode(&self, number: u64) -> Result<Inode> {
        let number = u32::try_from(number).map_err(|_| Error::damaged("no such inode"))?;
        let at = self.shape.inode_at(number, |at, bytes| self.over.read(at, bytes))?;
        let mut bytes = vec![0; self.shape.inode_bytes];
        self.over.read(at, &mut bytes)?;
        let mut inode = Inode { number, bytes, at, seed: None };
        if !inode.extra().is_multiple_of(4) || inode.extra_end() > inode.bytes.len() {
            return Err(inode.damaged("is larger than it is"));
        }
        if let Some(seed) = self.shape.seed {
            let seed = crc32c(seed, &number.to_le_bytes());
            let seed = crc32c(seed, &inode.bytes[0x64..0x68]);
            inode.seed = Some(seed);
            check(&inode, seed)?;
        }
        if le16(&inode.bytes, 0x1A) == 0 {
            return Err(inode.damaged("has a name and is not in use"));
        }
        Ok(inode)
    }
}

/// The checksum of an inode: its second half is only there if there is room for it.
fn check(inode: &Inode, seed: u32) -> Result<()> {
    let mut bytes = inode.bytes.clone();
    let has_high = inode.extra_end() >= 0x84;
    let low = u32::from(le16(&bytes, 0x7C));
    let high = u32::from(le16(&bytes, 0x82));
    bytes[0x7C..0x7E].fill(0);
    if has_high {
        bytes[0x82..0x84].fill(0);
    }
    let found = crc32c(seed, &bytes);
    let is_right = found & 0xFFFF == low && (!has_high || found >> 16 == high);
    if is_right { Ok(()) } else { Err(inode.damaged("has a checksum that does not match")) }
}
