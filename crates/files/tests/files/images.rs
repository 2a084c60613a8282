//! Trees that mke2fs puts into images, with the features that change how they are laid out.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hindsight_files::{Kind, State};
use tempfile::TempDir;

use crate::oracle::{assert_same, of_folder, of_tree, run, tree_of};

/// A folder with files of all shapes.
fn make(top: &Path) {
    let mut random = 1_u32;
    let mut bytes = |length: usize| -> Vec<u8> {
        (0..length)
            .map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 24) as u8
            })
            .collect()
    };
    for length in [0, 1, 59, 60, 61, 100, 140, 1024, 4095, 4096, 70_000, 3 << 20] {
        fs::write(top.join(format!("file-{length}")), bytes(length)).unwrap();
    }
    let folder = top.join("folder");
    fs::create_dir_all(folder.join("in/it")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    for number in 0..1500 {
        let name = format!("a name of some length, so that it takes blocks, {number}");
        fs::write(folder.join(name), number.to_string()).unwrap();
    }
    for target in ["x", &"y".repeat(59), &"z".repeat(60), &"t".repeat(500)] {
        symlink(target, top.join(format!("link-{}", target.len()))).unwrap();
    }
    fs::hard_link(top.join("file-100"), folder.join("in/again")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"not UTF-8: \xff\xfe");
    fs::write(top.join(odd), "odd").unwrap();
    // Holes: data in the middle and at the end.
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    let data = bytes(10_000);
    for offset in [100 << 10, 1 << 20, 20 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &data, offset).unwrap();
    }
    sparse.set_len((30 << 20) + 5).unwrap();
}

struct Made {
    top: PathBuf,
    image: PathBuf,
    _folder: TempDir,
}

fn image(arguments: &[&str]) -> Made {
    // Blocks of 64 KiB take more for many small files.
    let size = if arguments.contains(&"65536") { "256M" } else { "64M" };
    let folder = tempfile::tempdir().unwrap();
    let (top, image) = (folder.path().join("top"), folder.path().join("image"));
    fs::create_dir(&top).unwrap();
    make(&top);
    let (top_text, image_text) = (top.to_str().unwrap(), image.to_str().unwrap());
    let all = [&["-q", "-F", "-d", top_text], arguments, &[image_text, size]].concat();
    run("mke2fs", &all, &[0]);
    Made { top, image, _folder: folder }
}

fn reads_as_made(arguments: &[&str]) {
    let made = image(arguments);
    if arguments.iter().any(|argument| argument.contains("inline_data")) {
        // mke2fs 1.47.0 cuts such files off behind their last data; debugfs agrees with us.
        fs::remove_file(made.top.join("sparse")).unwrap();
        run("debugfs", &["-w", "-R", "rm sparse", made.image.to_str().unwrap()], &[0]);
    }
    assert_same(&of_tree(&*tree_of(&made.image)), &of_folder(&made.top));
    // The same with trees of hashes in its directories.
    run("e2fsck", &["-fyD", made.image.to_str().unwrap()], &[0, 1]);
    let tree = tree_of(&made.image);
    assert_same(&of_tree(&*tree), &of_folder(&made.top));
}

#[test]
fn ext4_as_it_is_made_by_default() {
    let made = image(&["-t", "ext4", "-L", "ROOT"]);
    let tree = tree_of(&made.image);
    assert_eq!(tree.state(), State::Clean);
    assert_same(&of_tree(&*tree), &of_folder(&made.top));
    reads_as_made(&["-t", "ext4"]);
}

#[test]
fn blocks_of_one_kibibyte_and_of_64() {
    reads_as_made(&["-t", "ext4", "-b", "1024"]);
    reads_as_made(&["-t", "ext4", "-b", "65536"]);
}

#[test]
fn data_within_inodes() {
    reads_as_made(&["-t", "ext4", "-O", "inline_data", "-I", "256"]);
    reads_as_made(&["-t", "ext4", "-O", "inline_data,^metadata_csum", "-I", "1024"]);
}

#[test]
fn ext2_and_ext3_with_indirect_blocks() {
    reads_as_made(&["-t", "ext2", "-b", "1024"]);
    reads_as_made(&["-t", "ext3", "-b", "4096"]);
    reads_as_made(&["-t", "ext2", "-I", "128", "-r", "0"]);
}

#[test]
fn checksums_of_other_kinds() {
    reads_as_made(&["-t", "ext4", "-O", "metadata_csum_seed"]);
    reads_as_made(&["-t", "ext4", "-O", "^metadata_csum,uninit_bg,64bit"]);
    reads_as_made(&["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"]);
    reads_as_made(&["-t", "ext4", "-O", "^metadata_csum,^64bit"]);
}

#[test]
fn groups_in_other_places() {
    reads_as_made(&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]);
    reads_as_made(&["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-g", "1024"]);
    reads_as_made(&["-t", "ext4", "-O", "^flex_bg,^sparse_super,^resize_inode", "-b", "1024"]);
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let made = image(&["-t", "ext4", "-O", "bigalloc", "-C", "65536"]);
    let bytes = fs::read(&made.image).unwrap();
    let error = crate::oracle::opened(bytes).err().unwrap();
    assert!(error.to_string().contains("bigalloc"), "{error}");
}

#[test]
fn holes_and_kinds_are_told() {
    let made = image(&["-t", "ext4"]);
    let tree = tree_of(&made.image);
    let node = *hindsight_files::look_up_path(&*tree, b"/sparse").unwrap().last().unwrap();
    let attributes = tree.attributes(node).unwrap();
    assert_eq!((attributes.kind, attributes.size), (Kind::File, (30 << 20) + 5));
    let pieces = tree.pieces(node).unwrap();
    let data: u64 = pieces.iter().map(|piece| piece.length).sum();
    assert!(data < 100_000, "{pieces:?}");
    for (path, wrong) in [
        (&b"/nothing"[..], "there is no nothing"),
        (b"/file-1/x", "before x is no directory"),
        (b"/link-1/x", "symbolic link, to x"),
        (b"/folder/../file-1", "`..`"),
    ] {
        let error = hindsight_files::look_up_path(&*tree, path).err().unwrap();
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

/// Space that is taken and not written reads as zeros, whatever was there before.
#[test]
fn what_was_never_written_is_zeros() {
    let made = image(&["-t", "ext4"]);
    let path = made.image.to_str().unwrap();
    for request in ["fallocate /file-0 0 3", "sif /file-0 size 16000"] {
        run("debugfs", &["-w", "-R", request, path], &[0]);
    }
    let look = |tree: &dyn hindsight_files::Tree| {
        *hindsight_files::look_up_path(tree, b"/file-0").unwrap().last().unwrap()
    };
    let said = run("debugfs", &["-R", "ex /file-0", path], &[0]);
    assert!(said.contains("Uninit"), "{said}");
    // The column behind the first dash of the physical blocks: `0 - 3   1234 - 1237   4 Uninit`.
    let line = said.lines().find(|line| line.contains("Uninit")).unwrap();
    let numbers: Vec<usize> =
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let block = numbers[numbers.len() - 3];
    let mut bytes = fs::read(&made.image).unwrap();
    let block_bytes = 1024 << bytes[1024 + 0x18];
    bytes[block * block_bytes..][..3 * block_bytes].fill(0x55);
    let tree = crate::oracle::opened(bytes).unwrap();
    let found = crate::oracle::contents(&*tree, look(&*tree));
    assert!(found.len() == 16_000 && found.iter().all(|&byte| byte == 0));
}

#[test]
fn extended_attributes_and_lists_of_access_are_told() {
    let made = image(&["-t", "ext4"]);
    let image = made.image.to_str().unwrap();
    let large = "v".repeat(900);
    for request in [
        "ea_set /file-1 user.one value",
        &format!("ea_set /file-1 user.large {large}"),
        "ea_set /file-1 security.selinux label",
    ] {
        run("debugfs", &["-w", "-R", request, image], &[0]);
    }
    let tree = tree_of(&made.image);
    let node = *hindsight_files::look_up_path(&*tree, b"/file-1").unwrap().last().unwrap();
    let mut found = tree.extended(node).unwrap();
    found.sort();
    let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let expected = vec![
        pair("security.selinux", "label"),
        pair("user.large", &large),
        pair("user.one", "value"),
    ];
    assert_eq!(found, expected);
}
