//! `file tar`: an archive in the pax form, which GNU tar, bsdtar and busybox read.
//!
//! Owners, modes, times to the nanosecond, hard and symbolic links, devices and extended attributes
//! are in it. Holes are zeros: archivers have no one form for them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use files::{Attributes, Kind, Node, Time};

use super::show::copy;
use super::view::{Reading, View, judge};
use crate::failure::Failure;
use crate::session::Session;

const BLOCK_BYTES: usize = 512;
/// An archive ends with blocks of zeros, and is a multiple of this many blocks.
const RECORD_BLOCKS: u64 = 20;

pub fn run(session: &Session, reading: &Reading) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        let hint = "redirect it: > FILE.tar, or | tar -x";
        return Err(Failure::usage("an archive is nothing for a terminal").with_hint(hint).into());
    }
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let top = view.look_up(path)?;
    let name = path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty());
    let name = name.filter(|_| top != view.tree.top()).unwrap_or(b".");
    let mut archive = Archive {
        view: &view,
        to: Counted { to: io::stdout().lock(), bytes: 0 },
        seen: BTreeMap::new(),
    };
    let added = files::walk(&*view.tree, top, &mut |path, node, attributes| {
        let joined = if path.is_empty() { name.to_vec() } else { [name, b"/", path].concat() };
        archive.add(&joined, node, attributes).map_err(Stopped::Here)
    });
    match added {
        Ok(()) => archive.finish(),
        Err(Stopped::Here(error)) => Err(error),
        Err(Stopped::Reading(error)) => Err(judge(error.into())),
    }
}

/// Why a walk ended: by what it read, or by what was done with it.
pub enum Stopped {
    Reading(files::Error),
    Here(anyhow::Error),
}

impl From<files::Error> for Stopped {
    fn from(error: files::Error) -> Stopped {
        Stopped::Reading(error)
    }
}

struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

struct Archive<'a, W> {
    view: &'a View,
    to: Counted<W>,
    /// The first name of each file that has several.
    seen: BTreeMap<Node, Vec<u8>>,
}

impl<W: Write> Archive<'_, W> {
    fn add(&mut self, name: &[u8], node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        let tree = &*self.view.tree;
        let (mut kind, mut target) = (type_of(attributes.kind), Vec::new());
        if attributes.kind == Kind::Socket {
            // Archives have none; the program that made it makes it anew.
            return Ok(());
        }
        if attributes.kind == Kind::Symlink {
            target = tree.link(node).map_err(|error| judge(error.into()))?;
        }
        if attributes.kind != Kind::Directory && attributes.links > 1 {
            match self.seen.get(&node) {
                Some(first) => (kind, target) = (b'1', first.clone()),
                None => drop(self.seen.insert(node, name.to_vec())),
            }
        }
        let size = if kind == b'0' { attributes.size } else { 0 };
        let mut name = name.to_vec();
        if attributes.kind == Kind::Directory {
            name.push(b'/');
        }
        let extended = tree.extended(node).map_err(|error| judge(error.into()))?;
        let more = records(&name, &target, size, attributes, &extended);
        if !more.is_empty() {
            let head = header(b"pax", b"", b'x', more.len() as u64, None)?;
            self.to.write_all(&head)?;
            self.to.write_all(&more)?;
            self.pad()?;
        }
        self.to.write_all(&header(&name, &target, kind, size, Some(attributes))?)?;
        if kind == b'0' {
            copy(self.view, node, &mut self.to)?;
            self.pad()?;
        }
        Ok(())
    }

    fn pad(&mut self) -> io::Result<()> {
        let over = (self.to.bytes % BLOCK_BYTES as u64) as usize;
        if over == 0 { Ok(()) } else { self.to.write_all(&[0; BLOCK_BYTES][over..]) }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let record = RECORD_BLOCKS * BLOCK_BYTES as u64;
        let end = (self.to.bytes + 2 * BLOCK_BYTES as u64).next_multiple_of(record);
        while self.to.bytes < end {
            self.to.write_all(&[0; BLOCK_BYTES])?;
        }
        Ok(self.to.flush()?)
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
    if name.len() > 100 {
        record(&mut made, b"path", name);
    }
    if target.len() > 100 {
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
    for (name, value) in extended {
        record(&mut made, &[b"SCHILY.xattr.", &name[..]].concat(), value);
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
) -> anyhow::Result<[u8; BLOCK_BYTES]> {
    let mut bytes = [0; BLOCK_BYTES];
    let mut text = |at: usize, length: usize, value: &[u8]| {
        let value = &value[..value.len().min(length)];
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    let octal = |digits: u32, value: u64| {
        format!("{:0width$o}", value.min(octal_max(digits)), width = digits as usize)
    };
    let (uid, gid) = attributes.and_then(|known| known.owner).unwrap_or_default();
    let modified = attributes.and_then(|known| known.modified).unwrap_or_default();
    let (major, minor) = attributes.and_then(|known| known.device).unwrap_or_default();
    text(0, 100, name);
    text(100, 7, octal(7, attributes.map_or(0o600, |known| u64::from(known.mode))).as_bytes());
    text(108, 7, octal(7, u64::from(uid)).as_bytes());
    text(116, 7, octal(7, u64::from(gid)).as_bytes());
    text(124, 11, octal(11, size).as_bytes());
    text(136, 11, octal(11, u64::try_from(modified.seconds).unwrap_or(0)).as_bytes());
    text(148, 8, b"        ");
    text(156, 1, &[kind]);
    text(157, 100, target);
    text(257, 8, b"ustar\x0000");
    text(329, 7, octal(7, u64::from(major)).as_bytes());
    text(337, 7, octal(7, u64::from(minor)).as_bytes());
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    bytes.get_mut(148..156).context("a header is long enough")?.copy_from_slice(sum.as_bytes());
    Ok(bytes)
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
