//! Trees of elsewhere put into a share: random ones into random ones, beside what both were.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read};

use proptest::prelude::{ProptestConfig, proptest};
use units::{Inode, WallTime};

use crate::histories::ops;
use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::{
    Attributes, Cause, CauseKind, Changer, Credentials, ErrorKind, FileKind, Import, ImportError,
    Imported, Importing, Like, SetAttributes, SetTime, Share, Tree, Wait,
};
use crate::world::{START, assert_sound, do_all, list, make};

const NUMBER: u64 = 55;
/// Files are no longer than this here: their content is read whole.
const FILE_BYTES_MAX: u64 = 3 << 20;

/// An object at a path, with all that an import brings.
#[derive(Clone, Debug, PartialEq)]
struct Object {
    kind: FileKind,
    /// Mode, owner, group, last access and change.
    attributes: (u16, u32, u32, WallTime, WallTime),
    content: Vec<u8>,
    inode: Inode,
    links: u32,
}

impl Object {
    fn set(&self) -> SetAttributes {
        let (mode, uid, gid, accessed, modified) = self.attributes;
        SetAttributes {
            mode: Some(mode),
            uid: Some(uid),
            gid: Some(gid),
            size: None,
            accessed: Some(SetTime::To(accessed)),
            modified: Some(SetTime::To(modified)),
        }
    }

    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

type Objects = BTreeMap<Vec<u8>, Object>;

/// All that a share has, by path; that of the top is empty.
fn objects(share: &Share<&Memory>) -> Objects {
    let tree = share.tree(Wait::May).expect("usable");
    let (mut found, mut waiting) = (Objects::new(), vec![(Vec::new(), tree.top().expect("a top"))]);
    while let Some((path, id)) = waiting.pop() {
        let now = tree.attributes(id).expect("it is there");
        if now.kind == FileKind::Directory {
            let names = list(&tree, id);
            for (name, inode) in names.iter().filter(|(name, _)| *name != b"." && *name != b"..") {
                let below = [&path[..], b"/", name].concat();
                waiting.push((below, tree.attributes_of(*inode).expect("it is named").id));
            }
        }
        found.insert(path, object(&tree, &now));
    }
    found
}

fn object(tree: &impl Tree, now: &Attributes) -> Object {
    let content = match now.kind {
        FileKind::File => {
            let mut bytes = vec![0xee; now.size as usize];
            let read = tree.read(&Credentials::root(), now.id, 0, &mut bytes).expect("it is read");
            assert_eq!(read.count, bytes.len());
            bytes
        }
        FileKind::Symlink => tree.read_link(now.id).expect("a link"),
        _ => Vec::new(),
    };
    Object {
        kind: now.kind,
        attributes: (now.mode, now.uid, now.gid, now.accessed, now.modified),
        content,
        inode: now.id.inode,
        links: now.links,
    }
}

fn with<R>(share: &Share<&Memory>, work: impl FnOnce(&Changer<'_, &Memory>) -> R) -> R {
    work(&Changer {
        share,
        cause: Cause { kind: CauseKind::Import, number: NUMBER },
        now: &|| WallTime::from_nanos(START * 1000),
        wait_for: &|_| panic!("nothing is lacking"),
        done: Cell::default(),
    })
}

fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect()
}

/// Puts all objects into a share, in order of their paths.
fn import(share: &Share<&Memory>, all: &Objects) -> Imported {
    with(share, |changer| {
        let mut importing = Importing::begin(changer, &|| true).expect("it begins");
        let mut first: BTreeMap<Inode, &[u8]> = BTreeMap::new();
        for (path, object) in all {
            let named = first.get(&object.inode).map(|first| names(first));
            let what = match (&named, object.kind) {
                (Some(first), _) => Import::Link(first),
                (None, FileKind::Directory) => Import::Directory,
                (None, FileKind::File) => Import::File(object.content.len() as u64),
                (None, kind) => {
                    Import::Other(Like { kind, target: &object.content, device: (0, 0) })
                }
            };
            let mut content = &object.content[..];
            importing.put(&names(path), what, &object.set(), &mut content).expect("it is put");
            if !object.is_directory() {
                first.entry(object.inode).or_insert(path);
            }
        }
        importing.finish().expect("it ends")
    })
}

/// A share of random operations on files that are not large.
fn random_share<'m>(memory: &'m Memory, steps: &[Vec<Op>], mut now: u64) -> Share<&'m Memory> {
    let share = make(memory);
    for ops in steps {
        let mut transaction = share.begin(Wait::May).expect("usable");
        let smaller: Vec<Op> = ops
            .iter()
            .map(|op| match op.clone() {
                Op::Write(path, at, bytes) => Op::Write(path, at % FILE_BYTES_MAX, bytes),
                Op::Resize(path, size) => Op::Resize(path, size % FILE_BYTES_MAX),
                Op::Open(path, size) => Op::Open(path, size.map(|size| size % FILE_BYTES_MAX)),
                op => op,
            })
            .collect();
        for op in &smaller {
            now += 10;
            let _ = crate::world::apply(&mut transaction, op, now);
        }
        transaction.commit().expect("it is written");
    }
    share
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_put_into_another_and_all_else_stays(
        theirs in proptest::collection::vec(ops(), 1..20),
        ours in proptest::collection::vec(ops(), 1..20),
    ) {
        let (foreign, own) = (Memory::default(), Memory::default());
        let theirs = objects(&random_share(&foreign, &theirs, START));
        let share = random_share(&own, &ours, START * 2);
        let before = objects(&share);
        let done = import(&share, &theirs);
        assert_sound(&share);
        let after = objects(&share);
        check(&theirs, &before, &after, &done);
        // Once more there is nothing to do, but for large files with several names.
        let is_large = |o: &Object| o.links > 1 && o.content.len() > 64 << 10;
        let written = own.moments();
        let again = import(&share, &theirs);
        assert_eq!(again.left_out, done.left_out);
        if done.left_out == 0 && !theirs.values().any(is_large) {
            assert_eq!((again.created, again.overwritten, again.bytes), (0, 0, 0));
            assert_eq!(own.moments(), written);
        }
        let same = |objects: &Objects| -> Vec<_> {
            let told = objects.iter().map(|(p, o)| (p.clone(), o.attributes, o.content.clone()));
            told.collect()
        };
        assert!(same(&objects(&share)) == same(&after));
    }
}

fn check(theirs: &Objects, before: &Objects, after: &Objects, done: &Imported) {
    let has_entries = |path: &[u8]| {
        let below = [path, b"/"].concat();
        before.keys().any(|other| other.starts_with(&below))
    };
    let in_the_way = |path: &[u8]| {
        let there = before.get(path).is_some_and(Object::is_directory);
        there && !theirs[path].is_directory() && has_entries(path)
    };
    // Of a file with several names the first is in the way of something.
    let first_is_out = |path: &[u8]| {
        let inode = theirs[path].inode;
        let first = theirs.iter().find(|(_, object)| object.inode == inode).expect("itself");
        !theirs[path].is_directory() && in_the_way(first.0)
    };
    let out = theirs.keys().filter(|path| in_the_way(path) || first_is_out(path)).count();
    assert_eq!((done.left_out, done.told.len()), (out as u64, out));
    for (path, object) in after {
        let text = String::from_utf8_lossy(path);
        let wanted = match theirs.get(path) {
            Some(_) if in_the_way(path) || first_is_out(path) => &before[path],
            Some(wanted) => wanted,
            None => &before[path],
        };
        let of = |object: &Object| (object.kind, object.attributes);
        assert_eq!(of(object), of(wanted), "{text}");
        assert!(object.content == wanted.content, "{text}");
    }
    assert!(before.keys().all(|path| after.contains_key(path)));
    for path in theirs.keys() {
        assert!(after.contains_key(path) || first_is_out(path));
    }
    // Names of one object are names of one object, and of two of two.
    let placed = || {
        theirs.iter().filter(|(path, object)| {
            !object.is_directory() && !in_the_way(path) && !first_is_out(path)
        })
    };
    for (path, object) in placed() {
        for (other, another) in placed() {
            let (here, there) = (after[path].inode, after[other].inode);
            assert_eq!(object.inode == another.inode, here == there, "{path:?} {other:?}");
        }
    }
}

#[test]
fn two_files_that_are_the_same_do_not_stay_one() {
    let memory = Memory::default();
    let share = make(&memory);
    let time = WallTime::from_nanos(START);
    let top = Object {
        kind: FileKind::Directory,
        attributes: (0o755, 0, 0, time, time),
        content: Vec::new(),
        inode: Inode(1),
        links: 2,
    };
    let of =
        |kind, inode| Object { kind, content: vec![b'x'; 50], inode: Inode(inode), ..top.clone() };
    for kind in [FileKind::File, FileKind::Symlink] {
        let tree = |second| {
            let name = |name: &[u8], inode| (name.to_vec(), of(kind, inode));
            Objects::from([(Vec::new(), top.clone()), name(b"/a", 2), name(b"/b", second)])
        };
        let inodes = || {
            let found = objects(&share);
            (found[&b"/a"[..]].inode, found[&b"/b"[..]].inode)
        };
        import(&share, &tree(2));
        assert_eq!(inodes().0, inodes().1, "names of one");
        import(&share, &tree(3));
        assert_ne!(inodes().0, inodes().1, "one of each, though nothing else differs");
        // Bytes are compared, not sizes and times.
        let mut other = tree(3);
        other.get_mut(&b"/b"[..]).expect("there").content = vec![b'y'; 50];
        assert_eq!(import(&share, &other).overwritten, 1);
        assert!(objects(&share)[&b"/b"[..]].content == [b'y'; 50]);
        assert_sound(&share);
    }
}

/// A content that ends early.
struct Short(usize);

impl Read for Short {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.0.min(bytes.len());
        bytes[..length].fill(7);
        self.0 -= length;
        Ok(length)
    }
}

fn put(
    share: &Share<&Memory>,
    path: &str,
    what: Import<'_>,
    content: &mut dyn Read,
) -> Result<Imported, ImportError> {
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    with(share, |changer| {
        let mut importing = Importing::begin(changer, &|| true)?;
        importing.put(&names(path.as_bytes()), what, &set, content)?;
        Ok(importing.finish()?)
    })
}

fn size_of(share: &Share<&Memory>, path: &str) -> u64 {
    let tree = share.tree(Wait::May).expect("usable");
    let id = crate::world::find(&tree, path).expect("it is there");
    tree.attributes(id).expect("it is there").size
}

#[test]
fn what_cannot_be_put_is_an_error_and_the_rest_stays() {
    let memory = Memory::default();
    let share = make(&memory);
    let mut model = Model::new(START);
    let mut now = START;
    let path = |path: &str| path.to_owned();
    do_all(
        &share,
        &mut model,
        &[
            Op::Mkdir(path("d")),
            Op::Create(path("d/f")),
            Op::Write(path("d/f"), 0, vec![3; 100]),
            Op::Symlink(path("away"), b"d".to_vec()),
        ],
        &mut now,
    );
    // Small content that ends early leaves the name as it was.
    let before = objects(&share);
    let cut = put(&share, "d/f", Import::File(200), &mut Short(150)).expect_err("it ends early");
    assert!(
        matches!(cut, ImportError::Content(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    );
    assert!(objects(&share) == before);
    // Of large content that ends early the file has what came.
    let cut = put(&share, "large", Import::File(8 << 20), &mut Short(5 << 20));
    assert!(matches!(cut, Err(ImportError::Content(_))));
    assert_eq!(size_of(&share, "large"), 8 << 20);
    // No link is gone through, and a directory with entries gives way to nothing.
    let long = [b'x'; 5000];
    let long = Import::Other(Like { kind: FileKind::Symlink, target: &long, device: (0, 0) });
    for (path, what, why) in [
        ("away/f", Import::File(0), ErrorKind::NotDirectory),
        ("d", Import::File(0), ErrorKind::NotEmpty),
        ("x", Import::Link(&[b"not", b"there"]), ErrorKind::NotFound),
        ("x", Import::Link(&[b"d"]), ErrorKind::IsDirectory),
        ("x", long, ErrorKind::NameTooLong),
        ("x", Import::File(u64::MAX), ErrorKind::FileTooLarge),
        ("/", Import::File(0), ErrorKind::Invalid),
    ] {
        let done = put(&share, path, what, &mut io::empty()).expect("it is left out");
        assert_eq!((done.left_out, done.created), (1, 0), "{path}");
        assert_eq!(done.told[0].1, why, "{path}");
    }
    assert_eq!(objects(&share)[&b"/d/f"[..]], before[&b"/d/f"[..]]);
    // Stopped, it does no more.
    let stopped = with(&share, |changer| {
        let mut importing = Importing::begin(changer, &|| false)?;
        importing.put(&[b"y"], Import::File(0), &SetAttributes::default(), &mut io::empty())
    });
    assert!(matches!(stopped, Err(ImportError::Stopped)));
    assert_sound(&share);
}
