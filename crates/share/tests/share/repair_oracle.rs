//! The tree after some of the operations of a history: objects by number, whole files in memory,
//! and each operation done, or not, by the rules of its procedure.

use std::collections::BTreeMap;

use units::FileId;

use crate::model::Op;
use crate::share::{Attributes, Credentials, FileKind, Logged, Procedure, Tree};

/// An operation of a history: its record, the request, and what it made.
#[derive(Clone, Debug)]
pub struct Done {
    pub logged: Logged,
    pub op: Op,
    pub made: Option<Attributes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: FileKind,
    bytes: Vec<u8>,
    mode: u16,
    uid: u32,
    gid: u32,
    modified: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    objects: BTreeMap<FileId, Object>,
    entries: BTreeMap<(FileId, Vec<u8>), FileId>,
    top: FileId,
}

impl Oracle {
    pub fn new(top: &Attributes) -> Oracle {
        let objects = BTreeMap::from([(top.id, object(top, Vec::new()))]);
        Oracle { objects, entries: BTreeMap::new(), top: top.id }
    }

    fn is_directory(&self, id: FileId) -> bool {
        self.objects.get(&id).is_some_and(|object| object.kind == FileKind::Directory)
    }

    fn is_empty(&self, directory: FileId) -> bool {
        !self.entries.keys().any(|(at, _)| *at == directory)
    }

    /// Does an operation as it was done; whether that was possible.
    #[must_use]
    pub fn apply(&mut self, done: &Done) -> bool {
        let record = &done.logged.record;
        let key = (record.object, done.logged.name.to_vec());
        let time = record.time.as_nanos();
        match (record.procedure, &done.op) {
            (Procedure::Write, Op::Write(_, offset, bytes)) => {
                let Some(object) = self.objects.get_mut(&record.object) else { return false };
                let end = *offset as usize + bytes.len();
                object.bytes.resize(object.bytes.len().max(end), 0);
                object.bytes[*offset as usize..end].copy_from_slice(bytes);
                object.modified = time;
                true
            }
            (Procedure::SetAttributes, op) => self.set(record.object, op, time),
            (Procedure::Create, Op::Open(_, Some(size))) if done.made.is_none() => {
                let id = record.other.expect("the file that was there");
                let Some(object) = self.objects.get_mut(&id) else { return false };
                object.bytes.resize(*size as usize, 0);
                object.modified = time;
                true
            }
            (Procedure::Link, _) => {
                let id = record.other.expect("the object");
                let fits = self.objects.contains_key(&id) && self.is_directory(record.object);
                fits && !self.entries.contains_key(&key) && self.entries.insert(key, id).is_none()
            }
            (Procedure::Remove | Procedure::RemoveDirectory, _) => {
                let id = record.other.expect("the object");
                if self.entries.get(&key) != Some(&id) {
                    return false;
                }
                if self.is_directory(id) && !self.is_empty(id) {
                    return false;
                }
                self.entries.remove(&key);
                self.forget(id);
                true
            }
            (Procedure::Rename, _) => self.rename(done, key),
            (_, op) => {
                let made = done.made.as_ref().expect("it made something");
                if self.entries.contains_key(&key) || !self.is_directory(record.object) {
                    return false;
                }
                let bytes = match op {
                    Op::Symlink(_, target) => target.clone(),
                    Op::Open(_, Some(size)) => vec![0; *size as usize],
                    _ => Vec::new(),
                };
                self.objects.insert(made.id, object(made, bytes));
                self.entries.insert(key, made.id);
                true
            }
        }
    }

    fn set(&mut self, id: FileId, op: &Op, time: u64) -> bool {
        let Some(object) = self.objects.get_mut(&id) else { return false };
        match op {
            Op::Resize(_, size) => {
                object.bytes.resize(*size as usize, 0);
                object.modified = time;
            }
            Op::Mode(_, mode) => object.mode = *mode,
            Op::Owner(_, uid, gid) => {
                (object.uid, object.gid) = (*uid, *gid);
                if object.kind != FileKind::Directory {
                    object.mode &= if object.mode & 0o010 == 0 { !0o4000 } else { !0o6000 };
                }
            }
            Op::Times(_, _, modified) => object.modified = *modified,
            other => panic!("{other:?} sets nothing"),
        }
        true
    }

    fn rename(&mut self, done: &Done, old: (FileId, Vec<u8>)) -> bool {
        let id = done.logged.record.other.expect("the object");
        let to = done.logged.record.target.expect("a target").directory;
        let new = (to, done.logged.new_name.to_vec());
        if self.entries.get(&old) != Some(&id) || !self.is_directory(to) {
            return false;
        }
        if let Some(victim) = self.entries.get(&new).copied() {
            let fits = self.is_directory(victim) == self.is_directory(id) && victim != id;
            if !fits || self.is_directory(victim) && !self.is_empty(victim) {
                return false;
            }
        }
        self.entries.remove(&old);
        let victim = self.entries.insert(new, id);
        victim.into_iter().for_each(|victim| self.forget(victim));
        true
    }

    /// An object lost a name.
    fn forget(&mut self, id: FileId) {
        if !self.entries.values().any(|there| *there == id) {
            self.objects.remove(&id);
        }
    }

    /// Asserts that a tree is this one, but for numbers and the times of directories.
    pub fn assert_is<T: Tree>(&self, tree: &T) {
        let top = tree.top().expect("there is a top");
        let mut numbers = BTreeMap::new();
        let mut waiting = vec![(self.top, top, String::new())];
        while let Some((id, there, path)) = waiting.pop() {
            if let Some(known) = numbers.insert(id, there) {
                assert_eq!(known, there, "{path} is another name of one object");
                continue;
            }
            self.assert_object(tree, id, there, &path);
            if !self.is_directory(id) {
                continue;
            }
            let listed = crate::world::list(tree, there);
            let mut names: Vec<&[u8]> = Vec::new();
            for ((_, name), child) in self.entries.iter().filter(|((at, _), _)| *at == id) {
                let text = String::from_utf8_lossy(name);
                let root = Credentials::root();
                let found = tree.look_up(&root, there, name);
                let found = found.unwrap_or_else(|e| panic!("{path}/{text}: {e}"));
                waiting.push((*child, found.id, format!("{path}/{text}")));
                names.push(name);
            }
            let more: Vec<_> = listed
                .keys()
                .filter(|name| !matches!(&name[..], b"." | b".."))
                .filter(|name| !names.contains(&&name[..]))
                .map(|name| String::from_utf8_lossy(name))
                .collect();
            assert!(more.is_empty(), "{path} has {more:?} too");
        }
        let mut there: Vec<_> = numbers.values().collect();
        there.sort();
        there.dedup();
        assert_eq!(there.len(), numbers.len(), "two objects are one");
    }

    fn assert_object<T: Tree>(&self, tree: &T, id: FileId, there: FileId, path: &str) {
        let expected = &self.objects[&id];
        let found = tree.attributes(there).expect("it is there");
        let owner = |uid, gid| (uid, gid);
        assert_eq!(found.kind, expected.kind, "kind of {path}");
        assert_eq!(found.mode, expected.mode, "mode of {path}");
        let (is, should) = (owner(found.uid, found.gid), owner(expected.uid, expected.gid));
        assert_eq!(is, should, "owner of {path}");
        match expected.kind {
            FileKind::Directory => return,
            FileKind::Symlink => {
                assert_eq!(tree.read_link(there).expect("a link"), expected.bytes);
            }
            FileKind::File => {
                assert_eq!(found.size, expected.bytes.len() as u64, "size of {path}");
                let mut bytes = vec![0xee; expected.bytes.len()];
                let root = Credentials::root();
                tree.read(&root, there, 0, &mut bytes).expect("it is read");
                assert!(bytes == expected.bytes, "bytes of {path}");
            }
            _ => {}
        }
        assert_eq!(found.modified.as_nanos(), expected.modified, "time of {path}");
    }
}

fn object(of: &Attributes, bytes: Vec<u8>) -> Object {
    let (uid, gid, modified) = (of.uid, of.gid, of.modified.as_nanos());
    Object { kind: of.kind, bytes, mode: of.mode, uid, gid, modified }
}
