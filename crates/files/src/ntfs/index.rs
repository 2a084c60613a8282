//! Names of a directory: a tree of blocks.

use std::collections::BTreeSet;

use crate::bytes::{byte, le16, le32, le64};
use crate::error::{Error, Result};
use crate::source::Source;
use crate::tree::ENTRIES_MAX;

use super::attribute::Attribute;
use super::base::{NAMES, kind, units};
use super::record::join;
use super::shape::Shape;
use super::stream::Stream;

/// Of an entry, before its name.
const ENTRY_BYTES: usize = 16;
/// In the head of a block, before that of its entries.
const BLOCK_HEAD: usize = 24;
const HAS_CHILD: u32 = 1;
const IS_LAST: u32 = 2;
/// What a block's place counts where clusters are larger than blocks, in bytes.
const SMALL_BYTES: u64 = 512;

/// A name, as its directory has it.
pub struct Name {
    pub namespace: u8,
    pub units: Vec<u16>,
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("NTFS: a directory {what}"))
}

/// Calls with each name of a directory, in no order.
pub fn each(
    disk: &dyn Source,
    shape: &Shape,
    attributes: &[Attribute],
    call: &mut dyn FnMut(u64, Name) -> Result<()>,
) -> Result<()> {
    let root = Stream::find(shape, attributes, kind::INDEX_ROOT, NAMES)?;
    let root = root.ok_or_else(|| damaged("has no names"))?.all(disk, shape)?;
    let block_bytes = u64::from(le32(&root, 8));
    if !block_bytes.is_power_of_two() || !(512..=64 << 10).contains(&block_bytes) {
        return Err(damaged("has blocks of an odd length"));
    }
    let step = if shape.cluster_bytes <= block_bytes { shape.cluster_bytes } else { SMALL_BYTES };
    let blocks = Stream::find(shape, attributes, kind::INDEX, NAMES)?;
    let mut waiting = Vec::new();
    let mut seen = BTreeSet::new();
    entries(&root, 16, call, &mut waiting)?;
    while let Some(number) = waiting.pop() {
        if !seen.insert(number) {
            return Err(damaged("has a block in two places"));
        }
        if seen.len() > ENTRIES_MAX {
            return Err(Error::limit(format!("more than {ENTRIES_MAX} blocks of names")));
        }
        let blocks = blocks.as_ref().ok_or_else(|| damaged("lacks its blocks"))?;
        let at = number.checked_mul(step).ok_or_else(|| damaged("leads outside of itself"))?;
        let mut block = vec![0; block_bytes as usize];
        if blocks.read(disk, shape, at, &mut block)? < block.len() {
            return Err(damaged("leads outside of itself"));
        }
        if !block.starts_with(b"INDX") || le64(&block, 16) != number {
            return Err(damaged("has a block that is none of names"));
        }
        join(&mut block)?;
        entries(&block, BLOCK_HEAD, call, &mut waiting)?;
    }
    Ok(())
}

/// Reads the entries whose head is at this place; blocks below them wait.
fn entries(
    bytes: &[u8],
    head: usize,
    call: &mut dyn FnMut(u64, Name) -> Result<()>,
    waiting: &mut Vec<u64>,
) -> Result<()> {
    let wrong = || damaged("has an entry that contradicts itself");
    let mut at = head.saturating_add(le32(bytes, head) as usize);
    let end = head.saturating_add(le32(bytes, head + 4) as usize).min(bytes.len());
    loop {
        let length = usize::from(le16(bytes, at.saturating_add(8)));
        let entry = at.checked_add(length).filter(|stop| *stop <= end);
        let entry = entry.and_then(|stop| bytes.get(at..stop));
        let entry = entry.filter(|entry| entry.len() >= ENTRY_BYTES).ok_or_else(wrong)?;
        let flags = le32(entry, 12);
        if flags & HAS_CHILD != 0 {
            let child = length.checked_sub(8).filter(|at| *at >= ENTRY_BYTES).ok_or_else(wrong)?;
            if waiting.len() > ENTRIES_MAX {
                return Err(Error::limit(format!("more than {ENTRIES_MAX} blocks of names")));
            }
            waiting.push(le64(entry, child));
        }
        if flags & IS_LAST != 0 {
            return Ok(());
        }
        let key = entry.get(ENTRY_BYTES..).unwrap_or_default();
        let count = usize::from(byte(key, 64));
        let name = key.get(66..66 + count * 2).ok_or_else(wrong)?;
        call(le64(entry, 0), Name { namespace: byte(key, 65), units: units(name) })?;
        at += length;
    }
}
