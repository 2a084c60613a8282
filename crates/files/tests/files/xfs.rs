//! Trees that mkfs.xfs puts into images, with the features that change how they are laid out.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use hindsight_files::{Kind, State, Tree};
use tempfile::TempDir;

use crate::oracle::{Known1, assert_same, of_folder, of_tree, opened, run, tree_of};
use crate::xfs_sums::mend_block;

const IMAGE_BYTES: u64 = 32 << 20;

/// A folder with files and directories of all shapes; names have no blanks, which prototypes do not
/// take.
fn make(top: &Path) {
    for length in [0, 1, 100, 4095, 4096, 70_000, 3 << 20] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| (at.wrapping_mul(at) >> 8) as u8).collect();
        fs::write(top.join(format!("file-{length}")), bytes).unwrap();
    }
    // Within the inode, in one block, with a block of hashes, with a tree of them.
    for count in [0, 3, 40, 300, 800] {
        let folder = top.join(format!("names-{count}"));
        fs::create_dir(&folder).unwrap();
        for number in 0..count {
            symlink("x", folder.join(format!("a-name-of-some-length,-number-{number}"))).unwrap();
        }
    }
    fs::create_dir_all(top.join("one/in/it")).unwrap();
    // mkfs.xfs 6.1 writes longer ones without their head.
    for length in [1, 100, 335, 336] {
        symlink("t".repeat(length), top.join(format!("link-{length}"))).unwrap();
    }
    run("mkfifo", &[top.join("fifo").to_str().unwrap()], &[0]);
}

/// What mkfs.xfs takes for a folder.
fn prototype(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name().into_string().unwrap(), entry.path());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            writeln!(text, "{name} d--755 0 0").unwrap();
            prototype(&path, text);
            text.push_str("$\n");
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            writeln!(text, "{name} l--777 0 0 {}", target.display()).unwrap();
        } else if kind.is_file() {
            writeln!(text, "{name} ---644 5 7 {}", path.display()).unwrap();
        } else {
            writeln!(text, "{name} p--644 0 0").unwrap();
        }
    }
}

/// Makes an image of a folder.
fn image(folder: &TempDir, top: &Path, arguments: &[&str]) -> PathBuf {
    let mut text = "boot\n0 0\nd--755 0 0\n".to_owned();
    prototype(top, &mut text);
    text.push_str("$\n");
    let (from, image) = (folder.path().join("prototype"), folder.path().join("image"));
    fs::write(&from, text).unwrap();
    drop(fs::remove_file(&image));
    fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("mkfs.xfs");
    // As the tests of XFS itself say it: a file system may be this small.
    command.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1"), ("PATH", &path)]);
    let output = command.args(["-q", "-L", "ROOT"]).args(arguments).arg("-p").arg(from).arg(&image);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    image
}

/// Folders for an image, and for what it is made of.
fn folders() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("top");
    fs::create_dir(&top).unwrap();
    (folder, top)
}

/// Times are those of mkfs.
fn without_times(mut known: Known1) -> Known1 {
    known.values_mut().for_each(|known| known.modified = (0, 0));
    known
}

/// Sizes of blocks, inodes, sectors and directories, and features that are older and newer.
const KINDS: &[&[&str]] = &[
    &[],
    &["-b", "size=1024"],
    &["-b", "size=1024", "-n", "size=8192", "-i", "size=512"],
    &["-i", "size=2048", "-s", "size=4096"],
    &["-m", "reflink=0,bigtime=0,finobt=0,inobtcount=0", "-i", "sparse=0"],
    &["-m", "reflink=1,rmapbt=1", "-i", "nrext64=1"],
];

#[test]
fn xfs_is_read_as_it_was_made() {
    let (folder, top) = folders();
    make(&top);
    let expected = without_times(of_folder(&top));
    for arguments in KINDS {
        let image = image(&folder, &top, arguments);
        let tree = tree_of(&image);
        assert_eq!(tree.state(), State::Clean);
        assert_same(&without_times(of_tree(&*tree)), &expected);
    }
}

#[test]
fn xfs_is_told_by_its_label_and_identity() {
    let (folder, top) = folders();
    fs::write(top.join("file"), "x").unwrap();
    let image = image(&folder, &top, &[]);
    let bytes = fs::read(&image).unwrap();
    let found = hindsight_files::FileSystem::of(&bytes).unwrap().unwrap();
    assert_eq!((found.kind, &found.label[..], found.is_readable), ("xfs", &b"ROOT"[..], true));
    let said = run("blkid", &["-o", "value", "-s", "UUID", image.to_str().unwrap()], &[0]);
    assert_eq!(found.uuid, said.trim());
    let tree = tree_of(&image);
    let attributes = tree.attributes(node_of(&*tree, "/file")).unwrap();
    assert_eq!((attributes.kind, attributes.owner), (Kind::File, Some((5, 7))));
    assert!(attributes.modified.is_some_and(|time| time.seconds > 1_600_000_000));
    assert_eq!(attributes.modified, attributes.changed);
}

#[test]
fn a_time_that_is_none_is_damage() {
    let (folder, top) = folders();
    fs::write(top.join("file"), "x").unwrap();
    let mut bytes = fs::read(image(&folder, &top, &["-m", "bigtime=0"])).unwrap();
    let node = node_of(&*opened(bytes.clone()).unwrap(), "/file");
    // There is one allocation group before it: numbers are places.
    let at = node as usize * 512;
    assert!(bytes[at..].starts_with(b"IN"));
    bytes[at + 44..at + 48].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    mend_block(&mut bytes[at..at + 512]);
    let error = opened(bytes).unwrap().attributes(node).unwrap_err();
    assert!(error.to_string().contains("has a time that is none"), "{error}");
}

fn node_of(tree: &dyn Tree, path: &str) -> u64 {
    *hindsight_files::look_up_path(tree, path.as_bytes()).unwrap().last().unwrap()
}

#[test]
fn extended_attributes_of_all_lengths() {
    let (folder, top) = folders();
    fs::write(top.join("file"), "x").unwrap();
    let image = image(&folder, &top, &[]);
    let path = image.to_str().unwrap();
    let inode = node_of(&*tree_of(&image), "/file");
    let mut expected = BTreeMap::new();
    let mut check = |commands: &[(&str, &str, usize)]| {
        let mut all = vec!["-x".to_owned(), "-c".to_owned(), format!("inode {inode}")];
        for (space, name, length) in commands {
            all.extend(["-c".to_owned(), format!("attr_set {space} -v {length} {name}")]);
            let prefix = match *space {
                "-r" => "trusted.",
                "-s" => "security.",
                _ => "user.",
            };
            expected.insert(format!("{prefix}{name}").into_bytes(), vec![b'v'; *length]);
        }
        all.push(path.to_owned());
        run("xfs_db", &all.iter().map(String::as_str).collect::<Vec<_>>(), &[0]);
        let tree = tree_of(&image);
        let found: BTreeMap<_, _> = tree.extended(inode).unwrap().into_iter().collect();
        assert!(found == expected, "{:?}", found.keys().collect::<Vec<_>>());
    };
    check(&[]);
    check(&[("-u", "one", 5), ("-r", "two", 9), ("-s", "three", 1)]);
    check(&[("-u", "leaf", 900)]);
    check(&[("-u", "far", 60_000)]);
    let many: Vec<String> = (0..150).map(|number| format!("name-{number}")).collect();
    check(&many.iter().map(|name| ("-u", &name[..], 100)).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let (folder, top) = folders();
    let old = image(&folder, &top, &["-m", "crc=0"]);
    let error = opened(fs::read(old).unwrap()).err().unwrap();
    assert!(error.to_string().contains("version 4"), "{error}");
    let whole = fs::read(image(&folder, &top, &[])).unwrap();
    for (at, bit, says) in [
        (216, 4, "needs xfs_repair"),
        (216, 8, "unknown features"),
        (212, 9, "unknown features"),
        (220, 3, "unknown features"),
        (208, 0, "unknown features"),
    ] {
        let mut bytes = whole.clone();
        bytes[at + 3 - bit / 8] |= 1 << (bit % 8);
        assert!(opened(bytes.clone()).err().unwrap().to_string().contains("checksum"));
        crate::xfs_sums::mend(&mut bytes);
        let error = opened(bytes).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
    }
}
