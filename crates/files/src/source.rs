//! What is read: a disk, a part of one, and reading ahead.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::iter;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Error, Result};

/// A disk at one moment: the same bytes whenever they are asked for.
pub trait Source {
    /// Its size, in bytes.
    fn size(&self) -> u64;

    /// Reads bytes at an offset, all of them.
    ///
    /// # Errors
    /// Those of the disk; reading beyond the end is one.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Reads bytes of a disk into place.
pub fn fetch(disk: &dyn Source, offset: u64, bytes: &mut [u8]) -> Result<()> {
    disk.read_at(offset, bytes).map_err(|error| Error::source(offset, error))
}

/// Reads so many bytes of a disk, a number that is within a limit.
pub fn fetched(disk: &dyn Source, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    fetch(disk, offset, &mut bytes)?;
    Ok(bytes)
}

fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the disk")
}

/// Whether a range lies within so many bytes.
fn is_within(size: u64, offset: u64, length: usize) -> bool {
    offset.checked_add(length as u64).is_some_and(|end| end <= size)
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| beyond())?;
        let end = start.checked_add(bytes.len()).ok_or_else(beyond)?;
        bytes.copy_from_slice(self.get(start..end).ok_or_else(beyond)?);
        Ok(())
    }
}

/// Ranges of a source, one behind the other, as a source.
pub struct Slice {
    of: Rc<dyn Source>,
    ranges: Vec<Range<u64>>,
    size: u64,
}

/// Where a range of what lies in ranges, one behind the other, is in the source that has them.
pub fn places(ranges: &[Range<u64>], wanted: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut before = 0;
    ranges.iter().filter_map(move |range| {
        let begins = before;
        before += range.end - range.start;
        let (from, to) = (wanted.start.max(begins), wanted.end.min(before));
        (from < to).then(|| range.start + (from - begins)..range.start + (to - begins))
    })
}

impl Slice {
    /// A range, or what of it is there.
    pub fn new(of: Rc<dyn Source>, offset: u64, size: u64) -> Slice {
        Slice::joined(of, iter::once(offset..offset.saturating_add(size)))
    }

    /// Ranges, or what of them is there.
    pub fn joined(of: Rc<dyn Source>, ranges: impl IntoIterator<Item = Range<u64>>) -> Slice {
        let end = of.size();
        let ranges = ranges.into_iter().map(|range| range.start.min(end)..range.end.min(end));
        let ranges: Vec<Range<u64>> = ranges.collect();
        let size = ranges.iter().map(|range| range.end - range.start).sum();
        Slice { of, ranges, size }
    }
}

impl Source for Slice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        if !is_within(self.size, offset, bytes.len()) {
            return Err(beyond());
        }
        for place in places(&self.ranges, offset..offset + bytes.len() as u64) {
            let (piece, rest) = bytes.split_at_mut((place.end - place.start) as usize);
            self.of.read_at(place.start, piece)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// A piece, in bytes: what one block of metadata brings along.
const PIECE_BYTES: u64 = 64 << 10;
/// Pieces that one request brings where reading goes on where it was.
const PIECES_AHEAD: u64 = 16;
/// Pieces that are kept: 32 MiB.
const PIECES_KEPT: usize = 512;
/// Requests of this length, in bytes, and more are data of files, and not kept.
const LARGE_BYTES: usize = 128 << 10;

/// A source that asks another for large pieces, and keeps them.
pub struct ReadAhead<S> {
    of: S,
    kept: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// In the order in which they came.
    order: VecDeque<u64>,
    /// The piece behind those that came last.
    next: u64,
}

impl<S: Source> ReadAhead<S> {
    /// Over a source.
    pub fn new(of: S) -> ReadAhead<S> {
        ReadAhead { of, kept: RefCell::default() }
    }

    /// Has a piece brought, and those behind it if reading goes on.
    fn bring(&self, kept: &mut Kept, piece: u64) -> io::Result<()> {
        let ahead = if piece == kept.next { PIECES_AHEAD } else { 1 };
        let start = piece * PIECE_BYTES;
        let length = (ahead * PIECE_BYTES).min(self.of.size() - start);
        let mut bytes = vec![0; length as usize];
        self.of.read_at(start, &mut bytes)?;
        for (number, part) in (piece..).zip(bytes.chunks(PIECE_BYTES as usize)) {
            if kept.pieces.insert(number, part.to_vec()).is_none() {
                kept.order.push_back(number);
            }
            kept.next = number + 1;
        }
        while kept.order.len() > PIECES_KEPT {
            if let Some(oldest) = kept.order.pop_front() {
                kept.pieces.remove(&oldest);
            }
        }
        Ok(())
    }
}

impl<S: Source> Source for ReadAhead<S> {
    fn size(&self) -> u64 {
        self.of.size()
    }

    fn read_at(&self, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        if !is_within(self.size(), offset, bytes.len()) {
            return Err(beyond());
        }
        if bytes.len() >= LARGE_BYTES {
            return self.of.read_at(offset, bytes);
        }
        let mut kept = self.kept.borrow_mut();
        while !bytes.is_empty() {
            let (piece, within) = (offset / PIECE_BYTES, (offset % PIECE_BYTES) as usize);
            if !kept.pieces.contains_key(&piece) {
                self.bring(&mut kept, piece)?;
            }
            let found = kept.pieces.get(&piece).and_then(|found| found.get(within..));
            let found = found.filter(|found| !found.is_empty()).ok_or_else(beyond)?;
            let length = found.len().min(bytes.len());
            bytes[..length].copy_from_slice(&found[..length]);
            bytes = &mut bytes[length..];
            offset += length as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{PIECE_BYTES, PIECES_KEPT, ReadAhead, Slice, Source};

    #[test]
    fn what_is_read_ahead_is_what_is_there() {
        let size = (PIECES_KEPT as u64 + 20) * PIECE_BYTES + 77;
        let disk: Vec<u8> = (0..size).map(|at| (at / 1000 % 251) as u8).collect();
        let ahead = ReadAhead::new(disk.clone());
        let mut offset = 0;
        // Backwards and forwards, over the ends of pieces, more than is kept.
        for step in 0..4000_u64 {
            offset = (offset + step * 7919) % (size - 9000);
            let mut bytes = vec![0; 9000];
            ahead.read_at(offset, &mut bytes).unwrap();
            assert!(bytes == disk[offset as usize..][..9000], "at {offset}");
        }
        let mut tail = [0; 78];
        assert!(ahead.read_at(size - 77, &mut tail).is_err());
        ahead.read_at(size - 78, &mut tail).unwrap();
        assert_eq!(tail[..], disk[disk.len() - 78..]);
    }

    #[test]
    fn a_slice_ends_where_its_disk_does() {
        let slice = Slice::new(Rc::new(vec![1, 2, 3, 4]), 2, 100);
        assert_eq!(slice.size(), 2);
        let mut bytes = [0; 2];
        slice.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 4]);
        assert!(slice.read_at(1, &mut bytes).is_err());
        assert!(slice.read_at(u64::MAX, &mut bytes).is_err());
        assert_eq!(Slice::new(Rc::new(vec![1]), 7, 1).size(), 0);
        // Several, of which one is empty and one ends with the disk.
        let joined = Slice::joined(Rc::new(vec![0, 1, 2, 3, 4, 5]), [4..6, 2..2, 1..3, 5..9]);
        let mut bytes = [9; 5];
        joined.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [4, 5, 1, 2, 5]);
        joined.read_at(1, &mut bytes[..2]).unwrap();
        assert_eq!((bytes[0], bytes[1]), (5, 1));
        assert!(joined.read_at(4, &mut bytes[..2]).is_err());
    }
}
