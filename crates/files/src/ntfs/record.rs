//! Records of files.

use crate::bytes::{le16, le32, le64};
use crate::error::{Error, Result};

use super::attribute::{self, Attribute};
use super::base::{NUMBER, NUMBER_BITS};
use super::shape::Shape;

/// What of a block carries a mark at its end, in bytes.
const STRIDE: usize = 512;
const IN_USE: u16 = 1;
const DIRECTORY: u16 = 2;

/// The record of a file.
pub struct Record {
    pub number: u64,
    pub sequence: u16,
    pub is_directory: bool,
    /// The reference of the record that this one belongs to; 0 where it is a file's first.
    pub base: u64,
    /// Where it is on the disk.
    pub place: u64,
    bytes: Vec<u8>,
}

/// Puts back what each sector of a block has at its end, where a mark stands that all of them
/// share: one that was not written with the others has another.
pub fn join(block: &mut [u8]) -> Result<()> {
    let damaged = || Error::damaged("NTFS: a block was not written whole");
    let (list, count) = (usize::from(le16(block, 4)), usize::from(le16(block, 6)));
    let strides = block.len() / STRIDE;
    // The list ends before the first mark, so that it is not changed under way.
    if count != strides + 1 || list + count * 2 > STRIDE - 2 {
        return Err(damaged());
    }
    let mark = [block[list], block[list + 1]];
    for stride in 0..strides {
        let (at, from) = ((stride + 1) * STRIDE - 2, list + (stride + 1) * 2);
        if block[at..at + 2] != mark {
            return Err(damaged());
        }
        block.copy_within(from..from + 2, at);
    }
    Ok(())
}

impl Record {
    /// None where no file has it.
    pub fn parse(mut bytes: Vec<u8>, number: u64, place: u64) -> Result<Option<Record>> {
        // Those that were never given out may be anything else.
        if !bytes.starts_with(b"FILE") {
            return match &bytes[..4] {
                b"BAAD" => Err(Error::damaged(format!("NTFS: record {number} is damaged"))),
                _ => Ok(None),
            };
        }
        let joined = join(&mut bytes);
        joined.map_err(|_| Error::damaged(format!("NTFS: record {number} is damaged")))?;
        let flags = le16(&bytes, 22);
        if flags & IN_USE == 0 {
            return Ok(None);
        }
        Ok(Some(Record {
            number,
            sequence: le16(&bytes, 16),
            is_directory: flags & DIRECTORY != 0,
            base: le64(&bytes, 32),
            place,
            bytes,
        }))
    }

    /// As names refer to it.
    pub fn reference(&self) -> u64 {
        u64::from(self.sequence) << NUMBER_BITS | self.number & NUMBER
    }

    pub fn damaged(&self, what: &str) -> Error {
        Error::damaged(format!("NTFS: record {} {what}", self.number))
    }

    pub fn attributes(&self, shape: &Shape) -> Result<Vec<Attribute>> {
        const END: u32 = u32::MAX;
        let mut found = Vec::new();
        let end = (le32(&self.bytes, 24) as usize).min(self.bytes.len());
        let mut at = usize::from(le16(&self.bytes, 20));
        while at + 4 <= end && le32(&self.bytes, at) != END {
            let length = le32(&self.bytes, at + 4) as usize;
            let bytes = at.checked_add(length).and_then(|end| self.bytes.get(at..end));
            let bytes = bytes.filter(|bytes| bytes.len() >= attribute::HEADER_BYTES);
            let bytes = bytes.ok_or_else(|| self.damaged("has an attribute without an end"))?;
            found.push(Attribute::parse(bytes, self.place + at as u64, shape)?);
            at += length;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn sectors_that_were_not_written_together_are_told() {
        let mut block = vec![7; 1024];
        block[4..8].copy_from_slice(&[48, 0, 3, 0]);
        block[48..54].copy_from_slice(&[9, 1, 10, 11, 12, 13]);
        for at in [510, 1022] {
            block[at..at + 2].copy_from_slice(&[9, 1]);
        }
        let mut whole = block.clone();
        join(&mut whole).unwrap();
        assert_eq!((&whole[510..512], &whole[1022..]), (&[10, 11][..], &[12, 13][..]));
        let mut torn = block.clone();
        torn[1022] = 8;
        assert!(join(&mut torn).is_err());
        for (at, value) in [(6, 2), (6, 4), (5, 2), (4, 255)] {
            let mut wrong = block.clone();
            wrong[at] = value;
            assert!(join(&mut wrong).is_err(), "{value} at {at}");
        }
    }
}
