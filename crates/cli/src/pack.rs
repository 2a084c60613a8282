//! A directory of this machine as an archive. Symbolic links in it are not followed.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use files::{Attributes, Identity, Kind, Link, Time, Writer};
use rustix::fs::OFlags;

use crate::failure::Failure;

/// Bytes of a file that are read at a time.
const PART_BYTES: usize = 256 << 10;

/// What of a directory is not in its archive.
#[derive(Debug, Default)]
pub struct Packed {
    /// Paths, with why.
    pub left_out: Vec<String>,
    /// Objects with extended attributes.
    pub extended: u64,
}

/// Writes what is in a directory of this machine as an archive.
pub fn pack(top: &Path, to: impl Write) -> anyhow::Result<Packed> {
    let mut work =
        Archiving { writer: Writer::new(to), seen: HashMap::new(), packed: Packed::default() };
    // Names of what is to come, last first.
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let path = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(&below) };
        let looked = if below.as_os_str().is_empty() {
            // The name of the directory may be a link.
            path.metadata()
        } else {
            path.symlink_metadata()
        };
        let meta = looked.with_context(|| format!("{}", path.display()))?;
        work.member(&path, &below, &meta)?;
        if meta.is_dir() {
            let listed = path.read_dir().with_context(|| cannot_read(&path))?;
            let mut names = Vec::new();
            for entry in listed {
                names.push(entry.with_context(|| cannot_read(&path))?.file_name());
            }
            names.sort_unstable_by(|a, b| b.cmp(a));
            open.extend(names.into_iter().map(|name| below.join(name)));
        }
    }
    work.writer.finish()?;
    Ok(work.packed)
}

/// A directory that is being written as an archive.
struct Archiving<W> {
    writer: Writer<W>,
    /// The first name of each file that has several, by its device and number.
    seen: HashMap<(u64, u64), Vec<u8>>,
    packed: Packed,
}

impl<W: Write> Archiving<W> {
    fn member(&mut self, path: &Path, below: &Path, meta: &fs::Metadata) -> anyhow::Result<()> {
        let name = [b"./", below.as_os_str().as_bytes()].concat();
        let name = name.strip_suffix(b"/").unwrap_or(&name);
        let attributes = attributes(meta);
        let names = rustix::fs::llistxattr(path, &mut [] as &mut [u8]).unwrap_or(0);
        self.packed.extended += u64::from(names > 0);
        if attributes.kind == Kind::Socket {
            self.packed.left_out.push(format!("{}: a socket", path.display()));
            return Ok(());
        }
        if attributes.kind != Kind::Directory && meta.nlink() > 1 {
            let place = (meta.dev(), meta.ino());
            if let Some(first) = self.seen.get(&place) {
                return Ok(self.writer.member(name, &attributes, Link::Hard(first), &[])?);
            }
            self.seen.insert(place, name.to_vec());
        }
        if attributes.kind == Kind::Symlink {
            let target = path.read_link().with_context(|| cannot_read(path))?;
            let target = target.into_os_string().into_vec();
            return Ok(self.writer.member(name, &attributes, Link::Symbolic(&target), &[])?);
        }
        if attributes.kind != Kind::File {
            return Ok(self.writer.member(name, &attributes, Link::None, &[])?);
        }
        self.file(path, name)
    }

    fn file(&mut self, path: &Path, name: &[u8]) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = options.read(true).custom_flags(flags.bits() as i32).open(path);
        let file = file.with_context(|| cannot_read(path))?;
        // Of what was opened: the name may have come to another since.
        let attributes = attributes(&file.metadata().with_context(|| cannot_read(path))?);
        let changed = |how: &str| {
            let text = format!("{} {how} while it was read", path.display());
            Failure::new(text).with_hint("import it when nobody writes to it")
        };
        if attributes.kind != Kind::File {
            return Err(changed("gave way to something else").into());
        }
        self.writer.member(name, &attributes, Link::None, &[])?;
        let (mut bytes, mut from) = (vec![0; PART_BYTES], file.take(attributes.size));
        loop {
            match from.read(&mut bytes).with_context(|| cannot_read(path))? {
                0 => break,
                length => self.writer.content(&bytes[..length])?,
            }
        }
        // Nothing is made up for what is not there: the archive ends here.
        if self.writer.left() > 0 { Err(changed("became shorter").into()) } else { Ok(()) }
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn attributes(meta: &fs::Metadata) -> Attributes {
    let time = |seconds, nanos| Some(Time { seconds, nanos: nanos as u32 });
    let kind = meta.file_type();
    Attributes {
        kind: match () {
            () if kind.is_dir() => Kind::Directory,
            () if kind.is_symlink() => Kind::Symlink,
            () if kind.is_fifo() => Kind::Fifo,
            () if kind.is_socket() => Kind::Socket,
            () if kind.is_block_device() => Kind::BlockDevice,
            () if kind.is_char_device() => Kind::CharacterDevice,
            () => Kind::File,
        },
        mode: (meta.mode() & 0o7777) as u16,
        owner: Some((meta.uid(), meta.gid())),
        size: meta.len(),
        links: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        identity: Identity { inode: meta.ino(), generation: 0 },
        modified: time(meta.mtime(), meta.mtime_nsec()),
        changed: time(meta.ctime(), meta.ctime_nsec()),
        accessed: time(meta.atime(), meta.atime_nsec()),
        device: Some((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()))),
    }
}
