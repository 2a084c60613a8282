//! The value of an attribute, put together of its parts.

use crate::error::{Error, Result};
use crate::pieces::{Pieces, read_pieces};
use crate::source::{Source, fetch, fetched};
use crate::tree::{PIECES_MAX, Piece};

use super::attribute::{self, Attribute, Body, Run};
use super::base::kind;
use super::compression;
use super::record::Record;
use super::shape::Shape;

/// What is read whole of a value that is not a file's, in bytes.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
const COMPRESSED: u16 = 0x00FF;
const ENCRYPTED: u16 = 0x4000;
/// Clusters that are compressed at once, as a power of two.
const UNIT: u8 = 4;
/// The longest value, in bytes.
const BYTES_MAX: u64 = i64::MAX as u64 >> 1;

/// Whether an entry of a list is of a file's bytes.
fn is_entry_of_data(kind: u32, name_length: u8) -> bool {
    kind == kind::DATA && name_length == 0
}

/// A value.
pub struct Stream {
    /// In bytes.
    pub size: u64,
    /// Why it is not read.
    refused: Option<&'static str>,
    body: Within,
}

enum Within {
    Here { value: Vec<u8>, place: u64 },
    There(Runs),
}

struct Runs {
    /// What of it is on the disk.
    places: Vec<Piece>,
    /// All that it has clusters or holes for, in bytes.
    end: u64,
    /// Bytes behind these are zeros.
    written: u64,
    is_compressed: bool,
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("NTFS: a file {what}"))
}

impl Stream {
    /// The file of records, whose own record may say in others where the rest of it is.
    pub fn of_records(disk: &dyn Source, shape: &Shape) -> Result<Stream> {
        let place = shape.records_at * shape.cluster_bytes;
        let bytes = fetched(disk, place, shape.record_bytes as usize)?;
        let none = || Error::damaged("NTFS: the file of records is damaged");
        let record = Record::parse(bytes, 0, place)?.ok_or_else(none)?;
        let attributes = record.attributes(shape)?;
        let is_data = |one: &Attribute| one.kind == kind::DATA && one.name.is_empty();
        let head = attributes.iter().find(|one| is_data(one)).ok_or_else(none)?;
        let mut known = Stream::begin(head, shape)?;
        let list = Stream::find(shape, &attributes, kind::LIST, &[])?;
        let list = list.map_or(Ok(Vec::new()), |list| list.all(disk, shape))?;
        // Each further record lies in what is known by those before it.
        for number in attribute::records_of(&list, 0, is_entry_of_data)? {
            let other = known.record(disk, shape, number)?;
            if other.base != record.reference() {
                return Err(none());
            }
            for part in other.attributes(shape)?.iter().filter(|one| is_data(one)) {
                known.go_on(part, shape)?;
            }
        }
        known.check_length()?;
        Ok(known)
    }

    /// The value of an attribute.
    pub fn find(
        shape: &Shape,
        attributes: &[Attribute],
        kind: u32,
        name: &[u16],
    ) -> Result<Option<Stream>> {
        let is_it = |one: &&Attribute| one.kind == kind && one.name == name;
        let parts: Vec<&Attribute> = attributes.iter().filter(is_it).collect();
        Stream::of(parts, shape)
    }

    /// The value of the parts of one attribute.
    pub fn of(mut parts: Vec<&Attribute>, shape: &Shape) -> Result<Option<Stream>> {
        parts.sort_by_key(|one| match one.body {
            Body::Here { .. } => 0,
            Body::There { first, .. } => first,
        });
        let Some((head, more)) = parts.split_first() else { return Ok(None) };
        let mut stream = Stream::begin(head, shape)?;
        for part in more {
            stream.go_on(part, shape)?;
        }
        stream.check_length()?;
        Ok(Some(stream))
    }

    /// The value as far as its first part has it.
    fn begin(head: &Attribute, shape: &Shape) -> Result<Stream> {
        let is_compressed = head.flags & COMPRESSED != 0;
        let mut refused = None;
        // A directory that is marked so has names as any other.
        if head.flags & ENCRYPTED != 0 && head.kind == kind::DATA {
            refused = Some("NTFS: this file is encrypted");
        }
        let (size, written, unit) = match &head.body {
            Body::Here { value, place } => {
                let body = Within::Here { value: value.clone(), place: *place };
                return Ok(Stream { size: value.len() as u64, refused, body });
            }
            Body::There { size, written, unit, .. } => (*size, *written, *unit),
        };
        if is_compressed && (head.flags & COMPRESSED != 1 || unit != UNIT) {
            refused = refused.or(Some("NTFS: this file is compressed in an unknown way"));
        }
        let runs = Runs { places: Vec::new(), end: 0, written, is_compressed };
        let mut stream = Stream { size, refused, body: Within::There(runs) };
        stream.go_on(head, shape)?;
        Ok(stream)
    }

    /// Adds the next part.
    fn go_on(&mut self, part: &Attribute, shape: &Shape) -> Result<()> {
        let (Within::There(runs), Body::There { first, runs: more, .. }) =
            (&mut self.body, &part.body)
        else {
            return Err(damaged("has parts that contradict each other"));
        };
        if first.checked_mul(shape.cluster_bytes) != Some(runs.end) {
            return Err(damaged("lacks a part"));
        }
        runs.add(more, shape)
    }

    /// Whether it has clusters, or holes, for all of its bytes.
    fn check_length(&self) -> Result<()> {
        match &self.body {
            Within::There(runs) if self.size > runs.end => {
                Err(damaged("is longer than its clusters"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the record of a number from the file of records, which this is; there is none where no
    /// file has it.
    pub fn record(&self, disk: &dyn Source, shape: &Shape, number: u64) -> Result<Record> {
        let none = || Error::not_found(format!("NTFS: there is no file {number}"));
        let at = number.checked_mul(shape.record_bytes).ok_or_else(none)?;
        let mut bytes = vec![0; shape.record_bytes as usize];
        if self.read(disk, shape, at, &mut bytes)? < bytes.len() {
            return Err(none());
        }
        let place = self.place(at).ok_or_else(none)?;
        Record::parse(bytes, number, place)?.ok_or_else(none)
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    fn check(&self) -> Result<()> {
        self.refused.map_or(Ok(()), |why| Err(Error::unsupported(why)))
    }

    /// All of a value that is short.
    pub fn all(&self, disk: &dyn Source, shape: &Shape) -> Result<Vec<u8>> {
        if self.size > WHOLE_BYTES_MAX {
            let text = format!("NTFS: an attribute of more than {WHOLE_BYTES_MAX} bytes");
            return Err(Error::limit(text));
        }
        let mut bytes = vec![0; self.size as usize];
        self.read(disk, shape, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Where a byte is on the disk.
    pub fn place(&self, offset: u64) -> Option<u64> {
        let runs = match &self.body {
            Within::Here { place, .. } => return Some(place + offset),
            Within::There(runs) => runs,
        };
        let first = runs.places.partition_point(|piece| piece.offset + piece.length <= offset);
        let piece = runs.places.get(first).filter(|piece| piece.offset <= offset)?;
        piece.place.map(|place| place + (offset - piece.offset))
    }

    /// Reads bytes; fewer where it ends.
    pub fn read(
        &self,
        disk: &dyn Source,
        shape: &Shape,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize> {
        self.check()?;
        let length = self.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..length];
        match &self.body {
            Within::Here { value, .. } => {
                let from = offset.min(self.size) as usize;
                bytes.copy_from_slice(&value[from..from + length]);
            }
            Within::There(runs) => {
                let known = (runs.written.saturating_sub(offset)).min(length as u64) as usize;
                let (written, zeros) = bytes.split_at_mut(known);
                zeros.fill(0);
                if !written.is_empty() {
                    runs.read(disk, shape, offset, written)?;
                }
            }
        }
        Ok(length)
    }

    /// What of a file is no hole.
    pub fn pieces(&self, shape: &Shape, number: u64, pieces: &mut Pieces) -> Result<()> {
        self.check()?;
        let runs = match &self.body {
            Within::Here { place, .. } if self.size > 0 => {
                let piece = Piece { offset: 0, length: self.size, place: Some(*place) };
                return pieces.add(number, piece);
            }
            Within::Here { .. } => return Ok(()),
            Within::There(runs) => runs,
        };
        runs.data(shape, &mut |piece| {
            // Of a piece that was written in part the rest was not.
            let known = runs.written.saturating_sub(piece.offset).min(piece.length);
            if known > 0 {
                pieces.add(number, Piece { length: known, ..piece })?;
            }
            if known < piece.length {
                let (offset, length) = (piece.offset + known, piece.length - known);
                pieces.add(number, Piece { offset, length, place: None })?;
            }
            Ok(())
        })
    }
}

impl Runs {
    fn add(&mut self, runs: &[Run], shape: &Shape) -> Result<()> {
        let too_long = || damaged("is too long");
        for run in runs {
            let length = run.count.checked_mul(shape.cluster_bytes).ok_or_else(too_long)?;
            if let Some(cluster) = run.cluster {
                if self.places.len() == PIECES_MAX {
                    return Err(Error::limit(format!("NTFS: more than {PIECES_MAX} runs")));
                }
                let place = Some(cluster * shape.cluster_bytes);
                self.places.push(Piece { offset: self.end, length, place });
            }
            let end = self.end.checked_add(length).filter(|end| *end <= BYTES_MAX);
            self.end = end.ok_or_else(too_long)?;
        }
        Ok(())
    }

    /// Tells what is data. Of a unit that is compressed all of it, from where its clusters begin:
    /// the last of its runs stands for what is left of it.
    fn data(&self, shape: &Shape, tell: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
        let unit = if self.is_compressed { shape.cluster_bytes << UNIT } else { 1 };
        for (index, piece) in self.places.iter().enumerate() {
            let next = self.places.get(index + 1).map_or(u64::MAX, |next| next.offset);
            let end = piece.offset + piece.length;
            // To the end of the unit that it ends in, or to what follows in that.
            let reaches = end.next_multiple_of(unit).min(next);
            tell(Piece { length: reaches - piece.offset, ..*piece })?;
        }
        Ok(())
    }

    /// Reads bytes that were written.
    fn read(&self, disk: &dyn Source, shape: &Shape, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if offset.saturating_add(bytes.len() as u64) > self.end {
            return Err(damaged("is longer than its clusters"));
        }
        if !self.is_compressed {
            return read_pieces(&self.places, offset, bytes, &|at, bytes| fetch(disk, at, bytes));
        }
        let unit = shape.cluster_bytes << UNIT;
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let start = at / unit * unit;
            let stop = (start + unit).min(end);
            let whole = self.unit(disk, shape, start)?;
            let target = &mut bytes[(at - offset) as usize..(stop - offset) as usize];
            target.copy_from_slice(&whole[(at - start) as usize..(stop - start) as usize]);
            at = stop;
        }
        Ok(())
    }

    /// A unit that may be compressed: it is where it has fewer clusters than it stands for.
    fn unit(&self, disk: &dyn Source, shape: &Shape, start: u64) -> Result<Vec<u8>> {
        let places = &self.places;
        let size = shape.cluster_bytes << UNIT;
        let first = places.partition_point(|piece| piece.offset + piece.length <= start);
        let within = places[first..].iter().take_while(|piece| piece.offset < start + size);
        let mut stored = 0;
        for piece in within {
            // Clusters come before holes.
            if piece.offset.max(start) != start + stored {
                return Err(damaged("has a compressed piece with a hole before its end"));
            }
            stored = (piece.offset + piece.length).min(start + size) - start;
        }
        let mut bytes = vec![0; stored as usize];
        read_pieces(places, start, &mut bytes, &|at, bytes| fetch(disk, at, bytes))?;
        if stored == 0 || stored == size {
            bytes.resize(size as usize, 0);
            return Ok(bytes);
        }
        compression::expand(&bytes, size as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pieces, Stream};
    use crate::ntfs::attribute::{Attribute, Body, Run};
    use crate::ntfs::kind;
    use crate::ntfs::shape::Shape;

    const SHAPE: Shape = Shape {
        cluster_bytes: 512,
        clusters: 1 << 40,
        record_bytes: 1024,
        records_at: 4,
        serial: 0,
    };
    const UNIT: u64 = 16 * 512;

    fn run(count: u64, cluster: u64) -> Run {
        Run { count, cluster: (cluster > 0).then_some(cluster) }
    }

    fn part(first: u64, runs: &[Run], size: u64) -> Attribute {
        let body = Body::There { first, runs: runs.to_vec(), size, written: size, unit: 4 };
        Attribute { kind: kind::DATA, name: Vec::new(), flags: 1, body }
    }

    fn stream(runs: &[Run], size: u64) -> crate::Result<Stream> {
        Ok(Stream::of(vec![&part(0, runs, size)], &SHAPE)?.unwrap())
    }

    /// Offsets, lengths and places of what is data.
    fn pieces(stream: &Stream) -> Vec<(u64, u64, u64)> {
        let mut pieces = Pieces::default();
        stream.pieces(&SHAPE, 1, &mut pieces).unwrap();
        let shown = |piece: &crate::Piece| (piece.offset, piece.length, piece.place.unwrap());
        pieces.found.iter().map(shown).collect()
    }

    /// A disk on which the clusters from 10 on hold a unit of text that is packed.
    fn disk() -> Vec<u8> {
        let mut disk = vec![0; 64 * 512];
        for (at, byte) in disk.iter_mut().enumerate() {
            *byte = (at / 512) as u8;
        }
        // 4096 times `a`, twice: a literal, and a reference to it.
        let chunk = [0x03, 0xB0, 0x02, b'a', 0xFC, 0x0F];
        disk[10 * 512..11 * 512].fill(0);
        disk[10 * 512..][..6].copy_from_slice(&chunk);
        disk[10 * 512 + 6..][..6].copy_from_slice(&chunk);
        disk
    }

    #[test]
    fn units_are_packed_plain_or_holes() {
        let disk = disk();
        let runs = [run(1, 10), run(15, 0), run(16, 20), run(16, 0)];
        let stream = stream(&runs, 3 * UNIT).unwrap();
        let mut bytes = vec![9; 3 * UNIT as usize];
        assert_eq!(stream.read(&disk, &SHAPE, 0, &mut bytes).unwrap(), bytes.len());
        let unit = UNIT as usize;
        assert!(bytes[..4095].iter().all(|&byte| byte == b'a') && bytes[4096] == b'a');
        assert!(bytes[unit..2 * unit] == disk[20 * 512..36 * 512]);
        assert!(bytes[2 * unit..].iter().all(|&byte| byte == 0));
        assert_eq!(pieces(&stream), [(0, UNIT, 10 * 512), (UNIT, UNIT, 20 * 512)]);
    }

    #[test]
    fn every_run_of_a_unit_is_a_place_of_it() {
        let runs = [run(1, 10), run(2, 30), run(13, 0), run(40, 50), run(8, 0)];
        let found = pieces(&stream(&runs, 4 * UNIT).unwrap());
        let expected =
            [(0, 512, 10 * 512), (512, UNIT - 512, 30 * 512), (UNIT, 3 * UNIT, 50 * 512)];
        assert_eq!(found, expected);
        // However long a run is, it is one piece.
        let long = stream(&[run(1 << 39, 10)], 512 << 39).unwrap();
        assert_eq!(pieces(&long).len(), 1);
    }

    #[test]
    fn what_contradicts_itself_is_damage() {
        let disk = disk();
        let behind = stream(&[run(4, 0), run(12, 10)], UNIT).unwrap();
        assert!(behind.read(&disk, &SHAPE, 0, &mut [0; 16]).is_err());
        // Longer than its clusters, or than anything can be.
        assert!(stream(&[run(16, 10)], UNIT + 1).is_err());
        assert!(stream(&[run((1 << 55) - 16, 0), run(15, 10)], u64::MAX - 511).is_err());
        // Far behind the end there is nothing, which is no damage.
        let short = stream(&[run(16, 10)], 100).unwrap();
        assert_eq!(short.read(&disk, &SHAPE, 9 * UNIT, &mut [0; 16]).unwrap(), 0);
        // A part is lacking, or there twice.
        let (first, second) = (part(0, &[run(16, 10)], 2 * UNIT), part(17, &[run(16, 30)], 0));
        assert!(Stream::of(vec![&first, &second], &SHAPE).is_err());
        assert!(Stream::of(vec![&first, &first], &SHAPE).is_err());
        assert!(Stream::of(vec![&first], &SHAPE).is_err());
        let second = part(16, &[run(16, 30)], 0);
        assert!(Stream::of(vec![&second, &first], &SHAPE).is_ok());
    }
}
