//! A share and its model, side by side: what is done to one is done to the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use format::share::place::{DATA_FIRST, INODES_FIRST};
use units::{FileId, Inode, WallTime};

use crate::memory::Memory;
use crate::model::{Kind, Model, Op, ROOT, Refusal, split};
use crate::share::check::check;
use crate::share::{
    Caller, Create, Credentials, ErrorKind, FileKind, Opening, Past, Place, Present, SetAttributes,
    SetTime, Share, ShareSpec, Special, State, Transaction, Tree, Wait,
};

pub const START: u64 = 1_000_000;
pub const CACHE_BLOCKS: usize = 64;

pub fn spec() -> ShareSpec {
    ShareSpec {
        share_id: 0x1234_5678_9abc_def0,
        hash_key: 0xfeed,
        created: WallTime::from_nanos(START),
        uid: 0,
        gid: 0,
        mode: 0o755,
    }
}

/// Another number each time.
pub fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub fn opening() -> Opening {
    Opening { incarnation: random(), cache_blocks_max: CACHE_BLOCKS }
}

pub fn make(memory: &Memory) -> Share<&Memory> {
    Share::make(memory, &spec(), opening()).expect("the memory is empty")
}

pub fn caller(user: &Credentials, now: u64) -> Caller<'_> {
    Caller {
        user,
        client: 1,
        xid: 7,
        arguments_crc: 9,
        now: WallTime::from_nanos(now),
        cause: None,
        followed_at: None,
    }
}

/// The object of a path.
pub fn find<T: Tree>(tree: &T, path: &str) -> Result<FileId, ErrorKind> {
    let root = Credentials::root();
    let mut at = tree.top().map_err(|error| error.kind)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = tree.look_up(&root, at, name.as_bytes()).map_err(|error| error.kind)?.id;
    }
    Ok(at)
}

/// The directory of a path.
fn place<T: Tree>(tree: &T, path: &str) -> Result<FileId, ErrorKind> {
    let id = find(tree, split(path).0)?;
    match tree.attributes(id).expect("it was found").kind {
        FileKind::Directory => Ok(id),
        _ => Err(ErrorKind::NotDirectory),
    }
}

/// Does it to the model; how a share answers.
pub fn applied(model: &mut Model, op: &Op, now: u64) -> Result<(), ErrorKind> {
    model.apply(op, now).map_err(kind_of)
}

/// A refusal of the model as a share tells it.
pub fn kind_of(refusal: Refusal) -> ErrorKind {
    match refusal {
        Refusal::NotFound => ErrorKind::NotFound,
        Refusal::Exists => ErrorKind::Exists,
        Refusal::NotDirectory => ErrorKind::NotDirectory,
        Refusal::IsDirectory => ErrorKind::IsDirectory,
        Refusal::NotEmpty => ErrorKind::NotEmpty,
        Refusal::Invalid => ErrorKind::Invalid,
        Refusal::FileTooLarge => ErrorKind::FileTooLarge,
    }
}

/// Does it to a share.
pub fn apply<'d, P: Present>(
    transaction: &mut Transaction<'_, 'd, P>,
    op: &'d Op,
    now: u64,
) -> Result<(), ErrorKind> {
    apply_as(transaction, &caller(&Credentials::root(), now), op)
}

/// Does it to a share, as a request of somebody.
pub fn apply_as<'d, P: Present>(
    transaction: &mut Transaction<'_, 'd, P>,
    caller: &Caller<'_>,
    op: &'d Op,
) -> Result<(), ErrorKind> {
    let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let name = |path: &'d str| split(path).1.as_bytes();
    let t = transaction;
    let done = match op {
        Op::Create(path) => {
            let at = place(t, path)?;
            t.create(caller, at, name(path), Create::Guarded(&mode(0o644))).map(drop)
        }
        Op::Open(path, size) => {
            let (at, set) = (place(t, path)?, SetAttributes { size: *size, ..mode(0o644) });
            t.create(caller, at, name(path), Create::Unchecked(&set)).map(drop)
        }
        Op::Exclusive(path, verifier) => {
            let at = place(t, path)?;
            t.create(caller, at, name(path), Create::Exclusive([*verifier; 8])).map(drop)
        }
        Op::Mkdir(path) => {
            let at = place(t, path)?;
            t.make_directory(caller, at, name(path), &mode(0o755)).map(drop)
        }
        Op::Symlink(path, target) => {
            let at = place(t, path)?;
            t.make_symlink(caller, at, name(path), &mode(0o777), target).map(drop)
        }
        Op::Fifo(path) => {
            let at = place(t, path)?;
            t.make_node(caller, at, name(path), &mode(0o600), Special::Fifo).map(drop)
        }
        Op::Link(old, path) => {
            let id = find(t, old)?;
            if t.attributes(id).expect("it is there").kind == FileKind::Directory {
                return Err(ErrorKind::IsDirectory);
            }
            let at = place(t, path)?;
            t.link(caller, id, at, name(path)).map(drop)
        }
        Op::Remove(path) => {
            let at = place(t, path)?;
            t.remove(caller, at, name(path))
        }
        Op::Rmdir(path) => {
            let at = place(t, path)?;
            t.remove_directory(caller, at, name(path))
        }
        Op::Rename(from, to) => {
            let from = Place { directory: place(t, from)?, name: name(from) };
            let to = Place { directory: place(t, to)?, name: name(to) };
            t.rename(caller, from, to)
        }
        Op::Write(path, offset, bytes) => {
            let id = find(t, path)?;
            t.write(caller, id, *offset, bytes).map(drop)
        }
        Op::Resize(..) | Op::Mode(..) | Op::Owner(..) | Op::Times(..) => {
            let (path, set) = set_of(op);
            let id = find(t, path)?;
            t.set_attributes(caller, id, &set, None).map(drop)
        }
    };
    done.map_err(|error| error.kind)
}

fn set_of(op: &Op) -> (&str, SetAttributes) {
    let time = |time: u64| Some(SetTime::To(WallTime::from_nanos(time)));
    let none = SetAttributes::default();
    match op {
        Op::Resize(path, size) => (path, SetAttributes { size: Some(*size), ..none }),
        Op::Mode(path, mode) => (path, SetAttributes { mode: Some(*mode), ..none }),
        Op::Owner(path, uid, gid) => {
            (path, SetAttributes { uid: Some(*uid), gid: Some(*gid), ..none })
        }
        Op::Times(path, accessed, modified) => {
            let (accessed, modified) = (time(*accessed), time(*modified));
            (path, SetAttributes { accessed, modified, ..none })
        }
        _ => unreachable!("no attributes are set"),
    }
}

/// Asserts that a tree is the model's.
pub fn compare<T: Tree>(tree: &T, model: &Model) {
    let top = tree.top().expect("there is a top");
    assert_eq!(top.inode, Inode::ROOT);
    let mut ids = BTreeMap::new();
    let mut waiting = vec![(top, ROOT, top.inode)];
    while let Some((id, number, parent)) = waiting.pop() {
        if let Some(known) = ids.insert(number, id) {
            assert_eq!(known, id, "names of one object");
            continue;
        }
        let node = &model.nodes[&number];
        let found = tree.attributes(id).expect("it is there");
        let times = [found.accessed, found.modified, found.changed].map(WallTime::as_nanos);
        assert_eq!(times, [node.accessed, node.modified, node.changed], "times of {number}");
        assert_eq!((found.mode, found.links), (node.mode, node.links), "mode, links of {number}");
        assert_eq!((found.uid, found.gid), (node.uid, node.gid), "owner of {number}");
        match &node.kind {
            Kind::Directory(entries, _) => {
                assert_eq!(found.kind, FileKind::Directory);
                let listed = list(tree, id);
                assert_eq!(listed.get(&b".."[..]), Some(&parent), ".. of {number}");
                assert_eq!(listed.len(), entries.len() + 2);
                for (name, inode) in entries {
                    let there = listed.get(name).expect("it is listed");
                    let child = tree.look_up(&Credentials::root(), id, name).expect("it is found");
                    assert_eq!(child.id.inode, *there);
                    waiting.push((child.id, *inode, id.inode));
                }
            }
            Kind::File(bytes, _) => {
                assert_eq!((found.kind, found.size), (FileKind::File, bytes.size));
                compare_bytes(tree, id, bytes);
            }
            Kind::Symlink(target) => {
                assert_eq!(&tree.read_link(id).expect("a link"), target);
                assert_eq!(found.size, target.len() as u64);
            }
            Kind::Fifo => assert_eq!((found.kind, found.size), (FileKind::Fifo, 0)),
        }
    }
    assert_eq!(ids.len(), model.nodes.len());
}

/// All names of a directory.
pub fn list<T: Tree>(tree: &T, id: FileId) -> BTreeMap<Vec<u8>, Inode> {
    let mut listed = BTreeMap::new();
    let is_end = tree
        .read_directory(&Credentials::root(), id, 0, &mut |entry| {
            let twice = listed.insert(entry.name.to_vec(), entry.inode);
            assert_eq!(twice, None, "listed twice");
            true
        })
        .expect("it is listed");
    assert!(is_end);
    listed
}

/// Compares the bytes of a file.
pub fn compare_bytes<T: Tree>(tree: &T, id: FileId, bytes: &crate::model::Bytes) {
    for (offset, count) in bytes.ranges() {
        let mut buffer = vec![0xee; count];
        let read = tree.read(&Credentials::root(), id, offset, &mut buffer).expect("it is read");
        let expected = bytes.read(offset, count);
        assert_eq!(read.count, expected.len());
        assert!(buffer[..read.count] == expected[..], "bytes at {offset}");
        assert_eq!(read.is_end, offset + read.count as u64 == bytes.size);
    }
}

/// Asserts that nothing is wrong with a share, and that memory holds what its counters say.
pub fn assert_sound(share: &Share<&Memory>) {
    let tree = share.tree(Wait::May).expect("usable");
    assert_eq!(check(&tree, tree.state()).expect("it is read"), []);
    let blocks = share.present().data_blocks();
    let inodes = blocks.iter().filter(|b| (INODES_FIRST..INODES_FIRST * 2).contains(*b)).count();
    assert_eq!(inodes as u64, tree.state().inodes);
    let data = blocks.iter().filter(|block| **block >= DATA_FIRST).count();
    assert!(data as u64 <= tree.state().used, "{data} blocks, {} counted", tree.state().used);
}

/// Asserts that a moment of the past is the model's of then; and its state.
pub fn assert_past(memory: &Memory, moment: usize, model: &Model) -> State {
    let past = Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
    let tree = past.tree(Wait::May);
    compare(&tree, model);
    assert_eq!(check(&tree, past.state()).expect("it is read"), []);
    *past.state()
}

/// Does operations in one transaction, and in the model; a little time goes by before each.
pub fn do_all<P: Present>(share: &Share<P>, model: &mut Model, ops: &[Op], now: &mut u64) {
    let mut transaction = share.begin(Wait::May).expect("usable");
    for op in ops {
        *now += 10;
        model.apply(op, *now).expect("it is done");
        apply(&mut transaction, op, *now).expect("it is done");
    }
    transaction.commit().expect("it is written");
}
