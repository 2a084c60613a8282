//! What every reader gives: a tree of files.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::error::{Error, Result};

/// Entries of one directory that are read, at most.
pub const ENTRIES_MAX: usize = 4 << 20;
/// Pieces of one file, at most.
pub const PIECES_MAX: usize = 1 << 20;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const LINK_BYTES_MAX: u64 = 4096;
/// Directories in one another, at most.
pub const DEPTH_MAX: usize = 4096;
/// What is read of a file at once, in bytes.
const AT_ONCE_BYTES: u64 = 1 << 20;

/// A file, directory or other object, as its tree numbers them.
pub type Node = u64;

/// How a moment was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was under way.
    Clean,
    /// The journal held so many whole transactions, which were laid over the disk.
    Replayed(u64),
    /// The file system keeps no journal, or has one that was not replayed.
    Unreplayed,
}

impl State {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Clean => "clean",
            State::Replayed(_) => "replayed",
            State::Unreplayed => "unreplayed",
        }
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device of blocks.
    BlockDevice,
    /// A device of characters.
    CharacterDevice,
}

impl Kind {
    /// That of the upper bits of a mode.
    pub(crate) fn of_mode(mode: u16) -> Option<Kind> {
        Some(match mode >> 12 {
            0o01 => Kind::Fifo,
            0o02 => Kind::CharacterDevice,
            0o04 => Kind::Directory,
            0o06 => Kind::BlockDevice,
            0o10 => Kind::File,
            0o12 => Kind::Symlink,
            0o14 => Kind::Socket,
            _ => return None,
        })
    }

    /// The word that commands print.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::BlockDevice => "block-device",
            Kind::CharacterDevice => "character-device",
        }
    }
}

/// A time; before 1970 the seconds are below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanos: u32,
}

/// What tells an object from one that had its number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The number.
    pub inode: u64,
    /// It rises when the number is given out again, if the file system has that.
    pub generation: u32,
}

/// What is known of an object. What a file system does not have, or a reader does not tell, is
/// absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: Kind,
    /// Permissions, the lower twelve bits of a mode.
    pub mode: u16,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Of a file or directory, in bytes.
    pub size: u64,
    /// Names it has.
    pub links: u32,
    /// Which object it is.
    pub identity: Identity,
    /// When its bytes changed.
    pub modified: Option<Time>,
    /// When anything of it changed.
    pub changed: Option<Time>,
    /// When it was read.
    pub accessed: Option<Time>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Never empty, `.`, `..`, nor with `/` or a zero in it.
    pub name: Vec<u8>,
    /// Of what.
    pub node: Node,
}

/// Bytes of a file that are not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the file.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Where on the disk; none where space was taken and nothing written yet, which reads as zeros.
    pub place: Option<u64>,
}

/// A tree of files, as its disk has it.
pub trait Tree {
    /// How it was read.
    fn state(&self) -> State;

    /// The directory at the top.
    fn top(&self) -> Node;

    /// What is known of an object.
    ///
    /// # Errors
    /// Those of the disk.
    fn attributes(&self, node: Node) -> Result<Attributes>;

    /// The names in a directory, in the disk's order.
    ///
    /// # Errors
    /// Those of the disk; it is no directory; it is too large.
    fn entries(&self, directory: Node) -> Result<Vec<Entry>>;

    /// What of a file is not a hole, in order, and where it is. Bytes beyond the file's end may be
    /// among it.
    ///
    /// # Errors
    /// Those of the disk; it is no file; it has too many pieces.
    fn pieces(&self, file: Node) -> Result<Vec<Piece>>;

    /// Reads bytes of a file; fewer where it ends.
    ///
    /// # Errors
    /// Those of the disk; it is no file.
    fn read(&self, file: Node, offset: u64, bytes: &mut [u8]) -> Result<usize>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// Those of the disk; it is none.
    fn link(&self, symlink: Node) -> Result<Vec<u8>>;

    /// Extended attributes: names as system calls have them, and values.
    ///
    /// # Errors
    /// Those of the disk.
    fn extended(&self, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
}

/// Refuses a name of the disk that would lead elsewhere.
///
/// # Errors
/// It is empty, too long, `.`, `..`, or has `/` or a zero in it.
pub fn check_name(name: &[u8]) -> Result<()> {
    let is_wrong = name.is_empty()
        || name.len() > NAME_BYTES_MAX * 4
        || name == b"."
        || name == b".."
        || name.iter().any(|&byte| byte == b'/' || byte == 0);
    if is_wrong {
        return Err(Error::damaged("a directory has a name that cannot be one"));
    }
    Ok(())
}

/// What a path leads to, from the top, and every directory on the way. Symbolic links are not
/// followed; `.` and empty parts are skipped, `..` is refused.
///
/// # Errors
/// There is no such thing; those of the disk.
pub fn look_up_path(tree: &dyn Tree, path: &[u8]) -> Result<Vec<Node>> {
    let mut way = vec![tree.top()];
    let mut node = tree.top();
    let shown = String::from_utf8_lossy(path);
    for name in path.split(|&byte| byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        let part = String::from_utf8_lossy(name);
        if name == b".." {
            return Err(Error::wrong_kind(format!("{shown}: `..` is not taken")));
        }
        match tree.attributes(node)?.kind {
            Kind::Directory => {}
            Kind::Symlink => {
                let target = tree.link(node)?;
                let target = String::from_utf8_lossy(&target).into_owned();
                let text = format!("{shown}: before {part} is a symbolic link, to {target}");
                return Err(Error::wrong_kind(text));
            }
            _ => {
                let text = format!("{shown}: before {part} is no directory");
                return Err(Error::wrong_kind(text));
            }
        }
        let found = tree.entries(node)?.into_iter().find(|entry| entry.name == name);
        let Some(found) = found else {
            return Err(Error::not_found(format!("{shown}: there is no {part}")));
        };
        node = found.node;
        way.push(node);
    }
    Ok(way)
}

/// Reads what of a file is data, in pieces of at most a MiB, with their offsets; holes and what was
/// never written are passed over. The file's size, or none if the caller ended it.
///
/// # Errors
/// Those of the disk; it is no file.
pub fn read_all(
    tree: &dyn Tree,
    file: Node,
    each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
) -> Result<Option<u64>> {
    let size = tree.attributes(file)?.size;
    let mut bytes = Vec::new();
    for piece in tree.pieces(file)?.iter().filter(|piece| piece.place.is_some()) {
        let end = piece.offset.saturating_add(piece.length).min(size);
        let mut offset = piece.offset;
        while offset < end {
            bytes.resize((end - offset).min(AT_ONCE_BYTES) as usize, 0);
            let length = tree.read(file, offset, &mut bytes)?;
            if length == 0 {
                break;
            }
            if each(offset, &bytes[..length]).is_break() {
                return Ok(None);
            }
            offset += length as u64;
        }
    }
    Ok(Some(size))
}

/// What [`walk`] calls with the path, the object, and what is known of it.
pub type Visit<'a, E> = dyn FnMut(&[u8], Node, &Attributes) -> std::result::Result<(), E> + 'a;

/// Tells an object and all below it, by path from it: a directory before what it holds, names in
/// order of their bytes.
///
/// # Errors
/// Those of the disk, and of `each`; a directory that is in two places, or in itself.
pub fn walk<E: From<Error>>(
    tree: &dyn Tree,
    top: Node,
    each: &mut Visit<'_, E>,
) -> std::result::Result<(), E> {
    let mut seen = BTreeSet::new();
    // Names of the directories that were entered, last first, with the length of their path.
    let mut open: Vec<(usize, Vec<Entry>)> = Vec::new();
    let mut path = Vec::new();
    let mut next = Some((top, 0));
    loop {
        if let Some((node, length)) = next.take() {
            let attributes = tree.attributes(node)?;
            each(&path, node, &attributes)?;
            if attributes.kind == Kind::Directory {
                if !seen.insert(node) {
                    return Err(Error::damaged("a directory is in two places").into());
                }
                if open.len() == DEPTH_MAX {
                    let text = format!("more than {DEPTH_MAX} directories in one another");
                    return Err(Error::limit(text).into());
                }
                let mut entries = tree.entries(node)?;
                entries.sort_by(|a, b| b.name.cmp(&a.name));
                open.push((path.len(), entries));
            } else {
                path.truncate(length);
            }
        }
        let Some((length, entries)) = open.last_mut() else { return Ok(()) };
        path.truncate(*length);
        match entries.pop() {
            Some(entry) => {
                let length = path.len();
                if length > 0 {
                    path.push(b'/');
                }
                path.extend(&entry.name);
                next = Some((entry.node, length));
            }
            None => drop(open.pop()),
        }
    }
}
