//! NTFS that mkntfs makes and ntfscp fills; what ntfs-3g does to one that is mounted is read in the
//! tests from outside.

use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

use hindsight_files::{FileSystem, Source, State, Tree, look_up_path};

use crate::oracle::{contents, opened, run};

/// An NTFS with files by name, and streams by name and stream.
pub fn image(arguments: &[&str], size: u64, files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (image, host) = (folder.path().join("image"), folder.path().join("host"));
    fs::File::create(&image).unwrap().set_len(size).unwrap();
    let (path, from) = (image.to_str().unwrap(), host.to_str().unwrap());
    run("mkntfs", &[&["-F", "-Q", "-q", "-L", "M\u{fc}ll"], arguments, &[path]].concat(), &[0]);
    for (name, bytes) in files {
        fs::write(&host, bytes).unwrap();
        match name.split_once(':') {
            Some((name, stream)) => run("ntfscp", &["-f", "-N", stream, path, from, name], &[0]),
            None => run("ntfscp", &["-f", path, from, name], &[0]),
        };
    }
    fs::read(image).unwrap()
}

fn noise(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * at + seed * at) >> 5) as u8).collect()
}

/// Files that are in their record, in clusters, and so many that their names take blocks.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (number, length) in [0, 1, 300, 600, 1000, 4096, 70_000, 1 << 20].into_iter().enumerate() {
        files.insert(format!("file {length}"), noise(length, number));
    }
    for number in 0..90 {
        let name =
            format!("a name that is of some length and not in ascii, \u{e4}\u{1f600}, {number}");
        files.insert(name, number.to_string().into_bytes());
    }
    files
}

fn found(tree: &dyn Tree) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in tree.entries(tree.top()).unwrap() {
        let name = String::from_utf8(entry.name).unwrap();
        assert!(found.insert(name, contents(tree, entry.node)).is_none(), "a name twice");
        for (name, value) in tree.extended(entry.node).unwrap() {
            let stream = String::from_utf8(name).unwrap();
            found.insert(format!("{}:{stream}", entry.node), value);
        }
    }
    found
}

#[test]
fn clusters_and_records_of_all_sizes() {
    let files = files();
    for arguments in [&["-c", "512"][..], &["-c", "4096"], &["-c", "65536"], &["-s", "4096"]] {
        let bytes = image(arguments, 24 << 20, &files);
        let system = FileSystem::of(&bytes).unwrap().unwrap();
        assert_eq!((system.kind, system.label), ("ntfs", "M\u{fc}ll".as_bytes().to_vec()));
        assert_eq!(system.uuid.len(), 16);
        let tree = opened(bytes).unwrap();
        // Its log is empty, which tells nothing.
        assert_eq!(tree.state(), State::Unreplayed);
        let found = found(&*tree);
        assert_eq!(found.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
        assert!(found == files, "{arguments:?}: other bytes");
    }
}

#[test]
fn a_file_of_many_streams_is_spread_over_records() {
    let mut files = BTreeMap::from([("file".to_owned(), noise(100_000, 3))]);
    for number in 0..60 {
        files.insert(format!("file:stream {number}"), noise(number * 20, number));
    }
    files.insert("file:too long for an attribute".to_owned(), noise((64 << 10) + 1, 1));
    let bytes = image(&["-c", "1024"], 8 << 20, &files);
    let tree = opened(bytes).unwrap();
    let node = *look_up_path(&*tree, b"/file").unwrap().last().unwrap();
    assert!(contents(&*tree, node) == files["file"]);
    let streams: BTreeMap<Vec<u8>, Vec<u8>> = tree.extended(node).unwrap().into_iter().collect();
    assert_eq!(streams.len(), 60);
    for number in 0..60 {
        let name = format!("user.stream {number}").into_bytes();
        assert_eq!(streams[&name], noise(number * 20, number), "{number}");
    }
}

/// Where a byte string stands first.
fn place_of(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

/// The record that a name is in.
fn record_with(bytes: &[u8], name: &[u8]) -> usize {
    let is_it = |at: &usize| {
        let record = &bytes[*at..*at + 1024];
        record.starts_with(b"FILE") && record.windows(name.len()).any(|part| part == name)
    };
    (0..bytes.len() - 1023).step_by(1024).find(is_it).unwrap()
}

/// A page of the log as Windows leaves it.
fn restart_page(sequence: u64, flags: u16, client: u16) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RSTR");
    put(4, &[30, 0, 9, 0, 0, 0, 0, 0]);
    put(24, &[48, 0]);
    put(48, &sequence.to_le_bytes());
    put(48 + 12, &client.to_le_bytes());
    put(48 + 14, &flags.to_le_bytes());
    put(30, &[1, 0]);
    for stride in 1..=8 {
        put(stride * 512 - 2, &[1, 0]);
    }
    page
}

#[test]
fn it_is_clean_where_windows_says_so() {
    let bytes = image(&["-c", "4096"], 8 << 20, &BTreeMap::new());
    let at = place_of(&bytes, &[0xFF; 64 << 10]);
    let state = |pages: [Vec<u8>; 2]| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8192].copy_from_slice(&pages.concat());
        opened(bytes).unwrap().state()
    };
    let none = u16::MAX;
    for (first, second, expected) in [
        ((1, 2, 0), (2, 2, 0), State::Clean),
        ((1, 0, none), (2, 0, none), State::Clean),
        ((1, 2, 0), (2, 0, 0), State::Unreplayed),
        ((3, 2, 0), (2, 0, 0), State::Clean),
        ((1, 0, 0), (2, 0, 0), State::Unreplayed),
    ] {
        let page = |(sequence, flags, client)| restart_page(sequence, flags, client);
        assert_eq!(state([page(first), page(second)]), expected, "{first:?} {second:?}");
    }
    // Of one age they have to agree; and one that is torn may be the newer.
    assert_eq!(state([restart_page(2, 2, 0), restart_page(2, 0, 0)]), State::Unreplayed);
    let mut torn = restart_page(9, 2, none);
    torn[1022] = 2;
    assert_eq!(state([restart_page(1, 2, none), torn]), State::Unreplayed);
    // A clean volume has no name without a file.
    let mut clean = image(&["-c", "4096"], 8 << 20, &files());
    let page = restart_page(1, 2, none);
    clean[at..at + 8192].copy_from_slice(&[&page[..], &page].concat());
    assert_eq!(opened(clean.clone()).unwrap().state(), State::Clean);
    let name: Vec<u8> = "file 1000".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let record = record_with(&clean, &name);
    clean[record + 22] = 0;
    let tree = opened(clean).unwrap();
    let error = tree.entries(tree.top()).err().unwrap();
    assert!(error.to_string().contains("a name of no file"), "{error}");
}

#[test]
fn records_and_names_that_were_not_written_whole_are_damage() {
    let files = files();
    let bytes = image(&["-c", "4096"], 8 << 20, &files);
    let name: Vec<u8> = "file 1000".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let record = record_with(&bytes, &name);
    let block = place_of(&bytes, b"INDX");
    for (at, said) in [(record + 1022, "record"), (block + 4094, "written whole")] {
        let mut torn = bytes.clone();
        torn[at] ^= 1;
        let tree = opened(torn).unwrap();
        let error = tree.entries(tree.top()).err().unwrap();
        assert!(error.to_string().contains(said), "{error}");
    }
    // Of another file by now: its name is none.
    let mut given_out = bytes.clone();
    given_out[record + 16] ^= 4;
    let tree = opened(given_out).unwrap();
    assert!(found(&*tree).len() == files.len() - 1 && !found(&*tree).contains_key("file 1000"));
    let mut free = bytes;
    free[record + 22] = 0;
    assert_eq!(found(&*opened(free).unwrap()).len(), files.len() - 1);
}

#[test]
fn what_is_no_ntfs_is_told() {
    let bytes = image(&["-c", "4096"], 8 << 20, &BTreeMap::new());
    for (at, value) in [(13, 3), (13, 200), (11, 1), (64, 0), (64, 60), (55, 9), (47, 1)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let disk: Rc<dyn Source> = Rc::new(wrong);
        assert_eq!(FileSystem::of(&*disk).unwrap(), None, "{value} at {at}");
    }
    // A version of before 2000.
    let volume = place_of(&bytes, &[3, 1, 0, 0, 0, 0, 0, 0, 0x80]);
    let mut old = bytes;
    old[volume] = 1;
    let error = opened(old).err().unwrap();
    assert!(error.to_string().contains("version 1"), "{error}");
}
