//! FATs that mkfs.vfat makes and mtools fill.

use std::collections::BTreeMap;
use std::fs;

use hindsight_files::{Kind, State};

use crate::oracle::{contents, run, tree_of};

/// The top has room for few names in a FAT of 12 bits.
const DIRECTORIES: [&str; 7] = [
    "",
    "a directory of a long name/",
    "SHORT/",
    "SHORT/lower/",
    "a directory of a long name/",
    "SHORT/",
    "SHORT/lower/",
];

fn reads_as_made(arguments: &[&str], kib: &str) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let path = image.to_str().unwrap();
    run("mkfs.vfat", &[arguments, &["-n", "MYLABEL", "-C", path, kib]].concat(), &[0]);
    let mut expected = BTreeMap::new();
    let host = folder.path().join("host");
    for directory in ["a directory of a long name", "SHORT", "SHORT/lower"] {
        run("mmd", &["-i", path, &format!("::/{directory}")], &[0]);
        expected.insert(directory.to_owned(), None);
    }
    for number in 0..70_usize {
        let directory = DIRECTORIES[number % DIRECTORIES.len()];
        let name = match number % 3 {
            0 => format!("{directory}F{number}.TXT"),
            1 => format!("{directory}name with \u{e4}, number {number}"),
            _ => format!("{directory}{}{number}.end", "long".repeat(number.min(60))),
        };
        let bytes: Vec<u8> = (0..number * 300).map(|at| ((at * number) >> 3) as u8).collect();
        fs::write(&host, &bytes).unwrap();
        run("mcopy", &["-i", path, host.to_str().unwrap(), &format!("::/{name}")], &[0]);
        expected.insert(name, Some(bytes));
    }
    for gone in [3, 12, 21] {
        let name = format!("SHORT/lower/F{gone}.TXT");
        if expected.remove(&name).is_some() {
            run("mdel", &["-i", path, &format!("::/{name}")], &[0]);
        }
    }
    let tree = tree_of(&image);
    assert_eq!(tree.state(), State::Unreplayed);
    let mut found = BTreeMap::new();
    hindsight_files::walk(&*tree, tree.top(), &mut |path, node, known| {
        let name = String::from_utf8(path.to_vec()).unwrap();
        if !name.is_empty() {
            let bytes = (known.kind == Kind::File).then(|| contents(&*tree, node));
            found.insert(name, bytes);
        }
        Ok::<(), hindsight_files::Error>(())
    })
    .unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected, "other bytes");
}

#[test]
fn tables_of_12_16_and_32_bits() {
    reads_as_made(&["-F", "12"], "2880");
    reads_as_made(&["-F", "16"], "20000");
    reads_as_made(&["-F", "32", "-s", "1"], "40000");
}

#[test]
fn sectors_of_4_kibibytes() {
    reads_as_made(&["-F", "16", "-S", "4096", "-s", "1"], "40000");
}
