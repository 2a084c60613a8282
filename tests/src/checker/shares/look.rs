//! A tree as a client finds it, whole, and whether it is that of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};

use super::client::{Known, KnownObjects, check_attr};
use super::model::{Body, Id, Name, Tree};
use crate::nfs::{Attr, Call, Entry, Handle, Kind, Nfs};
use crate::random::Random;

/// The longest READ that a walk asks for.
const READ_BYTES: u32 = 256 << 10;

/// The content of what is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Bytes(Arc<Vec<u8>>),
    Directory,
    Target(Name),
}

/// An object that is found by a path; the top has none.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub path: Vec<u8>,
    pub handle: Handle,
    pub attr: Attr,
    pub content: Content,
}

/// Everything from a directory on, by path.
pub(super) type Walked = BTreeMap<Vec<u8>, Found>;

/// The top of a share, or of a moment of one.
pub(super) fn mount(link: &mut Nfs, export: &str) -> Result<Handle> {
    let reply = link.demand(&Call::Mount { path: format!("/{export}").into_bytes() });
    let reply = reply.with_context(|| format!("mount {export}"))?;
    reply.handle.context("a MOUNT gives a handle")
}

/// Walks through a tree.
pub(super) fn walk(link: &mut Nfs, top: &Handle, random: &mut Random) -> Result<Walked> {
    let attr = link.demand(&Call::Getattr { object: top.clone() })?.attr;
    let attr = attr.context("no attributes")?;
    let mut walked = Walked::new();
    let mut next = vec![(Vec::new(), top.clone())];
    let content = Content::Directory;
    walked.insert(Vec::new(), Found { path: Vec::new(), handle: top.clone(), attr, content });
    while let Some((above, dir)) = next.pop() {
        let is_plus = random.chance(60);
        for entry in list(link, &dir, is_plus, random)? {
            let path = [&above[..], b"/", &entry.name].concat();
            let found = look_up(link, &dir, entry, &path)?;
            if found.attr.kind == Kind::Directory {
                next.push((path.clone(), found.handle.clone()));
            }
            let told = String::from_utf8_lossy(&path).into_owned();
            ensure!(walked.insert(path, found).is_none(), "{told:?} is listed twice");
        }
    }
    Ok(walked)
}

/// The entries of a directory but `.` and `..`, in parts of some size.
pub(super) fn list(
    link: &mut Nfs,
    dir: &Handle,
    is_plus: bool,
    random: &mut Random,
) -> Result<Vec<Entry>> {
    let (mut entries, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    let count = [1024, 4096, 32 << 10][random.index(3)];
    loop {
        let dir = dir.clone();
        let call = match is_plus {
            true => Call::Readdirplus { dir, cookie, verifier, count },
            false => Call::Readdir { dir, cookie, verifier, count },
        };
        let part = link.demand(&call)?;
        ensure!(part.is_end || !part.entries.is_empty(), "a part of a directory is empty");
        verifier = part.verifier;
        for entry in part.entries {
            cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry);
            }
        }
        if part.is_end {
            return Ok(entries);
        }
    }
}

fn look_up(link: &mut Nfs, dir: &Handle, entry: Entry, path: &[u8]) -> Result<Found> {
    let what = || format!("{:?}", String::from_utf8_lossy(path));
    let (handle, attr) = match (entry.handle, entry.attr) {
        (Some(handle), Some(attr)) => (handle, attr),
        _ => {
            let found = link.demand(&Call::Lookup { dir: dir.clone(), name: entry.name });
            let found = found.with_context(what)?;
            (found.handle.context("no handle")?, found.attr.context("no attributes")?)
        }
    };
    ensure!(attr.fileid == entry.fileid, "{} is listed by another number", what());
    let content = match attr.kind {
        Kind::Directory => Content::Directory,
        Kind::File => Content::Bytes(Arc::new(read(link, &handle, attr.size).with_context(what)?)),
        Kind::Symlink => {
            Content::Target(link.demand(&Call::Readlink { link: handle.clone() })?.data)
        }
    };
    Ok(Found { path: path.to_vec(), handle, attr, content })
}

/// The bytes of a file.
fn read(link: &mut Nfs, file: &Handle, size: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let (file, offset) = (file.clone(), bytes.len() as u64);
        let part = link.demand(&Call::Read { file, offset, count: READ_BYTES })?;
        bytes.extend(part.data);
        if part.is_end {
            ensure!(bytes.len() as u64 == size, "{} bytes, and its size is {size}", bytes.len());
            return Ok(bytes);
        }
        ensure!(part.count > 0, "nothing is read before the end");
    }
}

/// How strictly a tree is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// With times, as far as they are known.
    Known,
    /// Without.
    Any,
}

/// Compares what was walked through with the model's tree from an object on.
pub(super) fn compare(tree: &Tree, top: Id, walked: &Walked, times: Times) -> Result<()> {
    let mut expected: BTreeMap<Vec<u8>, Id> = BTreeMap::from([(Vec::new(), top)]);
    expected.extend(tree.places(top).into_iter().map(|place| (place.path, place.id)));
    let text = |path: &[u8]| format!("{:?}", String::from_utf8_lossy(path));
    if let Some(path) = expected.keys().find(|path| !walked.contains_key(*path)) {
        bail!("{} is not there: object {:x}", text(path), expected[path]);
    }
    let (mut numbers, mut ids) = (BTreeMap::new(), BTreeMap::new());
    for (path, found) in walked {
        let Some(&id) = expected.get(path) else {
            bail!("{} should not be there: {:?}", text(path), found.attr);
        };
        let what = || format!("{}, object {id:x}", text(path));
        check_attr(tree, id, &found.attr).with_context(what)?;
        check_content(&tree.node(id).body, &found.content).with_context(what)?;
        let is_same = *numbers.entry(id).or_insert(found.attr.fileid) == found.attr.fileid
            && *ids.entry(found.attr.fileid).or_insert(id) == id;
        ensure!(is_same, "{} is another object, or the same as another", what());
        let node = tree.node(id);
        let has = |known: Option<_>, found| known.is_none_or(|known| known == found);
        let right = has(node.mtime, found.attr.mtime) && has(node.atime, found.attr.atime);
        ensure!(
            times == Times::Any || right,
            "{}: times of access and change are {:?} and {:?}, not {:?} and {:?}",
            what(),
            found.attr.atime,
            found.attr.mtime,
            node.atime,
            node.mtime
        );
    }
    Ok(())
}

pub(super) fn check_content(expected: &Body, found: &Content) -> Result<()> {
    match (expected, found) {
        (Body::File(bytes), Content::Bytes(found)) => {
            let differs = bytes.iter().zip(found.iter()).position(|(a, b)| a != b);
            if let Some(at) = differs {
                let end = bytes.len().min(at + 16);
                bail!(
                    "byte {at}: found {:02x?}, expected {:02x?}",
                    &found[at..end],
                    &bytes[at..end]
                );
            }
            ensure!(bytes.len() == found.len(), "{} bytes, not {}", found.len(), bytes.len());
        }
        (Body::Directory(_), Content::Directory) => {}
        (Body::Symlink(target), Content::Target(found)) => {
            ensure!(target == found, "it leads to {found:02x?}, not {target:02x?}");
        }
        (expected, found) => bail!("found {found:?}, expected {expected:?}"),
    }
    Ok(())
}

/// Takes times and numbers of the present from what was walked through. What is known already must
/// be the same.
pub(super) fn learn(
    tree: &mut Tree,
    top: Id,
    walked: &Walked,
    known: &mut KnownObjects,
) -> Result<()> {
    let mut ids: BTreeMap<Vec<u8>, Id> = BTreeMap::from([(Vec::new(), top)]);
    ids.extend(tree.places(top).into_iter().map(|place| (place.path, place.id)));
    for (path, id) in ids {
        let found = walked.get(&path).context("it was compared")?;
        let (atime, mtime) = (Some(found.attr.atime), Some(found.attr.mtime));
        if (tree.node(id).atime, tree.node(id).mtime) != (atime, mtime) {
            let node = tree.change(id);
            (node.atime, node.mtime) = (atime, mtime);
        }
        let new = Known { handle: found.handle.clone(), fileid: found.attr.fileid };
        let earlier = known.insert(id, new.clone());
        ensure!(
            earlier.as_ref().is_none_or(|earlier| *earlier == new),
            "{:?}, object {id:x}, was {earlier:x?}, and is {new:x?}",
            String::from_utf8_lossy(&path)
        );
    }
    Ok(())
}
