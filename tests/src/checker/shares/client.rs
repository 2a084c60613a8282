//! A client: what it does goes to the server and to the model, and both have to agree.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use super::model::{Body, Id, Op, Tree, User};
use super::plan::{Ids, Planner};
use crate::nfs::{
    Attr, Call, Handle, How, Kind, Manner, Nfs, Reply, Set, Stable, Verifier, status,
};
use crate::random::Random;

/// A client commits so many files at most at a time, and writes so much at once.
const PIECE_BYTES: usize = 64 << 10;

/// What a client keeps of an object of the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub handle: Handle,
    pub fileid: u64,
}

pub(super) type KnownObjects = BTreeMap<Id, Known>;

/// Operations that were under way together.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub ops: Vec<Op>,
    /// When the first was sent, and when the last was answered, by the clock of the storm.
    pub sent: u64,
    pub done: u64,
}

/// What clients of a storm share.
pub(super) struct Beat<'a> {
    /// Rises with each call that is sent or answered.
    pub clock: &'a AtomicU64,
    pub answered: &'a AtomicU64,
    /// Verifiers that there may be.
    pub verifier: Verifier,
    /// Whether it may change.
    pub may_change: bool,
}

pub(super) struct Client {
    pub user: User,
    /// Its own directory.
    pub top: Id,
    pub link: Nfs,
    pub ids: Ids,
    /// Files with writes that were not committed, and the verifier of the first of these.
    pub dirty: BTreeMap<Id, Verifier>,
    pub writes: u64,
}

impl Client {
    /// Works in its own directory; the steps.
    pub fn work(
        &mut self,
        tree: &mut Tree,
        known: &mut KnownObjects,
        random: &mut Random,
        (groups, beat): (u64, &Beat<'_>),
    ) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for _ in 0..groups {
            let top = self.top;
            let ops = Planner { random, ids: &mut self.ids, tree, top }.group();
            self.step(tree, known, (ops, manner(random)), beat, &mut steps)?;
            if random.chance(20) {
                self.look(tree, known, random)?;
            }
        }
        Ok(steps)
    }

    /// Carries out operations whose order makes no difference, and what they bring with them.
    pub fn step(
        &mut self,
        tree: &mut Tree,
        known: &mut KnownObjects,
        (ops, manner): (Vec<Op>, Manner),
        beat: &Beat<'_>,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let mut next = vec![ops];
        while let Some(ops) = next.pop() {
            let sent = beat.clock.fetch_add(1, Ordering::SeqCst);
            let calls = ops.iter().map(|op| call(op, known)).collect::<Result<Vec<Call>>>();
            let calls = calls.with_context(|| format!("{ops:?}"))?;
            let replies = self.link.send_all(&calls, manner)?;
            let done = beat.clock.fetch_add(1, Ordering::SeqCst);
            beat.answered.fetch_add(ops.len() as u64, Ordering::SeqCst);
            for (op, reply) in ops.iter().zip(&replies) {
                let user = self.user;
                let what = || format!("{} by {user:?}", told(op));
                let is_lost = self.answered(tree, known, op, (reply, ops.len() == 1), beat);
                if is_lost.with_context(what)? {
                    next.extend(self.write_again(tree, op)?);
                }
            }
            steps.push(Step { ops, sent, done });
        }
        Ok(())
    }

    /// Compares an answer with what the model does; whether the file of a COMMIT has to be written
    /// again.
    fn answered(
        &mut self,
        tree: &mut Tree,
        known: &mut KnownObjects,
        op: &Op,
        (reply, is_alone): (&Reply, bool),
        beat: &Beat<'_>,
    ) -> Result<bool> {
        let id = match tree.apply(op, self.user) {
            Ok(id) => id,
            Err(statuses) => {
                let status = reply.status;
                ensure!(statuses.contains(&status), "status {status}, not one of {statuses:?}");
                return Ok(false);
            }
        };
        ensure!(reply.status == status::OK, "status {}", reply.status);
        self.writes += 1;
        if let Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. } = op {
            let handle = reply.handle.clone().context("no handle")?;
            let attr = reply.attr.context("no attributes")?;
            let found = Known { handle, fileid: attr.fileid };
            let earlier = known.insert(id, found.clone());
            ensure!(earlier.is_none_or(|earlier| earlier == found), "it is another object");
        }
        if let (true, Some(attr), Some(node)) = (is_alone, reply.attr, tree.get(id)) {
            check_attr(tree, id, &attr)?;
            ensure!(known[&id].fileid == attr.fileid, "it has another number");
            let is_set = matches!(op, Op::Set { set, .. } if set.mtime.is_some());
            ensure!(!is_set || node.mtime == Some(attr.mtime), "it has another time");
        }
        match op {
            Op::Write { file, data, stable, .. } => {
                ensure!(reply.count as usize == data.len(), "{} bytes written", reply.count);
                let committed = reply.committed.context("no word of how stable")?;
                ensure!(committed >= *stable, "{committed:?} instead of {stable:?}");
                self.check_verifier(reply.verifier, beat)?;
                if committed == Stable::Unstable {
                    self.dirty.entry(*file).or_insert(reply.verifier);
                }
                Ok(false)
            }
            Op::Commit { file } => {
                self.check_verifier(reply.verifier, beat)?;
                let written = self.dirty.remove(file);
                Ok(written.is_some_and(|verifier| verifier != reply.verifier))
            }
            _ => Ok(false),
        }
    }

    fn check_verifier(&self, verifier: Verifier, beat: &Beat<'_>) -> Result<()> {
        let is_known = beat.may_change || verifier == beat.verifier;
        ensure!(is_known, "the verifier is another, and nobody killed the server");
        Ok(())
    }

    /// Writes of a file that may have been lost, as it is now, and a COMMIT: the last goes first.
    fn write_again(&self, tree: &Tree, op: &Op) -> Result<Vec<Vec<Op>>> {
        let Op::Commit { file } = op else { bail!("no COMMIT") };
        let Some(node) = tree.get(*file) else { return Ok(Vec::new()) };
        let Body::File(bytes) = &node.body else { bail!("no file") };
        let mut steps = vec![vec![Op::Commit { file: *file }]];
        for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let (offset, data) = ((at * PIECE_BYTES) as u64, piece.to_vec().into());
            steps.push(vec![Op::Write { file: *file, offset, data, stable: Stable::Unstable }]);
        }
        Ok(steps)
    }

    /// Looks at something below its directory.
    fn look(&mut self, tree: &Tree, known: &KnownObjects, random: &mut Random) -> Result<()> {
        let places = tree.places(self.top);
        if places.is_empty() {
            return Ok(());
        }
        let place = &places[random.index(places.len())];
        let (object, dir) = (handle(known, place.id)?, handle(known, place.dir)?);
        let what = || format!("{:?}", String::from_utf8_lossy(&place.path));
        let found = self.link.demand(&Call::Lookup { dir, name: place.name.clone() })?;
        let attr = found.attr.context("no attributes")?;
        check_attr(tree, place.id, &attr).with_context(what)?;
        ensure!(attr.fileid == known[&place.id].fileid, "{} is another object", what());
        match &tree.node(place.id).body {
            Body::File(bytes) => {
                let offset = random.below(bytes.len() as u64 + 10);
                let count = u32::try_from(random.between(1, 70_000))?;
                let read = self.link.demand(&Call::Read { file: object, offset, count })?;
                let from = usize::try_from(offset)?.min(bytes.len());
                let to = (from + count as usize).min(bytes.len());
                ensure!(read.data == bytes[from..to], "{}: other bytes at {offset}", what());
                ensure!(read.is_end == (to == bytes.len()), "{}: the end is wrong", what());
            }
            Body::Symlink(target) => {
                let read = self.link.demand(&Call::Readlink { link: object })?;
                ensure!(read.data == *target, "{} leads elsewhere", what());
            }
            Body::Directory(_) => {}
        }
        Ok(())
    }
}

/// Mostly as all do, sometimes as one on a bad network.
pub(super) fn manner(random: &mut Random) -> Manner {
    match random.below(100) {
        0..6 => Manner::Twice,
        6..12 => Manner::Cut,
        _ => Manner::Plain,
    }
}

pub(super) fn handle(known: &KnownObjects, id: Id) -> Result<Handle> {
    Ok(known.get(&id).with_context(|| format!("no handle of object {id:x}"))?.handle.clone())
}

/// Compares attributes with those of the model.
pub(super) fn check_attr(tree: &Tree, id: Id, attr: &Attr) -> Result<()> {
    let node = tree.node(id);
    let expected = (node.kind(), node.mode, tree.links(id), node.uid, node.gid);
    let found = (attr.kind, attr.mode, attr.nlink, attr.uid, attr.gid);
    ensure!(found == expected, "kind, mode, links, owner, group: {found:?}, not {expected:?}");
    let size = match &node.body {
        Body::File(bytes) => bytes.len() as u64,
        Body::Symlink(target) => target.len() as u64,
        Body::Directory(_) => attr.size,
    };
    ensure!(attr.size == size, "{} bytes, not {size}", attr.size);
    Ok(())
}

/// The call of an operation.
fn call(op: &Op, known: &KnownObjects) -> Result<Call> {
    let of = |id: &Id| handle(known, *id);
    Ok(match op {
        Op::Create { dir, name, how, .. } => {
            Call::Create { dir: of(dir)?, name: name.clone(), how: *how }
        }
        Op::Mkdir { dir, name, mode, .. } => {
            let set = Set { mode: Some(*mode), ..Set::default() };
            Call::Mkdir { dir: of(dir)?, name: name.clone(), set }
        }
        Op::Symlink { dir, name, target, .. } => {
            let set = Set { mode: Some(0o777), ..Set::default() };
            Call::Symlink { dir: of(dir)?, name: name.clone(), set, target: target.clone() }
        }
        Op::Link { file, dir, name } => {
            Call::Link { file: of(file)?, dir: of(dir)?, name: name.clone() }
        }
        Op::Rename { from, name, to, new_name } => Call::Rename {
            from: of(from)?,
            name: name.clone(),
            to: of(to)?,
            new_name: new_name.clone(),
        },
        Op::Remove { dir, name } => Call::Remove { dir: of(dir)?, name: name.clone() },
        Op::Rmdir { dir, name } => Call::Rmdir { dir: of(dir)?, name: name.clone() },
        Op::Write { file, offset, data, stable } => {
            Call::Write { file: of(file)?, offset: *offset, stable: *stable, data: data.to_vec() }
        }
        Op::Set { object, set } => Call::Setattr { object: of(object)?, set: *set },
        Op::Commit { file } => Call::Commit { file: of(file)? },
    })
}

fn octal(set: &Set) -> String {
    set.mode.map_or("-".to_owned(), |mode| format!("{mode:o}"))
}

/// An operation without its bytes.
pub(super) fn told(op: &Op) -> String {
    let of = |name: &[u8]| {
        let text = format!("{:?}", String::from_utf8_lossy(name));
        match text.char_indices().nth(24) {
            Some((at, _)) => format!("{}...", &text[..at]),
            None => text,
        }
    };
    match op {
        Op::Create { dir, name, how, new } => {
            let how = match how {
                How::Unchecked(set) => format!("unchecked {} {:?}", octal(set), set.size),
                How::Guarded(set) => format!("guarded {}", octal(set)),
                How::Exclusive(verifier) => format!("exclusive {verifier:02x?}"),
            };
            format!("create {new:x} {} in {dir:x} {how}", of(name))
        }
        Op::Mkdir { dir, name, mode, new } => {
            format!("mkdir {new:x} {} in {dir:x} {mode:o}", of(name))
        }
        Op::Symlink { dir, name, target, new } => {
            format!("symlink {new:x} {} in {dir:x} of {} bytes", of(name), target.len())
        }
        Op::Link { file, dir, name } => format!("link {file:x} as {} in {dir:x}", of(name)),
        Op::Rename { from, name, to, new_name } => {
            format!("rename {} in {from:x} to {} in {to:x}", of(name), of(new_name))
        }
        Op::Remove { dir, name } => format!("remove {} in {dir:x}", of(name)),
        Op::Rmdir { dir, name } => format!("rmdir {} in {dir:x}", of(name)),
        Op::Write { file, offset, data, stable } => {
            format!("write {} bytes at {offset} of {file:x}, {stable:?}", data.len())
        }
        Op::Set { object, set } => {
            let (size, atime, mtime) = (set.size, set.atime, set.mtime);
            format!("set {object:x} {} {size:?} {atime:?} {mtime:?}", octal(set))
        }
        Op::Commit { file } => format!("commit {file:x}"),
    }
}

/// A directory that a client makes for itself, as root.
pub(super) fn is_directory(tree: &Tree, id: Id) -> bool {
    tree.get(id).is_some_and(|node| node.kind() == Kind::Directory)
}
