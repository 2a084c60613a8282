//! An XFS of which the power went (`golden/make-xfs`), against what the kernel showed of it; and
//! its log, of which parts were not written, or rotted.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, checksum};
use hindsight_files::{ErrorKind, State, Tree, walk};

use crate::oracle::{opened, run};
use crate::xfs_sums::{be32, log_of, mend_record};

pub const SECTOR: usize = 512;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The image, unpacked.
pub fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| unpacked("xfs.img.zst"))
}

fn unpacked(name: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (path(name), folder.path().join("image"));
    run("zstd", &["-q", "-d", from.to_str().unwrap(), "-o", to.to_str().unwrap()], &[0]);
    fs::read(to).unwrap()
}

fn sum(bytes: &[u8]) -> String {
    format!("{:08x}", checksum(CrcAlgorithm::Crc32IsoHdlc, bytes))
}

/// All of a tree, as `make-xfs` lists it.
pub fn listed(tree: &dyn Tree) -> hindsight_files::Result<String> {
    let mut lines = Vec::new();
    walk(tree, tree.top(), &mut |path, node, known| -> hindsight_files::Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let content = match known.kind {
            hindsight_files::Kind::File => {
                let mut whole = vec![0; known.size as usize];
                tree.read(node, 0, &mut whole)?;
                whole
            }
            hindsight_files::Kind::Symlink => tree.link(node)?,
            _ => Vec::new(),
        };
        let is_directory = known.kind == hindsight_files::Kind::Directory;
        let nanos = |time: Option<hindsight_files::Time>| {
            let time = time.unwrap();
            i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
        };
        let (owner, group) = known.owner.unwrap();
        let (major, minor) = known.device.unwrap_or_default();
        let mut extended = tree.extended(node)?;
        extended.sort();
        let mut fields = vec![
            String::from_utf8_lossy(path).into_owned(),
            format!("{:o}", known.mode),
            owner.to_string(),
            group.to_string(),
            known.links.to_string(),
            if is_directory { 0 } else { known.size }.to_string(),
            node.to_string(),
            nanos(known.modified).to_string(),
            nanos(known.changed).to_string(),
            format!("{major}:{minor}"),
            sum(&content),
        ];
        let named = |(name, value): &(Vec<u8>, Vec<u8>)| {
            format!("{}={}", String::from_utf8_lossy(name), sum(value))
        };
        fields.extend(extended.iter().map(named));
        lines.push(fields.join("\t"));
        Ok(())
    })?;
    lines.sort();
    Ok(lines.join("\n") + "\n")
}

fn assert_is(tree: &dyn Tree, name: &str) {
    let (found, expected) = (listed(tree).unwrap(), fs::read_to_string(path(name)).unwrap());
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

/// The places of the live records, in the order of the log, and their lengths, in bytes of the log.
pub fn records(image: &[u8]) -> Vec<(usize, usize)> {
    let log = &image[log_of(image)];
    let starts = (0..log.len()).step_by(SECTOR);
    let starts = starts.filter(|&at| be32(log, at) == 0xFEED_BABE);
    let length = |at: usize| {
        let heads = (be32(log, at + 320) as usize).div_ceil(32 << 10).max(1);
        heads * SECTOR + (be32(log, at + 12) as usize).next_multiple_of(SECTOR)
    };
    let mut found: Vec<_> = starts.map(|at| (be32(log, at + 4), at, length(at))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at, length)| (at, length)).collect()
}

/// The sectors of a record, in bytes of the image.
pub fn sectors(image: &[u8], record: (usize, usize)) -> Vec<usize> {
    let log = log_of(image);
    let offsets = (record.0..record.0 + record.1).step_by(SECTOR);
    offsets.map(|at| log.start + at % log.len()).collect()
}

/// Takes a record away: its sectors are of the turn before.
fn take_away(image: &mut [u8], record: (usize, usize)) {
    let log = log_of(image);
    let turn = be32(image, log.start + record.0 + 4);
    for at in sectors(image, record) {
        let is_round = at < log.start + record.0;
        let before = turn - u32::from(!is_round);
        image[at..at + SECTOR].fill(0);
        image[at..at + 4].copy_from_slice(&before.to_be_bytes());
    }
}

fn transactions(tree: &dyn Tree) -> u64 {
    match tree.state() {
        State::Replayed(count) => count,
        _ => 0,
    }
}

#[test]
fn what_the_power_left_is_what_the_kernel_shows() {
    let tree = opened(image().to_vec()).unwrap();
    assert!(transactions(&*tree) > 10);
    assert_is(&*tree, "xfs.txt");
    // And it is the log that says so.
    let records = records(image());
    let (first, last) = (records[0], records[records.len() - 1]);
    assert!(last.0 < first.0, "the live log goes round its end: {records:?}");
}

/// Records may be shorter than their heads have room for; and what the log tells may lie beyond the
/// end that the disk has on record.
#[test]
fn a_file_system_that_was_made_larger_is_what_the_kernel_shows() {
    let image = unpacked("grown.img.zst");
    let blocks = u64::from(be32(&image, 8)) << 32 | u64::from(be32(&image, 12));
    assert_eq!(blocks * 4096, 20 << 20, "as the disk has it");
    let log = &image[log_of(&image)];
    let heads: Vec<_> = records(&image).iter().map(|&(at, _)| be32(log, at + 320)).collect();
    assert!(heads.len() > 3 && heads.iter().all(|&bytes| bytes == 256 << 10), "{heads:?}");
    let tree = opened(image).unwrap();
    assert!(transactions(&*tree) > 3);
    assert_is(&*tree, "grown.txt");
}

/// A record that was torn anywhere is as one that was never written, and so are those behind it.
#[test]
fn a_record_that_was_not_written_whole_is_none() {
    let all = records(image());
    let mut image = image().to_vec();
    let mut counts = Vec::new();
    // Of the last eight any may be torn, as all of them may have been under way.
    for (index, &record) in all.iter().enumerate().skip(all.len() - 8).rev() {
        let places = sectors(&image, record);
        let mut without = image.clone();
        take_away(&mut without, record);
        let without_tree = opened(without.clone()).unwrap();
        let expected = listed(&*without_tree).unwrap();
        for &at in [places[0], places[places.len() / 2], places[places.len() - 1]].iter() {
            let mut torn = image.clone();
            torn[at + 100] ^= 0x20;
            let tree = opened(torn).unwrap();
            assert_eq!(tree.state(), without_tree.state(), "record {index}");
            assert!(listed(&*tree).unwrap() == expected, "record {index}");
        }
        counts.push(transactions(&*without_tree));
        image = without;
    }
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert!(counts[0] >= counts[counts.len() - 1] + 5, "{counts:?}");
}

/// A sector in the middle of what was written at once was left out: all behind it is none.
#[test]
fn what_is_behind_a_sector_that_was_left_out_is_none() {
    let all = records(image());
    let record = all[all.len() - 3];
    let (mut whole, mut hole) = (image().to_vec(), image().to_vec());
    for &record in &all[all.len() - 3..] {
        take_away(&mut whole, record);
    }
    let at = *sectors(&hole, record).last().unwrap();
    let from = log_of(&hole).start + record.0;
    let turn = be32(&hole, from + 4) - u32::from(at >= from);
    hole[at..at + SECTOR].fill(0);
    hole[at..at + 4].copy_from_slice(&turn.to_be_bytes());
    let (whole, hole) = (opened(whole).unwrap(), opened(hole).unwrap());
    assert_eq!(whole.state(), hole.state());
    assert!(listed(&*whole).unwrap() == listed(&*hole).unwrap());
}

#[test]
fn damage_before_the_last_records_is_found() {
    let all = records(image());
    assert!(all.len() > 10, "{all:?}");
    for &record in &all[..all.len() - 8] {
        for at in sectors(image(), record) {
            let mut damaged = image().to_vec();
            damaged[at + 200] ^= 1;
            let error = opened(damaged).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        }
    }
}

/// A log with something under way is not clean, also if no transaction of it is whole.
#[test]
fn a_log_that_is_cut_within_its_first_transaction_is_not_clean() {
    let all = records(image());
    let mut image = image().to_vec();
    all[1..].iter().for_each(|&record| take_away(&mut image, record));
    let places = sectors(&image, all[0]);
    let mut bytes: Vec<u8> =
        places.iter().flat_map(|&at| image[at..at + SECTOR].to_vec()).collect();
    // Of its operations the first alone, which begins a transaction.
    bytes[40..44].copy_from_slice(&1_u32.to_be_bytes());
    mend_record(&mut bytes);
    for (&at, bytes) in places.iter().zip(bytes.chunks_exact(SECTOR)) {
        image[at..at + SECTOR].copy_from_slice(bytes);
    }
    assert_eq!(opened(image).unwrap().state(), State::Replayed(0));
}

/// No item makes more inodes than a chunk has.
#[test]
fn an_item_of_more_inodes_than_a_chunk_is_damage() {
    let (mut changed, mut found) = (image().to_vec(), 0);
    for record in records(image()) {
        let places = sectors(image(), record);
        let mut bytes: Vec<u8> =
            places.iter().flat_map(|&at| image()[at..at + SECTOR].to_vec()).collect();
        for at in (SECTOR..bytes.len() - 28).step_by(4) {
            let is_whole = at % SECTOR != 0 && at % SECTOR + 28 <= SECTOR;
            let is_item = bytes[at..at + 4] == [0x3F, 0x12, 1, 0] && be32(&bytes, at + 16) == 512;
            if is_whole && is_item {
                bytes[at + 12..at + 16].copy_from_slice(&128_u32.to_be_bytes());
                bytes[at + 20..at + 24].copy_from_slice(&16_u32.to_be_bytes());
                found += 1;
            }
        }
        mend_record(&mut bytes);
        for (&at, bytes) in places.iter().zip(bytes.chunks_exact(SECTOR)) {
            changed[at..at + SECTOR].copy_from_slice(bytes);
        }
    }
    assert!(found > 0, "no inodes are made");
    let error = opened(changed).err().unwrap();
    assert!(error.to_string().contains("new inodes contradict themselves"), "{error}");
}

/// The image with the first buffers that its log cancels made into items of other kinds, all of one
/// number.
fn with_items(image: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut changed = image.to_vec();
    let mut kinds = kinds.iter();
    for record in records(image) {
        let places = sectors(image, record);
        let mut bytes: Vec<u8> =
            places.iter().flat_map(|&at| image[at..at + SECTOR].to_vec()).collect();
        // Behind the head, and not where a sector has the number of its turn.
        for at in (SECTOR..bytes.len() - 24).step_by(4) {
            let is_whole = at % SECTOR != 0 && at % SECTOR + 24 <= SECTOR;
            if is_whole && bytes[at..at + 8] == [0x3C, 0x12, 1, 0, 2, 0, 8, 0] {
                let Some(kind) = kinds.next() else { break };
                bytes[at..at + 2].copy_from_slice(&kind.to_le_bytes());
                bytes[at + 8..at + 16].copy_from_slice(&77_u64.to_le_bytes());
            }
        }
        mend_record(&mut bytes);
        for (&at, bytes) in places.iter().zip(bytes.chunks_exact(SECTOR)) {
            changed[at..at + SECTOR].copy_from_slice(bytes);
        }
    }
    assert_eq!(kinds.next(), None, "too few buffers are cancelled");
    changed
}

#[test]
fn what_the_log_ends_within_is_refused_where_files_would_show_it() {
    let state = opened(image().to_vec()).unwrap().state();
    for (intent, says) in [
        (0x1244, "within a change of extents"),
        (0x1246, "within a change of extended attributes"),
        (0x1248, "within an exchange"),
    ] {
        for kinds in [&[intent][..], &[intent, intent + 1, intent], &[intent, 0x1237]] {
            let error = opened(with_items(image(), kinds)).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.to_string().contains(says), "{error}");
        }
        let ended = opened(with_items(image(), &[intent, intent + 1])).unwrap();
        assert_eq!(ended.state(), state);
    }
    // Frees, the reverse map, counts of sharers, quotas: with or without an end.
    for kind in [0x1236, 0x1240, 0x1242, 0x1243, 0x123D, 0x123E] {
        assert_eq!(opened(with_items(image(), &[kind])).unwrap().state(), state);
    }
    let error = opened(with_items(image(), &[0x124A])).err().unwrap();
    assert!(error.to_string().contains("unknown kind (0x124a)"), "{error}");
}
