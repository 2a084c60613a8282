//! The value of an attribute, put together of its parts.

use crate::error::{Error, Result};
use crate::pieces::{Pieces, read_pieces};
use crate::source::Source;
use crate::tree::Piece;

use super::attribute::{Attribute, Body, Run};
use super::compression;
use super::kind;
use super::record::Record;
use super::shape::Shape;

/// What is read whole of a value that is not a file's, in bytes.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
const COMPRESSED: u16 = 0x00FF;
const ENCRYPTED: u16 = 0x4000;
/// Clusters that are compressed at once, as a power of two.
const UNIT: u8 = 4;

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

fn fetch(disk: &dyn Source, offset: u64, bytes: &mut [u8]) -> Result<()> {
    disk.read_at(offset, bytes).map_err(|error| Error::source(offset, error))
}

impl Stream {
    /// The file of records, whose own record may say in others where the rest of it is.
    pub fn of_records(disk: &dyn Source, shape: &Shape) -> Result<Stream> {
        let place = shape.records_at * shape.cluster_bytes;
        let mut bytes = vec![0; shape.record_bytes as usize];
        fetch(disk, place, &mut bytes)?;
        let none = || Error::damaged("NTFS: the file of records is damaged");
        let record = Record::parse(bytes, 0, place)?.ok_or_else(none)?;
        let mut attributes = record.attributes(shape)?;
        let is_data = |one: &Attribute| one.kind == kind::DATA && one.name.is_empty();
        let Some(list) = Stream::find(shape, &attributes, kind::LIST, &[])? else {
            return Stream::find(shape, &attributes, kind::DATA, &[])?.ok_or_else(none);
        };
        // Each further record lies in what is known by those before it.
        let others = super::attribute::records_of(&list.all(disk, shape)?, 0)?;
        for number in others {
            let known = Stream::find(shape, &attributes, kind::DATA, &[])?.ok_or_else(none)?;
            let other = Record::read(disk, shape, &known, number)?;
            if other.base != record.reference() {
                return Err(none());
            }
            attributes.extend(other.attributes(shape)?.into_iter().filter(is_data));
        }
        Stream::find(shape, &attributes, kind::DATA, &[])?.ok_or_else(none)
    }

    /// The value of an attribute.
    pub fn find(
        shape: &Shape,
        attributes: &[Attribute],
        kind: u32,
        name: &[u16],
    ) -> Result<Option<Stream>> {
        let is_it = |one: &&Attribute| one.kind == kind && one.name == name;
        let mut parts: Vec<&Attribute> = attributes.iter().filter(is_it).collect();
        let first_of = |one: &Attribute| match one.body {
            Body::Here { .. } => 0,
            Body::There { first, .. } => first,
        };
        parts.sort_by_key(|one| first_of(one));
        let Some(head) = parts.first() else { return Ok(None) };
        let is_compressed = head.flags & COMPRESSED != 0;
        let mut refused = None;
        if head.flags & ENCRYPTED != 0 {
            refused = Some("NTFS: this file is encrypted");
        }
        let (size, written, unit) = match &head.body {
            Body::Here { value, place } => {
                let body = Within::Here { value: value.clone(), place: *place };
                return Ok(Some(Stream { size: value.len() as u64, refused, body }));
            }
            Body::There { size, written, unit, .. } => (*size, *written, *unit),
        };
        if is_compressed && (head.flags & COMPRESSED != 1 || unit != UNIT) {
            refused = refused.or(Some("NTFS: this file is compressed in an unknown way"));
        }
        let mut runs = Vec::new();
        let mut next = 0_u64;
        for part in parts {
            let Body::There { first, runs: more, .. } = &part.body else {
                return Err(damaged("has parts that contradict each other"));
            };
            if *first != next {
                return Err(damaged("lacks a part"));
            }
            next = more.iter().fold(next, |next, run| next.saturating_add(run.count));
            runs.extend(more);
        }
        let (places, end) = places_of(&runs, shape)?;
        let body = Within::There(Runs { places, end, written, is_compressed });
        Ok(Some(Stream { size, refused, body }))
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
                runs.read(disk, shape, offset, written)?;
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
        for piece in runs.data(shape) {
            // Of a piece that was written in part the rest was not.
            let known = runs.written.saturating_sub(piece.offset).min(piece.length);
            if known > 0 {
                pieces.add(number, Piece { length: known, ..piece })?;
            }
            if known < piece.length {
                let (offset, length) = (piece.offset + known, piece.length - known);
                pieces.add(number, Piece { offset, length, place: None })?;
            }
        }
        Ok(())
    }
}

/// Where runs are on the disk, and how much all of them stand for.
fn places_of(runs: &[Run], shape: &Shape) -> Result<(Vec<Piece>, u64)> {
    let too_long = || damaged("is too long");
    let mut found = Vec::new();
    let mut at = 0_u64;
    for run in runs {
        let length = run.count.checked_mul(shape.cluster_bytes).ok_or_else(too_long)?;
        if let Some(cluster) = run.cluster {
            let place = Some(cluster * shape.cluster_bytes);
            found.push(Piece { offset: at, length, place });
        }
        at = at.checked_add(length).ok_or_else(too_long)?;
    }
    Ok((found, at))
}

impl Runs {
    /// What is data: of a unit that is compressed all of it, from where its clusters begin.
    fn data(&self, shape: &Shape) -> Vec<Piece> {
        if !self.is_compressed {
            return self.places.clone();
        }
        let unit = shape.cluster_bytes << UNIT;
        let mut found: Vec<Piece> = Vec::new();
        for piece in &self.places {
            let mut at = piece.offset;
            let end = piece.offset + piece.length;
            while at < end {
                let stop = (at / unit + 1).saturating_mul(unit).min(end);
                let place = piece.place.map(|place| place + (at - piece.offset));
                // The unit goes on to its end, or to what follows in it.
                if let Some(last) = found.last_mut()
                    && last.offset / unit == at / unit
                {
                    last.length = at - last.offset;
                }
                let length = (at / unit + 1).saturating_mul(unit) - at;
                found.push(Piece { offset: at, length, place });
                at = stop;
            }
        }
        found
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
        let stored: u64 = within
            .map(|piece| {
                let end = (piece.offset + piece.length).min(start + size);
                end - piece.offset.max(start)
            })
            .sum();
        let mut bytes = vec![0; stored as usize];
        read_pieces(places, start, &mut bytes, &|at, bytes| fetch(disk, at, bytes))?;
        if stored == 0 || stored == size {
            bytes.resize(size as usize, 0);
            return Ok(bytes);
        }
        compression::expand(&bytes, size as usize)
    }
}
