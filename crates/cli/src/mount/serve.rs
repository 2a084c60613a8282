//! Answers the kernel's requests about a tree, one after the other.
//!
//! 1. Objects are known to the kernel by the numbers that their tree has for them; but the top is 1
//!    there, and changes places with whatever is 1 in the tree.
//! 2. Nothing that was told changes, so the kernel keeps all of it. Nothing is opened here.
//! 3. Bytes that cannot be read are an error of the one request.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::rc::Rc;

use files::{Attributes, Entry, Error, ErrorKind, Kind, Node, Tree};
use wire::fuse::decode::{self, Garbage};
use wire::fuse::encode::{Name, Reply};
use wire::fuse::limits::{DATA_BYTES_MAX, MESSAGE_BYTES_MAX, MINOR_MIN, VERSION};
use wire::fuse::{self, Errno, Operation, Request, Whence};

use crate::file::view::Writes;

const TOP: u64 = 1;
/// Directories whose names are kept.
const DIRECTORIES_KEPT: usize = 64;
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;
/// Attributes with this beginning are for root.
const TRUSTED: &[u8] = b"trusted.";

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
/// The longest target that the kernel takes: a page, less the zero at its end.
const LINK_BYTES_MAX: usize = 4095;

/// A tree that is mounted.
pub struct Served {
    pub tree: Box<dyn Tree>,
    /// For a tree with one file that can be written to.
    pub writes: Option<Rc<dyn Writes>>,
    /// Of all that is shown.
    pub size_bytes: u64,
    /// Of objects without owners; with `as_me` of all.
    pub me: (u32, u32),
    pub as_me: bool,
    /// Names by directory, those used last at the end.
    pub kept: RefCell<VecDeque<(Node, Rc<Names>)>>,
}

/// The names in a directory, in the disk's order, and by name.
pub struct Names {
    entries: Vec<Entry>,
    by_name: Vec<usize>,
}

type Answered = Result<(), Errno>;
/// The name and the value of an extended attribute.
type Pair = (Vec<u8>, Vec<u8>);

fn errno(error: &Error) -> Errno {
    match error.kind {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::WrongKind => Errno::INVALID,
        ErrorKind::Unsupported => Errno::UNSUPPORTED,
        ErrorKind::Damaged | ErrorKind::Limit | ErrorKind::Source => Errno::IO,
    }
}

/// Answers until the tree is unmounted; `ready` is called when the kernel may ask.
pub fn serve(
    device: &mut File,
    served: &Served,
    ready: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) => match error.raw_os_error() {
                // The one who asked is gone; try again.
                Some(ENOENT | EINTR | EAGAIN) => continue,
                Some(ENODEV) => return Ok(()),
                _ => return Err(error.into()),
            },
        };
        let reply = match decode::request(&buffer[..length]) {
            Ok(request) => {
                let Some(reply) = served.answer(&request) else { continue };
                send(device, &reply)?;
                if matches!(request.operation, Operation::Init { .. }) && agrees(&reply) {
                    ready()?;
                }
                continue;
            }
            Err(Garbage::Short { unique, .. }) => Reply::failure(unique, Errno::INVALID),
            Err(error) => return Err(error.into()),
        };
        send(device, &reply)?;
    }
}

/// Whether a reply is no failure: behind its length is an error, 0 without one.
fn agrees(reply: &[u8]) -> bool {
    reply.get(4..8) == Some(&[0; 4])
}

fn send(device: &mut File, reply: &[u8]) -> io::Result<()> {
    match device.write(reply) {
        Ok(_) => Ok(()),
        // The one who asked is gone, or has its error: the kernel takes no such answer.
        Err(error) if matches!(error.raw_os_error(), Some(ENOENT | ENODEV | EINVAL)) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Served {
    fn node(&self, number: u64) -> Node {
        let top = self.tree.top();
        match number {
            TOP => top,
            number if number == top => TOP,
            number => number,
        }
    }

    /// The kernel's number of a node: changing places is undone as it is done.
    fn number(&self, node: Node) -> u64 {
        let top = self.tree.top();
        if node == top {
            TOP
        } else if node == TOP {
            top
        } else {
            node
        }
    }

    fn answer(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let mut reply = Reply::to(request.unique);
        match self.put(request, &mut reply) {
            Some(Ok(())) => Some(reply.finish()),
            Some(Err(errno)) => Some(Reply::failure(request.unique, errno)),
            None => None,
        }
    }

    /// Puts an answer together; there is none to what wants none.
    fn put(&self, request: &Request<'_>, reply: &mut Reply) -> Option<Answered> {
        let node = self.node(request.node);
        Some(match request.operation {
            Operation::Unanswered => return None,
            Operation::Init { major, minor, readahead_bytes, flags } => {
                if major != VERSION.0 || minor < MINOR_MIN {
                    return Some(Err(Errno::PROTOCOL));
                }
                reply.init(readahead_bytes, flags);
                Ok(())
            }
            Operation::LookUp { name } => self.look_up(node, name, reply),
            Operation::Attributes => self.known(node).map(|(known, _)| reply.attributes(&known)),
            Operation::Link => {
                let link = self.tree.link(node).map_err(|error| errno(&error));
                let link = link.and_then(|target| match target.len() {
                    ..=LINK_BYTES_MAX => Ok(target),
                    _ => Err(Errno::IO),
                });
                link.map(|target| reply.put(&target))
            }
            Operation::Read { offset, length } => {
                let length = length.min(DATA_BYTES_MAX) as usize;
                let read = reply.fill(length, |bytes| self.tree.read(node, offset, bytes));
                read.map_err(|error| errno(&error))
            }
            Operation::Write { offset, data } => self.write(offset, data, reply),
            Operation::Sync => match &self.writes {
                Some(writes) => writes.sync().map_err(|_| Errno::IO),
                None => Ok(()),
            },
            Operation::Space => {
                let blocks = self.size_bytes / u64::from(BLOCK_BYTES);
                reply.space(blocks, BLOCK_BYTES, NAME_BYTES_MAX);
                Ok(())
            }
            Operation::Extended { name, room } => self.value(request, name, room, reply),
            Operation::ExtendedNames { room } => self.value_names(request, room, reply),
            Operation::Entries { after, room, is_plus } => {
                self.entries(node, (after, room, is_plus), reply)
            }
            Operation::Seek { offset, whence } => {
                self.seek(node, offset, whence).map(|offset| reply.place(offset))
            }
            Operation::Destroy => Ok(()),
            Operation::Change => Err(Errno::READ_ONLY),
            Operation::Other(_) => Err(Errno::NO_SUCH_REQUEST),
        })
    }

    fn write(&self, offset: u64, data: &[u8], reply: &mut Reply) -> Answered {
        let writes = self.writes.as_ref().ok_or(Errno::READ_ONLY)?;
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::INVALID)?;
        if end > self.size_bytes {
            return Err(Errno::INVALID);
        }
        writes.write(offset, data).map_err(|_| Errno::IO)?;
        reply.number(data.len() as u32);
        Ok(())
    }

    fn names(&self, directory: Node) -> files::Result<Rc<Names>> {
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().position(|(node, _)| *node == directory)
            && let Some(found) = kept.remove(at)
        {
            kept.push_back(found.clone());
            return Ok(found.1);
        }
        let entries = self.tree.entries(directory)?;
        let mut by_name: Vec<usize> = (0..entries.len()).collect();
        by_name.sort_by(|&a, &b| entries[a].name.cmp(&entries[b].name));
        let names = Rc::new(Names { entries, by_name });
        if kept.len() == DIRECTORIES_KEPT {
            kept.pop_front();
        }
        kept.push_back((directory, names.clone()));
        Ok(names)
    }

    fn look_up(&self, directory: Node, name: &[u8], reply: &mut Reply) -> Answered {
        let names = self.names(directory).map_err(|error| errno(&error))?;
        let order = |&at: &usize| names.entries[at].name.as_slice().cmp(name);
        match names.by_name.binary_search_by(order) {
            Ok(found) => {
                let node = names.entries[names.by_name[found]].node;
                let (known, generation) = self.known(node)?;
                reply.entry(self.number(node), generation, &known);
            }
            Err(_) => reply.no_entry(),
        }
        Ok(())
    }

    /// The kernel's attributes of an object, and its generation.
    fn known(&self, node: Node) -> Result<(fuse::Attributes, u64), Errno> {
        let attributes = self.tree.attributes(node).map_err(|error| errno(&error))?;
        let (uid, gid) = attributes.owner.filter(|_| !self.as_me).unwrap_or(self.me);
        let modified = attributes.modified;
        let changed = attributes.changed.or(modified);
        let times = [attributes.accessed.or(modified), modified, changed];
        let known = fuse::Attributes {
            inode: node.max(1),
            size: attributes.size,
            blocks: self.blocks(node, &attributes),
            times: times.map(|time| time.map_or((0, 0), |time| (time.seconds, time.nanos))),
            mode: kind_bits(attributes.kind) << 12 | u32::from(attributes.mode),
            links: attributes.links,
            uid,
            gid,
            device: attributes.device.unwrap_or_default(),
            block_bytes: BLOCK_BYTES,
        };
        Ok((known, u64::from(attributes.identity.generation)))
    }

    /// Units of 512 bytes that are no hole.
    fn blocks(&self, node: Node, attributes: &Attributes) -> u64 {
        let pieces = match attributes.kind {
            Kind::File => self.tree.pieces(node).ok(),
            _ => None,
        };
        let bytes = match pieces {
            Some(pieces) => pieces.iter().map(|piece| piece.length).sum(),
            None => attributes.size,
        };
        bytes.div_ceil(512)
    }

    fn entries(
        &self,
        directory: Node,
        (after, room, is_plus): (u64, u32, bool),
        reply: &mut Reply,
    ) -> Answered {
        let names = self.names(directory).map_err(|error| errno(&error))?;
        let room = room.min(DATA_BYTES_MAX);
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(names.entries.len() + 2);
        for (at, next) in (from..names.entries.len() + 2).zip(from as u64 + 1..) {
            let dots: [&[u8]; 2] = [b".", b".."];
            let (name, node) = match at.checked_sub(2) {
                // Whose number the one above is nobody asks for.
                None => (dots[at], directory),
                Some(at) => (names.entries[at].name.as_slice(), names.entries[at].node),
            };
            // What cannot be told of an object is told when it is asked for by itself.
            let known = self.known(node).ok();
            let kind = known.as_ref().map_or(0, |(known, _)| known.mode >> 12);
            let told = known.as_ref().filter(|_| at >= 2);
            let told = told.map(|(known, generation)| (self.number(node), *generation, known));
            let name =
                Name { name, inode: node.max(1), next, kind, known: is_plus.then_some(told) };
            if !reply.name(room, &name) {
                break;
            }
        }
        Ok(())
    }

    fn extended(&self, request: &Request<'_>) -> Result<Vec<Pair>, Errno> {
        let node = self.node(request.node);
        let mut all = self.tree.extended(node).map_err(|error| errno(&error))?;
        all.retain(|(name, _)| request.uid == 0 || !name.starts_with(TRUSTED));
        Ok(all)
    }

    fn value(&self, request: &Request<'_>, name: &[u8], room: u32, reply: &mut Reply) -> Answered {
        let all = self.extended(request)?;
        let found = all.iter().find(|(known, _)| known == name).ok_or(Errno::NO_DATA)?;
        in_room(&found.1, room, reply)
    }

    fn value_names(&self, request: &Request<'_>, room: u32, reply: &mut Reply) -> Answered {
        let mut names = Vec::new();
        for (name, _) in self.extended(request)? {
            names.extend(name);
            names.push(0);
        }
        in_room(&names, room, reply)
    }

    fn seek(&self, node: Node, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let size = self.tree.attributes(node).map_err(|error| errno(&error))?.size;
        if offset >= size {
            return Err(Errno::NO_DATA_BEHIND);
        }
        let pieces = self.tree.pieces(node).map_err(|error| errno(&error))?;
        // Space that nothing was written to reads as zeros, as a hole does.
        let mut data = pieces.iter().filter(|piece| piece.place.is_some());
        // A small file may lie where no piece tells of it.
        if pieces.is_empty() && size <= u64::from(BLOCK_BYTES) {
            return Ok(if whence == Whence::Data { offset } else { size });
        }
        match whence {
            Whence::Data => {
                let next = data.find(|piece| piece.offset.saturating_add(piece.length) > offset);
                let next = next.map(|piece| piece.offset.max(offset));
                next.filter(|&next| next < size).ok_or(Errno::NO_DATA_BEHIND)
            }
            Whence::Hole => {
                let mut end = offset;
                for piece in data {
                    if piece.offset > end {
                        break;
                    }
                    end = end.max(piece.offset.saturating_add(piece.length));
                }
                Ok(end.min(size))
            }
        }
    }
}

fn in_room(bytes: &[u8], room: u32, reply: &mut Reply) -> Answered {
    if room == 0 {
        reply.number(bytes.len() as u32);
    } else if bytes.len() > room as usize {
        return Err(Errno::RANGE);
    } else {
        reply.put(bytes);
    }
    Ok(())
}

fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Fifo => 0o01,
        Kind::CharacterDevice => 0o02,
        Kind::Directory => 0o04,
        Kind::BlockDevice => 0o06,
        Kind::File => 0o10,
        Kind::Symlink => 0o12,
        Kind::Socket => 0o14,
    }
}
