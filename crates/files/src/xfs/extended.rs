//! Extended attributes: within the inode, in leaves, and values in blocks of their own.

use std::collections::BTreeSet;

use super::base::Xfs;
use super::header::{ATTRIBUTES, NODE, VALUE};
use super::inode::{Format, Inode};
use crate::bytes::{be16, be32, byte};
use crate::error::{Error, Result};
use crate::tree::Piece;

const NODE_HEAD_BYTES: usize = 64;
const LEAF_HEAD_BYTES: usize = 80;
const ENTRY_BYTES: usize = 8;
const SHORT_HEAD_BYTES: usize = 4;
const VALUE_HEAD_BYTES: usize = 56;
const VALUE_BYTES_MAX: usize = 64 << 10;
const LEVELS_MAX: usize = 5;
/// What the attributes of one inode take, in bytes, and each more than its name and value.
const ALL_BYTES_MAX: usize = 64 << 20;
const PAIR_COST_BYTES: usize = 100;

/// The value stands beside the name.
const LOCAL: u8 = 0x1;
const ROOT: u8 = 0x2;
const SECURE: u8 = 0x4;
/// The name of the file in a directory that has it: no attribute for programs.
const PARENT: u8 = 0x8;
/// On its way in or out.
const INCOMPLETE: u8 = 0x80;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Xfs {
    /// Names as system calls have them, and values.
    pub fn attributes_of(&self, inode: &Inode) -> Result<Pairs> {
        let Some(fork) = inode.attribute_fork()? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if fork.format == Format::Local {
            short(inode, fork.bytes, &mut found)?;
            return Ok(found);
        }
        let places = self.places(inode, fork)?;
        if places.is_empty() {
            return Ok(found);
        }
        let mut block = self.attribute_block(inode, &places, 0)?;
        for _ in 0..LEVELS_MAX {
            if be16(&block, 8) == NODE {
                // The first child: leaves lead to one another.
                block = self.attribute_block(inode, &places, be32(&block, NODE_HEAD_BYTES + 4))?;
            }
        }
        let (mut seen, mut all) = (BTreeSet::new(), 0);
        loop {
            if be16(&block, 8) != ATTRIBUTES {
                return Err(inode.damaged("has a leaf of extended attributes that is none"));
            }
            self.leaf(inode, &places, &block, (&mut found, &mut all))?;
            let next = be32(&block, 0);
            if next == 0 {
                return Ok(found);
            }
            if !seen.insert(next) {
                return Err(inode.damaged("has leaves of extended attributes without an end"));
            }
            block = self.attribute_block(inode, &places, next)?;
        }
    }

    /// A block of the fork, by its number in it.
    fn attribute_block(&self, inode: &Inode, places: &[Piece], number: u32) -> Result<Vec<u8>> {
        let size = self.shape.block_bytes;
        let offset = u64::from(number) * size;
        let after = places.partition_point(|piece| piece.offset <= offset);
        let piece = after.checked_sub(1).and_then(|index| places.get(index));
        let piece = piece.filter(|piece| offset < piece.offset + piece.length);
        let place = piece.and_then(|piece| piece.place.map(|at| at + (offset - piece.offset)));
        let hole = || inode.damaged("has extended attributes with a hole");
        self.block_of(inode, place.ok_or_else(hole)?, size as usize)
    }

    /// Adds the attributes of one leaf, and what they take.
    fn leaf(
        &self,
        inode: &Inode,
        places: &[Piece],
        block: &[u8],
        (found, all): (&mut Pairs, &mut usize),
    ) -> Result<()> {
        let wrong = || inode.damaged("has an extended attribute that is longer than it is");
        let count = usize::from(be16(block, 56));
        let entries = block.get(LEAF_HEAD_BYTES..LEAF_HEAD_BYTES + count * ENTRY_BYTES);
        for entry in entries.ok_or_else(wrong)?.chunks_exact(ENTRY_BYTES) {
            let (at, flags) = (usize::from(be16(entry, 4)), byte(entry, 6));
            if flags & (INCOMPLETE | PARENT) != 0 {
                continue;
            }
            let is_local = flags & LOCAL != 0;
            let (name_at, name_bytes) = match is_local {
                true => (at + 3, byte(block, at + 2)),
                false => (at + 9, byte(block, at + 8)),
            };
            if name_bytes == 0 {
                return Err(inode.damaged("has an extended attribute without a name"));
            }
            let value_at = name_at + usize::from(name_bytes);
            let name = block.get(name_at..value_at).ok_or_else(wrong)?;
            let value = if is_local {
                let length = usize::from(be16(block, at));
                block.get(value_at..value_at + length).ok_or_else(wrong)?.to_vec()
            } else {
                let length = be32(block, at + 4) as usize;
                self.value(inode, places, be32(block, at), length)?
            };
            *all += name.len() + value.len() + PAIR_COST_BYTES;
            if *all > ALL_BYTES_MAX {
                let (number, mib) = (inode.number, ALL_BYTES_MAX >> 20);
                let text = format!("inode {number} has more than {mib} MiB of attributes");
                return Err(Error::limit(text));
            }
            found.push(named(inode, flags, name, value)?);
        }
        Ok(())
    }

    /// A value in blocks of its own.
    fn value(&self, inode: &Inode, places: &[Piece], first: u32, length: usize) -> Result<Vec<u8>> {
        if length > VALUE_BYTES_MAX {
            return Err(inode.damaged("has an extended attribute that is too long"));
        }
        let mut value = Vec::with_capacity(length);
        let mut number = first;
        while value.len() < length {
            let block = self.attribute_block(inode, places, number)?;
            let part = (length - value.len()).min(block.len() - VALUE_HEAD_BYTES);
            let is_next = be32(&block, 0) == VALUE
                && be32(&block, 4) as usize == value.len()
                && be32(&block, 8) as usize == part;
            if !is_next {
                return Err(inode.damaged("has an extended attribute whose parts do not fit"));
            }
            value.extend(&block[VALUE_HEAD_BYTES..VALUE_HEAD_BYTES + part]);
            number = number.saturating_add(1);
        }
        Ok(value)
    }
}

/// Attributes within the inode.
fn short(inode: &Inode, fork: &[u8], found: &mut Pairs) -> Result<()> {
    let wrong = || inode.damaged("has an extended attribute that is longer than it is");
    let bytes = fork.get(..usize::from(be16(fork, 0))).ok_or_else(wrong)?;
    let mut at = SHORT_HEAD_BYTES;
    for _ in 0..byte(bytes, 2) {
        let (name_at, flags) = (at + 3, byte(bytes, at + 2));
        let value_at = name_at + usize::from(byte(bytes, at));
        at = value_at + usize::from(byte(bytes, at + 1));
        let name = bytes.get(name_at..value_at).ok_or_else(wrong)?;
        let value = bytes.get(value_at..at).ok_or_else(wrong)?;
        if flags & PARENT == 0 {
            found.push(named(inode, flags, name, value.to_vec())?);
        }
    }
    Ok(())
}

/// The name and value that programs see.
fn named(inode: &Inode, flags: u8, name: &[u8], value: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
    let prefix: &[u8] = match flags & (ROOT | SECURE) {
        0 => b"user.",
        ROOT => match name {
            b"SGI_ACL_FILE" => return list(inode, b"system.posix_acl_access", &value),
            b"SGI_ACL_DEFAULT" => return list(inode, b"system.posix_acl_default", &value),
            _ => b"trusted.",
        },
        SECURE => b"security.",
        _ => return Err(inode.damaged("has an extended attribute of no kind")),
    };
    Ok(([prefix, name].concat(), value))
}

/// A list of access as system calls have it.
fn list(inode: &Inode, name: &[u8], value: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    const ACCESS_BYTES: usize = 12;
    const USER: u32 = 2;
    const GROUP: u32 = 8;
    let (count, entries) = value.split_at_checked(4).unwrap_or_default();
    let is_sound = entries.len().is_multiple_of(ACCESS_BYTES)
        && entries.len() / ACCESS_BYTES == be32(count, 0) as usize;
    if !is_sound {
        return Err(inode.damaged("has a list of access that contradicts itself"));
    }
    let mut made = 2_u32.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(ACCESS_BYTES) {
        let tag = be32(entry, 0);
        let id = if matches!(tag, USER | GROUP) { be32(entry, 4) } else { u32::MAX };
        made.extend((tag as u16).to_le_bytes());
        made.extend(be16(entry, 8).to_le_bytes());
        made.extend(id.to_le_bytes());
    }
    Ok((name.to_vec(), made))
}
