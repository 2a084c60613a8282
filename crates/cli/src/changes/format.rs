//! Streams of changes, byte by byte: `rbd export-diff`, version 1 (docs/format/diff-stream.md).
//!
//! Nothing that is read decides how much memory is taken: names are short, data is passed on.

use std::io::{self, Read, Write};
use std::ops::Range;

use crate::failure::Failure;

const MAGIC: &[u8] = b"rbd diff v1\n";
/// The longest name of a moment, in bytes: that of a mark.
const NAME_BYTES_MAX: u32 = 128;

/// What stands before the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The name of the base; none if that is zeros.
    pub from: Option<String>,
    /// The name of what the changes make of it.
    pub to: String,
    /// Bytes of that.
    pub size: u64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// So many bytes follow, to be written there.
    Data(Range<u64>),
    /// There are zeros there.
    Zeros(Range<u64>),
    /// That was all.
    End,
}

pub fn cut_off(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::new("the stream ends before its end")
            .with_hint("it was cut off: copy or export it again"),
        _ => Failure::new(format!("the stream cannot be read: {error}")),
    }
}

fn wrong(what: &str) -> Failure {
    Failure::new(format!("this is no stream of changes: {what}"))
        .with_hint("hindsight volume export NAME@MOMENT FILE --since MOMENT makes one")
}

impl Head {
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        let names = self.from.iter().map(|from| (b'f', from)).chain([(b't', &self.to)]);
        for (tag, name) in names {
            out.write_all(&[tag])?;
            out.write_all(&(name.len() as u32).to_le_bytes())?;
            out.write_all(name.as_bytes())?;
        }
        out.write_all(b"s")?;
        out.write_all(&self.size.to_le_bytes())
    }

    /// Reads up to the size, which stands last.
    pub fn read(input: &mut impl Read) -> Result<Head, Failure> {
        let mut magic = [0; MAGIC.len()];
        input.read_exact(&mut magic).map_err(cut_off)?;
        if magic != MAGIC {
            return Err(wrong("it does not begin with `rbd diff v1`"));
        }
        let (mut from, mut to) = (None, None);
        loop {
            match byte(input)? {
                b'f' => from = Some(name(input)?),
                b't' => to = Some(name(input)?),
                b's' => break,
                tag => return Err(wrong(&format!("{:?} where its head is", char::from(tag)))),
            }
        }
        let to = to.ok_or_else(|| wrong("it does not say what it makes"))?;
        Ok(Head { from, to, size: number(input)? })
    }
}

pub fn data(out: &mut impl Write, offset: u64, length: u64) -> io::Result<()> {
    change(out, b'w', offset, length)
}

pub fn zeros(out: &mut impl Write, offset: u64, length: u64) -> io::Result<()> {
    change(out, b'z', offset, length)
}

pub fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"e")?;
    out.flush()
}

fn change(out: &mut impl Write, tag: u8, offset: u64, length: u64) -> io::Result<()> {
    out.write_all(&[tag])?;
    out.write_all(&offset.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())
}

/// Reads the next change of a volume of `size` bytes; after the end there is nothing.
pub fn next(input: &mut impl Read, size: u64) -> Result<Record, Failure> {
    let tag = byte(input)?;
    if tag == b'e' {
        return match input.read(&mut [0]) {
            Ok(0) => Ok(Record::End),
            Ok(_) => Err(wrong("something stands behind its end")),
            Err(error) => Err(cut_off(error)),
        };
    }
    if !matches!(tag, b'w' | b'z') {
        return Err(wrong(&format!("{:?} where a change is", char::from(tag))));
    }
    let (offset, length) = (number(input)?, number(input)?);
    let end = offset.checked_add(length).filter(|&end| end <= size);
    let end = end.ok_or_else(|| wrong("a change lies beyond the end of the volume"))?;
    Ok(if tag == b'w' { Record::Data(offset..end) } else { Record::Zeros(offset..end) })
}

fn byte(input: &mut impl Read) -> Result<u8, Failure> {
    let mut byte = [0];
    input.read_exact(&mut byte).map_err(cut_off)?;
    Ok(byte[0])
}

fn number(input: &mut impl Read) -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes).map_err(cut_off)?;
    Ok(u64::from_le_bytes(bytes))
}

fn name(input: &mut impl Read) -> Result<String, Failure> {
    let mut length = [0; 4];
    input.read_exact(&mut length).map_err(cut_off)?;
    let length = u32::from_le_bytes(length);
    if length > NAME_BYTES_MAX {
        return Err(wrong(&format!("a name of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes).map_err(cut_off)?;
    // No other can be a mark's, and none is more than a word where it is printed.
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    match String::from_utf8(bytes) {
        Ok(name)
            if name.bytes().all(|byte| is_inner(&byte))
                && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) =>
        {
            Ok(name)
        }
        _ => Err(wrong("it has a name that no mark can have")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, Record, data, end, next, zeros};

    /// The stream of docs/format/diff-stream.md.
    const PAGE: &[&[u8]] = &[
        b"rbd diff v1\n",
        b"f\x03\0\0\0old",
        b"t\x03\0\0\0new",
        b"s\0\x10\0\0\0\0\0\0",
        b"w\0\x02\0\0\0\0\0\0\x02\0\0\0\0\0\0\0hi",
        b"z\0\x08\0\0\0\0\0\0\0\x02\0\0\0\0\0\0",
        b"e",
    ];

    fn head() -> Head {
        Head { from: Some("old".to_owned()), to: "new".to_owned(), size: 4096 }
    }

    #[test]
    fn a_stream_is_what_its_page_says() {
        let mut bytes = Vec::new();
        head().write(&mut bytes).expect("written");
        data(&mut bytes, 512, 2).expect("written");
        bytes.extend(b"hi");
        zeros(&mut bytes, 2048, 512).expect("written");
        end(&mut bytes).expect("written");
        assert_eq!(bytes, PAGE.concat());
        let mut input = &bytes[..];
        assert_eq!(Head::read(&mut input).expect("a head"), head());
        assert_eq!(next(&mut input, 4096).expect("a change"), Record::Data(512..514));
        input = &input[2..];
        assert_eq!(next(&mut input, 4096).expect("a change"), Record::Zeros(2048..2560));
        assert_eq!(next(&mut input, 4096).expect("the end"), Record::End);
    }

    #[test]
    fn what_is_no_stream_or_only_a_part_of_one_is_refused() {
        let whole = PAGE.concat();
        for length in 0..whole.len() {
            let mut input = &whole[..length];
            let mut read = Head::read(&mut input).map(drop);
            while read.is_ok() {
                read = next(&mut input, 4096).map(|record| match record {
                    Record::End => panic!("{length}: it has no end"),
                    Record::Data(range) => {
                        input = input.get((range.end - range.start) as usize..).unwrap_or_default();
                    }
                    Record::Zeros(_) => {}
                });
            }
            assert!(read.expect_err("cut off").message.contains("ends before"), "{length}");
        }
        let refused = |bytes: &[u8]| next(&mut &bytes[..], 4096).expect_err("wrong").message;
        let change = |offset: u64, length: u64| {
            [b"z", &offset.to_le_bytes()[..], &length.to_le_bytes()].concat()
        };
        assert!(refused(&change(4096, 1)).contains("beyond the end"));
        assert!(refused(&change(u64::MAX, 2)).contains("beyond the end"));
        assert!(refused(b"ee").contains("behind its end"));
        assert!(refused(b"x").contains("'x'"));
        let long = [&b"rbd diff v1\nf"[..], &u32::MAX.to_le_bytes()].concat();
        let refused = Head::read(&mut &long[..]).expect_err("too long");
        assert!(refused.message.contains("a name of"), "{refused}");
        assert!(Head::read(&mut &b"QFI\xfb and so on"[..]).is_err());
        for name in ["", "a b", "x;y", "a@b", "-x", "\x1b[2J", "$(x)"] {
            let head = Head { to: name.to_owned(), ..head() };
            let mut bytes = Vec::new();
            head.write(&mut bytes).expect("written");
            let refused = Head::read(&mut &bytes[..]).expect_err(name);
            assert!(refused.message.contains("no mark can have"), "{name:?}: {refused}");
        }
    }
}
