//! The parts of a disk: GPT, or MBR with logical parts, or none; and the volumes of LVM in them.

use std::rc::Rc;

use crate::bytes::{byte, le16, le32, le64};
use crate::crc::crc32;
use crate::error::{Error, Result};
use crate::lvm;
use crate::part::Part;
use crate::source::{Source, fetched};

/// Entries of a GPT that are read, at most.
const GPT_ENTRIES_MAX: u32 = 1024;
/// The length of a GPT entry, in bytes, at most.
const GPT_ENTRY_BYTES_MAX: u32 = 4096;
/// Logical parts of an MBR that are followed, at most.
const LOGICAL_MAX: usize = 128;
const SECTOR_SIZES: [u64; 2] = [512, 4096];
/// First logical part of an MBR.
const FIRST_LOGICAL: u32 = 5;

/// Which table a disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartTable {
    /// A table with 128 entries or so, names and checksums.
    Gpt,
    /// Four entries in the first sector, and a chain of more.
    Mbr,
    /// The disk is one part.
    None,
}

/// The parts of a disk, in the order of their numbers, and behind them the volumes of LVM in them.
/// A disk without a table is one part.
///
/// # Errors
/// Those of the disk; a table that contradicts itself.
pub fn parts(disk: &Rc<dyn Source>) -> Result<(PartTable, Vec<Part>)> {
    let (table, mut parts) = table(&**disk)?;
    lvm::add_volumes(disk, &mut parts)?;
    Ok((table, parts))
}

fn table(disk: &dyn Source) -> Result<(PartTable, Vec<Part>)> {
    let none = (PartTable::None, vec![Part::whole(disk.size())]);
    if disk.size() < 1024 {
        return Ok(none);
    }
    let first = fetched(disk, 0, 512)?;
    if first[510..] != [0x55, 0xaa] || !is_mbr(&first) {
        return Ok(none);
    }
    let is_protective = (0..4).any(|index| first[446 + index * 16 + 4] == 0xee);
    if is_protective {
        for sector in SECTOR_SIZES {
            if let Some(parts) = gpt(disk, sector, sector)? {
                return Ok((PartTable::Gpt, parts));
            }
        }
        // The first table is damaged: the copy is at the end.
        for sector in SECTOR_SIZES.into_iter().filter(|sector| disk.size() > 4 * sector) {
            let last = disk.size() / sector * sector - sector;
            if let Some(parts) = gpt(disk, sector, last)? {
                return Ok((PartTable::Gpt, parts));
            }
        }
        return Err(Error::damaged("both GPT headers are damaged"));
    }
    Ok((PartTable::Mbr, mbr(disk, &first)?))
}

/// Whether the first sector is a table of parts, not the code and text of a file system: each entry
/// is active or not, and at least one has a type and a length.
fn is_mbr(first: &[u8]) -> bool {
    let entries = || (0..4).map(|index| &first[446 + index * 16..][..16]);
    entries().all(|entry| entry[0] & 0x7f == 0)
        && entries().any(|entry| entry[4] != 0 && le32(entry, 8) != 0 && le32(entry, 12) != 0)
}

fn gpt(disk: &dyn Source, sector: u64, at: u64) -> Result<Option<Vec<Part>>> {
    if at.checked_add(sector).is_none_or(|end| end > disk.size()) {
        return Ok(None);
    }
    let mut header = fetched(disk, at, sector as usize)?;
    let header_bytes = le32(&header, 12) as usize;
    if !header.starts_with(b"EFI PART") || !(92..=header.len()).contains(&header_bytes) {
        return Ok(None);
    }
    let told = le32(&header, 16);
    header[16..20].fill(0);
    if crc32(&header[..header_bytes]) != told {
        return Ok(None);
    }
    let (count, entry_bytes) = (le32(&header, 80), le32(&header, 84));
    if count > GPT_ENTRIES_MAX || !(128..=GPT_ENTRY_BYTES_MAX).contains(&entry_bytes) {
        return Err(Error::limit(format!(
            "a GPT of {count} entries of {entry_bytes} bytes; the limits are {GPT_ENTRIES_MAX} \
             and {GPT_ENTRY_BYTES_MAX}"
        )));
    }
    let length = count as usize * entry_bytes as usize;
    let start = le64(&header, 72)
        .checked_mul(sector)
        .filter(|start| start.checked_add(length as u64).is_some_and(|end| end <= disk.size()));
    let Some(start) = start else { return Ok(None) };
    let table = fetched(disk, start, length)?;
    if crc32(&table) != le32(&header, 88) {
        return Ok(None);
    }
    let entries = (1..).zip(table.chunks_exact(entry_bytes as usize));
    Ok(Some(entries.filter_map(|(number, entry)| gpt_part(disk, sector, number, entry)).collect()))
}

fn gpt_part(disk: &dyn Source, sector: u64, number: u32, entry: &[u8]) -> Option<Part> {
    if entry[..16].iter().all(|&byte| byte == 0) {
        return None;
    }
    let first = le64(entry, 32).checked_mul(sector)?;
    let end = le64(entry, 40).checked_add(1)?.checked_mul(sector)?;
    if first >= end || end > disk.size() {
        return None;
    }
    let name: Vec<u16> = entry[56..128].chunks_exact(2).map(|two| le16(two, 0)).collect();
    let name = String::from_utf16_lossy(&name);
    let name = name.split('\0').next().unwrap_or_default().to_owned();
    Some(Part::numbered(number, name, first..end))
}

/// Types of entries that hold more entries.
fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0f | 0x85)
}

fn mbr(disk: &dyn Source, first: &[u8]) -> Result<Vec<Part>> {
    const SECTOR: u64 = 512;
    let mut found = Vec::new();
    let mut extended = None;
    let part = |number, base: u64, entry: &[u8]| {
        let offset = (base + u64::from(le32(entry, 8))) * SECTOR;
        let length = u64::from(le32(entry, 12)) * SECTOR;
        let is_there = byte(entry, 4) != 0 && length > 0 && offset + length <= disk.size();
        is_there.then(|| Part::numbered(number, String::new(), offset..offset + length))
    };
    for (number, entry) in (1..).zip(first[446..510].chunks_exact(16)) {
        if is_extended(entry[4]) {
            extended = extended.or(Some(u64::from(le32(entry, 8))));
        } else {
            found.extend(part(number, 0, entry));
        }
    }
    let Some(base) = extended else { return Ok(found) };
    let mut at = base;
    for number in (FIRST_LOGICAL..).take(LOGICAL_MAX) {
        if (at + 1) * SECTOR > disk.size() {
            break;
        }
        let table = fetched(disk, at * SECTOR, 512)?;
        if table[510..] != [0x55, 0xaa] {
            break;
        }
        found.extend(part(number, at, &table[446..462]));
        let next = u64::from(le32(&table[462..478], 8));
        // Tables lie one behind the other: what leads back would have no end.
        if !is_extended(table[466]) || base + next <= at {
            break;
        }
        at = base + next;
    }
    Ok(found)
}
