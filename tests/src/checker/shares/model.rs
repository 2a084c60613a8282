//! The expected tree of a share: dull, whole, and with no thought of how it is kept.
//!
//! 1. Objects have numbers that are never used again, so that one that was moved is known from one
//!    that was made anew. The owner of a number is in its upper half: clients that work at the same
//!    time, each in its own directory, share no object.
//! 2. An operation says what it does, or with which statuses it may fail, and then does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::nfs::{How, Kind, Set, Stable, Time, status};

/// The number of an object.
pub(super) type Id = u64;
pub(super) type Name = Vec<u8>;

/// The top of a tree, and the directory that all clients use.
pub(super) const ROOT: Id = 0;
pub(super) const COMMON: Id = 1;
/// A file that stays, to be asked for the verifier by.
pub(super) const ANCHOR: Id = 2;
/// Below it are numbers of what is there from the beginning.
pub(super) const FIRST: Id = 0x10;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
}

/// The content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<Name, Id>),
    Symlink(Name),
}

/// An object. Times are known if a client set them, or if they were looked at since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    pub body: Body,
}

impl Node {
    pub fn new(mode: u32, user: User, body: Body) -> Node {
        Node { mode, uid: user.uid, gid: user.gid, atime: None, mtime: None, body }
    }

    pub fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
        }
    }

    fn permits(&self, user: User, wanted: u32) -> bool {
        let shift = match (user.uid == self.uid, user.gid == self.gid) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        user.uid == 0 || (self.mode >> shift) & wanted == wanted
    }

    fn owned(&self, user: User) -> bool {
        user.uid == 0 || user.uid == self.uid
    }

    fn may_write(&self, user: User) -> bool {
        self.owned(user) || self.permits(user, 2)
    }
}

/// An operation that changes something.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create { dir: Id, name: Name, how: How, new: Id },
    Mkdir { dir: Id, name: Name, mode: u32, new: Id },
    Symlink { dir: Id, name: Name, target: Name, new: Id },
    Link { file: Id, dir: Id, name: Name },
    Rename { from: Id, name: Name, to: Id, new_name: Name },
    Remove { dir: Id, name: Name },
    Rmdir { dir: Id, name: Name },
    Write { file: Id, offset: u64, data: Arc<Vec<u8>>, stable: Stable },
    Set { object: Id, set: Set },
    Commit { file: Id },
}

impl Op {
    /// The directories of its names.
    fn directories(&self) -> Vec<Id> {
        match self {
            Op::Create { dir, .. }
            | Op::Mkdir { dir, .. }
            | Op::Symlink { dir, .. }
            | Op::Link { dir, .. }
            | Op::Remove { dir, .. }
            | Op::Rmdir { dir, .. } => vec![*dir],
            Op::Rename { from, to, .. } => vec![*from, *to],
            Op::Write { .. } | Op::Set { .. } | Op::Commit { .. } => Vec::new(),
        }
    }
}

/// The object that an operation is about in the end, or the statuses with which it may fail.
pub(super) type Outcome = Result<Id, &'static [u32]>;

/// A name in a tree: its path, its object.
pub(super) struct Place {
    pub path: Vec<u8>,
    pub dir: Id,
    pub name: Name,
    pub id: Id,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<Id, Arc<Node>>,
}

impl Tree {
    pub fn get(&self, id: Id) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    pub fn node(&self, id: Id) -> &Arc<Node> {
        &self.nodes[&id]
    }

    pub fn put(&mut self, id: Id, node: Node) {
        self.nodes.insert(id, Arc::new(node));
    }

    pub fn change(&mut self, id: Id) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).expect("it is there"))
    }

    pub fn entries(&self, id: Id) -> &BTreeMap<Name, Id> {
        match &self.node(id).body {
            Body::Directory(entries) => entries,
            other => panic!("{id} is {other:?}"),
        }
    }

    pub fn entries_mut(&mut self, id: Id) -> &mut BTreeMap<Name, Id> {
        let node = self.change(id);
        node.mtime = None;
        match &mut node.body {
            Body::Directory(entries) => entries,
            other => panic!("{id} is {other:?}"),
        }
    }

    /// All names below a directory, each before those below it.
    pub fn places(&self, top: Id) -> Vec<Place> {
        let (mut places, mut next) = (Vec::new(), vec![(Vec::new(), top)]);
        while let Some((above, dir)) = next.pop() {
            for (name, &id) in self.entries(dir) {
                let path = [&above[..], b"/", name].concat();
                if self.node(id).kind() == Kind::Directory {
                    next.push((path.clone(), id));
                }
                places.push(Place { path, dir, name: name.clone(), id });
            }
        }
        places
    }

    /// Numbers of an object and all below it.
    pub fn below(&self, top: Id) -> BTreeSet<Id> {
        if self.node(top).kind() != Kind::Directory {
            return BTreeSet::from([top]);
        }
        self.places(top).iter().map(|place| place.id).chain([top]).collect()
    }

    /// Names of an object; of a directory its own, `.`, and `..` of those in it.
    pub fn links(&self, id: Id) -> u32 {
        let directories = |entries: &BTreeMap<Name, Id>| {
            entries.values().filter(|id| self.node(**id).kind() == Kind::Directory).count()
        };
        let count = match &self.node(id).body {
            Body::Directory(entries) => 2 + directories(entries),
            _ => {
                let names = self.nodes.values().filter_map(|node| match &node.body {
                    Body::Directory(entries) => Some(entries.values().filter(|at| **at == id)),
                    _ => None,
                });
                names.map(Iterator::count).sum()
            }
        };
        u32::try_from(count).expect("few")
    }

    /// Takes everything of some owners from another tree.
    pub fn adopt(&mut self, from: &Tree, is_theirs: impl Fn(Id) -> bool) {
        self.nodes.retain(|id, _| !is_theirs(*id));
        let theirs = from.nodes.iter().filter(|(id, _)| is_theirs(**id));
        self.nodes.extend(theirs.map(|(id, node)| (*id, Arc::clone(node))));
    }

    /// Puts what another tree has at an object and below it under a number; all below gets new
    /// numbers from `fresh`, but for what keeps its own.
    pub fn graft(
        &mut self,
        from: &Tree,
        (top, to): (Id, Id),
        keeps: impl Fn(Id) -> bool,
        fresh: &mut impl FnMut(Id) -> Id,
    ) {
        let mut numbers = BTreeMap::from([(top, to)]);
        for id in from.below(top) {
            numbers.entry(id).or_insert_with(|| if keeps(id) { id } else { fresh(id) });
        }
        for (old, new) in &numbers {
            let mut node = Node::clone(from.node(*old));
            if let Body::Directory(entries) = &mut node.body {
                entries.values_mut().for_each(|id| *id = numbers[id]);
            }
            self.put(*new, node);
        }
        self.sweep();
    }

    /// Drops objects without a name.
    pub fn sweep(&mut self) {
        let kept = self.below(ROOT);
        self.nodes.retain(|id, _| kept.contains(id));
    }

    /// Carries out operations; those that fail do nothing.
    pub fn apply_all<'o>(&mut self, ops: impl IntoIterator<Item = &'o Op>, user: User) {
        for op in ops {
            let _ = self.apply(op, user);
        }
    }

    /// Carries out an operation.
    pub fn apply(&mut self, op: &Op, user: User) -> Outcome {
        // Who may not look into a directory is not told what is in it.
        for dir in op.directories() {
            refuse_if(!self.node(dir).permits(user, 1), &[status::ACCES])?;
        }
        match op {
            Op::Create { dir, name, how, new } => self.create(*dir, name, how, *new, user),
            Op::Mkdir { dir, name, mode, new } => {
                let body = Body::Directory(BTreeMap::new());
                self.make(*dir, name, Node::new(*mode, user, body), *new, user)
            }
            Op::Symlink { dir, name, target, new } => {
                let node = Node::new(0o777, user, Body::Symlink(target.clone()));
                self.make(*dir, name, node, *new, user)
            }
            Op::Link { file, dir, name } => {
                self.free(*dir, name, user)?;
                self.entries_mut(*dir).insert(name.clone(), *file);
                Ok(*file)
            }
            Op::Rename { from, name, to, new_name } => {
                self.rename((*from, name), (*to, new_name), user)
            }
            Op::Remove { dir, name } => {
                let id = self.taken(*dir, name, user)?;
                refuse_if(self.node(id).kind() == Kind::Directory, &[status::ISDIR])?;
                self.take(*dir, name);
                Ok(id)
            }
            Op::Rmdir { dir, name } => {
                let id = self.taken(*dir, name, user)?;
                refuse_if(self.node(id).kind() != Kind::Directory, &[status::NOTDIR])?;
                let is_full = !self.entries(id).is_empty();
                refuse_if(is_full, &[status::NOTEMPTY, status::EXIST])?;
                self.take(*dir, name);
                Ok(id)
            }
            Op::Write { file, offset, data, .. } => {
                refuse_if(!self.node(*file).may_write(user), &[status::ACCES])?;
                write(self.change(*file), *offset, data);
                Ok(*file)
            }
            Op::Set { object, set } => self.set(*object, set, user),
            Op::Commit { file } => Ok(*file),
        }
    }

    fn create(&mut self, dir: Id, name: &Name, how: &How, new: Id, user: User) -> Outcome {
        if let (Some(&id), How::Unchecked(set)) = (self.entries(dir).get(name), how) {
            refuse_if(self.node(id).kind() != Kind::File, &[status::EXIST])?;
            return self.set(id, &Set { size: set.size, ..Set::default() }, user);
        }
        let (mode, size) = match how {
            How::Unchecked(set) | How::Guarded(set) => (set.mode.unwrap_or(0), set.size),
            How::Exclusive(_) => (0, None),
        };
        let bytes = vec![0; usize::try_from(size.unwrap_or(0)).expect("files are small")];
        self.make(dir, name, Node::new(mode, user, Body::File(Arc::new(bytes))), new, user)
    }

    /// Fails unless a name can be given.
    fn free(&self, dir: Id, name: &Name, user: User) -> Result<(), &'static [u32]> {
        refuse_if(self.entries(dir).contains_key(name), &[status::EXIST])?;
        // No name that is made begins so but this one.
        refuse_if(name == b".hindsight", &[status::ACCES])?;
        refuse_if(!self.node(dir).permits(user, 3), &[status::ACCES])
    }

    fn make(&mut self, dir: Id, name: &Name, node: Node, new: Id, user: User) -> Outcome {
        self.free(dir, name, user)?;
        self.put(new, node);
        self.entries_mut(dir).insert(name.clone(), new);
        Ok(new)
    }

    /// The object of a name that may be taken away.
    fn taken(&self, dir: Id, name: &Name, user: User) -> Outcome {
        let id = *self.entries(dir).get(name).ok_or(&[status::NOENT][..])?;
        let above = self.node(dir);
        refuse_if(!above.permits(user, 3), &[status::ACCES])?;
        let is_sticky = above.mode & 0o1000 != 0 && !above.owned(user);
        let is_others = user.uid != self.node(id).uid;
        refuse_if(is_sticky && is_others, &[status::PERM, status::ACCES])?;
        Ok(id)
    }

    fn take(&mut self, dir: Id, name: &Name) {
        let id = self.entries_mut(dir).remove(name).expect("it is there");
        if self.node(id).kind() == Kind::Directory || self.links(id) == 0 {
            self.nodes.remove(&id);
        }
    }

    fn rename(&mut self, from: (Id, &Name), to: (Id, &Name), user: User) -> Outcome {
        let found = self.entries(from.0).get(from.1);
        let id = *found.ok_or(&[status::NOENT][..])?;
        let victim = self.entries(to.0).get(to.1).copied();
        if victim == Some(id) {
            return Ok(id);
        }
        self.taken(from.0, from.1, user)?;
        match victim {
            Some(_) => self.taken(to.0, to.1, user).map(drop)?,
            None => self.free(to.0, to.1, user)?,
        }
        let is_directory = self.node(id).kind() == Kind::Directory;
        let is_victim_directory = victim.map(|id| self.node(id).kind() == Kind::Directory);
        let (not, is) = (&[status::NOTDIR, status::EXIST], &[status::ISDIR, status::EXIST]);
        refuse_if(is_directory && is_victim_directory == Some(false), not)?;
        refuse_if(!is_directory && is_victim_directory == Some(true), is)?;
        if is_directory {
            let is_full = victim.is_some_and(|id| !self.entries(id).is_empty());
            let loops = self.below(id).contains(&to.0);
            let full = [&[][..], &[status::NOTEMPTY, status::EXIST]][usize::from(is_full)];
            // Which of two reasons is said is the server's choice.
            let both: &[u32] = &[status::NOTEMPTY, status::EXIST, status::INVAL];
            refuse_if(loops, if is_full { both } else { &[status::INVAL] })?;
            refuse_if(is_full, full)?;
        }
        if victim.is_some() {
            self.take(to.0, to.1);
        }
        self.entries_mut(from.0).remove(from.1);
        self.entries_mut(to.0).insert(to.1.clone(), id);
        Ok(id)
    }

    fn set(&mut self, id: Id, set: &Set, user: User) -> Outcome {
        let node = self.node(id);
        let is_owners =
            set.mode.or(set.uid).or(set.gid).is_some() || set.atime.or(set.mtime).is_some();
        refuse_if(is_owners && !node.owned(user), &[status::PERM, status::ACCES])?;
        if set.size.is_some() {
            refuse_if(node.kind() == Kind::Directory, &[status::ISDIR, status::INVAL])?;
            refuse_if(node.kind() != Kind::File, &[status::INVAL])?;
            refuse_if(!node.may_write(user), &[status::ACCES])?;
        }
        if *set == Set::default() {
            return Ok(id);
        }
        let node = self.change(id);
        if let (Some(size), Body::File(bytes)) = (set.size, &mut node.body) {
            Arc::make_mut(bytes).resize(usize::try_from(size).expect("files are small"), 0);
            node.mtime = None;
        }
        node.mode = set.mode.unwrap_or(node.mode);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.or(node.atime);
        node.mtime = set.mtime.or(node.mtime);
        Ok(id)
    }
}

fn refuse_if(is: bool, statuses: &'static [u32]) -> Result<(), &'static [u32]> {
    if is { Err(statuses) } else { Ok(()) }
}

fn write(node: &mut Node, offset: u64, data: &[u8]) {
    let Body::File(bytes) = &mut node.body else { panic!("a WRITE of what is no file") };
    let bytes = Arc::make_mut(bytes);
    let offset = usize::try_from(offset).expect("files are small");
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
    node.mtime = None;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Body, Node, Op, ROOT, Tree, User};
    use crate::nfs::{How, Set, Stable, status};

    const USER: User = User { uid: 0, gid: 0 };

    fn name(name: &str) -> Vec<u8> {
        name.as_bytes().to_vec()
    }

    #[test]
    fn a_file_of_two_names_is_one_until_the_last_goes() {
        let mut tree = Tree::default();
        tree.put(ROOT, Node::new(0o755, USER, Body::Directory(BTreeMap::new())));
        let how = How::Guarded(Set::default());
        let mut done = |op: Op| tree.apply(&op, USER);
        assert_eq!(done(Op::Create { dir: ROOT, name: name("a"), how, new: 5 }), Ok(5));
        let again = done(Op::Create { dir: ROOT, name: name("a"), how, new: 6 });
        assert_eq!(again, Err(&[status::EXIST][..]));
        assert_eq!(done(Op::Link { file: 5, dir: ROOT, name: name("b") }), Ok(5));
        let data = Arc::new(vec![7]);
        done(Op::Write { file: 5, offset: 2, data, stable: Stable::Unstable }).expect("done");
        assert_eq!(done(Op::Remove { dir: ROOT, name: name("a") }), Ok(5));
        assert_eq!(tree.links(5), 1);
        assert_eq!(tree.node(5).body, Body::File(Arc::new(vec![0, 0, 7])));
        tree.apply(&Op::Remove { dir: ROOT, name: name("b") }, USER).expect("done");
        assert!(tree.get(5).is_none());
    }
}
