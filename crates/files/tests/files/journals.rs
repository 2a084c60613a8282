//! Journals that debugfs writes, recovered in memory, against e2fsck, which recovers a copy: every
//! block that e2fsck changed reads the same here.

use std::fs;
use std::path::{Path, PathBuf};

use hindsight_files::{ErrorKind, State};
use tempfile::TempDir;

use crate::oracle::{assert_same, of_tree, opened, run, tree_of};

struct Disk {
    image: PathBuf,
    folder: TempDir,
}

/// The first block of each of these files is written in the journal.
const FILES: usize = 40;

fn disk(features: &str) -> Disk {
    let folder = tempfile::tempdir().unwrap();
    let (top, image) = (folder.path().join("top"), folder.path().join("image"));
    fs::create_dir(&top).unwrap();
    for number in 0..FILES {
        fs::write(top.join(number.to_string()), format!("before {number}").repeat(300)).unwrap();
    }
    let (top, image_text) = (top.to_str().unwrap(), image.to_str().unwrap());
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features, "-J", "size=1"];
    run("mke2fs", &[&arguments[..], &["-d", top, image_text, "16M"]].concat(), &[0]);
    Disk { image, folder }
}

/// The line of an answer that is a number.
fn number_in(said: &str) -> u64 {
    said.lines().find_map(|line| line.trim().parse().ok()).unwrap()
}

impl Disk {
    fn place(&self, file: usize) -> u64 {
        let said = self.debugfs(&[&format!("bmap /{file} 0")]);
        number_in(&said)
    }

    fn debugfs(&self, commands: &[&str]) -> String {
        let script = self.folder.path().join("script");
        fs::write(&script, commands.join("\n") + "\n").unwrap();
        let (script, image) = (script.to_str().unwrap(), self.image.to_str().unwrap());
        run("debugfs", &["-w", "-f", script, image], &[0])
    }

    /// Blocks to write, of one byte again and again; they look like the journal's own for 0.
    fn blocks(&self, count: usize, byte: u8) -> String {
        let path = self.folder.path().join(format!("blocks-{count}-{byte}"));
        let mut bytes = vec![byte; 1024];
        if byte == 0 {
            bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        }
        fs::write(&path, bytes.repeat(count)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Recovers a copy by e2fsck.
    fn recovered(&self) -> PathBuf {
        let copy = self.folder.path().join("copy");
        fs::copy(&self.image, &copy).unwrap();
        run("e2fsck", &["-y", "-E", "journal_only", copy.to_str().unwrap()], &[0, 1]);
        copy
    }
}

/// Writes transactions with revokes between, and compares.
fn recovers_as_e2fsck(features: &str, open: &str) {
    let disk = disk(features);
    let places: Vec<String> = (0..FILES).map(|file| disk.place(file).to_string()).collect();
    let list =
        |files: &[usize]| files.iter().map(|&f| places[f].clone()).collect::<Vec<_>>().join(",");
    let write = |files: &[usize], byte: u8| {
        format!("jw -b {} {}", list(files), disk.blocks(files.len(), byte))
    };
    let many: Vec<usize> = (10..FILES).collect();
    disk.debugfs(&[
        open,
        &write(&[0, 1, 2, 3], 1),
        &write(&[1, 2], 2),
        // What was written up to here of 2 and 3 is void; what comes behind is not.
        &format!("jw -r {}", list(&[2, 3])),
        &write(&[3, 4], 3),
        &write(&[5, 6], 0),
        &many.iter().map(|&f| write(&[f], f as u8)).collect::<Vec<_>>().join("\n"),
        "jc",
    ]);
    let tree = tree_of(&disk.image);
    let State::Replayed(transactions) = tree.state() else { panic!("{:?}", tree.state()) };
    assert!(transactions >= 5, "{transactions}");
    let expected = of_tree(&*tree_of(&disk.recovered()));
    assert_same(&of_tree(&*tree), &expected);
    // The journal said something that the disk alone does not have.
    let byte = |file: usize| {
        let path = format!("/{file}");
        let node = *hindsight_files::look_up_path(&*tree, path.as_bytes()).unwrap().last().unwrap();
        crate::oracle::contents(&*tree, node)[..4].to_vec()
    };
    assert_eq!(
        [byte(0), byte(1), byte(2), byte(3), byte(5)],
        [
            [1; 4].to_vec(),
            [2; 4].to_vec(),
            b"befo".to_vec(),
            [3; 4].to_vec(),
            vec![0xC0, 0x3B, 0x39, 0x98]
        ]
    );
}

#[test]
fn without_checksums() {
    recovers_as_e2fsck("^metadata_csum,^64bit", "jo");
    recovers_as_e2fsck("^metadata_csum,64bit", "jo");
}

#[test]
fn with_checksums_of_version_2() {
    recovers_as_e2fsck("metadata_csum,^64bit", "jo -c -v 2");
    recovers_as_e2fsck("metadata_csum,64bit", "jo -c -v 2");
}

#[test]
fn with_checksums_of_version_3() {
    recovers_as_e2fsck("metadata_csum,^64bit", "jo -c -v 3");
    recovers_as_e2fsck("metadata_csum,64bit", "jo -c -v 3");
}

/// The journal's blocks behind its superblock, in order, in bytes of the image.
fn log_blocks(disk: &Disk) -> Vec<usize> {
    let script = disk.folder.path().join("blocks");
    let lines: Vec<String> = (1..1024).map(|index| format!("bmap <8> {index}")).collect();
    fs::write(&script, lines.join("\n") + "\n").unwrap();
    let arguments = ["-f", script.to_str().unwrap(), disk.image.to_str().unwrap()];
    let said = run("debugfs", &arguments, &[0]);
    let numbers = said.lines().filter_map(|line| line.trim().parse::<usize>().ok());
    numbers.map(|block| block * 1024).collect()
}

/// The log is turned, so that it goes on at its beginning.
#[test]
fn a_log_goes_on_round_its_end() {
    let disk = disk("^metadata_csum,^64bit");
    let write =
        |file: usize, byte: u8| format!("jw -b {} {}", disk.place(file), disk.blocks(1, byte));
    let revoke = format!("jw -r {}", disk.place(1));
    disk.debugfs(&["jo", &write(0, 1), &write(1, 2), &revoke, &write(2, 3), &write(3, 4), "jc"]);
    let straight = of_tree(&*tree_of(&disk.image));
    let bytes = fs::read(&disk.image).unwrap();
    let log = log_blocks(&disk);
    assert_eq!(log.len(), 1023);
    let said = run("debugfs", &["-R", "bmap <8> 0", disk.image.to_str().unwrap()], &[0]);
    let superblock = number_in(&said) as usize * 1024;
    for back in 1..16 {
        let mut turned = bytes.clone();
        for (index, &from) in log.iter().enumerate() {
            let to = log[(index + log.len() - back) % log.len()];
            turned[to..to + 1024].copy_from_slice(&bytes[from..from + 1024]);
        }
        // The log began at block 1.
        let start = 1024 - back as u32;
        turned[superblock + 28..superblock + 32].copy_from_slice(&start.to_be_bytes());
        fs::write(&disk.image, &turned).unwrap();
        let tree = tree_of(&disk.image);
        assert!(matches!(tree.state(), State::Replayed(transactions) if transactions >= 4));
        assert_same(&of_tree(&*tree), &straight);
        assert_same(&straight, &of_tree(&*tree_of(&disk.recovered())));
    }
}

#[test]
fn a_transaction_without_its_commit_is_none() {
    for open in ["jo", "jo -c -v 3"] {
        let disk = disk(if open == "jo" { "^metadata_csum" } else { "metadata_csum" });
        let write = |file: usize, byte: u8, how: &str| {
            format!("jw {how} -b {} {}", disk.place(file), disk.blocks(1, byte))
        };
        disk.debugfs(&[open, &write(0, 1, ""), &write(1, 2, ""), &write(2, 3, "-c"), "jc"]);
        let tree = tree_of(&disk.image);
        assert_eq!(tree.state(), State::Replayed(2));
        assert_same(&of_tree(&*tree), &of_tree(&*tree_of(&disk.recovered())));
    }
}

/// Any damage in the journal is found, or makes no difference.
#[test]
fn damage_in_a_journal_with_checksums_is_found() {
    let disk = disk("metadata_csum");
    let write =
        |file: usize, byte: u8| format!("jw -b {} {}", disk.place(file), disk.blocks(1, byte));
    disk.debugfs(&["jo -c -v 3", &write(0, 1), &write(1, 2), &write(0, 3), "jc"]);
    let whole = of_tree(&*tree_of(&disk.image));
    let bytes = fs::read(&disk.image).unwrap();
    let (mut refused, mut same) = (0, 0);
    for at in journal_bytes(&disk.image, &bytes) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        match opened(damaged) {
            Err(error) => {
                let is_told = [ErrorKind::Damaged, ErrorKind::Unsupported].contains(&error.kind);
                assert!(is_told, "at {at}: {error}");
                refused += 1;
            }
            Ok(tree) => {
                // The end of the log may be lost with its header, as the kernel loses it.
                if matches!(tree.state(), State::Replayed(3)) {
                    assert_same(&of_tree(&*tree), &whole);
                }
                same += 1;
            }
        }
    }
    assert!(refused > 50 && same > 10, "{refused} refused, {same} the same");
}

/// Places of bytes in the journal's first blocks.
fn journal_bytes(image: &Path, bytes: &[u8]) -> Vec<usize> {
    let said = run("debugfs", &["-R", "bmap <8> 0", image.to_str().unwrap()], &[0]);
    let start = number_in(&said) as usize * 1024;
    assert_eq!(bytes[start..start + 4], [0xC0, 0x3B, 0x39, 0x98]);
    (0..12 * 1024).step_by(61).map(|at| start + at).collect()
}
