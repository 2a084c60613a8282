//! FAT12, FAT16 and FAT32. They keep no journal: what was under way is seen half done.
//!
//! 1. An object is known by the place of its entry on the disk; the top is 0.
//! 2. A chain of clusters has an end: it is never longer than the disk has clusters.
//!
//! Times are local to whoever wrote them, which a disk does not tell; they are taken for UTC.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bytes::{byte, halves, le16, le32};
use crate::error::{Error, Result};
use crate::source::{Source, fetch};
use crate::system::FileSystem;
use crate::tree::{
    Attributes, ENTRIES_MAX, Entry, Identity, Kind, Node, PIECES_MAX, Piece, State, Time, Tree,
    check_name,
};

const TOP: Node = 0;
const ENTRY_BYTES: u64 = 32;
/// Clusters up to which a table is one of 12, and of 16 bits.
const CLUSTERS_12: u64 = 4085;
const CLUSTERS_16: u64 = 65525;

const READ_ONLY: u8 = 0x01;
const LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const LONG_NAME: u8 = 0x0F;
const DELETED: u8 = 0xE5;
/// Parts of a long name: 13 characters each, 255 in all.
const LONG_PARTS_MAX: u8 = 20;
const LONG_LAST: u8 = 0x40;

/// What the first sector says.
struct Shape {
    kind: &'static str,
    bits: u32,
    cluster_bytes: u64,
    clusters: u64,
    /// Of the table, of the entries at the top, of the clusters, in bytes.
    table_at: u64,
    top_at: u64,
    top_bytes: u64,
    data_at: u64,
    /// Of FAT32.
    top_cluster: u32,
    label: Vec<u8>,
    serial: u32,
}

/// A FAT that is open.
pub struct Fat {
    disk: Rc<dyn Source>,
    shape: Shape,
    /// The places of the file that was read last.
    last: RefCell<Option<(Node, Rc<Vec<Piece>>)>>,
}

impl Shape {
    /// None if it is no FAT.
    fn read(disk: &dyn Source) -> Result<Option<Shape>> {
        let mut first = [0; 512];
        if disk.size() < 512 {
            return Ok(None);
        }
        fetch(disk, 0, &mut first)?;
        let sector = u64::from(le16(&first, 11));
        let per_cluster = u64::from(first[13]);
        let tables = u64::from(first[16]);
        let is_one = first[510..] == [0x55, 0xAA]
            && matches!(first[0], 0xEB | 0xE9)
            && matches!(sector, 512 | 1024 | 2048 | 4096)
            && per_cluster.is_power_of_two()
            && (1..=2).contains(&tables)
            && le16(&first, 14) > 0
            && (first[21] == 0xF0 || first[21] >= 0xF8);
        if !is_one {
            return Ok(None);
        }
        let either =
            |short: u16, long: u32| if short != 0 { u64::from(short) } else { u64::from(long) };
        let table_sectors = either(le16(&first, 22), le32(&first, 36));
        let sectors = either(le16(&first, 19), le32(&first, 32));
        let table_at = u64::from(le16(&first, 14)) * sector;
        let top_at = table_at + tables * table_sectors * sector;
        let top_bytes = (u64::from(le16(&first, 17)) * ENTRY_BYTES).next_multiple_of(sector);
        let data_at = top_at + top_bytes;
        let cluster_bytes = sector * per_cluster;
        let end = sectors * sector;
        if end > disk.size() || end <= data_at || table_sectors == 0 {
            return Ok(None);
        }
        let clusters = (end - data_at) / cluster_bytes;
        let is_32 = le16(&first, 22) == 0;
        let (kind, bits) = match clusters {
            _ if is_32 => ("fat32", 32),
            count if count < CLUSTERS_12 => ("fat12", 12),
            count if count < CLUSTERS_16 => ("fat16", 16),
            _ => return Ok(None),
        };
        if (clusters + 2) * u64::from(bits) > table_sectors * sector * 8 {
            return Ok(None);
        }
        let more = if is_32 { 64 } else { 36 };
        let label = first[more + 7..more + 18].trim_ascii_end();
        Ok(Some(Shape {
            kind,
            bits,
            cluster_bytes,
            clusters,
            table_at,
            top_at,
            top_bytes,
            data_at,
            top_cluster: le32(&first, 44),
            label: if label == b"NO NAME" { Vec::new() } else { label.to_vec() },
            serial: le32(&first, more + 3),
        }))
    }
}

/// What a source is, if it is a FAT.
pub fn recognise(source: &dyn Source) -> Result<Option<FileSystem>> {
    Ok(Shape::read(source)?.map(|shape| FileSystem {
        kind: shape.kind,
        label: shape.label,
        uuid: format!("{:04X}-{:04X}", shape.serial >> 16, shape.serial & 0xFFFF),
        is_readable: true,
    }))
}

impl Fat {
    /// Opens it.
    pub fn open(disk: Rc<dyn Source>) -> Result<Fat> {
        let shape = Shape::read(&*disk)?.ok_or_else(|| Error::damaged("there is no FAT"))?;
        Ok(Fat { disk, shape, last: RefCell::new(None) })
    }

    /// The cluster behind another; none at the end of a chain.
    fn next(&self, cluster: u32) -> Result<Option<u32>> {
        let Shape { bits, table_at, .. } = self.shape;
        let mut bytes = [0; 4];
        let at = u64::from(cluster) * u64::from(bits) / 8;
        fetch(&*self.disk, table_at + at, &mut bytes[..if bits == 32 { 4 } else { 2 }])?;
        let (next, end) = match bits {
            12 if cluster % 2 == 1 => (u32::from(le16(&bytes, 0) >> 4), 0xFF8),
            12 => (u32::from(le16(&bytes, 0) & 0xFFF), 0xFF8),
            16 => (u32::from(le16(&bytes, 0)), 0xFFF8),
            _ => (le32(&bytes, 0) & 0x0FFF_FFFF, 0x0FFF_FFF8),
        };
        if next >= end {
            return Ok(None);
        }
        self.check(next)?;
        Ok(Some(next))
    }

    fn check(&self, cluster: u32) -> Result<()> {
        if (2..self.shape.clusters + 2).contains(&u64::from(cluster)) {
            return Ok(());
        }
        Err(Error::damaged(format!("FAT: a chain leads to cluster {cluster}, which is none")))
    }

    /// Where the clusters of a chain are, up to so many bytes.
    fn chain(&self, first: u32, bytes: u64) -> Result<Vec<Piece>> {
        let size = self.shape.cluster_bytes;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut offset = 0;
        self.check(first)?;
        let mut next = Some(first);
        while let Some(cluster) = next.filter(|_| offset < bytes) {
            if offset / size >= self.shape.clusters {
                return Err(Error::damaged("FAT: a chain of clusters leads back to itself"));
            }
            let place = self.shape.data_at + (u64::from(cluster) - 2) * size;
            let goes_on =
                |last: &&mut Piece| last.place.is_some_and(|start| start + last.length == place);
            if let Some(last) = pieces.last_mut().filter(goes_on) {
                last.length += size;
            } else if pieces.len() == PIECES_MAX {
                return Err(Error::limit(format!("a file of more than {PIECES_MAX} pieces")));
            } else {
                pieces.push(Piece { offset, length: size, place: Some(place) });
            }
            offset += size;
            next = self.next(cluster)?;
        }
        Ok(pieces)
    }

    fn entry(&self, node: Node) -> Result<[u8; ENTRY_BYTES as usize]> {
        let mut entry = [0; ENTRY_BYTES as usize];
        if node < self.shape.top_at {
            return Err(Error::damaged("FAT: no such entry"));
        }
        fetch(&*self.disk, node, &mut entry)?;
        Ok(entry)
    }

    fn first_cluster(&self, entry: &[u8]) -> u32 {
        let high = if self.shape.bits == 32 { le16(entry, 20) } else { 0 };
        u32::from(high) << 16 | u32::from(le16(entry, 26))
    }

    /// Where the entries of a directory are.
    fn entries_at(&self, directory: Node) -> Result<Vec<Piece>> {
        let Shape { bits, top_at, top_bytes, top_cluster, .. } = self.shape;
        let longest = ENTRIES_MAX as u64 * ENTRY_BYTES;
        if directory == TOP && bits != 32 {
            return Ok(vec![Piece { offset: 0, length: top_bytes, place: Some(top_at) }]);
        }
        if directory == TOP {
            return self.chain(top_cluster, longest);
        }
        let entry = self.entry(directory)?;
        if entry[11] & DIRECTORY == 0 {
            return Err(Error::wrong_kind("FAT: this is no directory"));
        }
        self.chain(self.first_cluster(&entry), longest)
    }

    fn file(&self, file: Node) -> Result<(u64, u32)> {
        let entry = if file == TOP { None } else { Some(self.entry(file)?) };
        match entry.filter(|entry| entry[11] & DIRECTORY == 0) {
            Some(entry) => Ok((u64::from(le32(&entry, 28)), self.first_cluster(&entry))),
            None => Err(Error::wrong_kind("FAT: this is no file")),
        }
    }
}

impl Fat {
    fn places_of(&self, file: Node) -> Result<Rc<Vec<Piece>>> {
        if let Some((last, places)) = &*self.last.borrow()
            && *last == file
        {
            return Ok(places.clone());
        }
        let (size, first) = self.file(file)?;
        let pieces = if size == 0 { Vec::new() } else { self.chain(first, size)? };
        let held: u64 = pieces.iter().map(|piece| piece.length).sum();
        if held < size {
            return Err(Error::damaged("FAT: a file is longer than its chain of clusters"));
        }
        let places = Rc::new(pieces);
        *self.last.borrow_mut() = Some((file, places.clone()));
        Ok(places)
    }
}

/// A long name that its parts are collected of.
#[derive(Default)]
struct Long {
    units: Vec<u16>,
    /// The part that is to come next, and the checksum of the short name.
    next: u8,
    sum: u8,
}

impl Long {
    fn take(&mut self, entry: &[u8]) {
        let number = entry[0] & !LONG_LAST;
        if entry[0] & LONG_LAST != 0 && (1..=LONG_PARTS_MAX).contains(&number) {
            *self = Long { units: Vec::new(), next: number, sum: entry[13] };
        }
        if self.next == 0 || number != self.next || entry[13] != self.sum {
            *self = Long::default();
            return;
        }
        let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain([28, 30]);
        let mut part: Vec<u16> = places.map(|at| le16(entry, at)).collect();
        part.append(&mut self.units);
        self.units = part;
        self.next -= 1;
        if self.next == 0 {
            // It is whole: one step more tells it from none.
            self.next = u8::MAX;
        }
    }

    /// The name, if it is whole and belongs to the short one.
    fn name(self, short: &[u8]) -> Option<Vec<u8>> {
        let sum =
            short[..11].iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
        if self.next != u8::MAX || sum != self.sum {
            return None;
        }
        let end = self.units.iter().position(|&unit| unit == 0).unwrap_or(self.units.len());
        Some(String::from_utf16_lossy(&self.units[..end]).into_bytes())
    }
}

/// A name of eight characters and three, as it is shown.
fn short_name(entry: &[u8]) -> Vec<u8> {
    const LOWER_NAME: u8 = 0x08;
    const LOWER_END: u8 = 0x10;
    let part = |bytes: &[u8], is_lower: bool| {
        let mut part = bytes.trim_ascii_end().to_vec();
        if is_lower {
            part.make_ascii_lowercase();
        }
        part
    };
    let mut name = part(&entry[..8], entry[12] & LOWER_NAME != 0);
    // Japanese names may begin with the byte that means deleted.
    if name.first() == Some(&0x05) {
        name[0] = DELETED;
    }
    let end = part(&entry[8..11], entry[12] & LOWER_END != 0);
    if !end.is_empty() {
        name.push(b'.');
        name.extend(end);
    }
    name
}

/// Days since 1970 of a day of the calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

fn time(date: u16, time: u16, hundredths: u8) -> Option<Time> {
    let (date, time) = (i64::from(date), i64::from(time));
    let (year, month, day) = (1980 + (date >> 9), date >> 5 & 15, date & 31);
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let seconds = (time >> 11) * 3600 + (time >> 5 & 63) * 60 + (time & 31) * 2;
    let hundredths = i64::from(hundredths);
    Some(Time {
        seconds: days(year, month, day) * 86400 + seconds + hundredths / 100,
        nanos: (hundredths % 100) as u32 * 10_000_000,
    })
}

impl Tree for Fat {
    fn state(&self) -> State {
        State::Unreplayed
    }

    fn top(&self) -> Node {
        TOP
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        let entry = if node == TOP { [0; ENTRY_BYTES as usize] } else { self.entry(node)? };
        let is_directory = node == TOP || entry[11] & DIRECTORY != 0;
        let writes = if entry[11] & READ_ONLY == 0 { 0o755 } else { 0o555 };
        Ok(Attributes {
            kind: if is_directory { Kind::Directory } else { Kind::File },
            mode: if is_directory { writes } else { writes & 0o666 },
            owner: None,
            size: if is_directory { 0 } else { u64::from(le32(&entry, 28)) },
            links: 1,
            // The first cluster is what an object keeps when it is moved.
            identity: Identity { inode: halves(self.first_cluster(&entry), 0), generation: 0 },
            modified: time(le16(&entry, 24), le16(&entry, 22), 0),
            changed: None,
            accessed: time(le16(&entry, 18), 0, 0),
            device: None,
        })
    }

    fn entries(&self, directory: Node) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut long = Long::default();
        let mut cluster = vec![0; self.shape.cluster_bytes as usize];
        for piece in self.entries_at(directory)? {
            let start = piece.place.unwrap_or_default();
            let mut at = start;
            while at < start + piece.length {
                let bytes = cluster.len().min((start + piece.length - at) as usize);
                let bytes = &mut cluster[..bytes];
                fetch(&*self.disk, at, bytes)?;
                for (node, entry) in (at..).step_by(32).zip(bytes.chunks_exact(32)) {
                    match entry[0] {
                        0 => return Ok(found),
                        DELETED => {
                            long = Long::default();
                            continue;
                        }
                        _ if entry[11] & 0x3F == LONG_NAME => {
                            long.take(entry);
                            continue;
                        }
                        _ => {}
                    }
                    let name = std::mem::take(&mut long).name(entry);
                    let name = name.unwrap_or_else(|| short_name(entry));
                    if byte(entry, 11) & LABEL != 0 || name == b"." || name == b".." {
                        continue;
                    }
                    check_name(&name)?;
                    if found.len() == ENTRIES_MAX {
                        return Err(Error::limit(format!("more than {ENTRIES_MAX} names")));
                    }
                    found.push(Entry { name, node });
                }
                at += bytes.len() as u64;
            }
        }
        Ok(found)
    }

    fn pieces(&self, file: Node) -> Result<Vec<Piece>> {
        Ok(self.places_of(file)?.to_vec())
    }

    fn read(&self, file: Node, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let size = self.file(file)?.0;
        let length = size.saturating_sub(offset).min(bytes.len() as u64);
        let end = offset + length;
        for piece in &*self.places_of(file)? {
            let (from, to) = (piece.offset.max(offset), (piece.offset + piece.length).min(end));
            if let (true, Some(place)) = (from < to, piece.place) {
                let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
                fetch(&*self.disk, place + (from - piece.offset), target)?;
            }
        }
        Ok(length as usize)
    }

    fn link(&self, _: Node) -> Result<Vec<u8>> {
        Err(Error::wrong_kind("FAT has no symbolic links"))
    }

    fn extended(&self, _: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::{days, time};

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2026, 11, 28), 20_785);
        let found = time((2026 - 1980) << 9 | 11 << 5 | 28, 14 << 11 | 33 << 5 | 4, 150);
        assert_eq!(found.map(|time| time.seconds), Some(20_785 * 86400 + 14 * 3600 + 33 * 60 + 9));
        assert_eq!(time(0, 0, 0), None);
    }
}
