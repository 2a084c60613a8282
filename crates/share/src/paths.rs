//! Paths of objects by their numbers: a directory knows the one above it, and other objects the
//! one in which they were named last.

use std::collections::HashMap;

use format::share::inode::FileKind;
use format::share::operation::Procedure;
use units::{FileId, Inode};

use crate::directory;
use crate::error::Result;
use crate::operation_log::Logged;
use crate::path::DEPTH_MAX;
use crate::source::Source;

/// Names that are kept in memory: about 100 MiB.
const NAMES_MAX: usize = 1 << 20;

/// Paths in one tree, with the names of the directories that were looked at.
pub struct Paths<'t, T> {
    tree: &'t T,
    names: HashMap<Inode, HashMap<Inode, Box<[u8]>>>,
    count: usize,
}

impl<'t, T: Source> Paths<'t, T> {
    /// Of a tree.
    pub fn new(tree: &'t T) -> Paths<'t, T> {
        Paths { tree, names: HashMap::new(), count: 0 }
    }

    /// A path of an object, from the top: `/docs/letter`. None if it is gone, or if it has lost the
    /// name that it was given last.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn of(&mut self, id: FileId) -> Result<Option<Vec<u8>>> {
        match self.tree.inode(id.inode)? {
            Some(inode) if inode.generation == id.generation => self.path(id.inode),
            _ => Ok(None),
        }
    }

    fn path(&mut self, inode: Inode) -> Result<Option<Vec<u8>>> {
        let (mut at, mut names) = (inode, Vec::new());
        while at != Inode::ROOT {
            let parent = self.tree.inode(at)?.map(|found| found.parent);
            let Some(parent) = parent.filter(|parent| parent.0 != 0) else { return Ok(None) };
            let Some(name) = self.name(parent, at)? else { return Ok(None) };
            names.push(name);
            // Longer paths are not told.
            if names.len() > DEPTH_MAX {
                return Ok(None);
            }
            at = parent;
        }
        if names.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        Ok(Some(names.into_iter().rev().fold(Vec::new(), |path, name| join(path, &name))))
    }

    /// The name of an object in a directory.
    fn name(&mut self, parent: Inode, child: Inode) -> Result<Option<Box<[u8]>>> {
        if !self.names.contains_key(&parent) {
            let names = self.read(parent)?;
            if self.count + names.len() > NAMES_MAX {
                self.names.clear();
                self.count = 0;
            }
            self.count += names.len();
            self.names.insert(parent, names);
        }
        Ok(self.names[&parent].get(&child).cloned())
    }

    fn read(&self, parent: Inode) -> Result<HashMap<Inode, Box<[u8]>>> {
        let mut names = HashMap::new();
        let Some(found) = self.tree.inode(parent)? else { return Ok(names) };
        if found.kind == FileKind::Directory {
            directory::for_each_from(self.tree, parent, &found, 0, &mut |entry| {
                names.insert(entry.object.inode, entry.name.as_bytes().into());
                true
            })?;
        }
        Ok(names)
    }
}

/// A path, and a name below it.
pub fn join(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The names of objects that operations are about: those that they have now, and of objects that
/// are gone the last that an operation took from them, of those that were seen.
pub struct Naming<'t, T> {
    paths: Paths<'t, T>,
    lost: HashMap<FileId, (FileId, Box<[u8]>)>,
}

impl<'t, T: Source> Naming<'t, T> {
    /// By the tree as it is now.
    pub fn new(tree: &'t T) -> Naming<'t, T> {
        Naming { paths: Paths::new(tree), lost: HashMap::new() }
    }

    /// Sees an operation. They may come in any order.
    pub fn see(&mut self, logged: &Logged) {
        let record = &logged.record;
        let (id, name) = match record.procedure {
            Procedure::Remove | Procedure::RemoveDirectory => {
                (record.other, (record.object, logged.name.clone()))
            }
            Procedure::Rename => {
                let Some(target) = record.target else { return };
                (target.victim, (target.directory, logged.new_name.clone()))
            }
            _ => return,
        };
        // A file of several names may lose one after the other: any of them will do.
        // Beyond that they have no paths.
        if let Some(id) = id.filter(|_| self.lost.len() < NAMES_MAX) {
            self.lost.entry(id).or_insert(name);
        }
    }

    /// A path of an object.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn of(&mut self, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut at, mut names): (FileId, Vec<&[u8]>) = (id, Vec::new());
        let mut path = loop {
            if let Some(path) = self.paths.of(at)? {
                break path;
            }
            match self.lost.get(&at) {
                Some((parent, name)) if names.len() < DEPTH_MAX => {
                    names.push(name);
                    at = *parent;
                }
                _ => return Ok(None),
            }
        };
        for name in names.into_iter().rev() {
            path = join(path, name);
        }
        Ok(Some(path))
    }

    /// The path that an operation was about, and the new one of a RENAME.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn of_operation(&mut self, logged: &Logged) -> Result<OperationPaths> {
        let record = &logged.record;
        let named = |naming: &mut Self, directory, name: &[u8]| -> Result<Option<Vec<u8>>> {
            Ok(naming.of(directory)?.map(|path| join(path, name)))
        };
        let path = match logged.name.is_empty() {
            true => self.of(record.object)?,
            false => named(self, record.object, &logged.name)?,
        };
        let to = match record.target {
            Some(target) => named(self, target.directory, &logged.new_name)?,
            None => None,
        };
        Ok(OperationPaths { path, to })
    }
}

/// The paths of an operation, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationPaths {
    /// The object, or the name.
    pub path: Option<Vec<u8>>,
    /// The new name of a RENAME.
    pub to: Option<Vec<u8>>,
}
