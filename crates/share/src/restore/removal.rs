//! Names that are there now, and were not there then.

use format::share::inode::FileKind;
use units::FileId;

use super::{Effect, Entry, Run, page_of};
use crate::blocks::{Present, Wait};
use crate::directory::check_below;
use crate::error::{Error, ErrorKind, Result};
use crate::permission::Credentials;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;

/// Times that a directory is emptied anew because others made entries meanwhile.
const TRIES: usize = 8;

/// A directory that is emptied.
struct Level {
    id: FileId,
    /// In the one above.
    name: Vec<u8>,
    cookie: u64,
    path_bytes: usize,
    tries: usize,
}

/// An entry of now.
struct There {
    entry: Entry,
    kind: FileKind,
    id: FileId,
    links: u32,
}

impl<T: Tree, P: Present> Run<'_, T, P> {
    /// Takes the entries of a directory away that were not there then.
    pub(super) fn remove_others(&mut self, then: FileId, now: FileId) -> Result<()> {
        let mut cookie = 0;
        loop {
            let (page, is_end) = self.page_of_now(now, cookie)?;
            let mut files = Vec::new();
            for there in page {
                cookie = there.entry.cookie;
                match self.past.look_up(&Credentials::root(), then, &there.entry.name) {
                    Ok(_) => continue,
                    Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                    Err(_) => {}
                }
                if there.kind != FileKind::Directory {
                    self.loses_a_name(there.id, there.links);
                    files.push(there.entry.name);
                    continue;
                }
                let path_bytes = self.enter(&there.entry.name);
                self.empty(there.id, Some((now, &there.entry.name)))?;
                self.path.truncate(path_bytes);
            }
            self.remove_files(now, &files)?;
            if is_end {
                return Ok(());
            }
        }
    }

    /// Empties a directory that is where something else was, if that may be; whether it is empty.
    pub(super) fn make_way(&mut self, directory: FileId) -> Result<bool> {
        let (page, _) = self.page_of_now(directory, 0)?;
        if page.is_empty() {
            return Ok(true);
        }
        if self.asked.delete {
            self.empty(directory, None)?;
        }
        Ok(self.asked.delete)
    }

    /// Takes all away that is in a directory; and the directory, if its place is given.
    fn empty(&mut self, id: FileId, place: Option<(FileId, &[u8])>) -> Result<()> {
        let path_bytes = self.path.len();
        let level = |id, name: &[u8], path_bytes| Level {
            id,
            name: name.to_vec(),
            cookie: 0,
            path_bytes,
            tries: 0,
        };
        let name = place.map_or(&b""[..], |(_, name)| name);
        let mut levels = vec![level(id, name, path_bytes)];
        while let Some(last) = levels.last_mut() {
            self.check_goes_on()?;
            let (page, is_end) = self.page_of_now(last.id, last.cookie)?;
            let (mut files, mut below) = (Vec::new(), None);
            for there in page {
                last.cookie = there.entry.cookie;
                if there.kind == FileKind::Directory {
                    below = Some(there);
                    break;
                }
                self.loses_a_name(there.id, there.links);
                files.push(there.entry.name);
            }
            self.remove_files(last.id, &files)?;
            if let Some(below) = below {
                let path_bytes = self.enter(&below.entry.name);
                levels.push(level(below.id, &below.entry.name, path_bytes));
                continue;
            }
            if !is_end {
                continue;
            }
            let last = levels.pop().expect("it is the last");
            let above = levels.last().map(|above| above.id).or(place.map(|(above, _)| above));
            match above.map_or(Ok(()), |above| self.remove_directory(above, &last.name)) {
                Err(error) if error.kind == ErrorKind::NotEmpty && last.tries < TRIES => {
                    levels.push(Level { cookie: 0, tries: last.tries + 1, ..last });
                    continue;
                }
                removed => removed?,
            }
            if above.is_some() {
                self.count(Effect::Removed);
            }
            self.path.truncate(last.path_bytes);
        }
        Ok(())
    }

    fn page_of_now(&self, directory: FileId, cookie: u64) -> Result<(Vec<There>, bool)> {
        let tree = self.share().tree(Wait::May)?;
        let (entries, is_end) = page_of(&tree, directory, cookie)?;
        let there = entries.into_iter().map(|entry| {
            let object = tree.attributes_of(entry.inode)?;
            if object.kind == FileKind::Directory {
                check_below(&tree, directory.inode, entry.inode)?;
            }
            Ok(There { entry, kind: object.kind, id: object.id, links: object.links })
        });
        Ok((there.collect::<Result<_>>()?, is_end))
    }

    /// Takes names away that are no directories'.
    fn remove_files(&mut self, directory: FileId, names: &[Vec<u8>]) -> Result<()> {
        if !self.asked.dry_run {
            self.changer.change_each(names.len(), |transaction, caller, index| {
                remove(transaction, caller, directory, &names[index])
            })?;
        }
        for name in names {
            let path_bytes = self.enter(name);
            self.count(Effect::Removed);
            self.path.truncate(path_bytes);
        }
        Ok(())
    }

    fn remove_directory(&self, above: FileId, name: &[u8]) -> Result<()> {
        if self.asked.dry_run {
            return Ok(());
        }
        self.change(|transaction, caller| {
            is_gone(transaction.remove_directory(caller, above, name))
        })
    }
}

fn remove<P: Present>(
    transaction: &mut Transaction<'_, '_, P>,
    caller: &Caller<'_>,
    directory: FileId,
    name: &[u8],
) -> Result<()> {
    is_gone(transaction.remove(caller, directory, name))
}

/// A name that somebody else took away is gone, too.
fn is_gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error { kind: ErrorKind::NotFound, .. }) => Ok(()),
        removed => removed,
    }
}
