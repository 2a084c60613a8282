//! A model file system, the oracle of shares: maps, and nothing that is clever. Everybody in it is
//! root.

mod operation;

use std::collections::BTreeMap;

pub use operation::{Bytes, Op};

/// The number of the root.
pub const ROOT: u64 = 1;
/// Bytes of the largest file.
pub const FILE_BYTES_MAX: u64 = 16 << 40;

/// Why an operation is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is nothing of that name.
    NotFound,
    /// The name is taken.
    Exists,
    /// It has to be a directory.
    NotDirectory,
    /// It must not be a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// It makes no sense for such an object.
    Invalid,
    /// No file may be as large.
    FileTooLarge,
}

/// The kind of an object, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its bytes, and the verifier it was made with, until attributes are set.
    File(Bytes, Option<[u8; 8]>),
    /// Its names and their nodes, and the directory it is in.
    Directory(BTreeMap<Vec<u8>, u64>, u64),
    /// Its target.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
}

/// An object. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its kind and content.
    pub kind: Kind,
    /// Permissions.
    pub mode: u16,
    /// Names that it has.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// `atime`.
    pub accessed: u64,
    /// `mtime`.
    pub modified: u64,
    /// `ctime`.
    pub changed: u64,
}

/// A tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// All objects by their numbers, which no object gets again.
    pub nodes: BTreeMap<u64, Node>,
    next: u64,
}

/// The outcome of an operation.
pub type Outcome<T = ()> = Result<T, Refusal>;

/// The directory's path, and the last name.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Model {
    /// An empty one.
    pub fn new(now: u64) -> Model {
        let top = node(Kind::Directory(BTreeMap::new(), ROOT), 0o755, now);
        Model { nodes: BTreeMap::from([(ROOT, top)]), next: ROOT + 1 }
    }

    /// The node of a path from the root.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`.
    pub fn look_up(&self, path: &str) -> Outcome<u64> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |directory, name| {
            let entries = self.entries(directory)?;
            entries.get(name.as_bytes()).copied().ok_or(Refusal::NotFound)
        })
    }

    fn entries(&self, directory: u64) -> Outcome<&BTreeMap<Vec<u8>, u64>> {
        match &self.nodes[&directory].kind {
            Kind::Directory(entries, _) => Ok(entries),
            _ => Err(Refusal::NotDirectory),
        }
    }

    fn is_directory(&self, node: u64) -> bool {
        matches!(self.nodes[&node].kind, Kind::Directory(..))
    }

    fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("it is there")
    }

    /// The directory of a path and the node that has its name there.
    fn place<'p>(&self, path: &'p str) -> Outcome<(u64, &'p [u8], Option<u64>)> {
        let (directory, name) = split(path);
        let directory = self.look_up(directory)?;
        let entry = self.entries(directory)?.get(name.as_bytes()).copied();
        Ok((directory, name.as_bytes(), entry))
    }

    fn set_entry(&mut self, directory: u64, name: &[u8], to: Option<u64>, now: u64) {
        let node = self.node(directory);
        let Kind::Directory(entries, _) = &mut node.kind else { panic!("no directory") };
        match to {
            Some(to) => entries.insert(name.to_vec(), to),
            None => entries.remove(name),
        };
        (node.modified, node.changed) = (now, now);
    }

    fn make(&mut self, path: &str, new: Node, now: u64) -> Outcome {
        let (directory, name, there) = self.place(path)?;
        if there.is_some() {
            return Err(Refusal::Exists);
        }
        let (mut new, mode) = (new, self.nodes[&directory].mode);
        if mode & 0o2000 != 0 {
            new.gid = self.nodes[&directory].gid;
        }
        if let Kind::Directory(_, parent) = &mut new.kind {
            *parent = directory;
            new.mode |= mode & 0o2000;
            self.node(directory).links += 1;
        }
        self.nodes.insert(self.next, new);
        self.set_entry(directory, name, Some(self.next), now);
        self.next += 1;
        Ok(())
    }

    fn unlink(&mut self, node: u64, now: u64) {
        if let Kind::Directory(_, parent) = self.nodes[&node].kind {
            self.node(parent).links -= 1;
            self.nodes.remove(&node);
            return;
        }
        let links = &mut self.node(node).links;
        *links -= 1;
        match *links {
            0 => drop(self.nodes.remove(&node)),
            _ => self.node(node).changed = now,
        }
    }

    fn resize(&mut self, node: u64, to: u64, now: u64) -> Outcome {
        let node = self.node(node);
        match &mut node.kind {
            Kind::File(..) if to > FILE_BYTES_MAX => return Err(Refusal::FileTooLarge),
            Kind::File(bytes, _) => bytes.resize(to),
            Kind::Directory(..) => return Err(Refusal::IsDirectory),
            _ => return Err(Refusal::Invalid),
        }
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, now: u64) -> Outcome {
        let (old, old_name, source) = self.place(from)?;
        let (new, new_name, victim) = self.place(to)?;
        let source = source.ok_or(Refusal::NotFound)?;
        if victim == Some(source) {
            return Ok(());
        }
        match victim.map(|victim| (self.is_directory(source), self.is_directory(victim))) {
            Some((true, false)) => return Err(Refusal::NotDirectory),
            Some((false, true)) => return Err(Refusal::IsDirectory),
            Some((true, true)) if !self.entries(victim.unwrap_or(0))?.is_empty() => {
                return Err(Refusal::NotEmpty);
            }
            _ => {}
        }
        let mut above = new;
        while self.is_directory(source) && above != ROOT {
            if above == source {
                return Err(Refusal::Invalid);
            }
            let Kind::Directory(_, parent) = self.nodes[&above].kind else {
                panic!("no directory")
            };
            above = parent;
        }
        if let Some(victim) = victim {
            self.unlink(victim, now);
        }
        self.set_entry(old, old_name, None, now);
        self.set_entry(new, new_name, Some(source), now);
        let moved = self.node(source);
        moved.changed = now;
        if let Kind::Directory(_, parent) = &mut moved.kind {
            *parent = new;
            self.node(old).links -= 1;
            self.node(new).links += 1;
        }
        Ok(())
    }

    fn link(&mut self, old: &str, path: &str, now: u64) -> Outcome {
        let old = self.look_up(old)?;
        let (directory, name, there) = match self.is_directory(old) {
            true => return Err(Refusal::IsDirectory),
            false => self.place(path)?,
        };
        if there.is_some() {
            return Err(Refusal::Exists);
        }
        self.set_entry(directory, name, Some(old), now);
        let node = self.node(old);
        (node.links, node.changed) = (node.links + 1, now);
        Ok(())
    }

    fn remove(&mut self, path: &str, is_rmdir: bool, now: u64) -> Outcome {
        let (directory, name, there) = self.place(path)?;
        let there = there.ok_or(Refusal::NotFound)?;
        match (is_rmdir, self.entries(there)) {
            (true, Ok(entries)) if !entries.is_empty() => return Err(Refusal::NotEmpty),
            (true, Err(_)) => return Err(Refusal::NotDirectory),
            (false, Ok(_)) => return Err(Refusal::IsDirectory),
            _ => {}
        }
        self.set_entry(directory, name, None, now);
        self.unlink(there, now);
        Ok(())
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8], now: u64) -> Outcome {
        let there = self.look_up(path)?;
        let node = self.node(there);
        match &mut node.kind {
            Kind::Directory(..) => return Err(Refusal::IsDirectory),
            Kind::File(..) if offset + bytes.len() as u64 > FILE_BYTES_MAX => {
                return Err(Refusal::FileTooLarge);
            }
            Kind::File(_, _) if bytes.is_empty() => return Ok(()),
            Kind::File(content, _) => content.write(offset, bytes),
            _ => return Err(Refusal::Invalid),
        }
        (node.modified, node.changed) = (now, now);
        Ok(())
    }

    /// Does it, or says why not and changes nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn apply(&mut self, op: &Op, now: u64) -> Outcome {
        match op {
            Op::Create(path) => self.make(path, node(file(None), 0o644, now), now),
            Op::Exclusive(path, verifier) => {
                let verifier = Some([*verifier; 8]);
                match self.place(path)?.2.map(|there| &self.nodes[&there].kind) {
                    Some(Kind::File(_, there)) if *there == verifier => Ok(()),
                    _ => self.make(path, node(file(verifier), 0, now), now),
                }
            }
            Op::Open(path, size) => match (self.place(path)?.2, size) {
                (None, _) => {
                    self.make(path, node(file(None), 0o644, now), now)?;
                    size.map_or(Ok(()), |size| self.resize(self.next - 1, size, now))
                }
                (Some(there), _) if !matches!(self.nodes[&there].kind, Kind::File(..)) => {
                    Err(Refusal::Exists)
                }
                (Some(there), size) => size.map_or(Ok(()), |size| self.resize(there, size, now)),
            },
            Op::Mkdir(path) => {
                let kind = Kind::Directory(BTreeMap::new(), 0);
                self.make(path, Node { links: 2, ..node(kind, 0o755, now) }, now)
            }
            Op::Symlink(path, target) => {
                self.make(path, node(Kind::Symlink(target.clone()), 0o777, now), now)
            }
            Op::Fifo(path) => self.make(path, node(Kind::Fifo, 0o600, now), now),
            Op::Link(old, path) => self.link(old, path, now),
            Op::Remove(path) => self.remove(path, false, now),
            Op::Rmdir(path) => self.remove(path, true, now),
            Op::Rename(from, to) => self.rename(from, to, now),
            Op::Write(path, offset, bytes) => self.write(path, *offset, bytes, now),
            Op::Resize(path, size) => {
                let there = self.look_up(path)?;
                self.resize(there, *size, now)?;
                self.set(there, now, |_| {})
            }
            Op::Mode(path, mode) => self.set(self.look_up(path)?, now, |n| n.mode = *mode),
            Op::Owner(path, uid, gid) => self.set(self.look_up(path)?, now, |node| {
                (node.uid, node.gid) = (*uid, *gid);
                if !matches!(node.kind, Kind::Directory(..)) {
                    node.mode &= if node.mode & 0o010 == 0 { !0o4000 } else { !0o6000 };
                }
            }),
            Op::Times(path, accessed, modified) => self.set(self.look_up(path)?, now, |n| {
                (n.accessed, n.modified) = (*accessed, *modified)
            }),
        }
    }

    fn set(&mut self, node: u64, now: u64, change: impl FnOnce(&mut Node)) -> Outcome {
        let node = self.node(node);
        change(node);
        node.changed = now;
        if let Kind::File(_, verifier) = &mut node.kind {
            *verifier = None;
        }
        Ok(())
    }
}

fn file(verifier: Option<[u8; 8]>) -> Kind {
    Kind::File(Bytes::default(), verifier)
}

fn node(kind: Kind, mode: u16, now: u64) -> Node {
    Node {
        kind,
        mode,
        links: 1 + u32::from(mode == 0o755),
        uid: 0,
        gid: 0,
        accessed: now,
        modified: now,
        changed: now,
    }
}
