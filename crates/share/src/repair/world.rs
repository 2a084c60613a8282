//! The share as it would be without the operations that are undone, as far as it would differ:
//! names that they made or took, and objects that they changed.

use std::collections::{BTreeMap, BTreeSet};

use format::share::inode::FileKind;
use format::share::operation::{Before, Operation, Procedure};
use units::{FileId, Inode, WallTime};

use super::content::Content;
use super::effects::{Key, effects, is_made, subject, touched, written};
use super::kinds::{Follow, Reason};
use super::moments::Moments;
use super::ranges::Ranges;
use crate::blocks::{Blocks, Wait};
use crate::error::Result;
use crate::operation_log::{At, Logged, Transactions};
use crate::operations::set_attributes::without_set_id;
use crate::source::Source;

/// A name as it would be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub object: Option<FileId>,
    /// The object that it had in history, so far.
    historic: Option<FileId>,
    /// The operations that are undone to which it owes what it is.
    because: BTreeSet<u64>,
}

/// An object as it would be.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// A moment at which it was there.
    pub base: At,
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub accessed: WallTime,
    pub modified: WallTime,
    /// Whether `modified` is the time of a record: that may be later than the one by the clock.
    pub is_near: bool,
    /// None while it would be what it was.
    pub content: Option<Content>,
}

/// An operation that is not undone and cannot be done again as it was, or that is to follow.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub operation: Logged,
    pub reason: Reason,
    /// The operations that are undone on which it stands.
    pub on: BTreeSet<u64>,
}

/// Conflicts of one pass: those after them are found in the next.
const CONFLICTS_MAX: usize = 10_000;
/// Operations that are told of a conflict whose own operation is undone.
const TOLD_MAX: usize = 16;

pub(crate) struct World<'a, B> {
    pub entries: BTreeMap<Key, Entry>,
    pub objects: BTreeMap<FileId, Object>,
    pub conflicts: Vec<Conflict>,
    /// Objects that would not have been made.
    never: BTreeSet<FileId>,
    /// Names that objects would have more than they had in history, so far.
    shifts: BTreeMap<FileId, i64>,
    /// The undone operations that made objects, or gave or took a name of theirs.
    undone: BTreeMap<FileId, BTreeSet<u64>>,
    /// Ranges of files that undone operations wrote, and one of those. From [`Follow::Bytes`] on.
    written: BTreeMap<FileId, Ranges<u64>>,
    /// The first undone operation that wrote a file. With [`Follow::Reads`].
    wrong: BTreeMap<FileId, u64>,
    /// The clients and users who read such a file, and that operation.
    readers: BTreeMap<(u128, u32), u64>,
    /// Objects that a conflict was told of, and why.
    told: BTreeSet<(FileId, Reason)>,
    transactions: &'a Transactions,
    follow: Follow,
    moments: &'a Moments<'a, B>,
}

impl<'a, B: Blocks> World<'a, B> {
    pub(crate) fn new(
        transactions: &'a Transactions,
        follow: Follow,
        moments: &'a Moments<'a, B>,
    ) -> World<'a, B> {
        World {
            entries: BTreeMap::new(),
            objects: BTreeMap::new(),
            conflicts: Vec::new(),
            never: BTreeSet::new(),
            shifts: BTreeMap::new(),
            undone: BTreeMap::new(),
            written: BTreeMap::new(),
            wrong: BTreeMap::new(),
            readers: BTreeMap::new(),
            told: BTreeSet::new(),
            transactions,
            follow,
            moments,
        }
    }

    /// Leaves an operation out. The names and objects that it changed stay as they would be, or,
    /// if they were as in history so far, as they were before it.
    pub(crate) fn leave_out(&mut self, logged: &Logged) {
        let number = logged.number();
        for (key, from, to) in effects(logged) {
            self.entry(&key, from).because.insert(number);
            self.went_on(&key, to);
        }
        if is_made(logged) {
            self.never.extend(logged.record.other);
        }
        let named = [logged.record.other, logged.record.target.and_then(|target| target.victim)];
        for id in named.into_iter().flatten() {
            self.undone.entry(id).or_default().insert(number);
        }
        if self.follow == Follow::Reads
            && let Some(id) = written(logged)
        {
            self.wrong.entry(id).or_insert(number);
        }
        if let (Some(id), Some(before)) = (subject(logged), &logged.record.before) {
            self.object(id, before, number, touched(logged).is_some());
            self.note_change(logged, id, before.size);
        }
    }

    /// Notes the bytes of a file that an undone operation changed.
    fn note_change(&mut self, logged: &Logged, id: FileId, size_before: u64) {
        let Some((offset, bytes)) = logged.record.range else { return };
        let is_write = logged.record.procedure == Procedure::Write;
        if let Some(content) = self.objects.get_mut(&id).and_then(|o| o.content.as_mut()) {
            match is_write {
                // Between the end and what is written behind it there are zeros now.
                true => content.change(offset.min(size_before), offset + bytes),
                false => content.change(offset.min(size_before), u64::MAX),
            }
        }
        if is_write && self.follow >= Follow::Bytes {
            let written = self.written.entry(id).or_default();
            written.add(offset, offset + bytes, logged.number());
        }
    }

    /// Does an operation again, as far as it touches anything that would differ.
    ///
    /// # Errors
    /// Those of reading the past.
    pub(crate) fn play(&mut self, logged: &Logged) -> Result<()> {
        if logged.record.procedure == Procedure::Read {
            self.note_read(logged);
            return Ok(());
        }
        let sender = (logged.record.origin.client, logged.record.origin.uid);
        if let Some(&wrong) = self.readers.get(&sender) {
            self.conflict(logged, Reason::Reads, BTreeSet::from([wrong]));
            // So all that follows it in turn is found in this pass.
            self.leave_out(logged);
            return Ok(());
        }
        self.play_on(logged)?;
        for (key, _, to) in effects(logged) {
            if self.entries.contains_key(&key) {
                self.went_on(&key, to);
            }
        }
        Ok(())
    }

    /// Notes who has read what an undone operation wrote.
    fn note_read(&mut self, logged: &Logged) {
        let Operation { origin, object, range, .. } = logged.record;
        let (seen, _) = range.expect("records were verified");
        if let Some(&wrong) = self.wrong.get(&object).filter(|wrong| **wrong <= seen) {
            self.readers.entry((origin.client, origin.uid)).or_insert(wrong);
        }
    }

    fn play_on(&mut self, logged: &Logged) -> Result<()> {
        let record = &logged.record;
        match record.procedure {
            Procedure::Write | Procedure::SetAttributes => self.change(logged),
            Procedure::Create if record.before.is_some() => self.change(logged),
            Procedure::Create
            | Procedure::MakeDirectory
            | Procedure::MakeSymlink
            | Procedure::MakeNode
            | Procedure::Link => self.name(logged),
            Procedure::Remove | Procedure::RemoveDirectory => self.remove(logged),
            Procedure::Rename => return self.rename(logged),
            Procedure::Read => unreachable!("it changes nothing"),
            Procedure::Other(_) => unreachable!("the plan refuses it"),
        }
        Ok(())
    }

    /// A name, which was `from` before an operation if nothing undone touched it so far.
    fn entry(&mut self, key: &Key, from: Option<FileId>) -> &mut Entry {
        let new = || Entry { object: from, historic: from, because: BTreeSet::new() };
        self.entries.entry(key.clone()).or_insert_with(new)
    }

    /// A name that is known gets another object in history.
    fn went_on(&mut self, key: &Key, to: Option<FileId>) {
        let entry = self.entries.get_mut(key).expect("it is known");
        let from = std::mem::replace(&mut entry.historic, to);
        self.shift([(from, 1), (to, -1)]);
    }

    /// A name that is known would get another object.
    fn assign(&mut self, key: &Key, to: Option<FileId>) {
        let entry = self.entries.get_mut(key).expect("it is known");
        let from = std::mem::replace(&mut entry.object, to);
        self.shift([(from, -1), (to, 1)]);
    }

    fn shift(&mut self, by: [(Option<FileId>, i64); 2]) {
        for (id, step) in by {
            if let Some(id) = id {
                *self.shifts.entry(id).or_default() += step;
            }
        }
    }

    /// Whether an object would be gone that had so many names in history; that is a conflict.
    fn is_gone(&mut self, logged: &Logged, id: FileId, links: i64) -> bool {
        let shift = self.shifts.get(&id).copied().unwrap_or_default();
        let is_gone = shift < 0 && links + shift <= 0;
        if is_gone {
            let had = self.entries.values();
            let lost = had.filter(|had| had.historic == Some(id) && had.object != Some(id));
            let on = lost.flat_map(|entry| entry.because.iter().copied()).collect();
            self.conflict(logged, Reason::Object, on);
        }
        is_gone
    }

    /// Takes an object up as it was before an operation; its content, if that may differ.
    fn object(&mut self, id: FileId, before: &Before, operation: u64, is_content: bool) {
        if self.never.contains(&id) {
            return;
        }
        let base = self.transactions.before(operation);
        let new = || Object {
            base,
            kind: before.kind,
            mode: before.mode,
            uid: before.uid,
            gid: before.gid,
            accessed: before.accessed,
            modified: before.modified,
            is_near: false,
            content: None,
        };
        let object = self.objects.entry(id).or_insert_with(new);
        if is_content && object.content.is_none() {
            let has_content = matches!(before.kind, FileKind::File | FileKind::Symlink);
            let size = if has_content { before.size } else { 0 };
            (object.base, object.content) = (base, Some(Content::of(size, base)));
        }
    }

    /// Whether this pass has found as many conflicts as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.conflicts.len() >= CONFLICTS_MAX
    }

    fn conflict(&mut self, logged: &Logged, reason: Reason, on: BTreeSet<u64>) {
        self.conflicts.push(Conflict { operation: logged.clone(), reason, on });
    }

    /// A conflict with all operations on an object. If they are to be kept for it, once is enough.
    fn conflict_with(&mut self, logged: &Logged, reason: Reason, id: FileId) {
        let undone = self.undone.get(&id);
        let on = match self.follow {
            Follow::Nothing if !self.told.insert((id, reason)) => return,
            Follow::Nothing => undone.cloned().unwrap_or_default(),
            _ => undone.into_iter().flatten().take(TOLD_MAX).copied().collect(),
        };
        self.conflict(logged, reason, on);
    }

    /// Whether an object of an operation would not be there; that is a conflict.
    fn is_never(&mut self, logged: &Logged, id: FileId, reason: Reason) -> bool {
        let is_never = self.never.contains(&id);
        if is_never {
            self.conflict_with(logged, reason, id);
        }
        is_never
    }

    /// The operations on which the names in a directory stand that it would have, and has not.
    fn restored_in(&self, directory: FileId) -> BTreeSet<u64> {
        let from = (directory, Box::default());
        let inside = self.entries.range(from..).take_while(|((at, _), _)| *at == directory);
        let there = inside.filter(|(_, entry)| entry.object.is_some());
        there.flat_map(|(_, entry)| entry.because.iter().copied()).collect()
    }

    fn change(&mut self, logged: &Logged) {
        let record = &logged.record;
        let id = subject(logged).expect("records were verified");
        let before = record.before.as_ref().expect("records were verified");
        let is_directory = before.kind == FileKind::Directory;
        let links = if is_directory { 1 } else { i64::from(before.links) };
        if self.is_never(logged, id, Reason::Object) || self.is_gone(logged, id, links) {
            return;
        }
        let after = self.transactions.after(logged.number(), self.moments.seq);
        let is_root = record.origin.uid == 0;
        if let (Procedure::Write, Some((offset, bytes))) = (record.procedure, record.range) {
            self.follow_bytes(logged, id, (offset, offset + bytes));
            let Some(object) = self.objects.get_mut(&id) else { return };
            if let Some(content) = &mut object.content {
                content.write(offset, bytes, after);
            }
            (object.modified, object.is_near) = (record.time, true);
            if !is_root {
                object.mode &= without_set_id(object.mode);
            }
            return;
        }
        let Some(object) = self.objects.get_mut(&id) else { return };
        let set = record.set.unwrap_or_default();
        if let Some((size, _)) = record.range {
            if let Some(content) = &mut object.content {
                content.resize(size);
            }
            (object.modified, object.is_near) = (record.time, true);
            if set.mode.is_none() && !is_root {
                object.mode &= without_set_id(object.mode);
            }
        }
        object.uid = set.uid.unwrap_or(object.uid);
        object.gid = set.gid.unwrap_or(object.gid);
        match set.mode {
            Some(mode) => object.mode = mode,
            None if set.uid.or(set.gid).is_some() && object.kind != FileKind::Directory => {
                object.mode &= without_set_id(object.mode);
            }
            None => {}
        }
        object.accessed = set.accessed.unwrap_or(object.accessed);
        if let Some(modified) = set.modified {
            (object.modified, object.is_near) = (modified, false);
        }
    }

    /// A write over bytes of an operation that is undone follows it, if it is to.
    fn follow_bytes(&mut self, logged: &Logged, id: FileId, (from, to): (u64, u64)) {
        if self.follow < Follow::Bytes {
            return;
        }
        let Some(written) = self.written.get(&id) else { return };
        let on: BTreeSet<u64> = written.within(from, to).map(|(.., number)| number).collect();
        if !on.is_empty() {
            self.conflict(logged, Reason::Bytes, on);
        }
    }

    fn name(&mut self, logged: &Logged) {
        let record = &logged.record;
        let other = record.other.expect("records were verified");
        if self.is_never(logged, record.object, Reason::Directory) {
            return;
        }
        // Its record does not say how many names it had: with one less it is taken for gone.
        if record.procedure == Procedure::Link
            && (self.is_never(logged, other, Reason::Object) || self.is_gone(logged, other, 0))
        {
            return;
        }
        let key = (record.object, logged.name.clone());
        let Some(entry) = self.entries.get(&key) else { return };
        if entry.object.is_some() {
            let on = entry.because.clone();
            return self.conflict(logged, Reason::NameTaken, on);
        }
        self.assign(&key, Some(other));
    }

    fn remove(&mut self, logged: &Logged) {
        let record = &logged.record;
        let other = record.other.expect("records were verified");
        if self.never.contains(&other) {
            // It would not be there, as somebody wants.
            return;
        }
        let is_directory = record.procedure == Procedure::RemoveDirectory;
        let restored = if is_directory { self.restored_in(other) } else { BTreeSet::new() };
        let key = (record.object, logged.name.clone());
        let there = self.entries.get(&key);
        if let Some(entry) = there
            && entry.object != Some(other)
        {
            let on = entry.because.clone();
            return self.conflict(logged, Reason::NameGone, on);
        }
        if !restored.is_empty() {
            return self.conflict(logged, Reason::NotEmpty, restored);
        }
        if self.entries.contains_key(&key) {
            self.assign(&key, None);
        }
    }

    fn rename(&mut self, logged: &Logged) -> Result<()> {
        let record = &logged.record;
        let other = record.other.expect("records were verified");
        let target = record.target.expect("records were verified");
        for (id, reason) in [(other, Reason::Object), (target.directory, Reason::Directory)] {
            if self.is_never(logged, id, reason) {
                return Ok(());
            }
        }
        if let Some(victim) = target.victim {
            let restored = self.restored_in(victim);
            if !restored.is_empty() {
                self.conflict(logged, Reason::NotEmpty, restored);
                return Ok(());
            }
        }
        let keys =
            [(record.object, logged.name.clone()), (target.directory, logged.new_name.clone())];
        if !keys.iter().any(|key| self.entries.contains_key(key)) {
            return Ok(());
        }
        let [old, new] = keys;
        let from = self.entry(&old, Some(other)).clone();
        let to = self.entry(&new, target.victim).clone();
        let because: BTreeSet<u64> = from.because.union(&to.because).copied().collect();
        for key in [&old, &new] {
            self.entry(key, None).because = because.clone();
        }
        if from.object != Some(other) {
            self.conflict(logged, Reason::NameGone, because);
            return Ok(());
        }
        if let Some(there) = to.object
            && Some(there) != target.victim
            && !self.may_replace(there, other, logged)?
        {
            self.conflict(logged, Reason::NameTaken, because);
            return Ok(());
        }
        if let (Some(victim), Some(before)) = (target.victim, &record.before)
            && to.object != Some(victim)
        {
            // It lost this name in history, and would not have had it.
            if !self.is_as_before(victim, before, logged)? {
                self.conflict(logged, Reason::Bytes, because);
                return Ok(());
            }
            self.object(victim, before, logged.number(), true);
        }
        self.assign(&old, None);
        self.assign(&new, Some(other));
        Ok(())
    }

    /// Whether an object may lose its name to another by a RENAME: both are no directories, and the
    /// first was gone when that was done, so nothing that is kept was done to it since.
    fn may_replace(&self, there: FileId, other: FileId, logged: &Logged) -> Result<bool> {
        let is_file = |kind| kind != FileKind::Directory;
        let gone = self.objects.get(&there).is_some_and(|object| is_file(object.kind));
        let past = self.moments.open(self.transactions.before(logged.number()))?;
        let tree = past.tree(Wait::May);
        let find = |id: FileId| -> Result<Option<FileKind>> {
            let found = tree.inode(id.inode)?.filter(|inode| inode.generation == id.generation);
            Ok(found.map(|inode| inode.kind))
        };
        Ok(gone && find(there)?.is_none() && find(other)?.is_some_and(is_file))
    }

    /// Whether an object was before a transaction as it was before one of its operations. If it was
    /// not, what the transaction wrote into it and then took away is at no moment.
    fn is_as_before(&self, id: FileId, before: &Before, logged: &Logged) -> Result<bool> {
        let past = self.moments.open(self.transactions.before(logged.number()))?;
        let found = past.tree(Wait::May).inode(id.inode)?;
        let found = found.filter(|inode| inode.generation == id.generation);
        Ok(found
            .is_some_and(|inode| (inode.size, inode.modified) == (before.size, before.modified)))
    }

    /// The directory that a directory would be in, if that would differ.
    pub(crate) fn parents(&self) -> BTreeMap<FileId, FileId> {
        let placed = self.entries.iter();
        placed.filter_map(|((parent, _), entry)| Some((entry.object?, *parent))).collect()
    }

    /// Whether an object is the directory at the top.
    pub(crate) fn is_top(id: FileId) -> bool {
        id.inode == Inode::ROOT
    }
}
