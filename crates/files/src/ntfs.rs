//! NTFS, as Windows makes it since 2000. Its log is not replayed: what was under way is seen half
//! done, and a moment is `clean` only where Windows says in the log that it left the volume whole.
//!
//! 1. An object is known by the reference that its directory has of it: the number of its record
//!    and how often that was given out. A name whose record is another's by now is none.
//! 2. Records and blocks of names are put together of sectors that each say that they belong
//!    together; one that does not is damage.
//! 3. The files that NTFS keeps for itself are not shown.

mod attribute;
mod base;
mod compression;
mod index;
mod record;
mod reparse;
mod shape;
mod stream;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::bytes::{byte, le16, le32, le64};
use crate::error::{Error, ErrorKind, Result};
use crate::pieces::Pieces;
use crate::source::Source;
use crate::system::FileSystem;
use crate::tree::{
    Attributes, ENTRIES_MAX, Entry, Identity, Kind, Node, Piece, State, Time, Tree, check_name,
};
use attribute::Attribute;
use base::{NUMBER, NUMBER_BITS, kind, text, units};
use record::Record;
use reparse::Reparse;
use shape::Shape;
use stream::Stream;

/// Records of the volume's own files.
const LOG: u64 = 2;
const VOLUME: u64 = 3;
const TOP: u64 = 5;
const OWN: u64 = 16;

/// The kind of a name that is there for programs of 8 and 3 characters, beside another.
const SHORT: u8 = 2;

const READ_ONLY: u32 = 0x01;
const SYSTEM: u32 = 0x04;
/// Of a file that stands for a link, as subsystems of UNIX in Windows made them.
const INTERIX_LINK: &[u8] = b"IntxLNK\x01";
/// Of an extended attribute's value, as system calls take it.
const VALUE_BYTES_MAX: u64 = 64 << 10;
/// Of all of them of a file.
const VALUES_BYTES_MAX: u64 = 1 << 20;
/// Runs and values of all attributes of a file, at most.
const RUNS_MAX: usize = crate::tree::PIECES_MAX;

/// An NTFS that is open.
pub struct Ntfs {
    disk: Rc<dyn Source>,
    shape: Shape,
    /// The file of records.
    records: Stream,
    state: State,
    /// The file that was looked at last.
    last: RefCell<Option<(Node, Rc<File>)>>,
}

/// All that the records of a file say.
struct File {
    /// Of the first of them.
    record: Record,
    attributes: Vec<Attribute>,
    /// The bytes of a file.
    data: Option<Stream>,
    reparse: Option<Reparse>,
    /// Where a file leads that stands for a link without being marked as one.
    interix: Option<Vec<u8>>,
}

/// What a source is, if it is an NTFS.
pub fn recognise(source: &dyn Source) -> Result<Option<FileSystem>> {
    let Some(shape) = Shape::read(source)? else { return Ok(None) };
    let volume = Stream::of_records(source, &shape)
        .and_then(|records| Volume::read(source, &shape, &records));
    let label = match volume {
        Ok(volume) => volume.label,
        Err(error) if error.kind == ErrorKind::Source => return Err(error),
        // It is one all the same; opening it tells what is wrong.
        Err(_) => Vec::new(),
    };
    let uuid = format!("{:016X}", shape.serial);
    Ok(Some(FileSystem { kind: "ntfs", label, uuid, is_readable: true }))
}

/// What the volume says of itself.
struct Volume {
    label: Vec<u8>,
    version: u8,
    is_dirty: bool,
}

impl Volume {
    fn read(disk: &dyn Source, shape: &Shape, records: &Stream) -> Result<Volume> {
        const DIRTY: u16 = 1;
        let record = records.record(disk, shape, VOLUME);
        let record = record.map_err(|error| match error.kind {
            ErrorKind::NotFound => Error::damaged("NTFS: the volume does not say what it is"),
            _ => error,
        });
        let attributes = record?.attributes(shape)?;
        let value = |wanted| {
            let found = attributes.iter().find(|one| one.kind == wanted);
            found.and_then(Attribute::value).unwrap_or_default()
        };
        let information = value(kind::VOLUME);
        Ok(Volume {
            label: text(&units(value(kind::LABEL))),
            version: byte(information, 8),
            is_dirty: le16(information, 10) & DIRTY != 0,
        })
    }
}

/// Tenths of microseconds since 1601.
fn time(ticks: u64) -> Option<Time> {
    const TICKS: u64 = 10_000_000;
    const UNTIL_1970: i64 = 11_644_473_600;
    (ticks != 0).then(|| Time {
        seconds: (ticks / TICKS).cast_signed() - UNTIL_1970,
        nanos: (ticks % TICKS) as u32 * 100,
    })
}

fn number_of(node: Node) -> u64 {
    node & NUMBER
}

impl Ntfs {
    /// Opens it.
    pub fn open(disk: Rc<dyn Source>) -> Result<Ntfs> {
        let shape = Shape::read(&*disk)?.ok_or_else(|| Error::damaged("there is no NTFS"))?;
        let records = Stream::of_records(&*disk, &shape)?;
        let volume = Volume::read(&*disk, &shape, &records)?;
        if volume.version != 3 {
            return Err(Error::unsupported(format!("NTFS of version {}", volume.version)));
        }
        let (state, last) = (State::Unreplayed, RefCell::new(None));
        let mut opened = Ntfs { disk, shape, records, state, last };
        if !volume.is_dirty && opened.is_log_clean()? {
            opened.state = State::Clean;
        }
        Ok(opened)
    }

    /// Whether Windows left the log as of a volume on which nothing is under way. Others empty it
    /// at once, which tells nothing.
    fn is_log_clean(&self) -> Result<bool> {
        const PAGE_BYTES: usize = 4096;
        const NO_CLIENT: u16 = u16::MAX;
        const CLEAN: u16 = 2;
        let attributes = self.file_of(&self.record(LOG)?)?;
        let Some(log) = Stream::find(&self.shape, &attributes, kind::DATA, &[])? else {
            return Ok(false);
        };
        let mut pages = Vec::new();
        for page in 0..2 {
            let mut bytes = vec![0; PAGE_BYTES];
            let at = page * PAGE_BYTES as u64;
            if log.read(&*self.disk, &self.shape, at, &mut bytes)? < PAGE_BYTES {
                return Ok(false);
            }
            if !bytes.starts_with(b"RSTR") || record::join(&mut bytes).is_err() {
                return Ok(false);
            }
            let area = usize::from(le16(&bytes, 24));
            let is_clean =
                le16(&bytes, area + 12) == NO_CLIENT || le16(&bytes, area + 14) & CLEAN != 0;
            pages.push((le64(&bytes, area), is_clean));
        }
        // Of the newer one; of both, where they are of one age.
        let newest = pages.iter().map(|(sequence, _)| *sequence).max();
        Ok(pages.iter().filter(|page| Some(page.0) == newest).all(|page| page.1))
    }

    fn record(&self, number: u64) -> Result<Record> {
        self.records.record(&*self.disk, &self.shape, number)
    }

    /// The attributes of a file, those of its further records too.
    fn file_of(&self, record: &Record) -> Result<Vec<Attribute>> {
        let mut attributes = record.attributes(&self.shape)?;
        let Some(list) = Stream::find(&self.shape, &attributes, kind::LIST, &[])? else {
            return Ok(attributes);
        };
        let list = list.all(&*self.disk, &self.shape)?;
        let mut runs: usize = attributes.iter().map(Attribute::weight).sum();
        for number in attribute::records_of(&list, record.number, |_, _| true)? {
            let other = self.record(number).map_err(|error| match error.kind {
                ErrorKind::NotFound => record.damaged("lacks another of its records"),
                _ => error,
            })?;
            if other.base != record.reference() {
                return Err(record.damaged("has attributes in a record that is another's"));
            }
            let more = other.attributes(&self.shape)?;
            runs += more.iter().map(Attribute::weight).sum::<usize>();
            if runs > RUNS_MAX {
                return Err(Error::limit(format!("NTFS: a file of more than {RUNS_MAX} runs")));
            }
            attributes.extend(more);
        }
        Ok(attributes)
    }

    fn file(&self, node: Node) -> Result<Rc<File>> {
        if let Some((last, file)) = &*self.last.borrow()
            && *last == node
        {
            return Ok(file.clone());
        }
        let record = self.record(number_of(node))?;
        if record.reference() != node || record.base != 0 {
            return Err(record.damaged("belongs to another file than its name"));
        }
        let attributes = self.file_of(&record)?;
        let reparse = match Stream::find(&self.shape, &attributes, kind::REPARSE, &[])? {
            Some(reparse) => Some(Reparse::parse(&reparse.all(&*self.disk, &self.shape)?)?),
            None => None,
        };
        let data = Stream::find(&self.shape, &attributes, kind::DATA, &[])?;
        let mut file = File { record, attributes, data, reparse, interix: None };
        file.interix = self.interix(&file)?;
        let file = Rc::new(file);
        *self.last.borrow_mut() = Some((node, file.clone()));
        Ok(file)
    }

    fn interix(&self, file: &File) -> Result<Option<Vec<u8>>> {
        if file.record.is_directory || file.standard_flags() & SYSTEM == 0 {
            return Ok(None);
        }
        let Some(data) = &file.data else { return Ok(None) };
        let head = INTERIX_LINK.len() as u64;
        if data.is_refused()
            || data.size <= head
            || data.size > head + 2 * crate::tree::LINK_BYTES_MAX
        {
            return Ok(None);
        }
        let bytes = data.all(&*self.disk, &self.shape)?;
        let target = bytes.strip_prefix(INTERIX_LINK);
        Ok(target.map(|target| text(&units(target))))
    }

    /// A file that is asked for its bytes.
    fn file_with_bytes(&self, node: Node) -> Result<Rc<File>> {
        let file = self.file(node)?;
        if file.kind() != Kind::File {
            return Err(Error::wrong_kind("NTFS: this is no file"));
        }
        if let Some(Reparse::Elsewhere(tag)) = &file.reparse {
            let text = format!("NTFS: the bytes of this file are kept elsewhere (tag {tag:08x})");
            return Err(Error::unsupported(text));
        }
        Ok(file)
    }
}

impl File {
    fn standard(&self) -> &[u8] {
        let found = self.attributes.iter().find(|one| one.kind == kind::STANDARD);
        found.and_then(Attribute::value).unwrap_or_default()
    }

    fn standard_flags(&self) -> u32 {
        le32(self.standard(), 32)
    }

    fn kind(&self) -> Kind {
        match &self.reparse {
            Some(Reparse::Link(_)) => Kind::Symlink,
            _ if self.interix.is_some() => Kind::Symlink,
            _ if self.record.is_directory => Kind::Directory,
            _ => Kind::File,
        }
    }
}

impl Tree for Ntfs {
    fn state(&self) -> State {
        self.state
    }

    fn top(&self) -> Node {
        // It is given out once.
        TOP << NUMBER_BITS | TOP
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        let file = self.file(node)?;
        let standard = file.standard();
        let kind = file.kind();
        let is_directory = kind == Kind::Directory;
        let writes = if file.standard_flags() & READ_ONLY == 0 { 0o755 } else { 0o555 };
        let is_name = |one: &&Attribute| {
            one.kind == kind::NAME && one.value().is_some_and(|name| byte(name, 65) != SHORT)
        };
        let names = file.attributes.iter().filter(is_name).count();
        let size = match kind {
            Kind::File => file.data.as_ref().map_or(0, |data| data.size),
            Kind::Symlink => self.link(node)?.len() as u64,
            _ => 0,
        };
        Ok(Attributes {
            kind,
            // A directory that is marked as read-only takes names all the same.
            mode: match kind {
                Kind::Symlink => 0o777,
                _ if is_directory => 0o755,
                _ => writes & 0o666,
            },
            owner: None,
            size,
            links: names as u32,
            identity: Identity {
                inode: file.record.number,
                generation: u32::from(file.record.sequence),
            },
            modified: time(le64(standard, 8)),
            changed: time(le64(standard, 16)),
            accessed: time(le64(standard, 24)),
            device: None,
        })
    }

    fn entries(&self, directory: Node) -> Result<Vec<Entry>> {
        let file = self.file(directory)?;
        if file.kind() != Kind::Directory {
            return Err(Error::wrong_kind("NTFS: this is no directory"));
        }
        let mut found = Vec::new();
        index::each(&*self.disk, &self.shape, &file.attributes, &mut |node, name| {
            if name.namespace == SHORT || number_of(node) < OWN {
                return Ok(());
            }
            let record = self.record(number_of(node));
            match record {
                Ok(record) if record.reference() == node && record.base == 0 => {}
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                // It is gone, or was not yet there: the log would tell.
                _ if self.state == State::Unreplayed => return Ok(()),
                _ => return Err(Error::damaged("NTFS: a directory has a name of no file")),
            }
            let name = text(&name.units);
            check_name(&name)?;
            if found.len() == ENTRIES_MAX {
                return Err(Error::limit(format!("more than {ENTRIES_MAX} names")));
            }
            found.push(Entry { name, node });
            Ok(())
        })?;
        Ok(found)
    }

    fn pieces(&self, file: Node) -> Result<Vec<Piece>> {
        let mut pieces = Pieces::default();
        if let Some(data) = &self.file_with_bytes(file)?.data {
            data.pieces(&self.shape, number_of(file), &mut pieces)?;
        }
        Ok(pieces.found)
    }

    fn read(&self, file: Node, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        match &self.file_with_bytes(file)?.data {
            Some(data) => data.read(&*self.disk, &self.shape, offset, bytes),
            None => Ok(0),
        }
    }

    fn link(&self, symlink: Node) -> Result<Vec<u8>> {
        let file = self.file(symlink)?;
        match (&file.reparse, &file.interix) {
            (Some(Reparse::Link(target)), _) | (_, Some(target)) => Ok(target.clone()),
            _ => Err(Error::wrong_kind("NTFS: this is no symbolic link")),
        }
    }

    /// Streams beside a file's bytes, as far as they are as short as attributes are elsewhere.
    fn extended(&self, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let file = self.file(node)?;
        let mut streams: BTreeMap<&[u16], Vec<&Attribute>> = BTreeMap::new();
        for one in &file.attributes {
            if one.kind == kind::DATA && !one.name.is_empty() {
                streams.entry(&one.name).or_default().push(one);
            }
        }
        let (mut found, mut left) = (Vec::new(), VALUES_BYTES_MAX);
        for (name, parts) in streams {
            let Some(stream) = Stream::of(parts, &self.shape)? else { continue };
            if stream.size > VALUE_BYTES_MAX.min(left) || stream.is_refused() {
                continue;
            }
            left -= stream.size;
            let value = stream.all(&*self.disk, &self.shape)?;
            found.push(([b"user.", &text(name)[..]].concat(), value));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Time, time};

    #[test]
    fn times_count_from_1601() {
        assert_eq!(time(0), None);
        let expected = Time { seconds: 1_796_004_181, nanos: 700 };
        assert_eq!(time((11_644_473_600 + 1_796_004_181) * 10_000_000 + 7), Some(expected));
        assert_eq!(time(1).map(|time| time.seconds), Some(-11_644_473_600));
        assert!(time(u64::MAX).is_some());
    }
}
