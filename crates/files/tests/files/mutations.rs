//! Images with bytes changed at random: readers refuse or read, and come to an end.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use hindsight_files::{Kind, State, Tree, read_all};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::oracle::{opened, run};

/// Objects that are looked at; what is mutated may lead round in circles.
const OBJECTS_MAX: usize = 500;
const BYTES_MAX: u64 = 4 << 20;

fn image(arguments: &[&str], journal: Option<&str>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (top, image) = (folder.path().join("top"), folder.path().join("image"));
    fs::create_dir_all(top.join("folder")).unwrap();
    for number in 0..150 {
        fs::write(top.join("folder").join(format!("file number {number}")), vec![7; number])
            .unwrap();
    }
    fs::write(top.join("large"), vec![9; 600_000]).unwrap();
    std::os::unix::fs::symlink("t".repeat(80), top.join("link")).unwrap();
    let (top, path) = (top.to_str().unwrap(), image.to_str().unwrap());
    let all = [&["-q", "-F", "-b", "1024", "-d", top], arguments, &[path, "4M"]].concat();
    run("mke2fs", &all, &[0]);
    run("e2fsck", &["-fyD", path], &[0, 1]);
    if let Some(open) = journal {
        let (block, script) = (folder.path().join("block"), folder.path().join("script"));
        fs::write(&block, [3; 1024]).unwrap();
        let block = block.to_str().unwrap();
        let write = |at: usize| format!("jw -b {at} {block}\n");
        let writes: String = (2000..2030).map(write).collect();
        fs::write(&script, format!("{open}\n{writes}jw -r 2003\n{writes}jc\n")).unwrap();
        run("debugfs", &["-w", "-f", script.to_str().unwrap(), path], &[0]);
    }
    fs::read(image).unwrap()
}

/// The same in a FAT of 12 or 32 bits.
fn fat(arguments: &[&str], kib: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let path = image.to_str().unwrap();
    run("mkfs.vfat", &[arguments, &["-C", path, kib]].concat(), &[0]);
    let top = folder.path().join("folder with a long name");
    fs::create_dir(&top).unwrap();
    for number in 0..60 {
        fs::write(top.join(format!("file number {number}")), vec![7; number * 50]).unwrap();
    }
    run("mcopy", &["-s", "-i", path, top.to_str().unwrap(), "::/"], &[0]);
    fs::read(image).unwrap()
}

/// An NTFS with blocks of names, a file over several records, and one in pieces.
fn ntfs() -> Vec<u8> {
    let mut files = BTreeMap::new();
    for number in 0..40 {
        files.insert(format!("a name of some length, number {number}"), vec![7; number * 50]);
        files.insert(format!("file:stream {number}"), vec![8; number * 10]);
    }
    files.insert("file".to_owned(), vec![9; 300_000]);
    crate::ntfs::image(&["-c", "512"], 3 << 20, &files)
}

/// Records and blocks of NTFS: a sector is changed before its mark, so that it is believed.
fn ntfs_blocks(bytes: &[u8]) -> Vec<usize> {
    let is_one =
        |at: &usize| bytes[*at..].starts_with(b"FILE") || bytes[*at..].starts_with(b"INDX");
    (0..bytes.len()).step_by(512).filter(is_one).collect()
}

/// Images without checksums, so that what is changed is believed; and one with them.
fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        vec![
            image(&["-t", "ext4", "-O", "^metadata_csum", "-J", "size=1"], None),
            image(&["-t", "ext4", "-O", "^metadata_csum,inline_data", "-I", "256"], None),
            image(&["-t", "ext2"], None),
            image(&["-t", "ext4", "-O", "metadata_csum,^has_journal"], None),
            image(&["-t", "ext4", "-O", "^metadata_csum", "-J", "size=1"], Some("jo")),
            image(&["-t", "ext4", "-O", "metadata_csum", "-J", "size=1"], Some("jo -c -v 3")),
            fat(&["-F", "12"], "1440"),
            fat(&["-F", "32", "-s", "1"], "40000"),
            ntfs(),
        ]
    })
}

pub fn walk(tree: &dyn Tree) {
    let mut waiting = vec![tree.top()];
    let mut seen = 0;
    while let Some(node) = waiting.pop() {
        seen += 1;
        if seen > OBJECTS_MAX {
            return;
        }
        let Ok(attributes) = tree.attributes(node) else { continue };
        let _ = tree.extended(node);
        match attributes.kind {
            Kind::Directory => {
                let entries = tree.entries(node).unwrap_or_default();
                waiting.extend(entries.iter().map(|entry| entry.node));
            }
            Kind::File => {
                let mut left = BYTES_MAX;
                let _ = read_all(tree, node, &mut |_, bytes| {
                    left = left.saturating_sub(bytes.len() as u64);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            Kind::Symlink => drop(tree.link(node)),
            _ => {}
        }
    }
}

/// Blocks of the journal that are its own: the places in them decide what is recovered.
fn journal_blocks(bytes: &[u8]) -> Vec<usize> {
    let is_one = |at: &usize| bytes[*at..].starts_with(&[0xC0, 0x3B, 0x39, 0x98]);
    (0..bytes.len()).step_by(1024).filter(is_one).collect()
}

/// Where metadata is: the first blocks hold superblock, groups, inodes, and directories.
const METADATA_BYTES: usize = 700 << 10;

/// `PROPTEST_CASES` for more.
pub fn cases() -> ProptestConfig {
    let given = ProptestConfig::default();
    ProptestConfig { cases: given.cases.max(600), ..given }
}

#[test]
fn journals_that_are_mutated_hold_something() {
    for image in &images()[4..6] {
        let state = opened(image.clone()).unwrap().state();
        assert!(matches!(state, State::Replayed(_)), "{state:?}");
        assert!(journal_blocks(image).len() > 50);
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_mutation_makes_a_reader_panic(
        which in 0_usize..9,
        changes in proptest::collection::vec(
            (any::<proptest::sample::Index>(), any::<u8>(), any::<bool>()),
            1..30,
        ),
    ) {
        let mut bytes = images()[which].clone();
        let mut journal = journal_blocks(&bytes);
        journal.extend(ntfs_blocks(&bytes));
        for (at, byte, is_near) in changes {
            let at = match at.index(4) {
                // The first fields of a block, mostly.
                0 | 1 if !journal.is_empty() => {
                    // Marks of NTFS at the ends of sectors stay.
                    let within = at.index(if is_near { 64 } else { 1020 });
                    journal[at.index(journal.len())] + within + 2 * usize::from(within >= 510)
                }
                _ => at.index(if is_near { 300 << 10 } else { METADATA_BYTES }),
            };
            bytes[at] = byte;
        }
        if let Ok(tree) = opened(bytes) {
            walk(&*tree);
        }
    }
}
