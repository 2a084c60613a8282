//! Attributes of files: all that a file has is one.

use std::collections::BTreeSet;

use crate::bytes::{byte, le16, le32, le64};
use crate::error::{Error, Result};
use crate::tree::PIECES_MAX;

use super::base::{NUMBER, units};
use super::shape::Shape;

/// Records that one file is spread over, at most.
const RECORDS_MAX: usize = 4096;

/// The least that an attribute has, in bytes.
pub const HEADER_BYTES: usize = 24;

/// Clusters of an attribute that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub count: u64,
    /// Where they begin on the disk; none where there are none, which is read as zeros.
    pub cluster: Option<u64>,
}

/// Where the value of an attribute is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the record, at this place of the disk.
    Here { value: Vec<u8>, place: u64 },
    /// In clusters, from this one of the value on.
    There { first: u64, runs: Vec<Run>, size: u64, written: u64, unit: u8 },
}

/// An attribute, or one part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    pub kind: u32,
    pub name: Vec<u16>,
    pub flags: u16,
    pub body: Body,
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("NTFS: an attribute {what}"))
}

impl Attribute {
    /// Reads one that begins at this place of the disk.
    pub fn parse(bytes: &[u8], place: u64, shape: &Shape) -> Result<Attribute> {
        let name_at = usize::from(le16(bytes, 10));
        let name_end = name_at + usize::from(byte(bytes, 9)) * 2;
        let name = bytes.get(name_at..name_end).ok_or_else(|| damaged("has no end of its name"))?;
        let body = if byte(bytes, 8) == 0 {
            let (length, at) = (le32(bytes, 16) as usize, usize::from(le16(bytes, 20)));
            let value = bytes.get(at..).and_then(|behind| behind.get(..length));
            let value = value.ok_or_else(|| damaged("has no end of its value"))?.to_vec();
            Body::Here { value, place: place + at as u64 }
        } else {
            let runs = bytes.get(usize::from(le16(bytes, 32))..).unwrap_or_default();
            Body::There {
                first: le64(bytes, 16),
                runs: runs_of(runs, shape)?,
                size: le64(bytes, 48),
                written: le64(bytes, 56),
                unit: byte(bytes, 34),
            }
        };
        Ok(Attribute { kind: le32(bytes, 0), name: units(name), flags: le16(bytes, 12), body })
    }

    /// What it takes in memory: its runs, and one for itself.
    pub fn weight(&self) -> usize {
        match &self.body {
            Body::Here { .. } => 1,
            Body::There { runs, .. } => 1 + runs.len(),
        }
    }

    /// Its value, where that is in the record.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Here { value, .. } => Some(value),
            Body::There { .. } => None,
        }
    }
}

/// A number of so many bytes, with a sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    let shift = 64 - 8 * bytes.len() as u32;
    i64::from_le_bytes(whole).checked_shl(shift).map_or(0, |number| number >> shift)
}

/// Reads runs: each says how long it is, and how far behind the one before it begins.
fn runs_of(mut bytes: &[u8], shape: &Shape) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0_i64;
    let mut total = 0_u64;
    loop {
        let (&head, behind) =
            bytes.split_first().ok_or_else(|| damaged("has runs without an end"))?;
        if head == 0 {
            return Ok(runs);
        }
        let (length, place) = (usize::from(head & 15), usize::from(head >> 4));
        if length == 0 || length > 8 || place > 8 || behind.len() < length + place {
            return Err(damaged("has runs that contradict themselves"));
        }
        let count = signed(&behind[..length]).cast_unsigned();
        total = total.saturating_add(count);
        if count == 0 || count > i64::MAX as u64 || total > u64::MAX / shape.cluster_bytes {
            return Err(damaged("has a run of no length"));
        }
        let mut cluster = None;
        if place > 0 {
            at = at.wrapping_add(signed(&behind[length..length + place]));
            let end = at.cast_unsigned().checked_add(count);
            if at < 0 || end.is_none_or(|end| end > shape.clusters) {
                return Err(damaged("has clusters outside of the disk"));
            }
            cluster = Some(at.cast_unsigned());
        }
        if runs.len() == PIECES_MAX {
            return Err(Error::limit(format!("NTFS: more than {PIECES_MAX} runs")));
        }
        runs.push(Run { count, cluster });
        bytes = &behind[length + place..];
    }
}

/// The records that a list of attributes names, but for one, in its order; of the entries of which
/// `is_wanted` says so, by the kind and the length of the name.
pub fn records_of(list: &[u8], but: u64, is_wanted: fn(u32, u8) -> bool) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([but]);
    let mut at = 0;
    while at + HEADER_BYTES <= list.len() && le32(list, at) != 0 {
        let length = usize::from(le16(list, at + 4));
        if length < HEADER_BYTES {
            return Err(damaged("is in a list that contradicts itself"));
        }
        let number = le64(list, at + 16) & NUMBER;
        if is_wanted(le32(list, at), byte(list, at + 6)) && seen.insert(number) {
            found.push(number);
        }
        if found.len() > RECORDS_MAX {
            return Err(Error::limit(format!("NTFS: a file over more than {RECORDS_MAX} records")));
        }
        at += length;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Run, runs_of, signed};
    use crate::ntfs::shape::Shape;

    #[test]
    fn runs_are_relative_to_the_one_before() {
        let shape = Shape {
            cluster_bytes: 4096,
            clusters: 1000,
            record_bytes: 1024,
            records_at: 4,
            serial: 0,
        };
        let bytes = [0x11, 3, 100, 0x01, 5, 0x11, 2, 0xF6, 0x21, 1, 0x2C, 1, 0, 9];
        let run = |count, cluster| Run { count, cluster };
        let expected = [run(3, Some(100)), run(5, None), run(2, Some(90)), run(1, Some(390))];
        assert_eq!(runs_of(&bytes, &shape).unwrap(), expected);
        for wrong in [
            &[0x11, 3][..],
            &[0x11, 0, 100, 0],
            &[0x11, 3, 0x80, 0],
            &[0x21, 100, 0xE8, 3, 0],
            &[0x10, 3, 0],
            &[0x91, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x11, 3, 100],
            &[0x11, 0x80, 1, 0],
            &[],
        ] {
            assert!(runs_of(wrong, &shape).is_err(), "{wrong:?}");
        }
        assert_eq!(
            (signed(&[0xFF]), signed(&[0x7F]), signed(&[]), signed(&[0; 8])),
            (-1, 127, 0, 0)
        );
    }
}
