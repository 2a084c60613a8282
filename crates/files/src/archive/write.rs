//! The writer.

use std::io::{self, Write};

use super::header::{
    BLOCK_BYTES, EXTENDED, Field, GID, MAGIC, MAJOR, MINOR, MODE, MTIME, NAME, SIZE, SUM, TARGET,
    TYPE, UID, USTAR, sum_of,
};
use crate::tree::{Attributes, Kind, Time};

/// An archive ends with blocks of zeros, and is a multiple of this many blocks.
const RECORD_BLOCKS: u64 = 20;

/// The other name that a member is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link<'n> {
    /// None.
    None,
    /// It is a symbolic link with this content.
    Symbolic(&'n [u8]),
    /// It is a further name of this member.
    Hard(&'n [u8]),
}

/// Writes an archive.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    bytes: u64,
    /// Bytes of the member's content that are to come.
    left: u64,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    pub fn new(to: W) -> Writer<W> {
        Writer { to, bytes: 0, left: 0 }
    }

    /// Where it is written.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Begins a member, after all content of the one before. As many bytes of content follow as it
    /// has, if it is a file and no further name. Archives have no sockets: those are passed over.
    ///
    /// # Errors
    /// Those of writing.
    pub fn member(
        &mut self,
        name: &[u8],
        attributes: &Attributes,
        link: Link<'_>,
        extended: &[(Vec<u8>, Vec<u8>)],
    ) -> io::Result<()> {
        assert_eq!(self.left, 0, "content of the member before is missing");
        let (kind, target) = match (link, attributes.kind) {
            (_, Kind::Socket) => return Ok(()),
            (Link::Hard(first), _) => (b'1', first),
            (Link::Symbolic(target), _) => (b'2', target),
            (Link::None, kind) => (type_of(kind), &b""[..]),
        };
        let size = if kind == b'0' { attributes.size } else { 0 };
        let mut name = name.to_vec();
        if attributes.kind == Kind::Directory {
            name.push(b'/');
        }
        let more = records(&name, target, size, attributes, extended);
        if !more.is_empty() {
            self.put(&header(b"pax", b"", b'x', more.len() as u64, None))?;
            self.put(&more)?;
            self.pad()?;
        }
        self.put(&header(&name, target, kind, size, Some(attributes)))?;
        self.left = size;
        Ok(())
    }

    /// The next bytes of the member's content; what is beyond its size is left out.
    ///
    /// # Errors
    /// Those of writing.
    pub fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if length == 0 {
            return Ok(());
        }
        self.put(&bytes[..length])?;
        self.left -= length as u64;
        if self.left == 0 { self.pad() } else { Ok(()) }
    }

    /// Bytes of the member's content that are to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(&mut self) -> io::Result<()> {
        assert_eq!(self.left, 0, "content of the last member is missing");
        let record = RECORD_BLOCKS * BLOCK_BYTES as u64;
        let end = (self.bytes + 2 * BLOCK_BYTES as u64).next_multiple_of(record);
        while self.bytes < end {
            self.put(&[0; BLOCK_BYTES])?;
        }
        self.to.flush()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> io::Result<()> {
        let over = (self.bytes % BLOCK_BYTES as u64) as usize;
        if over == 0 { Ok(()) } else { self.put(&[0; BLOCK_BYTES][over..]) }
    }
}

fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::File | Kind::Socket => b'0',
        Kind::Symlink => b'2',
        Kind::CharacterDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

/// The largest number of an octal field of so many digits.
fn octal_max(digits: u32) -> u64 {
    8_u64.pow(digits) - 1
}

/// Records of what the header has no room for.
fn records(
    name: &[u8],
    target: &[u8],
    size: u64,
    attributes: &Attributes,
    extended: &[(Vec<u8>, Vec<u8>)],
) -> Vec<u8> {
    let mut made = Vec::new();
    if name.len() > NAME.len() {
        record(&mut made, b"path", name);
    }
    if target.len() > TARGET.len() {
        record(&mut made, b"linkpath", target);
    }
    if size > octal_max(11) {
        record(&mut made, b"size", size.to_string().as_bytes());
    }
    let (uid, gid) = attributes.owner.unwrap_or_default();
    for (key, id) in [(&b"uid"[..], uid), (b"gid", gid)] {
        if u64::from(id) > octal_max(7) {
            record(&mut made, key, id.to_string().as_bytes());
        }
    }
    if let Some(Time { seconds, nanos }) = attributes.modified
        && (nanos != 0 || !(0..=octal_max(11) as i64).contains(&seconds))
    {
        record(&mut made, b"mtime", decimal(seconds, nanos).as_bytes());
    }
    let (major, minor) = attributes.device.unwrap_or_default();
    for (key, number) in [(&b"SCHILY.devmajor"[..], major), (b"SCHILY.devminor", minor)] {
        if u64::from(number) > octal_max(7) {
            record(&mut made, key, number.to_string().as_bytes());
        }
    }
    for (name, value) in extended {
        let mut key = EXTENDED.to_vec();
        for byte in name {
            match byte {
                b'=' => key.extend(b"%3D"),
                b'%' => key.extend(b"%25"),
                byte => key.push(*byte),
            }
        }
        record(&mut made, &key, value);
    }
    made
}

/// Seconds and nanoseconds as a decimal number, also below zero.
fn decimal(seconds: i64, nanos: u32) -> String {
    if seconds < 0 && nanos > 0 {
        return format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos);
    }
    format!("{seconds}.{nanos:09}")
}

/// A record begins with its own length, which counts itself.
fn record(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    to.extend(length.to_string().as_bytes());
    to.push(b' ');
    to.extend(key);
    to.push(b'=');
    to.extend(value);
    to.push(b'\n');
}

fn header(
    name: &[u8],
    target: &[u8],
    kind: u8,
    size: u64,
    attributes: Option<&Attributes>,
) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut text = |field: Field, value: &[u8]| {
        let length = value.len().min(field.len());
        header[field.start..field.start + length].copy_from_slice(&value[..length]);
    };
    let octal = |field: Field, value: u64| {
        let digits = field.len() - 1;
        format!("{:0digits$o}", value.min(octal_max(digits as u32))).into_bytes()
    };
    let (uid, gid) = attributes.and_then(|known| known.owner).unwrap_or_default();
    let modified = attributes.and_then(|known| known.modified).unwrap_or_default();
    let (major, minor) = attributes.and_then(|known| known.device).unwrap_or_default();
    let mode = attributes.map_or(0o600, |known| u64::from(known.mode));
    text(NAME, name);
    text(MODE, &octal(MODE, mode));
    text(UID, &octal(UID, uid.into()));
    text(GID, &octal(GID, gid.into()));
    text(SIZE, &octal(SIZE, size));
    text(MTIME, &octal(MTIME, u64::try_from(modified.seconds).unwrap_or(0)));
    text(TYPE..TYPE + 1, &[kind]);
    text(TARGET, target);
    text(MAGIC, USTAR);
    text(MAJOR, &octal(MAJOR, major.into()));
    text(MINOR, &octal(MINOR, minor.into()));
    let sum = format!("{:06o}\0 ", sum_of(&header));
    header[SUM].copy_from_slice(sum.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::{decimal, record};

    #[test]
    fn records_count_themselves() {
        for length in 0..1200 {
            let mut made = Vec::new();
            record(&mut made, b"path", &vec![b'x'; length]);
            let text = String::from_utf8(made.clone()).unwrap();
            let told = text.split(' ').next().unwrap();
            assert_eq!(told.parse::<usize>().unwrap(), made.len());
        }
    }

    #[test]
    fn times_below_zero_are_decimal_numbers() {
        assert_eq!(decimal(-1, 500_000_000), "-0.500000000");
        assert_eq!(decimal(-2, 0), "-2.000000000");
        assert_eq!(decimal(5, 1), "5.000000001");
    }
}
