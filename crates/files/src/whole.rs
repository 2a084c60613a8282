//! A whole disk as a tree, whatever lies on it: one directory with one file, `disk`.

use std::rc::Rc;

use crate::error::{Error, Result};
use crate::source::Source;
use crate::tree::{Attributes, Entry, Identity, Kind, Node, Piece, State, Time, Tree};

const TOP: Node = 1;
const FILE: Node = 2;
const NAME: &[u8] = b"disk";

/// A disk as a tree.
pub struct Whole {
    disk: Rc<dyn Source>,
    time: Time,
    is_writable: bool,
}

impl Whole {
    /// Of a disk as it was at a time. Whether it can be written to is told by the file's mode.
    pub fn new(disk: Rc<dyn Source>, time: Time, is_writable: bool) -> Whole {
        Whole { disk, time, is_writable }
    }
}

fn check(node: Node, expected: Node, what: &str) -> Result<()> {
    if node == expected { Ok(()) } else { Err(Error::wrong_kind(format!("it is no {what}"))) }
}

impl Tree for Whole {
    fn state(&self) -> State {
        State::Unreplayed
    }

    fn top(&self) -> Node {
        TOP
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        let (kind, mode, size, links) = match (node, self.is_writable) {
            (TOP, _) => (Kind::Directory, 0o500, 0, 2),
            (FILE, false) => (Kind::File, 0o400, self.disk.size(), 1),
            (FILE, true) => (Kind::File, 0o600, self.disk.size(), 1),
            _ => return Err(Error::not_found("there is a directory and a file")),
        };
        let time = Some(self.time);
        Ok(Attributes {
            kind,
            mode,
            owner: None,
            size,
            links,
            identity: Identity { inode: node, generation: 0 },
            modified: time,
            changed: time,
            accessed: time,
            device: None,
        })
    }

    fn entries(&self, directory: Node) -> Result<Vec<Entry>> {
        check(directory, TOP, "directory")?;
        Ok(vec![Entry { name: NAME.to_vec(), node: FILE }])
    }

    fn pieces(&self, file: Node) -> Result<Vec<Piece>> {
        check(file, FILE, "file")?;
        Ok(vec![Piece { offset: 0, length: self.disk.size(), place: Some(0) }])
    }

    fn read(&self, file: Node, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        check(file, FILE, "file")?;
        let left = self.disk.size().saturating_sub(offset);
        let length = left.min(bytes.len() as u64) as usize;
        let read = self.disk.read_at(offset, &mut bytes[..length]);
        read.map_err(|error| Error::source(offset, error))?;
        Ok(length)
    }

    fn link(&self, _: Node) -> Result<Vec<u8>> {
        Err(Error::wrong_kind("it is no symbolic link"))
    }

    fn extended(&self, _: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }
}
