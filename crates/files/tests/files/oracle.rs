//! A folder of this machine and a tree that is read, as lists that are compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use hindsight_files::{Kind, Part, Source, Tree, open, read_all};

/// All that both sides know of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    kind: &'static str,
    mode: u16,
    links: Option<u64>,
    pub modified: (i64, i64),
    bytes: Vec<u8>,
}

pub type Known1 = BTreeMap<Vec<u8>, Known>;

/// What a folder holds, by path from it.
pub fn of_folder(folder: &Path) -> Known1 {
    let mut found = BTreeMap::new();
    walk_folder(folder, &mut Vec::new(), &mut found);
    found
}

fn walk_folder(folder: &Path, path: &mut Vec<u8>, found: &mut Known1) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        let kind = metadata.file_type();
        let (kind, bytes) = if kind.is_dir() {
            ("directory", Vec::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            ("symlink", target.as_os_str().as_bytes().to_vec())
        } else if kind.is_fifo() {
            ("fifo", Vec::new())
        } else {
            ("file", fs::read(entry.path()).unwrap())
        };
        let length = path.len();
        path.push(b'/');
        path.extend(entry.file_name().as_bytes());
        let known = Known {
            kind,
            mode: metadata.mode() as u16 & 0o7777,
            links: (kind != "directory").then(|| metadata.nlink()),
            modified: (metadata.mtime(), 0),
            bytes,
        };
        found.insert(path.clone(), known);
        if kind == "directory" {
            walk_folder(&entry.path(), path, found);
        }
        path.truncate(length);
    }
}

/// What a tree holds. The folder that mke2fs and kernels make is left out.
pub fn of_tree(tree: &dyn Tree) -> Known1 {
    let mut found = BTreeMap::new();
    walk_tree(tree, tree.top(), &mut Vec::new(), &mut found);
    found.remove(&b"/lost+found"[..]);
    found
}

fn walk_tree(tree: &dyn Tree, directory: u64, path: &mut Vec<u8>, found: &mut Known1) {
    for entry in tree.entries(directory).unwrap() {
        let attributes = tree.attributes(entry.node).unwrap();
        let bytes = match attributes.kind {
            Kind::File => contents(tree, entry.node),
            Kind::Symlink => tree.link(entry.node).unwrap(),
            _ => Vec::new(),
        };
        let length = path.len();
        path.push(b'/');
        path.extend(&entry.name);
        let is_directory = attributes.kind == Kind::Directory;
        let known = Known {
            kind: attributes.kind.word(),
            mode: attributes.mode,
            links: (!is_directory).then_some(u64::from(attributes.links)),
            modified: (attributes.modified.unwrap().seconds, 0),
            bytes,
        };
        assert!(found.insert(path.clone(), known).is_none(), "a name twice");
        if is_directory {
            walk_tree(tree, entry.node, path, found);
        }
        path.truncate(length);
    }
}

/// A file read at once and by its pieces, which must agree.
pub fn contents(tree: &dyn Tree, file: u64) -> Vec<u8> {
    let size = tree.attributes(file).unwrap().size as usize;
    let mut whole = vec![0xEE; size + 10];
    assert_eq!(tree.read(file, 0, &mut whole).unwrap(), size);
    whole.truncate(size);
    let mut pieces = vec![0; size];
    let read = read_all(tree, file, &mut |offset, bytes| {
        pieces[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), Some(size as u64));
    assert!(whole == pieces, "inode {file} differs by its pieces");
    whole
}

/// Opens the one file system of an image.
pub fn tree_of(image: &Path) -> Box<dyn Tree> {
    opened(fs::read(image).unwrap()).unwrap()
}

pub fn opened(bytes: Vec<u8>) -> hindsight_files::Result<Box<dyn Tree>> {
    let size = bytes.len() as u64;
    let disk: Rc<dyn Source> = Rc::new(bytes);
    Ok(open(&disk, &Part::whole(size))?.1)
}

/// Compares by path, so that what differs is said and not all bytes.
pub fn assert_same(found: &Known1, expected: &Known1) {
    let paths = |known: &Known1| known.keys().map(|key| text(key)).collect::<Vec<_>>();
    assert_eq!(paths(found), paths(expected));
    for ((path, found), expected) in found.iter().zip(expected.values()) {
        let head = |known: &Known| (known.kind, known.mode, known.links, known.modified);
        assert_eq!(head(found), head(expected), "{}", text(path));
        assert!(found.bytes == expected.bytes, "{}: other bytes", text(path));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program whose exit code may be one of these.
pub fn run(program: &str, arguments: &[&str], may_be: &[i32]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        Command::new(program).args(arguments).env("PATH", path).env("LC_ALL", "C.UTF-8").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = text(&output.stdout) + &text(&output.stderr);
    let code = output.status.code().unwrap_or(-1);
    assert!(may_be.contains(&code), "{program} {arguments:?}: {code}\n{said}");
    said
}
