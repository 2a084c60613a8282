//! One name of a restore.

use format::share::inode::FileKind;
use units::FileId;

use super::parts::each_difference;
use super::{Effect, Run, attributes_of, has_attributes};
use crate::attributes::{Attributes, SetAttributes};
use crate::blocks::{Present, Wait};
use crate::changer::not_overtaken;
use crate::error::{Error, ErrorKind, Result};
use crate::operations::create::{Create, Like};
use crate::part::{Part, write_part};
use crate::tree::Tree;

/// The directory to go on in; none of what has no entries, or stays as it is.
type Below = Option<Option<FileId>>;

impl<T: Tree, P: Present> Run<'_, T, P> {
    /// Puts back what had a name.
    pub(super) fn entry(
        &mut self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
    ) -> Result<Below> {
        not_overtaken(|| {
            self.check_goes_on()?;
            self.try_entry(parent, name, then)
        })
    }

    fn try_entry(
        &mut self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
    ) -> Result<Below> {
        let there = self.look(parent, name)?;
        if then.kind == FileKind::Directory {
            if let Some(there) = there.filter(|there| there.kind == FileKind::Directory) {
                self.count_directory(then, &there);
                return Ok(Some(Some(there.id)));
            }
            let made = self.make_directory(parent, name, then, there.as_ref())?;
            self.count(if there.is_some() { Effect::Overwritten } else { Effect::Created });
            return Ok(Some(made));
        }
        if let Some(directory) = there.filter(|there| there.kind == FileKind::Directory)
            && !self.make_way(directory.id)?
        {
            self.count(Effect::InTheWay);
            return Ok(None);
        }
        // Its entries are gone, so it has changed.
        let there = self.look(parent, name)?;
        match self.restored.get(&then.id.inode).copied() {
            Some(linked) => self.link(parent, name, then, there.as_ref(), linked)?,
            None => self.object(parent, name, then, there.as_ref())?,
        }
        Ok(None)
    }

    /// Makes a directory as it was, in the place of what is no directory.
    pub(super) fn make_directory(
        &self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
        there: Option<&Attributes>,
    ) -> Result<Option<FileId>> {
        let Some(parent) = parent.filter(|_| !self.asked.dry_run) else { return Ok(None) };
        let set = attributes_of(then);
        let made = self.changer.in_place_of(parent, name, there, |transaction, caller| {
            transaction.make_directory(caller, parent, name, &set)
        })?;
        Ok(Some(made.id))
    }

    /// Gives an object that was put back another of its names.
    fn link(
        &mut self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
        there: Option<&Attributes>,
        linked: Option<FileId>,
    ) -> Result<()> {
        if linked.is_some() && there.map(|there| there.id) == linked {
            self.done.kept += 1;
            return Ok(());
        }
        if let (Some(parent), Some(linked), false) = (parent, linked, self.asked.dry_run) {
            let done = self.changer.in_place_of(parent, name, there, |transaction, caller| {
                transaction.link(caller, linked, parent, name)
            });
            if let Err(error) = done {
                if matches!(error.kind, ErrorKind::Stale | ErrorKind::TooManyLinks) {
                    // Somebody took it away, or gave it names: another one is made.
                    self.restored.remove(&then.id.inode);
                    return Err(Error::from(ErrorKind::NotSync));
                }
                return Err(error);
            }
        }
        self.count_object(there);
        Ok(())
    }

    /// Puts an object back, by the first of its names.
    fn object(
        &mut self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
        there: Option<&Attributes>,
    ) -> Result<()> {
        if let Some(there) = there.filter(|there| self.may_stay(then, there)) {
            if is_unchanged(then, there) {
                return self.keep(then, there);
            }
            if !self.is_shared(there) && self.is_alike(then, there)? {
                return self.mend(then, there);
            }
            if has_attributes(there, then) && self.is_same(then, there)? {
                return self.keep(then, there);
            }
        }
        let made = self.make(parent, name, then, there)?;
        self.count_object(there);
        self.note(then, made);
        Ok(())
    }

    /// Whether what is there may be the object of then: it is none that another of then is now.
    fn may_stay(&self, then: &Attributes, there: &Attributes) -> bool {
        let other = self.taken.get(&there.id).is_some_and(|taken| *taken != then.id.inode);
        then.kind == there.kind && then.device == there.device && !other
    }

    /// A name of it goes, or would go.
    pub(super) fn loses_a_name(&mut self, id: FileId, links: u32) {
        if links > 1 {
            self.shared.insert(id);
        }
    }

    fn keep(&mut self, then: &Attributes, there: &Attributes) -> Result<()> {
        self.done.kept += 1;
        if there.links > 1 {
            self.taken.insert(there.id, then.id.inode);
        }
        self.note(then, Some(there.id));
        Ok(())
    }

    /// Remembers what an object with several names is now.
    fn note(&mut self, then: &Attributes, now: Option<FileId>) {
        if then.links > 1 {
            self.restored.insert(then.id.inode, now);
            self.taken.extend(now.map(|now| (now, then.id.inode)));
        }
    }

    /// Whether it has several names, or had before this.
    fn is_shared(&self, there: &Attributes) -> bool {
        there.links > 1 || self.shared.contains(&there.id)
    }

    fn count_object(&mut self, there: Option<&Attributes>) {
        there.iter().for_each(|there| self.loses_a_name(there.id, there.links));
        self.count(if there.is_some() { Effect::Overwritten } else { Effect::Created });
    }

    /// Whether what is there can be given the bytes and attributes of then.
    fn is_alike(&self, then: &Attributes, there: &Attributes) -> Result<bool> {
        match then.kind {
            FileKind::Symlink => self.is_same(then, there),
            _ => Ok(true),
        }
    }

    /// Whether the content is that of then.
    fn is_same(&self, then: &Attributes, there: &Attributes) -> Result<bool> {
        match then.kind {
            FileKind::Symlink => {
                let target = self.share().tree(Wait::May)?.read_link(there.id)?;
                Ok(self.past.read_link(then.id)? == target)
            }
            FileKind::File if then.size == there.size => {
                let mut is_same = true;
                let chunk_bytes = self.chunk_bytes;
                let now = Some(there.id);
                each_difference(self.past, self.share(), (then, now), chunk_bytes, &mut |_| {
                    is_same = false;
                    Ok(false)
                })?;
                Ok(is_same)
            }
            kind => Ok(kind != FileKind::File),
        }
    }

    /// Gives what is there the bytes and attributes of then.
    fn mend(&mut self, then: &Attributes, there: &Attributes) -> Result<()> {
        let id = there.id;
        let is_resized = then.kind == FileKind::File && then.size != there.size;
        if is_resized && !self.asked.dry_run {
            let set = SetAttributes { size: Some(then.size), ..SetAttributes::default() };
            self.change(|transaction, caller| {
                transaction.set_attributes(caller, id, &set, None).map(drop)
            })?;
        }
        let is_written = then.kind == FileKind::File && self.write(then, Some(id), Some(id))?;
        if !is_resized && !is_written && has_attributes(there, then) {
            return self.keep(then, there);
        }
        self.set_attributes(id, then)?;
        self.count(Effect::Overwritten);
        self.note(then, Some(id));
        Ok(())
    }

    /// Writes what differs between a file of then and one of now (none: all holes) into a file;
    /// whether there was any such thing.
    fn write(
        &mut self,
        then: &Attributes,
        now: Option<FileId>,
        into: Option<FileId>,
    ) -> Result<bool> {
        let (past, changer, chunk_bytes) = (self.past, self.changer, self.chunk_bytes);
        let mut is_written = false;
        each_difference(past, changer.share, (then, now), chunk_bytes, &mut |parts| {
            self.check_goes_on()?;
            is_written = true;
            if let Some(id) = into.filter(|_| !self.asked.dry_run) {
                self.changer.change_each(parts.len(), |transaction, caller, index| {
                    write_part(transaction, caller, id, &parts[index])
                })?;
            }
            self.done.bytes += parts.iter().map(Part::bytes).sum::<u64>();
            Ok(true)
        })?;
        Ok(is_written)
    }

    /// Makes an object as it was, in the place of what is there.
    fn make(
        &mut self,
        parent: Option<FileId>,
        name: &[u8],
        then: &Attributes,
        there: Option<&Attributes>,
    ) -> Result<Option<FileId>> {
        let is_file = then.kind == FileKind::File;
        let Some(parent) = parent.filter(|_| !self.asked.dry_run) else {
            if is_file {
                self.write(then, None, None)?;
            }
            return Ok(None);
        };
        if is_file {
            return self.make_file(parent, name, then, there).map(Some);
        }
        let set = attributes_of(then);
        let target = match then.kind {
            FileKind::Symlink => self.past.read_link(then.id)?,
            _ => Vec::new(),
        };
        let like = Like { kind: then.kind, target: &target, device: then.device };
        let made = self.changer.in_place_of(parent, name, there, |transaction, caller| {
            transaction.make_like(caller, parent, name, &set, like)
        })?;
        self.set_attributes(made.id, then)?;
        Ok(Some(made.id))
    }

    /// Makes a file as it was: in one transaction, if its bytes are few.
    fn make_file(
        &mut self,
        parent: FileId,
        name: &[u8],
        then: &Attributes,
        there: Option<&Attributes>,
    ) -> Result<FileId> {
        let mut parts: Vec<Part<Vec<u8>>> = Vec::new();
        let is_small = then.size <= self.chunk_bytes as u64;
        if is_small {
            let share = self.changer.share;
            each_difference(self.past, share, (then, None), self.chunk_bytes, &mut |found| {
                parts.extend(found.iter().map(Part::to_owned));
                Ok(true)
            })?;
        }
        let all = attributes_of(then);
        let set = SetAttributes { size: Some(then.size), ..all };
        let made = self.changer.in_place_of(parent, name, there, |transaction, caller| {
            let made = transaction.create(caller, parent, name, Create::Guarded(&set))?;
            for part in &parts {
                write_part(transaction, caller, made.id, part)?;
            }
            if !parts.is_empty() {
                transaction.set_attributes(caller, made.id, &all, None)?;
            }
            Ok(made)
        })?;
        self.done.bytes += parts.iter().map(Part::bytes).sum::<u64>();
        if !is_small {
            self.write(then, None, Some(made.id))?;
            self.set_attributes(made.id, then)?;
        }
        Ok(made.id)
    }
}

/// Whether nothing changed since then: each change gives another time and another number.
fn is_unchanged(then: &Attributes, there: &Attributes) -> bool {
    then.id == there.id && then.changed == there.changed && then.operation == there.operation
}
