//! The reader. Nothing that an archive says is believed: what is kept of it in memory has a limit.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};

use super::header::{
    BLOCK_BYTES, EXTENDED, Field, GID, MAGIC, MAJOR, MINOR, MODE, MTIME, NAME, PREFIX, SIZE, SUM,
    TARGET, TYPE, UID, USTAR, sum_of,
};
use crate::tree::Time;

/// Bytes of the records of one member, at most.
const RECORDS_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are read at a time behind the end.
const PART_BYTES: usize = 64 << 10;
/// Headers that tell of one member, at most.
const HEADERS_MAX: u32 = 64;
/// Pieces of a file with holes, at most.
const PIECES_MAX: usize = 1 << 20;
/// Pieces in a header, and in a block that goes on with them: GNU's form, with the field that says
/// whether another block follows, and of the header the size of the file.
const PIECES_IN_HEADER: (Field, usize) = (386..482, 482);
const PIECES_IN_BLOCK: (Field, usize) = (0..504, 504);
const REAL_SIZE: Field = 483..495;
const NUMBER_BYTES: usize = 12;

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link with this content.
    Symlink(Vec<u8>),
    /// A further name of this member.
    Link(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A device of characters, major and minor number.
    CharacterDevice(u32, u32),
    /// A device of blocks.
    BlockDevice(u32, u32),
    /// Something that is not read, in words.
    Unknown(&'static str),
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, as it stands there: it may lead anywhere.
    pub name: Vec<u8>,
    /// What it is.
    pub what: What,
    /// Permissions, the lower twelve bits of a mode.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes of a file's content.
    pub size: u64,
    /// When its content changed.
    pub modified: Time,
    /// When it was read.
    pub accessed: Option<Time>,
    /// Extended attributes: names and values.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether it has others in a form that is not read, or lists or labels of access.
    pub has_more: bool,
}

/// Reads an archive, member by member; the content of the last is read from the reader itself.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    /// Records for all that follows.
    global: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What of the content is not a hole: offsets and lengths, in order; read up to the first.
    pieces: Vec<(u64, u64)>,
    piece: usize,
    /// Where in the content the reader is, and where it ends.
    at: u64,
    size: u64,
    /// Bytes of the member that are still in the archive, and those that fill its last block.
    stored: u64,
    padding: u64,
    is_at_end: bool,
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;
type Block = [u8; BLOCK_BYTES];

fn broken(text: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text.into())
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the archive ends in the middle")
}

impl<R: Read> Reader<R> {
    /// Reads from here.
    pub fn new(from: R) -> Reader<R> {
        Reader {
            from,
            global: BTreeMap::new(),
            pieces: Vec::new(),
            piece: 0,
            at: 0,
            size: 0,
            stored: 0,
            padding: 0,
            is_at_end: false,
        }
    }

    /// The next member; none at the end. Content of the one before that was not read is passed
    /// over.
    ///
    /// # Errors
    /// `InvalidData`: it is no archive, or a damaged one; `UnexpectedEof`: it ends in the middle;
    /// those of reading.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        self.pass_over()?;
        let (mut own, mut told, mut headers) = (Records::new(), 0, 0);
        loop {
            let Some(header) = self.header()? else {
                return if headers == 0 { Ok(None) } else { Err(cut()) };
            };
            let key: Option<&[u8]> = match header[TYPE] {
                b'x' | b'g' => None,
                b'L' => Some(b"path"),
                b'K' => Some(b"linkpath"),
                _ => return self.member(&header, own).map(Some),
            };
            let size = number(&header[SIZE])?;
            (told, headers) = (size.saturating_add(told), headers + 1);
            if told > RECORDS_BYTES_MAX || headers > HEADERS_MAX {
                let text = format!("{told} bytes about one member, at most {RECORDS_BYTES_MAX}");
                return Err(broken(text));
            }
            let bytes = self.extension(size)?;
            let read = match key {
                Some(key) => vec![(key.to_vec(), until_zero(&bytes).to_vec())],
                None => records(&bytes)?,
            };
            match header[TYPE] {
                b'g' => self.tell_all(read)?,
                _ => own.extend(read),
            }
        }
    }

    /// Records of all members that follow, each in the place of one with its key.
    fn tell_all(&mut self, read: Records) -> io::Result<()> {
        self.global.extend(read);
        let bytes: usize = self.global.iter().map(|(key, value)| key.len() + value.len()).sum();
        match bytes as u64 > RECORDS_BYTES_MAX {
            true => Err(broken(format!("{bytes} bytes about all members: too many"))),
            false => Ok(()),
        }
    }

    /// The next header; none at the end.
    fn header(&mut self) -> io::Result<Option<Block>> {
        if self.is_at_end {
            return Ok(None);
        }
        let mut start = Vec::with_capacity(BLOCK_BYTES);
        (&mut self.from).take(BLOCK_BYTES as u64).read_to_end(&mut start)?;
        let Ok(block) = Block::try_from(&start[..]) else {
            return Err(compressed(&start).map_or_else(cut, broken));
        };
        if block == [0; BLOCK_BYTES] {
            self.is_at_end = true;
            self.check_nothing_follows()?;
            return Ok(None);
        }
        if number(&block[SUM]).ok() != Some(sum_of(&block)) {
            let other = "it is no archive of tar, or a damaged one";
            return Err(broken(compressed(&block).unwrap_or(other)));
        }
        Ok(Some(block))
    }

    /// The end is told by zeros, and zeros fill a record. A header that was lost to zeros is none.
    fn check_nothing_follows(&mut self) -> io::Result<()> {
        let mut part = vec![0; PART_BYTES];
        loop {
            let count = match self.from.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if part[..count].iter().any(|byte| *byte != 0) {
                let text = "more follows its end: it is damaged, or several archives in one";
                return Err(broken(text));
            }
        }
    }

    fn block(&mut self) -> io::Result<Block> {
        let mut block = [0; BLOCK_BYTES];
        self.exactly(&mut block)?;
        Ok(block)
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut(),
            _ => error,
        })
    }

    /// What a header tells of another one.
    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size.next_multiple_of(BLOCK_BYTES as u64) as usize];
        self.exactly(&mut bytes)?;
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    fn member(&mut self, header: &Block, own: Records) -> io::Result<Member> {
        // Its version stands behind; others than POSIX have another magic.
        let is_posix = header[MAGIC][..6] == USTAR[..6];
        let mut name = until_zero(&header[NAME]).to_vec();
        let prefix = until_zero(&header[PREFIX]);
        if is_posix && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let mut member = Member {
            name,
            what: What::File,
            mode: (number(&header[MODE])? & 0o7777) as u16,
            uid: id(number(&header[UID])?)?,
            gid: id(number(&header[GID])?)?,
            size: number(&header[SIZE])?,
            modified: seconds(&header[MTIME])?,
            accessed: None,
            extended: Vec::new(),
            has_more: false,
        };
        let mut target = until_zero(&header[TARGET]).to_vec();
        let mut told = Told::default();
        let own = own.iter().map(|(key, value)| (key, value));
        for (key, value) in self.global.iter().chain(own) {
            apply(&mut member, &mut target, &mut told, key, value)?;
        }
        member.what = what(header, &member.name, target, told.device)?;
        self.stored = if member.what == What::File { member.size } else { 0 };
        if matches!(member.what, What::Unknown(_)) {
            self.stored = member.size;
        }
        let whole = self.stored.checked_next_multiple_of(BLOCK_BYTES as u64);
        self.padding = whole.ok_or_else(|| broken("a member is too large"))? - self.stored;
        self.pieces = vec![(0, self.stored)];
        if header[TYPE] == b'S' {
            self.gnu_pieces(header)?;
            member.size = number(&header[REAL_SIZE])?;
        } else if told.is_there && member.what == What::File {
            if told.version != (1, 0) {
                member.what = What::Unknown("a file with holes in a form that is not read");
            } else {
                self.pax_pieces()?;
                member.size = told.size.ok_or_else(|| broken("a file with holes has no size"))?;
                member.name = told.name.unwrap_or(member.name);
            }
        }
        (self.at, self.piece, self.size) = (0, 0, member.size);
        check_pieces(&self.pieces, self.stored, self.size)?;
        Ok(member)
    }

    /// The pieces of a file as the headers of GNU's own form tell them.
    fn gnu_pieces(&mut self, header: &Block) -> io::Result<()> {
        self.pieces.clear();
        let (mut block, mut place) = (*header, PIECES_IN_HEADER);
        loop {
            for piece in block[place.0].chunks_exact(2 * NUMBER_BYTES) {
                if piece[NUMBER_BYTES] != 0 {
                    let (offset, length) = piece.split_at(NUMBER_BYTES);
                    self.pieces.push((number(offset)?, number(length)?));
                }
            }
            if block[place.1] == 0 {
                return Ok(());
            }
            if self.pieces.len() > PIECES_MAX {
                return Err(broken("a file has too many holes"));
            }
            (block, place) = (self.block()?, PIECES_IN_BLOCK);
        }
    }

    /// The pieces of a file as they stand before its content in GNU's form for pax: their number,
    /// offsets and lengths, a line each.
    fn pax_pieces(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        let (mut block, mut used) = ([0; BLOCK_BYTES], BLOCK_BYTES);
        let mut line = 0_u64;
        let mut has_digits = false;
        while lines.first().is_none_or(|count| lines.len() as u64 <= count * 2) {
            if used == BLOCK_BYTES {
                self.stored = self
                    .stored
                    .checked_sub(BLOCK_BYTES as u64)
                    .ok_or_else(|| broken("the list of a file's pieces has no end"))?;
                (block, used) = (self.block()?, 0);
            }
            match block[used] {
                digit @ b'0'..=b'9' => {
                    let more = line.checked_mul(10);
                    let more = more.and_then(|line| line.checked_add(u64::from(digit - b'0')));
                    line = more.ok_or_else(|| broken("a number is too large"))?;
                    has_digits = true;
                }
                b'\n' if has_digits => {
                    if lines.is_empty() && line > PIECES_MAX as u64 {
                        return Err(broken("a file has too many holes"));
                    }
                    lines.push(line);
                    (line, has_digits) = (0, false);
                }
                _ => return Err(broken("the list of a file's pieces is damaged")),
            }
            used += 1;
        }
        let pieces = lines[1..].chunks_exact(2);
        self.pieces = pieces.map(|piece| (piece[0], piece[1])).collect();
        Ok(())
    }

    fn pass_over(&mut self) -> io::Result<()> {
        let rest = self.stored + self.padding;
        (self.stored, self.padding, self.at) = (0, 0, self.size);
        let passed = io::copy(&mut (&mut self.from).take(rest), &mut io::sink())?;
        if passed == rest { Ok(()) } else { Err(cut()) }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let bytes_len = bytes.len().min(left);
        if bytes_len == 0 {
            return Ok(0);
        }
        while self.pieces.get(self.piece).is_some_and(|(start, length)| start + length <= self.at) {
            self.piece += 1;
        }
        let (start, length) = self.pieces.get(self.piece).copied().unwrap_or((self.size, 0));
        let count = if self.at < start {
            let hole = usize::try_from(start - self.at).unwrap_or(usize::MAX).min(bytes_len);
            bytes[..hole].fill(0);
            hole
        } else {
            let piece = usize::try_from(start + length - self.at).unwrap_or(usize::MAX);
            match self.from.read(&mut bytes[..piece.min(bytes_len)])? {
                0 => return Err(cut()),
                count => {
                    self.stored -= count as u64;
                    count
                }
            }
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Lists and labels of access, and extended attributes in other forms.
const MORE: [&[u8]; 3] = [b"SCHILY.acl.", b"RHT.security.", b"LIBARCHIVE.xattr."];

/// What records tell of a file with holes, or of a device, which comes into the member later.
#[derive(Default)]
struct Told {
    device: (Option<u32>, Option<u32>),
    is_there: bool,
    version: (u64, u64),
    size: Option<u64>,
    name: Option<Vec<u8>>,
}

/// Fails unless pieces are in order, within the file, and as long as what is stored.
fn check_pieces(pieces: &[(u64, u64)], stored: u64, size: u64) -> io::Result<()> {
    let (mut end, mut sum) = (0_u64, 0_u64);
    for (start, length) in pieces {
        let next = start.checked_add(*length).filter(|next| *next <= size && *start >= end);
        end = next.ok_or_else(|| broken("the pieces of a file are not in it, or not in order"))?;
        sum += length;
    }
    if sum == stored { Ok(()) } else { Err(broken("the pieces of a file are not its content")) }
}

fn what(
    header: &Block,
    name: &[u8],
    target: Vec<u8>,
    (major, minor): (Option<u32>, Option<u32>),
) -> io::Result<What> {
    let or = |told: Option<u32>, field: Field| told.map_or_else(|| id(number(&header[field])?), Ok);
    let device = || io::Result::Ok((or(major, MAJOR)?, or(minor, MINOR)?));
    Ok(match header[TYPE] {
        // Before POSIX a directory was told by its name alone.
        0 | b'0' | b'7' if name.ends_with(b"/") => What::Directory,
        0 | b'0' | b'7' | b'S' => What::File,
        b'1' => What::Link(target),
        b'2' => What::Symlink(target),
        b'3' => device().map(|(major, minor)| What::CharacterDevice(major, minor))?,
        b'4' => device().map(|(major, minor)| What::BlockDevice(major, minor))?,
        b'5' => What::Directory,
        b'6' => What::Fifo,
        b'V' => What::Unknown("the label of an archive"),
        b'M' => What::Unknown("the rest of a file of another archive"),
        _ => What::Unknown("of a kind that is not read"),
    })
}

/// Applies a record to a member.
fn apply(
    member: &mut Member,
    target: &mut Vec<u8>,
    told: &mut Told,
    key: &[u8],
    value: &[u8],
) -> io::Result<()> {
    let decimal = |value: &[u8]| {
        let text = std::str::from_utf8(value).ok();
        text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| {
            let key = String::from_utf8_lossy(key).into_owned();
            broken(format!("`{key}` is no number"))
        })
    };
    match key {
        b"path" => member.name = value.to_vec(),
        b"linkpath" => *target = value.to_vec(),
        b"size" => member.size = decimal(value)?,
        b"uid" => member.uid = id(decimal(value)?)?,
        b"gid" => member.gid = id(decimal(value)?)?,
        b"mtime" => member.modified = time(value)?,
        b"atime" => member.accessed = Some(time(value)?),
        b"SCHILY.devmajor" => told.device.0 = Some(id(decimal(value)?)?),
        b"SCHILY.devminor" => told.device.1 = Some(id(decimal(value)?)?),
        b"GNU.sparse.major" => (told.is_there, told.version.0) = (true, decimal(value)?),
        b"GNU.sparse.minor" => told.version.1 = decimal(value)?,
        b"GNU.sparse.realsize" => told.size = Some(decimal(value)?),
        b"GNU.sparse.name" => told.name = Some(value.to_vec()),
        b"GNU.sparse.map" | b"GNU.sparse.numblocks" => told.is_there = true,
        _ => {
            if let Some(name) = key.strip_prefix(EXTENDED) {
                member.extended.push((decoded(name), value.to_vec()));
            }
            member.has_more |= MORE.iter().any(|prefix| key.starts_with(prefix));
        }
    }
    Ok(())
}

/// The name of an extended attribute, in which `=` and `%` are `%3D` and `%25`.
fn decoded(name: &[u8]) -> Vec<u8> {
    let (mut made, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((byte, after)) = rest.split_first() {
        made.push(match after {
            [b'3', b'D', ..] if *byte == b'%' => b'=',
            _ => *byte,
        });
        rest = match after {
            [b'3', b'D', after @ ..] | [b'2', b'5', after @ ..] if *byte == b'%' => after,
            after => after,
        };
    }
    made
}

/// Records: a length, a blank, a key, `=`, a value, and the end of a line.
fn records(bytes: &[u8]) -> io::Result<Records> {
    let (mut found, mut rest) = (Records::new(), bytes);
    while !rest.is_empty() {
        let record =
            one_record(rest).ok_or_else(|| broken("what is told of a member is damaged"))?;
        let (length, key, value) = record;
        found.push((key.to_vec(), value.to_vec()));
        rest = &rest[length..];
    }
    Ok(found)
}

fn one_record(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let blank = bytes.iter().position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..blank]).ok()?.parse().ok()?;
    let record = bytes.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((length, &record[..equals], &record[equals + 1..]))
}

/// A number of a header: octal digits, or with the first bit set bytes.
fn number(field: &[u8]) -> io::Result<u64> {
    let wrong = || broken("a number in a header is damaged");
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len().saturating_sub(8));
        let is_in_range = match high {
            // Numbers of 8 bytes have 63 bits.
            [] => field[0] & 0x40 == 0,
            [first, rest @ ..] => *first == 0x80 && rest.iter().all(|&byte| byte == 0),
        };
        let low = low.iter().enumerate().fold(0, |sum, (index, &byte)| {
            let byte = if high.is_empty() && index == 0 { byte & 0x7f } else { byte };
            sum << 8 | u64::from(byte)
        });
        return Some(low).filter(|_| is_in_range).ok_or_else(wrong);
    }
    let text = until_zero(field).trim_ascii();
    let digit = |sum: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
        sum.checked_mul(8)?.checked_add(digit.into())
    };
    text.iter().try_fold(0, digit).ok_or_else(wrong)
}

/// A time of a header, which may be before 1970.
fn seconds(field: &[u8]) -> io::Result<Time> {
    let negative = || {
        let low = field[field.len() - 8..].try_into().expect("8 bytes");
        i64::from_be_bytes(low)
    };
    let is_negative = field[0] == 0xff;
    let seconds = if is_negative { Some(negative()) } else { number(field)?.try_into().ok() };
    let seconds = seconds.ok_or_else(|| broken("a time in a header is damaged"))?;
    Ok(Time { seconds, nanos: 0 })
}

/// A time of a record: a decimal number.
fn time(value: &[u8]) -> io::Result<Time> {
    let read = || {
        let text = std::str::from_utf8(value).ok()?;
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !are_digits(whole) || !are_digits(part) {
            return None;
        }
        let seconds: i64 = whole.parse().ok()?;
        // Digits beyond nanoseconds are cut off.
        let digits = part.bytes().chain(std::iter::repeat(b'0')).take(9);
        let nanos = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        Some(match (is_negative, nanos) {
            (false, nanos) => Time { seconds, nanos },
            (true, 0) => Time { seconds: -seconds, nanos: 0 },
            (true, nanos) => Time { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos },
        })
    };
    read().ok_or_else(|| broken("a time is no number"))
}

fn id(number: u64) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| broken(format!("{number} is no number of 32 bits")))
}

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// What it is compressed by.
fn compressed(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("it is compressed by gzip: unpack it first (zcat)"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("it is compressed by zstd: unpack it first (zstdcat)"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            Some("it is compressed by xz: unpack it first (xzcat)")
        }
        [b'B', b'Z', b'h', ..] => Some("it is compressed by bzip2: unpack it first (bzcat)"),
        _ => None,
    }
}
