//! Extended attributes, and what of a small file or directory is one.

use super::base::Ext4;
use super::inode::{BLOCK_BYTES, INLINE, Inode, OLD_BYTES};
use crate::bytes::{byte, halves, le16, le32};
use crate::crc::crc32c;
use crate::error::Result;

const MAGIC: u32 = 0xEA02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
/// A value in an inode of its own, in bytes, at most.
const VALUE_BYTES_MAX: u64 = 64 << 10;
const SYSTEM: u8 = 7;
const ACCESS_LIST: u8 = 2;
const DEFAULT_LIST: u8 = 3;
/// The data of a small file that its inode's sixty bytes have no room for.
const INLINE_NAME: &[u8] = b"data";

/// An entry as it is on the disk.
struct Raw {
    index: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Ext4 {
    /// Names as system calls have them, and values.
    pub fn attributes_of(&self, inode: &Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = self.within(inode)?;
        found.extend(self.in_block(inode)?);
        let is_data = |raw: &Raw| raw.index == SYSTEM && raw.name == INLINE_NAME;
        let named = found.into_iter().filter(|raw| !is_data(raw)).map(|raw| {
            let prefix: &[u8] = match raw.index {
                0 => b"",
                1 => b"user.",
                ACCESS_LIST => return list(inode, b"system.posix_acl_access", &raw.value),
                DEFAULT_LIST => return list(inode, b"system.posix_acl_default", &raw.value),
                4 => b"trusted.",
                6 => b"security.",
                SYSTEM => b"system.",
                8 => b"system.richacl",
                _ => return Err(inode.damaged("has an extended attribute of no kind")),
            };
            Ok(([prefix, &raw.name].concat(), raw.value))
        });
        named.collect()
    }

    /// What of inline data is behind the inode's sixty bytes.
    pub fn inline_rest(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        let mut found = self.within(inode)?.into_iter();
        let rest = found.find(|raw| raw.index == SYSTEM && raw.name == INLINE_NAME);
        Ok(rest.map(|raw| raw.value))
    }

    /// The bytes of a small file.
    pub fn inline_bytes(&self, inode: &Inode) -> Result<Vec<u8>> {
        let mut bytes = inode.block().to_vec();
        if inode.size() > BLOCK_BYTES as u64 {
            bytes.extend(self.inline_rest(inode)?.unwrap_or_default());
        }
        let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        if !inode.has(INLINE) || size > bytes.len() {
            return Err(inode.damaged("has less data within it than its size says"));
        }
        bytes.truncate(size);
        Ok(bytes)
    }

    fn within(&self, inode: &Inode) -> Result<Vec<Raw>> {
        let area = inode.bytes.get(inode.extra_end()..).unwrap_or_default();
        if inode.bytes.len() <= OLD_BYTES || le32(area, 0) != MAGIC {
            return Ok(Vec::new());
        }
        self.entries_of(inode, &area[4..], &area[4..])
    }

    fn in_block(&self, inode: &Inode) -> Result<Vec<Raw>> {
        let place = halves(le32(&inode.bytes, 0x68), u32::from(le16(&inode.bytes, 0x76)));
        if place == 0 {
            return Ok(Vec::new());
        }
        let mut block = self.block_of(inode, place)?;
        if le32(&block, 0) != MAGIC || le32(&block, 8) != 1 {
            return Err(inode.damaged("has a block of extended attributes that is none"));
        }
        if let Some(seed) = self.shape.seed {
            let told = le32(&block, 16);
            block[16..20].fill(0);
            if crc32c(crc32c(seed, &place.to_le_bytes()), &block) != told {
                return Err(inode.damaged("has extended attributes whose checksum does not match"));
            }
        }
        self.entries_of(inode, &block[BLOCK_HEADER_BYTES..], &block)
    }

    /// The entries that stand one after the other, their values at offsets of `values`.
    fn entries_of(&self, inode: &Inode, entries: &[u8], values: &[u8]) -> Result<Vec<Raw>> {
        let wrong = || inode.damaged("has an extended attribute that is longer than it is");
        let mut found = Vec::new();
        let mut at = 0;
        while le32(entries, at) != 0 {
            let name_bytes = usize::from(byte(entries, at));
            let start = at + ENTRY_BYTES;
            let name = entries.get(start..start + name_bytes).ok_or_else(wrong)?;
            let size = le32(entries, at + 8);
            let value = match le32(entries, at + 4) {
                0 => {
                    let offset = usize::from(le16(entries, at + 2));
                    let end = offset.saturating_add(size as usize);
                    values.get(offset..end).ok_or_else(wrong)?.to_vec()
                }
                number => self.value_of(number, size)?,
            };
            found.push(Raw { index: byte(entries, at + 1), name: name.to_vec(), value });
            at = (start + name_bytes).next_multiple_of(4);
        }
        Ok(found)
    }

    /// A value that has an inode of its own.
    fn value_of(&self, number: u32, size: u32) -> Result<Vec<u8>> {
        let inode = self.inode(u64::from(number))?;
        if u64::from(size) > VALUE_BYTES_MAX || inode.size() != u64::from(size) {
            return Err(inode.damaged("is the value of an attribute of another length"));
        }
        let mut value = vec![0; size as usize];
        self.read_places(&self.places(&inode)?, 0, &mut value)?;
        Ok(value)
    }
}

/// A list of access as system calls have it: entries of one length.
fn list(inode: &Inode, name: &[u8], value: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    const USER: u16 = 2;
    const GROUP: u16 = 8;
    let wrong = || inode.damaged("has a list of access that contradicts itself");
    if value.len() < 4 || le32(value, 0) != 1 {
        return Err(wrong());
    }
    let mut made = 2_u32.to_le_bytes().to_vec();
    let mut rest = &value[4..];
    while !rest.is_empty() {
        let has_id = matches!(le16(rest, 0), USER | GROUP);
        let bytes = if has_id { 8 } else { 4 };
        let entry = rest.get(..bytes).ok_or_else(wrong)?;
        made.extend(&entry[..4]);
        made.extend(if has_id { le32(entry, 4) } else { u32::MAX }.to_le_bytes());
        rest = &rest[bytes..];
    }
    Ok((name.to_vec(), made))
}
